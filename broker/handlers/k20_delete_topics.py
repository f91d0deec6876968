"""DeleteTopics (key 20), versions 0 to 6.

- 1 throttle time; 3 TOPIC_DELETION_DISABLED, which was INVALID_REQUEST before; 4 flexible; 5 error messages, and
  THROTTLING_QUOTA_EXCEEDED above controller_mutation_rate (KIP-599); 6 topics by name or by id. A topic
  that is named twice, by name or by id, is not deleted and is in the response once.
- The controller serves it; other brokers respond with NOT_CONTROLLER for each topic.
- The response is sent when the topic is removed from this broker's metadata, or with REQUEST_TIMED_OUT after
  `timeout_ms`. It does not wait for brokers that are down: they delete their replicas after their start, and until then
  the name is in use.
  Files are renamed at once and unlinked on a thread after `log.segment.delete.delay.ms`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gregor.broker.quotas.mutations import change_quota, throttle
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call
    from gregor.protocol.ids import Uuid
    from gregor.protocol.turns import Turns

DISABLED_FROM = 3
QUOTA_ERROR_FROM = 5
IDS_FROM = 6


@handles(ApiKey.DELETE_TOPICS, 0, 6, changes=True)
async def delete_topics(broker: AdminContext, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    if not broker.controller.is_active:
        # Checked before the topics: this broker may not know a topic yet.
        wanted = dict.fromkeys((topic.name, topic.topic_id) for topic in _wanted(request, call.version))
        refused = DeleteTopicsResponse.DeletableTopicResult
        return DeleteTopicsResponse(
            responses=[
                refused(name=name, topic_id=topic_id, error_code=ErrorCode.NOT_CONTROLLER) for name, topic_id in wanted
            ]
        )
    turns = broker.gate.turns()
    answers = await _resolved(broker, _wanted(request, call.version), turns)
    deleted = []
    names = []
    for answer in answers:
        await turns.next()
        if not answer.error_code:
            deleted.append(answer)
            names.append(answer.name or "")
    quota = change_quota(broker.quotas, call, QUOTA_ERROR_FROM)
    try:
        results = await broker.admin.delete_topics(
            names, request.timeout_ms, count=None if quota is None else quota.record
        )
    except KafkaError as error:
        results = [error for _ in names]
    for answer, result in zip(deleted, results, strict=True):
        await turns.next()
        if result is not None:
            _refuse(answer, result)
            if result.code == ErrorCode.TOPIC_DELETION_DISABLED and call.version < DISABLED_FROM:
                answer.error_code = ErrorCode.INVALID_REQUEST
    response = DeleteTopicsResponse(responses=answers)
    throttle(quota, response, call)
    return response


def _wanted(request: DeleteTopicsRequest, version: int) -> Iterator[DeleteTopicsRequest.DeleteTopicState]:
    if version >= IDS_FROM:
        return iter(request.topics)
    return (DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names)


async def _resolved(
    broker: AdminContext, wanted: Iterator[DeleteTopicsRequest.DeleteTopicState], turns: Turns
) -> list[DeleteTopicsResponse.DeletableTopicResult]:
    """Make an answer for each topic, with an error if it cannot be deleted."""
    answers: list[DeleteTopicsResponse.DeletableTopicResult] = []
    by_name: dict[str, DeleteTopicsResponse.DeletableTopicResult] = {}
    times: Counter[tuple[str | None, Uuid]] = Counter()
    last: dict[tuple[str | None, Uuid], DeleteTopicsRequest.DeleteTopicState] = {}
    for topic in wanted:
        await turns.next()
        times[topic.name, topic.topic_id] += 1
        last[topic.name, topic.topic_id] = topic
    for topic in last.values():
        await turns.next()
        answer = DeleteTopicsResponse.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            _resolve(broker, topic, answer)
        except KafkaError as error:
            _refuse(answer, error)
        other = answer if answer.name is None else by_name.setdefault(answer.name, answer)
        if other is answer:
            answers.append(answer)
        if other is not answer or times[topic.name, topic.topic_id] > 1:
            _refuse(other, KafkaError(ErrorCode.INVALID_REQUEST, "named twice"))
    return answers


def _resolve(
    broker: AdminContext,
    topic: DeleteTopicsRequest.DeleteTopicState,
    answer: DeleteTopicsResponse.DeletableTopicResult,
) -> None:
    """Set the name or the id, whichever the request lacks. Raises KafkaError."""
    if topic.topic_id != ZERO_UUID:
        if topic.name is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
        answer.name = broker.metadata.topic_name(topic.topic_id)
        if answer.name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return
    if topic.name is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
    state = broker.metadata.topic(topic.name)
    if state is not None:
        answer.topic_id = state.topic_id


def _refuse(answer: DeleteTopicsResponse.DeletableTopicResult, error: KafkaError) -> None:
    answer.error_code, answer.error_message = error.code, error.message or None
