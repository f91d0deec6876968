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

from gregor.broker.quotas.mutations import change_quota, throttled_by
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
    for position, answer in enumerate(answers):
        await turns.next()
        if not answer.error_code:
            deleted.append(position)
            names.append(answer.name or "")
    quota = change_quota(broker.quotas, call, QUOTA_ERROR_FROM)
    try:
        results = await broker.admin.delete_topics(
            names, request.timeout_ms, count=None if quota is None else quota.record
        )
    except KafkaError as error:
        results = [error for _ in names]
    for position, result in zip(deleted, results, strict=True):
        await turns.next()
        if result is not None:
            if result.code == ErrorCode.TOPIC_DELETION_DISABLED and call.version < DISABLED_FROM:
                result = KafkaError(ErrorCode.INVALID_REQUEST, result.message)
            answers[position] = _refused(answers[position], result)
    return throttled_by(quota, DeleteTopicsResponse(responses=answers), call)


def _wanted(request: DeleteTopicsRequest, version: int) -> Iterator[DeleteTopicsRequest.DeleteTopicState]:
    if version >= IDS_FROM:
        return iter(request.topics)
    return (DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names)


async def _resolved(
    broker: AdminContext, wanted: Iterator[DeleteTopicsRequest.DeleteTopicState], turns: Turns
) -> list[DeleteTopicsResponse.DeletableTopicResult]:
    """Make an answer for each topic, with an error if it cannot be deleted."""
    answers: list[DeleteTopicsResponse.DeletableTopicResult] = []
    by_name: dict[str, int] = {}
    times: Counter[tuple[str | None, Uuid]] = Counter()
    last: dict[tuple[str | None, Uuid], DeleteTopicsRequest.DeleteTopicState] = {}
    for topic in wanted:
        await turns.next()
        times[topic.name, topic.topic_id] += 1
        last[topic.name, topic.topic_id] = topic
    for topic in last.values():
        await turns.next()
        answer = _resolve(broker, topic)
        end = len(answers)
        position = end if answer.name is None else by_name.setdefault(answer.name, end)
        if position == end:
            answers.append(answer)
        if position != end or times[topic.name, topic.topic_id] > 1:
            twice = KafkaError(ErrorCode.INVALID_REQUEST, "named twice")
            answers[position] = _refused(answers[position], twice)
    return answers


def _resolve(
    broker: AdminContext, topic: DeleteTopicsRequest.DeleteTopicState
) -> DeleteTopicsResponse.DeletableTopicResult:
    """Return the answer with name and id, of which the request lacks one, or with the error."""
    name, topic_id, error = topic.name, topic.topic_id, None
    if topic_id != ZERO_UUID:
        if name is not None:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
        else:
            name = broker.metadata.topic_name(topic_id)
            if name is None:
                error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    elif name is None:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
    else:
        state = broker.metadata.topic(name)
        if state is not None:
            topic_id = state.topic_id
    answer = DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id)
    return answer if error is None else _refused(answer, error)


def _refused(
    answer: DeleteTopicsResponse.DeletableTopicResult, error: KafkaError
) -> DeleteTopicsResponse.DeletableTopicResult:
    return answer.replaced(error_code=error.code, error_message=error.message or None)
