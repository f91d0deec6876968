"""DeleteTopics, every version: by name, by id, twice, unknown, forbidden. After Kafka's ControllerApis."""

from __future__ import annotations

import os
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from tests.broker.harness import Harness

VERSIONS = range(0, 7)
ABSENT_ID = b"\x09" * 16


def delete(harness: Harness, version: int, *topics: Any, timeout_ms: int = 5000) -> list[tuple[Any, bytes, ErrorCode]]:
    """`topics` are names, ids or pairs of them. Answers: (name, id, error)."""
    request = DeleteTopicsRequest(timeout_ms=timeout_ms)
    if version < 6:
        request.topic_names = list(topics)
    for topic in topics if version >= 6 else ():
        name, topic_id = (
            topic if isinstance(topic, tuple) else (None, topic) if isinstance(topic, bytes) else (topic, None)
        )
        request.topics.append(DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id or bytes(16)))
    response: DeleteTopicsResponse = harness.ask(request, version)
    for answer in response.responses:
        assert (answer.error_message is not None) == (version >= 5 and answer.error_code != 0)
    return [(answer.name, answer.topic_id, ErrorCode(answer.error_code)) for answer in response.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_gone_when_answered(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic, partitions=2)
    harness.produce(topic, b"x")
    told = topic_id if version >= 6 else bytes(16)
    assert delete(harness, version, topic, "absent") == [
        (topic, told, ErrorCode.NONE),
        ("absent", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    broker = harness.broker
    assert broker.metadata.topic(topic) is None
    assert broker.metadata.topic_name(topic_id) is None
    assert broker.logs.get(topic, 0) is broker.logs.get(topic, 1) is None
    names = os.listdir(harness.folder)
    assert f"{topic}-0" not in names
    assert sum(name.startswith(f"{topic}-") and name.endswith("-delete") for name in names) == 2
    # The name is free again, and the new topic another one.
    assert harness.create_topic(topic) != topic_id
    assert harness.records(topic) == []


def test_by_id(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic)
    assert delete(harness, 6, topic_id, ABSENT_ID) == [
        (topic, topic_id, ErrorCode.NONE),
        (None, ABSENT_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert harness.broker.metadata.topic(topic) is None


def test_name_and_id_or_neither(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic)
    assert delete(harness, 6, (topic, topic_id), (None, None)) == [
        (topic, topic_id, ErrorCode.INVALID_REQUEST),
        (None, bytes(16), ErrorCode.INVALID_REQUEST),
    ]
    assert harness.broker.metadata.topic(topic) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_named_twice_stays(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    several = [(topic, topic), ("absent", "absent"), (topic, topic, topic)]
    if version >= 6:
        several += [(topic, topic_id), (topic_id, topic_id), (topic_id, topic, topic_id), (ABSENT_ID, ABSENT_ID)]
    for named in several:
        assert [error for _, _, error in delete(harness, version, *named)] == [ErrorCode.INVALID_REQUEST]
    assert harness.broker.metadata.topic(topic) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_where_deletion_is_forbidden(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    with harness.settings(delete_topic_enable="false"):
        ((_, _, error),) = delete(harness, version, topic)
    assert error is (ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST)
    assert harness.broker.metadata.topic(topic) is not None


def test_who_does_not_wait_is_told_so_and_the_topic_goes(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    ((_, _, error),) = delete(harness, 6, topic, timeout_ms=0)
    assert error is ErrorCode.REQUEST_TIMED_OUT
    harness.until(lambda: harness.broker.metadata.topic(topic) is None)


def test_names_that_no_topic_can_have(harness: Harness) -> None:
    assert {error for _, _, error in delete(harness, 6, "", "..", "a/b")} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
