"""DeleteTopics (key 20), versions 1 to 6.

- 4 flexible; 5 error messages; 6 topics by name or by id.
- Answered when the topic is gone from this broker's metadata, or with REQUEST_TIMED_OUT after `timeout_ms`. Its files
  are renamed at once and unlinked on a thread after `log.segment.delete.delay.ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.registry import handles
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import ZERO_UUID
from protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from broker.context import Broker, Call

IDS_FROM = 6


@handles(ApiKey.DELETE_TOPICS, 1, 6)
async def delete_topics(broker: Broker, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    answers: list[DeleteTopicsResponse.DeletableTopicResult] = []
    doomed: list[DeleteTopicsResponse.DeletableTopicResult] = []
    for topic in _wanted(request, call.version):
        answer = DeleteTopicsResponse.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        answers.append(answer)
        error = _resolve(broker, topic, answer)
        if error is None:
            doomed.append(answer)
        else:
            answer.error_code, answer.error_message = error, "no topic has this id, or not both name and id are given"
    names = [answer.name or "" for answer in doomed]
    try:
        results = await broker.admin.delete_topics(names, request.timeout_ms)
    except KafkaError as error:
        results = [error for _ in names]
    for answer, result in zip(doomed, results, strict=True):
        if result is not None:
            answer.error_code, answer.error_message = result.code, result.message or None
    return DeleteTopicsResponse(responses=answers)


def _wanted(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicsRequest.DeleteTopicState]:
    if version >= IDS_FROM:
        return request.topics
    return [DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names]


def _resolve(
    broker: Broker,
    topic: DeleteTopicsRequest.DeleteTopicState,
    answer: DeleteTopicsResponse.DeletableTopicResult,
) -> ErrorCode | None:
    """Fill in the one of name and id that was not given. Returns the error, if any."""
    if topic.topic_id != ZERO_UUID:
        if topic.name is not None:
            return ErrorCode.INVALID_REQUEST
        answer.name = broker.metadata.topic_name(topic.topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if answer.name is None else None
    if topic.name is None:
        return ErrorCode.INVALID_REQUEST
    state = broker.metadata.topic(topic.name)
    if state is not None:
        answer.topic_id = state.topic_id
    return None
