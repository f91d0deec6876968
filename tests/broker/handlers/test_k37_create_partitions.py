"""CreatePartitions, every version. After Kafka's ControllerApis and ReplicationControlManager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from tests.broker.harness import Harness

VERSIONS = range(4)


def widen(
    harness: Harness, version: int, *topics: tuple[str, int, Sequence[Sequence[int]] | None], **fields: Any
) -> dict[str, ErrorCode]:
    make = CreatePartitionsRequest.CreatePartitionsAssignment
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequest.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None if assignments is None else [make(broker_ids=list(ids)) for ids in assignments],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=fields.pop("timeout_ms", 5000),
        **fields,
    )
    response: CreatePartitionsResponse = harness.ask(request, version)
    for result in response.results:
        assert (result.error_message is None) == (result.error_code == 0)
    return {result.name: ErrorCode(result.error_code) for result in response.results}


@pytest.mark.parametrize("version", VERSIONS)
def test_new_partitions_are_ready_when_answered(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    harness.produce(topic, b"old")
    assert widen(harness, version, (topic, 3, None)) == {topic: ErrorCode.NONE}
    for partition in (0, 1, 2):
        harness.produce(topic, b"new", partition=partition)
    assert [record.value for record in harness.records(topic)] == [b"old", b"new"]
    state = harness.broker.metadata.topic(topic)
    assert state is not None and (state.topic_id, len(state.partitions)) == (topic_id, 3)
    assert widen(harness, version, (topic, 5, [[0], [0]])) == {topic: ErrorCode.NONE}
    assert harness.broker.metadata.partition_count(topic) == 5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0, 0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_done(harness: Harness, version: int, count: int, assignments: Any, expected: ErrorCode) -> None:
    if harness.broker.metadata.topic("two") is None:
        harness.create_topic("two", partitions=2)
    assert widen(harness, version, ("two", count, assignments)) == {"two": expected}
    assert harness.broker.metadata.partition_count("two") == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_of_one_request_stand_for_themselves(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    harness.create_topic(f"{topic}-twice")
    twice = (f"{topic}-twice", 2, None)
    assert widen(harness, version, twice, (topic, 2, None), ("absent", 2, None), twice) == {
        f"{topic}-twice": ErrorCode.INVALID_REQUEST,
        topic: ErrorCode.NONE,
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert harness.broker.metadata.partition_count(f"{topic}-twice") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_validation_alone_changes_nothing(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    assert widen(harness, version, (topic, 2, None), validate_only=True) == {topic: ErrorCode.NONE}
    assert widen(harness, version, (topic, 1, None), validate_only=True) == {topic: ErrorCode.INVALID_PARTITIONS}
    assert harness.broker.metadata.partition_count(topic) == 1


def test_who_does_not_wait_is_told_so(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    assert widen(harness, 3, (topic, 2, None), timeout_ms=0) == {topic: ErrorCode.REQUEST_TIMED_OUT}
    harness.until(lambda: harness.broker.metadata.partition_count(topic) == 2)
