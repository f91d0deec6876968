"""OffsetCommit and OffsetFetch in every version: by name and by id, one group and many, good and bad."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.coordinator.group.records import decode_record
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from tests.broker.harness import Harness

COMMIT_VERSIONS = range(1, 11)
FETCH_VERSIONS = range(1, 11)
NO_ID = bytes(16)
ABSENT_ID = b"\x08" * 16

Key = tuple[str | bytes, int]


@pytest.fixture(scope="module", autouse=True)
def coordinators(harness: Harness) -> None:
    """The offsets topic is there and its partitions are loaded."""
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)


def commit(
    harness: Harness, version: int, group: str, offsets: dict[Key, int], *, metadata: str | None = None, **fields: Any
) -> dict[Key, ErrorCode]:
    """Topics are named by name or, from version 10 on, by id; so are the answers."""
    topics: dict[str | bytes, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        named: dict[str, Any] = {"topic_id": name} if isinstance(name, bytes) else {"name": name}
        topic = topics.setdefault(name, OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[], **named))
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        if version >= 6:
            part.committed_leader_epoch = 3
        topic.partitions.append(part)
    response = harness.ask(OffsetCommitRequest(group_id=group, topics=list(topics.values()), **fields), version)
    for answered in response.topics:
        assert (answered.name == "", answered.topic_id == NO_ID) == (version >= 10, version < 10)
    return {
        (answered.name or answered.topic_id, part.partition_index): ErrorCode(part.error_code)
        for answered in response.topics
        for part in answered.partitions
    }


def fetch_groups(
    harness: Harness, version: int, wanted: dict[str, list[Key] | None]
) -> dict[str, tuple[ErrorCode, dict[Key, Any]]]:
    """For each group its error and, by topic and partition, (offset, leader epoch, metadata, error)."""
    if version >= 8:
        request = OffsetFetchRequest(groups=[_group(name, keys, version) for name, keys in wanted.items()])
        response: OffsetFetchResponse = harness.ask(request, version)
        return {
            group.group_id: (ErrorCode(group.error_code), _offsets(group.topics, version)) for group in response.groups
        }
    ((name, keys),) = wanted.items()
    topics = None
    if keys is not None:
        make = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [make(name=str(topic), partition_indexes=[index]) for topic, index in keys]
    response = harness.ask(OffsetFetchRequest(group_id=name, topics=topics), version)
    return {name: (ErrorCode(response.error_code), _offsets(response.topics, version))}


def _group(name: str, keys: list[Key] | None, version: int) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    topics = None
    if keys is not None:
        make = OffsetFetchRequest.OffsetFetchRequestTopics
        topics = [
            make(topic_id=topic, partition_indexes=[index])
            if isinstance(topic, bytes)
            else make(name=topic, partition_indexes=[index])
            for topic, index in keys
        ]
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=topics)


def _offsets(topics: list[Any], version: int) -> dict[Key, Any]:
    return {
        ((topic.topic_id if version >= 10 else topic.name), part.partition_index): (
            part.committed_offset,
            part.committed_leader_epoch,
            part.metadata,
            ErrorCode(part.error_code),
        )
        for topic in topics
        for part in topic.partitions
    }


def fetch(harness: Harness, version: int, group: str, *keys: Key) -> dict[Key, Any]:
    ((error, found),) = fetch_groups(harness, version, {group: list(keys)}).values()
    assert error is ErrorCode.NONE
    return found


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_what_is_committed_can_be_fetched(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic, partitions=3)
    name: str | bytes = topic_id if version >= 10 else topic
    assert commit(harness, version, topic, {(name, 0): 5, (name, 2): 7}, metadata="m") == {
        (name, 0): ErrorCode.NONE,
        (name, 2): ErrorCode.NONE,
    }
    epoch = 3 if version >= 6 else -1
    for fetch_version in FETCH_VERSIONS:
        asked: str | bytes = topic_id if fetch_version >= 10 else topic
        told = epoch if fetch_version >= 5 else -1
        assert fetch(harness, fetch_version, topic, (asked, 0), (asked, 1), (asked, 2)) == {
            (asked, 0): (5, told, "m", ErrorCode.NONE),
            (asked, 1): (-1, -1, "", ErrorCode.NONE),
            (asked, 2): (7, told, "m", ErrorCode.NONE),
        }


@pytest.mark.parametrize("version", range(2, 11))
def test_null_asks_for_all_topics(harness: Harness, topic: str, version: int) -> None:
    ids = {name: harness.create_topic(name) for name in (f"{topic}-a", f"{topic}-b")}
    commit(harness, 9, topic, {(name, 0): 4 for name in ids})
    ((error, found),) = fetch_groups(harness, version, {topic: None}).values()
    keys = {(ids[name] if version >= 10 else name, 0) for name in ids}
    assert (error, set(found)) == (ErrorCode.NONE, keys)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_many_groups(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name: str | bytes = topic_id if version >= 10 else topic
    groups = [f"{topic}-{number}" for number in range(5)]
    for number, group in enumerate(groups):
        commit(harness, 9, group, {(topic, 0): number})
    asked: dict[str, list[Key] | None] = {
        group: [(name, 0)] if number % 2 else None for number, group in enumerate(groups)
    }
    found = fetch_groups(harness, version, asked)
    assert found == {
        group: (ErrorCode.NONE, {(name, 0): (number, 3, "", ErrorCode.NONE)}) for number, group in enumerate(groups)
    }


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_group_without_offsets(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name: str | bytes = topic_id if version >= 10 else topic
    assert fetch(harness, version, "never committed", (name, 0)) == {(name, 0): (-1, -1, "", ErrorCode.NONE)}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_unknown_topics_and_partitions_are_refused_one_by_one(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    known, absent = (topic_id, ABSENT_ID) if version >= 10 else (topic, "absent")
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = {(known, 0): 1, (known, 9): 1, (known, -1): 1, (absent, 0): 1}
    assert commit(harness, version, topic, wanted) == {
        (known, 0): ErrorCode.NONE,
        (known, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (known, -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (absent, 0): unknown,
    }
    assert commit(harness, version, topic, {(absent, 0): 1}) == {(absent, 0): unknown}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_each_topic_of_a_commit_is_answered_once(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    part = OffsetCommitRequest.OffsetCommitRequestPartition
    wanted = OffsetCommitRequest.OffsetCommitRequestTopic(
        partitions=[part(partition_index=index, committed_offset=1) for index in (7, 0, 8)]
    )
    if version >= 10:
        wanted.topic_id = topic_id
    else:
        wanted.name = topic
    (answered,) = harness.ask(OffsetCommitRequest(group_id=topic, topics=[wanted]), version).topics
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = [(part.partition_index, part.error_code) for part in answered.partitions]
    assert found == [(0, ErrorCode.NONE), (7, absent), (8, absent)]


def test_a_group_that_is_named_twice_is_answered_for_each(harness: Harness, topic: str) -> None:
    ids = [ABSENT_ID, b"\x09" * 16]
    request = OffsetFetchRequest(groups=[_group(topic, [(name, 0)], 10) for name in ids])
    found = harness.ask(request, 10).groups
    assert [[named.topic_id for named in group.topics] for group in found] == [[ids[0]], [ids[1]]]


def test_unknown_ids_are_told_partition_by_partition(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic)
    commit(harness, 10, topic, {(topic_id, 0): 1})
    found = fetch(harness, 10, topic, (ABSENT_ID, 0), (topic_id, 0), (ABSENT_ID, 4))
    assert {key: value[3] for key, value in found.items()} == {
        (ABSENT_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (ABSENT_ID, 4): ErrorCode.UNKNOWN_TOPIC_ID,
        (topic_id, 0): ErrorCode.NONE,
    }


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_metadata_has_a_limit(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name: str | bytes = topic_id if version >= 10 else topic
    long = "x" * (harness.config["offset.metadata.max.bytes"] + 1)
    assert commit(harness, version, topic, {(name, 0): 1}, metadata=long) == {
        (name, 0): ErrorCode.OFFSET_METADATA_TOO_LARGE
    }


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_members_that_nobody_knows(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name: str | bytes = topic_id if version >= 10 else topic
    error = commit(harness, version, topic, {(name, 0): 1}, generation_id_or_member_epoch=4, member_id="nobody")[
        name, 0
    ]
    assert error is (ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_offsets_go_with_their_topic(harness: Harness, topic: str, version: int) -> None:
    names = f"{topic}-stays", f"{topic}-goes"
    ids = [harness.create_topic(name) for name in names]
    commit(harness, 9, topic, {(name, 0): 4 for name in names})
    harness.ask(DeleteTopicsRequest(topic_names=[names[1]], timeout_ms=30_000), 5)
    harness.turn()
    if version >= 2:
        ((error, found),) = fetch_groups(harness, version, {topic: None}).values()
        assert (error, list(found)) == (ErrorCode.NONE, [(ids[0] if version >= 10 else names[0], 0)])
    again = harness.create_topic(names[1])
    name: str | bytes = again if version >= 10 else names[1]
    assert fetch(harness, version, topic, (name, 0))[name, 0][0] == -1


async def load_again(harness: Harness, partition: int) -> None:
    load = harness.broker.groups.on_elected(partition, 1)
    assert load is not None
    await load


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_broker_that_does_not_coordinate_the_group(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    key: Key = (topic_id if version >= 10 else topic, 0)
    partition = harness.broker.groups.partition_for(topic)
    harness.broker.groups.on_resigned(partition)
    try:
        wanted: list[Key] = [key, (ABSENT_ID, 0)] if version >= 10 else [key]
        assert fetch_groups(harness, version, {topic: wanted}) == {topic: (ErrorCode.NOT_COORDINATOR, {})}
        assert commit(harness, version, topic, {key: 1}) == {key: ErrorCode.NOT_COORDINATOR}
    finally:
        harness.run(load_again(harness, partition))


# -- version 0: nodes ------------------------------------------------------------------------------------------------


def node(harness: Harness, path: str) -> bytes | None:
    found = harness.run(harness.node.store.get(path))
    return None if found is None else found[0]


def test_version_0_keeps_offsets_in_nodes_of_their_own(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    assert commit(harness, 0, "old", {(topic, 0): 7, (topic, 1): 2**40}, metadata="gone") == {
        (topic, 0): ErrorCode.NONE,
        (topic, 1): ErrorCode.NONE,
    }
    assert node(harness, f"/consumers/old/offsets/{topic}/1") == b"1099511627776"
    assert commit(harness, 0, "old", {(topic, 0): 8}) == {(topic, 0): ErrorCode.NONE}
    found = fetch_groups(harness, 0, {"old": [(topic, 0), (topic, 1)]})["old"][1]
    assert found == {(topic, 0): (8, -1, "", ErrorCode.NONE), (topic, 1): (2**40, -1, "", ErrorCode.NONE)}
    # The coordinator knows nothing of them, nor they of it.
    assert fetch_groups(harness, 1, {"old": [(topic, 0)]})["old"][1][topic, 0][0] == -1
    commit(harness, 2, "old", {(topic, 0): 99})
    assert fetch_groups(harness, 0, {"old": [(topic, 0)]})["old"][1][topic, 0][0] == 8


def test_what_version_0_refuses(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    missing = (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert fetch_groups(harness, 0, {"none": [(topic, 0)]})["none"][1] == {(topic, 0): missing}
    assert fetch_groups(harness, 0, {"none": [(topic, 5)]})["none"][1] == {(topic, 5): missing}
    assert commit(harness, 0, "none", {(topic, 5): 1}) == {(topic, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for group in ("", "a/b", ".."):
        assert commit(harness, 0, group, {(topic, 0): 1}) == {(topic, 0): ErrorCode.INVALID_GROUP_ID}
        found = fetch_groups(harness, 0, {group: [(topic, 0)]})[group][1]
        assert found[topic, 0][3] == ErrorCode.INVALID_GROUP_ID
    long = "x" * 4097
    assert commit(harness, 0, "none", {(topic, 0): 1}, metadata=long) == {
        (topic, 0): ErrorCode.OFFSET_METADATA_TOO_LARGE
    }
    assert node(harness, f"/consumers/none/offsets/{topic}/0") is None


def test_version_1_may_name_the_time_of_a_commit(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    make = OffsetCommitRequest.OffsetCommitRequestPartition
    for stamp in (-1, 1_234_567):
        part = make(partition_index=0, committed_offset=1, commit_timestamp=stamp, committed_metadata=None)
        named = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])
        before_ms = harness.broker.now_ms()
        response = harness.ask(OffsetCommitRequest(group_id="v1", topics=[named]), 1)
        assert response.topics[0].partitions[0].error_code == 0
        stored = harness.records(GROUP_METADATA_TOPIC, partition=harness.broker.groups.partition_for("v1"))[-1]
        decoded = decode_record(stored.key, stored.value)
        assert decoded is not None and isinstance(decoded.value, OffsetCommitValue)
        kept_ms = decoded.value.commit_timestamp
        assert kept_ms == stamp if stamp > 0 else before_ms <= kept_ms <= before_ms + 10_000
