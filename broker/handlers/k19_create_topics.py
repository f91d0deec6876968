"""CreateTopics (key 19), versions 0 to 7.

- 1 error messages, validation alone; 2 throttle time; 4 -1 for partitions or replication factor means the broker's
  default (KIP-464); 5 flexible, the response has the numbers and settings of the new topic (KIP-525); 7 topic ids.
- The controller serves it; other brokers respond with NOT_CONTROLLER for each topic.
- The response is sent when every partition has a leader that this broker knows, or with REQUEST_TIMED_OUT after
  `timeout_ms`.
- 6 THROTTLING_QUOTA_EXCEEDED above controller_mutation_rate (KIP-599); older versions are throttled.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gregor.broker.quotas.mutations import change_quota, throttled_by
from gregor.broker.registry import handles
from gregor.config.describe import describe_topic
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from gregor.replication.admin.topics import CreatedTopic, NewTopic

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call

DETAILS_FROM = 5
QUOTA_ERROR_FROM = 6
NOT_CONTROLLER = KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")


@handles(ApiKey.CREATE_TOPICS, 0, 7, changes=True)
async def create_topics(broker: AdminContext, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    turns = broker.gate.turns()
    if not broker.controller.is_active:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreateTopicsResponse(topics=[_refused(name, NOT_CONTROLLER) for name in names])
    named: Counter[str] = Counter()
    for topic in request.topics:
        await turns.next()
        named[topic.name] += 1
    answers = [
        _refused(name, KafkaError(ErrorCode.INVALID_REQUEST, "named twice"))
        for name, times in named.items()
        if times > 1
    ]
    wanted = []
    new = []
    for topic in request.topics:
        await turns.next()
        if len({one.partition_index for one in topic.assignments}) < len(topic.assignments):
            twice = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
            answers.append(_refused(topic.name, twice))
        elif named[topic.name] == 1:
            wanted.append(topic)
            new.append(_new_topic(topic))
    quota = change_quota(broker.quotas, call, QUOTA_ERROR_FROM)
    try:
        results = await broker.admin.create_topics(
            new, request.timeout_ms, validate_only=request.validate_only, count=None if quota is None else quota.record
        )
    except KafkaError as error:
        results = [error for _ in wanted]
    described: dict[tuple[tuple[str, str], ...], list[CreateTopicsResponse.CreatableTopicConfigs]] = {}
    for topic, result in zip(wanted, results, strict=True):
        await turns.next()
        if isinstance(result, KafkaError):
            answers.append(_refused(topic.name, result))
            continue
        answer = CreateTopicsResponse.CreatableTopicResult(
            name=result.name, topic_id=result.topic_id, error_message=None
        )
        answers.append(answer)
        if call.version >= DETAILS_FROM:
            answer.num_partitions = result.partitions
            answer.replication_factor = result.replication_factor
            # Topics of one request mostly have equal settings, and to describe settings costs a millisecond.
            own = tuple(sorted(result.configs.items()))
            if own not in described:
                described[own] = _settings(broker, result)
                await turns.next()
            answer.configs = described[own]
    return throttled_by(quota, CreateTopicsResponse(topics=answers), call)


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {one.partition_index: one.broker_ids for one in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def _refused(name: str, error: KafkaError) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or None
    )


def _settings(broker: AdminContext, topic: CreatedTopic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source_id,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(topic.configs, broker.config)
    ]
