"""Committing, fetching and forgetting offsets."""

import struct
from typing import Any

import pytest

from gregor.coordinator.group.records import encode_record
from gregor.coordinator.group.states import GroupState
from gregor.coordinator.result import Record
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from gregor.protocol.records.batch import build_batch
from tests.coordinator.context import Context
from tests.coordinator.machinery import START_MS

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
TOPIC_ID = bytes(range(16))


def fetch(context: Context, version: int, *, group: str = "g", topics: Any = (), stable: bool = False) -> Any:
    """Fetch in the form of the version; `topics` maps names to partitions, None fetches all."""
    if version < 8:
        of_one = OffsetFetchRequest.OffsetFetchRequestTopic
        wanted = None if topics is None else [of_one(name=n, partition_indexes=p) for n, p in dict(topics).items()]
        request = OffsetFetchRequest(group_id=group, topics=wanted, require_stable=stable)
    else:
        of_many = OffsetFetchRequest.OffsetFetchRequestTopics
        listed = None if topics is None else [of_many(name=n, partition_indexes=p) for n, p in dict(topics).items()]
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=listed)
        request = OffsetFetchRequest(groups=[of_group], require_stable=stable)
    response = context.run(context.coordinator.offset_fetch(request, version))
    assert response.encode(version)
    return response


def offsets_in(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def transactional(context: Context, offset: int, producer_id: int = 7, topic: str = "t") -> None:
    """A transactional commit in the log, as Apache Kafka writes one."""
    key = OffsetCommitKey(group="g", topic=topic, partition=0)
    encoded = encode_record(Record(key, OffsetCommitValue(offset=offset, commit_timestamp=START_MS)))
    add(context, [encoded], producer_id=producer_id, transactional=True)


def marker(context: Context, *, commit: bool, producer_id: int = 7) -> None:
    key = struct.pack(">hh", 0, int(commit))
    add(context, [(key, bytes(6))], producer_id=producer_id, transactional=True, control=True)


def add(context: Context, records: list[tuple[bytes, bytes | None]], **header: Any) -> None:
    header = {"producer_epoch": 0, "base_sequence": 0, **header}
    end = context.log.end.get(0, 0)
    context.log.add_batch(0, bytes(build_batch(records, base_offset=end, timestamp_ms=START_MS, **header)))
    context.log.commit()


# --- commit


def test_what_was_committed_is_fetched() -> None:
    with Context() as context:
        assert context.commit_error(offset=41) is ErrorCode.NONE
        assert context.commit_error(offset=42, metadata=None) is ErrorCode.NONE
        assert context.fetch_offset() == 42
        assert context.state() is GroupState.EMPTY
        committed = context.shard.groups["g"].offsets["t"][0]
        assert committed[:5] == (42, 3, "", context.now_ms(), -1)
        assert context.hard_state() == context.replayed_state()
        context.restart()
        assert context.fetch_offset() == 42


def test_members_commit_under_their_generation() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        assert context.commit_error(member_id=member_id, generation=1) is ErrorCode.NONE
        assert context.commit_error(member_id=member_id, generation=0) is ErrorCode.ILLEGAL_GENERATION
        assert context.commit_error(member_id=member_id, generation=-1) is ErrorCode.ILLEGAL_GENERATION
        assert context.commit_error(member_id="who?", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.commit_error() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_prepares_without_members_knows_nobody() -> None:
    with Context() as context:
        member_id, _ = context.new_member()
        context.leave(member_id)
        assert context.state() is GroupState.PREPARING_REBALANCE
        assert context.commit_error(member_id=member_id, generation=0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_the_session_alive() -> None:
    with Context() as context:
        (member_id,) = context.stable_group(session_ms=10_000)
        for _ in range(5):
            context.sleep(9_000)
            assert context.commit_error(member_id=member_id, generation=1) is ErrorCode.NONE
        assert context.state() is GroupState.STABLE


@pytest.mark.parametrize(("metadata", "fits"), [("x" * 10, True), ("x" * 11, False), ("\U0001f600" * 6, False)])
def test_metadata_has_a_limit_in_java_characters(metadata: str, fits: bool) -> None:
    with Context(metadata_max_bytes=10) as context:
        error = context.commit_error(metadata=metadata)
        assert error is (ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE)
        assert len(context.log.records()) == int(fits)


def test_a_commit_is_answered_when_it_is_committed_and_so_are_reads_of_it() -> None:
    with Context() as context:
        context.commit_offset(1)
        context.hold()
        commit = context.commit_offset(2)
        read = context.call(context.coordinator.offset_fetch(one_offset(), 9))
        assert not (commit.done or read.done)
        context.commit()
        assert commit.response.topics[0].partitions[0].error_code == 0
        assert read.response.groups[0].topics[0].partitions[0].committed_offset == 2


def test_coordinator_that_may_have_been_replaced_returns_no_offsets() -> None:
    with Context() as context:
        context.commit_offset(1)
        context.log.outdated = True
        for version, of in ((7, lambda answer: answer), (9, lambda answer: answer.groups[0])):
            answer = of(fetch(context, version, topics={"t": [0]}))
            assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])
        context.log.outdated = False
        assert context.fetch_offset() == 1


def one_offset() -> OffsetFetchRequest:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])])


