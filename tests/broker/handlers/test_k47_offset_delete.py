"""OffsetDelete: which offsets may be deleted, and that a restart keeps them deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.broker.harness import Harness, running


@pytest.fixture(autouse=True)
def coordinators(harness: Harness) -> None:
    ready(harness)


def ready(harness: Harness) -> None:
    """The offsets topic is there and its partitions are loaded."""
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)


def commit(harness: Harness, group: str, *places: tuple[str, int]) -> None:
    parts = OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name, partitions=[parts(partition_index=index, committed_offset=7)]
        )
        for name, index in places
    ]
    answer = harness.ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
    assert all(part.error_code == 0 for topic in answer.topics for part in topic.partitions)


def committed(harness: Harness, group: str) -> set[tuple[str, int]]:
    answer = harness.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
    return {(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions}


def delete(
    harness: Harness, group: str, *places: tuple[str, int]
) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
    by_topic: dict[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]] = {}
    for name, index in places:
        part = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
        by_topic.setdefault(name, []).append(part)
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()
    ]
    response: OffsetDeleteResponse = harness.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    assert len({topic.name for topic in response.topics}) == len(response.topics)
    found = {
        (topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in response.topics
        for part in topic.partitions
    }
    return ErrorCode(response.error_code), found


def join(harness: Harness, group: str, protocol_type: str, metadata: bytes) -> None:
    """Join the group with one member, which gets its assignment."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type=protocol_type,
        protocols=[protocol],
    )  # fmt: skip
    joined = harness.ask(request, 3)
    assert joined.error_code == 0
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
    request_sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    assert harness.ask(request_sync, 2).error_code == 0


def subscription(*topics: str) -> bytes:
    names = b"".join(len(name).to_bytes(2) + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff"


def test_offsets_of_a_group_without_members(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=3)
    commit(harness, topic, (topic, 0), (topic, 1))
    error, found = delete(harness, topic, (topic, 0), (topic, 2), (topic, 3), ("absent", 0))
    assert error == ErrorCode.NONE
    assert found == {
        (topic, 0): ErrorCode.NONE,
        (topic, 2): ErrorCode.NONE,
        (topic, 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert committed(harness, topic) == {(topic, 1)}


def test_a_simple_group_outlives_its_last_offset(harness: Harness, topic: str) -> None:
    """An empty group stays until the next search for expired offsets, minutes later, or until a client deletes it."""
    harness.create_topic(topic)
    commit(harness, topic, (topic, 0))
    assert delete(harness, topic, (topic, 0), (topic, 0)) == (ErrorCode.NONE, {(topic, 0): ErrorCode.NONE})
    assert topic in {group.group_id for group in harness.ask(ListGroupsRequest(), 0).groups}
    assert delete(harness, topic, (topic, 0)) == (ErrorCode.NONE, {(topic, 0): ErrorCode.NONE})
    for error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        (deleted,) = harness.ask(DeleteGroupsRequest(groups_names=[topic]), 1).results
        assert deleted.error_code == error


def test_what_members_subscribe_to_stays(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.create_topic("other." + topic)
    commit(harness, topic, (topic, 0), ("other." + topic, 0))
    join(harness, topic, "consumer", subscription(topic))
    error, found = delete(harness, topic, (topic, 0), ("other." + topic, 0))
    assert (error, found[topic, 0]) == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert found["other." + topic, 0] == ErrorCode.NONE
    assert committed(harness, topic) == {(topic, 0)}


def test_members_that_do_not_tell_keep_everything(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    commit(harness, topic, (topic, 0))
    join(harness, topic, "consumer", b"?")
    assert delete(harness, topic, (topic, 0))[1] == {(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    commit(harness, topic + ".connect", (topic, 0))
    join(harness, topic + ".connect", "connect", b"")
    assert delete(harness, topic + ".connect", (topic, 0)) == (ErrorCode.NON_EMPTY_GROUP, {})


def test_names_that_are_no_groups(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    assert delete(harness, "", (topic, 0))[0] == ErrorCode.INVALID_GROUP_ID
    assert delete(harness, "absent." + topic, ("absent", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


@pytest.mark.slow
def test_a_crash_brings_nothing_back(tmp_path: Path) -> None:
    with running(tmp_path / "one") as harness:
        ready(harness)
        harness.create_topic("t", partitions=2)
        commit(harness, "g", ("t", 0), ("t", 1))
        delete(harness, "g", ("t", 0))
        left = harness.copy(tmp_path / "two")
    with running(left) as harness:
        ready(harness)
        assert committed(harness, "g") == {("t", 1)}
