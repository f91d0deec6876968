"""Replay of the records of groups of both kinds, in any order and from any program."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.group import ConsumerGroupState, ResolvedExpression
from gregor.coordinator.group.consumer.member import ClassicMemberMetadata, Subscription
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment, MemberState
from gregor.coordinator.group.records import encode_record
from gregor.coordinator.group.states import GroupState
from gregor.coordinator.result import Record
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    DeleteGroupsRequest,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from gregor.protocol.records.batch import build_batch
from tests.coordinator.compaction import compact
from tests.coordinator.group.consumer.context import ConsumerContext, plain

TOPIC_ID = (1).to_bytes(16, "big")
MEMBER = Subscription(topics=frozenset({"t"}), rebalance_timeout_ms=1_000, client_host="/h")
OWNING = MemberAssignment(MemberState.STABLE, 2, 1, {TOPIC_ID: {0: 2}})


def classic_record(*members: str) -> Record:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range" if members else None,
        leader=members[0] if members else None,
        current_state_timestamp=5,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member_id,
                client_id="c",
                client_host="/h",
                rebalance_timeout=10_000,
                session_timeout=10_000,
                subscription=b"",
                assignment=b"",
            )
            for member_id in members
        ],
    )
    return Record(GroupMetadataKey(group="g"), value)


CLASSIC_TOMBSTONE = Record(GroupMetadataKey(group="g"), None)


def loaded(*records: Record) -> ConsumerContext:
    """A coordinator that has loaded a log with these records."""
    context = ConsumerContext({"t": 2}, load=False)
    for record in records:
        append(context, record)
    context.elect()
    return context


def append(context: ConsumerContext, record: Record) -> None:
    first = context.log.end.get(0, 0)
    context.log.add_batch(0, bytes(build_batch([encode_record(record)], base_offset=first, timestamp_ms=1)))
    context.log.commit()


def group_records(member_id: str = "m") -> list[Record]:
    return [
        changes.subscription("g", member_id, MEMBER),
        changes.group_epoch("g", 2, 77),
        changes.target("g", member_id, {TOPIC_ID: frozenset({0})}),
        changes.target_epoch("g", 2, 9),
        changes.assignment("g", member_id, OWNING),
        changes.expression("g", "t.*", ResolvedExpression(frozenset({"t"}), 4, 5)),
    ]


def test_group_is_as_it_was_written() -> None:
    with loaded(*group_records()) as context:
        group = context.found()
        assert (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms) == (2, 77, 2, 9)
        assert group.members["m"].subscription == MEMBER
        assert group.members["m"].assignment == OWNING
        assert group.target == {"m": {TOPIC_ID: frozenset({0})}}
        assert group.resolved == {"t.*": ResolvedExpression(frozenset({"t"}), 4, 5)}
        assert group.owners == {TOPIC_ID: {0: "m"}}
        assert group.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("number", range(6))
def test_first_record_may_be_of_any_kind(number: int) -> None:
    records = group_records()
    first = records.pop(number)
    with loaded(*group_records()) as context:
        expected = plain(context.found())
    with loaded(first, *records) as context:
        assert plain(context.found()) == expected


def test_member_of_which_only_the_assignment_is_known_is_removed_when_its_session_ends() -> None:
    with loaded(changes.assignment("g", "m", OWNING)) as context:
        assert list(context.found().members) == ["m"]
        context.sleep(46_000)
        assert context.found().members == {}
        assert context.found().owners == {}


def test_tombstones_of_groups_and_members_that_are_unknown_are_ignored() -> None:
    unknown = changes.member_tombstones("g", "m")
    with loaded(*unknown, changes.expression("g", "t", None), changes.group_epoch("h", 2, 0)) as context:
        assert list(context.shard.groups) == ["h"]
        for record in [*unknown, changes.expression("h", "t", None)]:
            append(context, record)
        context.restart()
        assert list(context.shard.groups) == ["h"]


def test_tombstones_of_a_group_remove_it() -> None:
    records = group_records()
    with loaded(*records) as context:
        tombstones = changes.group_tombstones(context.found())
    with loaded(*records, *tombstones) as context:
        assert context.shard.groups == {}
    with loaded(*records, tombstones[-1]) as context:
        assert context.shard.groups == {}, "the epoch's tombstone alone"


def test_group_that_was_removed_keeps_its_offsets() -> None:
    offset = Record(OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=7, leader_epoch=1))
    with loaded(*group_records()) as context:
        tombstones = changes.group_tombstones(context.found())
    with loaded(*group_records(), offset, *tombstones) as context:
        assert context.fetch_offset() == 7
        assert context.shard.consumers.find("g") is None


def test_later_kind_of_record_counts() -> None:
    with loaded(classic_record("c"), *group_records()) as context:
        assert list(context.found().members) == ["m"]
        assert context.shard.groups["g"].metadata is None
    with loaded(*group_records(), classic_record("c")) as context:
        assert context.shard.consumers.find("g") is None
        assert context.state() is GroupState.STABLE
        assert context.heartbeat("c", 3) is ErrorCode.NONE
    with loaded(*group_records(), classic_record("c"), *group_records()) as context:
        assert list(context.found().members) == ["m"]


def test_tombstone_of_the_other_kind_changes_nothing() -> None:
    with loaded(*group_records(), CLASSIC_TOMBSTONE) as context:
        assert list(context.found().members) == ["m"]
    with loaded(classic_record("c"), *changes.member_tombstones("g", "c")) as context:
        assert context.state() is GroupState.STABLE


def test_groups_of_both_kinds_can_be_written_while_the_shard_is_live() -> None:
    with loaded(*group_records()) as context:
        context.shard.replay(classic_record("c"), 100)
        assert context.shard.consumers.find("g") is None
        assert not any(key[0].startswith("consumer") for key in context.timers())  # type: ignore[index]
        for record in group_records():
            context.shard.replay(record, 101)
        assert context.state() is GroupState.EMPTY
        assert list(context.found().members) == ["m"]
        assert ("consumer-session", "g", "m") in context.timers()


def test_partition_in_the_assignments_of_two_members_belongs_to_the_later_one() -> None:
    with loaded(*group_records("m"), changes.subscription("g", "n", MEMBER), changes.assignment("g", "n", OWNING)) as c:
        assert c.found().owners == {TOPIC_ID: {0: "n"}}
        append(c, changes.assignment("g", "m", MemberAssignment(MemberState.STABLE, 2, 2)))
        c.restart()
        assert c.found().owners == {TOPIC_ID: {0: "n"}}


def test_record_of_partition_metadata_is_removed_at_the_next_change() -> None:
    old = Record(ConsumerGroupPartitionMetadataKey(group_id="g"), ConsumerGroupPartitionMetadataValue(topics=[]))
    with loaded(*group_records(), old) as context:
        assert context.found().has_partition_metadata
        context.beat("m", 2)
        assert not context.found().has_partition_metadata
        keys = [key for key, value in context.log.records() if value is None]
        assert encode_record(Record(ConsumerGroupPartitionMetadataKey(group_id="g"), None))[0] in keys


def test_assignment_without_epochs_of_partitions_has_the_epoch_of_its_member() -> None:
    partitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4, previous_member_epoch=3, state=0, assigned_partitions=[partitions]
    )
    record = Record(changes.assignment("g", "m", OWNING).key, value)
    with loaded(*group_records(), record) as context:
        assert context.found().members["m"].assignment.assigned == {TOPIC_ID: {0: 4, 1: 4}}


def test_member_in_a_state_of_a_newer_version_rejoins() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=2, previous_member_epoch=1, state=99)
    record = Record(changes.assignment("g", "m", OWNING).key, value)
    with loaded(*group_records(), record) as context:
        assert context.beat_error("m", 2) is ErrorCode.FENCED_MEMBER_EPOCH
        context.join_new("m")
        assert context.found().members["m"].assignment.state is MemberState.STABLE


# --- anything at all

some_epochs = st.integers(-3, 5)
some_partitions = st.dictionaries(
    st.sampled_from([TOPIC_ID, (9).to_bytes(16, "big")]), st.dictionaries(st.integers(0, 3), some_epochs, max_size=2)
)
some_assignments = st.builds(
    MemberAssignment, st.sampled_from(MemberState), some_epochs, some_epochs, some_partitions, some_partitions
)
some_subscriptions = st.builds(
    Subscription,
    instance_id=st.sampled_from([None, "i", "j"]),
    topics=st.frozensets(st.sampled_from(["t", "u"])),
    regex=st.sampled_from(["", "t.*", "("]),
    rack_id=st.none(),
    client_id=st.just("client"),
    client_host=st.sampled_from(["/127.0.0.1", "/h"]),
    rebalance_timeout_ms=st.integers(-1, 3_000),
    assignor=st.sampled_from([None, "range", "gone"]),
    classic=st.sampled_from([None, ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=[])]),
)
members = st.sampled_from(["m", "n"])
some_records: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda m, s: changes.subscription("g", m, s), members, some_subscriptions),
    st.builds(lambda m, a: changes.assignment("g", m, a), members, some_assignments),
    st.builds(lambda m, p: changes.target("g", m, {k: frozenset(v) for k, v in p.items()}), members, some_partitions),
    st.builds(lambda e, t: changes.target_epoch("g", e, t), some_epochs, st.integers(-1, 10)),
    st.builds(lambda e, h: changes.group_epoch("g", e, h), some_epochs, st.integers(-1, 1)),
    st.builds(
        lambda r, v: changes.expression("g", r, ResolvedExpression(frozenset({"t", "u"}), v, v)),
        st.sampled_from(["t.*", "("]),
        st.integers(-1, 3),
    ),
    st.sampled_from([classic_record("m"), classic_record(), CLASSIC_TOMBSTONE]),
)


def tombstone(record: Record) -> Record:
    return Record(record.key, None)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(some_records | some_records.map(tombstone), max_size=25))
def test_any_log_can_be_loaded_and_its_groups_used_and_removed(records: list[Record]) -> None:
    with loaded(*records) as context:
        before = plain(context.shard.consumers.find("g"))
        context.restart()
        assert plain(context.shard.consumers.find("g")) == before
        for member_id in ("m", "n", "new"):
            for epoch in (0, 2, -1, -2, 0):
                options: dict[str, Any] = {"instance": "i"} if epoch == -2 else {}
                if epoch == 0:
                    options = {"topics": ["t"], "rebalance_ms": 5_000, "owned": {}}
                assert context.beat_error(member_id, epoch, **options) is not ErrorCode.UNKNOWN_SERVER_ERROR
                context.commit_error(member_id=member_id, generation=max(epoch, 0))
        context.consumer_describe()
        context.describe()
        context.sleep(100_000)
        request = DeleteGroupsRequest(groups_names=["g"])
        result = context.run(context.coordinator.delete_groups(request, 2)).results[0]
        assert ErrorCode(result.error_code) in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        context.restart()
        assert context.shard.groups == {}


def test_compaction_of_a_life_of_a_group_leaves_its_end() -> None:
    with ConsumerContext({"t": 4}) as context:
        first = context.consumer("m1", instance="i")
        second = context.consumer("m2", None, regex="t")
        context.settle_group(first, second)
        context.settle_group(first, second)
        first.leave(-2)
        context.consumer("m3", instance="i")
        expected = plain(context.found())
        context.log.batches[0] = compact(context.log.batches[0])
        context.restart()
        assert plain(context.found()) == expected