def test_a_failed_commit_leaves_nothing() -> None:
    with Context() as context:
        context.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        assert context.commit_error() is ErrorCode.NOT_COORDINATOR
        assert context.fetch_offset() == -1
        assert context.state() is GroupState.DEAD


def test_topic_ids_come_back_as_they_came() -> None:
    with Context() as context:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        committed = context.run(context.coordinator.offset_commit(request, 10))
        assert (committed.topics[0].topic_id, committed.topics[0].name) == (TOPIC_ID, "t")
        wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", topic_id=TOPIC_ID, partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
        answer = context.run(context.coordinator.offset_fetch(OffsetFetchRequest(groups=[group]), 10)).groups[0]
        assert (answer.topics[0].topic_id, answer.topics[0].partitions[0].committed_offset) == (TOPIC_ID, 5)


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_responses_can_be_sent_in_every_version(version: int) -> None:
    with Context() as context:
        assert context.commit_offset(version=version).response.encode(version)


# --- fetch


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_the_form_of_each_version(version: int) -> None:
    with Context() as context:
        context.commit_offset(5, metadata="note")
        response = fetch(context, version, topics={"t": [0, 1], "other": [3]})
        answer = response if version < 8 else response.groups[0]
        assert answer.error_code == 0
        assert offsets_in(answer) == {("t", 0): 5, ("t", 1): -1, ("other", 3): -1}
        found, missing = answer.topics[0].partitions
        assert (found.metadata, found.committed_leader_epoch, found.error_code) == ("note", 3, 0)
        assert (missing.metadata, missing.committed_leader_epoch, missing.error_code) == ("", -1, 0)


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_without_topics_all_offsets_are_fetched(version: int) -> None:
    with Context() as context:
        context.commit_offset(5)
        context.commit_offset(6, topic="u", partition=2)
        context.commit_offset(7, group="other")
        response = fetch(context, version, topics=None)
        answer = response if version < 8 else response.groups[0]
        assert offsets_in(answer) == {("t", 0): 5, ("u", 2): 6}


def test_a_group_that_does_not_exist_has_no_offsets() -> None:
    with Context() as context:
        assert offsets_in(fetch(context, 9, topics={"t": [0]}).groups[0]) == {("t", 0): -1}
        assert fetch(context, 9, topics=None).groups[0].topics == []
        assert context.state() is GroupState.DEAD


def test_several_groups_are_fetched_at_once() -> None:
    with Context(partition_count=7) as context:
        for number, group in enumerate(("a", "b", "c")):
            context.commit_offset(number, group=group)
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=g, topics=None) for g in ("a", "nobody", "c")]
        response = context.run(context.coordinator.offset_fetch(OffsetFetchRequest(groups=groups), 8))
        assert [(answer.group_id, offsets_in(answer)) for answer in response.groups] == [
            ("a", {("t", 0): 0}),
            ("nobody", {}),
            ("c", {("t", 0): 2}),
        ]


def test_before_v2_an_error_stands_with_each_partition() -> None:
    with Context() as context:
        context.resign()
        response = fetch(context, 1, topics={"t": [0, 1]})
        errors = [partition.error_code for partition in response.topics[0].partitions]
        assert errors == [ErrorCode.NOT_COORDINATOR] * 2
        assert fetch(context, 2, topics={"t": [0]}).error_code == ErrorCode.NOT_COORDINATOR


def test_a_fetch_waits_no_longer_than_the_commit_before_it() -> None:
    with Context() as context:
        context.hold()
        commit = context.commit_offset()
        context.sleep(2_000)
        read = context.call(context.coordinator.offset_fetch(one_offset(), 9))
        assert not read.done
        context.sleep(3_000)
        assert commit.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert read.response.groups[0].error_code == ErrorCode.NONE
        assert offsets_in(read.response.groups[0]) == {("t", 0): 5}


def test_with_too_few_replicas_after_an_election_offsets_are_told_and_not_taken() -> None:
    """Requests that only read see what was loaded from above the high watermark, as with Apache Kafka."""
    with Context() as context:
        context.hold()
        context.commit_offset()
        context.restart()
        assert context.fetch_offset() == 5
        context.fail()
        assert context.commit_error(offset=6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.fetch_offset() == 5
        described = context.run(context.coordinator.describe_groups(DescribeGroupsRequest(groups=["g"]), 5))
        assert described.groups[0].error_code == ErrorCode.NONE
        told = context.join()
        assert told.error is ErrorCode.MEMBER_ID_REQUIRED
        late = context.commit_offset(7)
        assert not late.done
        context.commit()
        assert late.response.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert context.fetch_offset() == 7


# --- expiry


def test_offsets_of_a_simple_group_expire_after_the_last_commit() -> None:
    with Context(retention_ms=DAY_MS) as context:
        context.commit_offset(topic="old")
        context.sleep(DAY_MS // 2)
        context.commit_offset(topic="new")
        context.sleep(DAY_MS // 2 + HOUR_MS)
        assert (context.fetch_offset("old"), context.fetch_offset("new")) == (-1, 5)
        context.sleep(DAY_MS)
        assert context.state() is GroupState.DEAD
        assert context.hard_state() == context.replayed_state() == {}


def test_offsets_of_a_group_expire_after_its_last_member() -> None:
    with Context(retention_ms=DAY_MS) as context:
        (member_id,) = context.stable_group(session_ms=1_800_000)
        context.commit_offset(member_id=member_id, generation=1)
        for _ in range(72):
            context.sleep(HOUR_MS // 2 - 1_000)
            context.heartbeat(member_id, 1)
        context.leave(member_id)
        context.sleep(DAY_MS - HOUR_MS)
        assert context.fetch_offset() == 5
        context.restart()
        context.sleep(2 * HOUR_MS)
        assert context.state() is GroupState.DEAD
        assert context.hard_state() == context.replayed_state() == {}


def test_a_running_group_keeps_what_it_subscribes_to() -> None:
    subscription = b"\0\0" + b"\0\0\0\1" + b"\0\4mine" + b"\0\0\0\0"
    with Context(retention_ms=DAY_MS) as context:
        (member_id,) = context.stable_group(session_ms=1_800_000, protocols=[("range", subscription)])
        for topic in ("mine", "left"):
            context.commit_offset(topic=topic, member_id=member_id, generation=1)
        for _ in range(50):
            context.sleep(HOUR_MS // 2 - 1_000)
            context.heartbeat(member_id, 1)
        assert (context.fetch_offset("mine"), context.fetch_offset("left")) == (5, -1)
        assert context.state() is GroupState.STABLE


@pytest.mark.parametrize(("protocol_type", "metadata"), [("consumer", b"?"), ("connect", b"\0\0\0\0\0\0")])
def test_a_running_group_that_does_not_tell_keeps_everything(protocol_type: str, metadata: bytes) -> None:
    with Context(retention_ms=HOUR_MS) as context:
        member_id, join = context.new_member(
            protocol_type=protocol_type, protocols=[("range", metadata)], session_ms=1_800_000
        )
        context.sleep(3_000)
        assert join.done
        context.sync(member_id, 1, protocol_type=protocol_type)
        context.commit_offset(member_id=member_id, generation=1)
        for _ in range(5):
            context.sleep(HOUR_MS // 2 - 60_000)
            context.heartbeat(member_id, 1)
        assert context.fetch_offset() == 5


def test_a_retention_that_came_with_the_commit_counts_instead() -> None:
    with Context(retention_ms=DAY_MS) as context:
        context.commit_offset(topic="short", retention_ms=HOUR_MS, version=4)
        context.commit_offset(topic="long", retention_ms=3 * DAY_MS, version=2)
        context.sleep(HOUR_MS + 600_000)
        assert (context.fetch_offset("short"), context.fetch_offset("long")) == (-1, 5)
        context.sleep(2 * DAY_MS)
        assert context.fetch_offset("long") == 5
        context.restart()
        context.sleep(DAY_MS)
        assert context.fetch_offset("long") == -1


def test_whoever_asks_for_all_offsets_gets_them_or_an_error_but_not_none() -> None:
    with Context() as context:
        context.commit_offset()
        context.hold()
        context.commit_offset(6)
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
        fetch = context.call(context.coordinator.offset_fetch(OffsetFetchRequest(groups=[wanted]), 9))
        context.resign()
        (group,) = fetch.response.groups
        assert group.error_code is ErrorCode.NOT_COORDINATOR
        context.elect()
        fetch = context.call(context.coordinator.offset_fetch(OffsetFetchRequest(groups=[wanted]), 9))
        assert not fetch.done  # the next leader may not have it
        context.commit()
        (group,) = fetch.response.groups
        assert [part.committed_offset for part in group.topics[0].partitions] == [6]


def test_a_commit_that_is_to_be_kept_for_ever_is_kept() -> None:
    with Context(retention_ms=DAY_MS) as context:
        assert context.commit_error(retention_ms=2**63 - 1, version=3) is ErrorCode.NONE
        context.sleep(3 * DAY_MS)
        context.restart()
        context.sleep(3 * DAY_MS)
        assert context.fetch_offset() == 5


def test_an_empty_group_without_offsets_is_removed_unless_somebody_is_about_to_join() -> None:
    with Context() as context:
        told = context.join(session_ms=1_800_000).response.member_id
        context.sleep(600_000)
        assert context.state() is GroupState.EMPTY
        assert not context.join(told, session_ms=1_800_000).done
        context.leave(told)
        context.sleep(600_000)
        assert context.state() is GroupState.DEAD


def test_expired_offsets_that_cannot_be_removed_now_are_removed_later() -> None:
    with Context(retention_ms=HOUR_MS) as context:
        context.commit_offset()
        context.sleep(HOUR_MS)
        context.fail()
        context.sleep(600_000)
        assert context.fetch_offset() == 5
        context.sleep(600_000)
        assert context.fetch_offset() == -1


def test_many_groups_are_looked_at_in_steps() -> None:
    with Context(retention_ms=HOUR_MS) as context:
        records = [
            encode_record(
                Record(
                    OffsetCommitKey(group=f"g{number}", topic="t", partition=0),
                    OffsetCommitValue(offset=1, commit_timestamp=START_MS),
                )
            )
            for number in range(1_200)
        ]
        add(context, records)
        context.restart()
        assert len(context.shard.groups) == 1_200
        context.sleep(2 * HOUR_MS)
        assert context.shard.groups == {}
        assert context.log.appends == 3


# --- deletion


def delete_groups(context: Context, *groups: str) -> dict[str, ErrorCode]:
    request = DeleteGroupsRequest(groups_names=list(groups))
    response = context.run(context.coordinator.delete_groups(request, 2))
    assert response.encode(2)
    assert len(response.results) == len(set(groups))
    return {result.group_id: ErrorCode(result.error_code) for result in response.results}


def test_groups_are_deleted_with_their_offsets() -> None:
    with Context(partition_count=3) as context:
        context.commit_offset(group="simple")
        context.commit_offset(group="simple", topic="u")
        (member_id,) = context.stable_group(group="left")
        context.leave(member_id, group="left")
        context.stable_group(group="running")
        assert delete_groups(context, "simple", "left", "running", "nobody", "simple") == {
            "simple": ErrorCode.NONE,
            "left": ErrorCode.NONE,
            "running": ErrorCode.NON_EMPTY_GROUP,
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert context.fetch_offset(group="simple") == -1
        context.restart()
        assert context.fetch_offset(group="simple") == -1
        assert context.describe("left").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_whose_deletion_fails_stays() -> None:
    with Context() as context:
        context.commit_offset()
        context.fail()
        assert delete_groups(context, "g") == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert context.fetch_offset() == 5


def test_an_id_that_was_handed_out_dies_with_its_group() -> None:
    with Context() as context:
        told = context.join().response.member_id
        assert delete_groups(context, "g") == {"g": ErrorCode.NONE}
        assert context.join(told).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.shard.soft.memberships == {}


def test_offsets_of_deleted_topics_are_forgotten() -> None:
    with Context(partition_count=2) as context:
        for group in ("a", "b"):
            for topic in ("t", "u", "v"):
                context.commit_offset(group=group, topic=topic)
        context.coordinator.on_topics_deleted(["t", "v", "unheard of"])
        for group in ("a", "b"):
            assert [context.fetch_offset(topic, group=group) for topic in "tuv"] == [-1, 5, -1]
        context.restart()
        assert context.fetch_offset(group="a") == -1


def test_topics_that_are_deleted_during_a_load_are_forgotten_after_it() -> None:
    with Context() as context:
        context.commit_offset()
        context.resign()
        context.start_load()
        context.coordinator.on_topics_deleted(["t"])
        context.sleep(1)
        assert context.fetch_offset() == -1
        context.sleep(context.config.retention_check_interval_ms)
        assert context.shard.groups == {}


# --- transactions that Apache Kafka left in the log


def test_an_offset_of_a_transaction_counts_with_its_commit_marker() -> None:
    with Context() as context:
        context.commit_offset(5)
        transactional(context, 9)
        context.restart()
        assert context.fetch_offset() == 5
        assert context.fetch_offset(stable=True) == -1000 - ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert offsets_in(fetch(context, 9, topics=None).groups[0]) == {("t", 0): 5}
        marker(context, commit=True)
        context.restart()
        assert context.fetch_offset(stable=True) == 9


def test_an_offset_of_an_aborted_transaction_never_counts() -> None:
    with Context() as context:
        transactional(context, 9)
        marker(context, commit=False)
        marker(context, commit=True)
        context.restart()
        assert context.fetch_offset(stable=True) == -1


def test_between_a_plain_and_a_transactional_commit_the_later_one_counts() -> None:
    with Context() as context:
        transactional(context, 9)
        context.commit_offset(11)
        marker(context, commit=True)
        context.restart()
        assert context.fetch_offset() == 11


def test_an_offset_of_an_open_transaction_goes_with_its_topic_and_keeps_its_group() -> None:
    with Context(retention_ms=HOUR_MS) as context:
        context.commit_offset(5)
        transactional(context, 9)
        transactional(context, 9, topic="u")
        context.restart()
        context.sleep(3 * HOUR_MS)
        assert context.fetch_offset() == 5
        context.coordinator.on_topics_deleted(["t"])
        assert context.pending() == {("g", "u", 0): {7: 9}}
        assert context.fetch_offset(stable=True) == -1


def test_the_answer_for_a_group_has_no_topic_id_where_none_was_asked_for() -> None:
    with Context() as context:
        context.commit_offset()
        answer: OffsetFetchResponse.OffsetFetchResponseGroup = fetch(context, 10, topics=None).groups[0]
        assert (answer.topics[0].name, answer.topics[0].topic_id) == ("t", ZERO_UUID)
