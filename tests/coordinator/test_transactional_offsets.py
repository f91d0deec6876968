"""Offsets that are committed in a transaction: pending until its marker, whatever happens to the group meanwhile."""

import asyncio
from typing import Any

import pytest

from gregor.coordinator.group import pieces
from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DeleteGroupsRequest, OffsetDeleteRequest, TxnOffsetCommitRequest
from gregor.protocol.records.batch import iter_batches
from gregor.protocol.records.control import EndTransaction
from tests.coordinator.context import Context

HOUR_MS = 60 * 60 * 1000
UNSTABLE = -1000 - ErrorCode.UNSTABLE_OFFSET_COMMIT


def delete_offset(context: Context, topic: str = "t") -> ErrorCode:
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    wanted = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
    response = context.run(context.coordinator.delete_offsets(OffsetDeleteRequest(group_id="g", topics=[wanted])))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def delete_group(context: Context) -> ErrorCode:
    request = DeleteGroupsRequest(groups_names=["g"])
    return ErrorCode(context.run(context.coordinator.delete_groups(request, 2)).results[0].error_code)


# --- commit and abort


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_an_offset_counts_once_its_transaction_is_committed(commit: bool, reload: bool) -> None:
    with Context() as context:
        context.commit_offset(5)
        assert context.transactional_error(9) is ErrorCode.NONE
        assert context.pending() == {("g", "t", 0): {7: 9}}
        assert (context.fetch_offset(), context.fetch_offset(stable=True)) == (5, UNSTABLE)
        if reload:
            context.restart()
            assert (context.fetch_offset(), context.fetch_offset(stable=True)) == (5, UNSTABLE)
        assert context.end_transaction(commit=commit).result()
        assert context.fetch_offset(stable=True) == (9 if commit else 5)
        assert context.pending() == {} == context.shard.transactions
        assert context.hard_state() == context.replayed_state()


def test_the_records_are_one_transactional_batch_of_the_producer() -> None:
    with Context() as context:
        context.commit_in_transaction(9, producer_id=70, producer_epoch=3)
        (batch,) = [batch for data in context.log.batches[0] for batch in iter_batches(data)]
        assert batch.is_transactional
        assert not batch.is_control
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (70, 3, -1)
        committed = context.shard.groups["g"].pending["t", 0][70]
        assert committed == (9, 3, "", context.now_ms(), -1, 0)


@pytest.mark.parametrize("version", range(7))
def test_responses_can_be_sent_in_every_version(version: int) -> None:
    with Context() as context:
        response = context.commit_in_transaction(version=version).response
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert response.encode(version)


def test_of_several_offsets_in_one_transaction_the_last_counts() -> None:
    with Context() as context:
        for offset in (1, 9, 4):
            context.commit_in_transaction(offset)
        context.end_transaction(commit=True)
        assert context.fetch_offset() == 4


def test_a_marker_ends_the_transaction_of_its_producer_alone() -> None:
    with Context() as context:
        context.commit_in_transaction(1, producer_id=1, partition=0)
        context.commit_in_transaction(2, producer_id=2, partition=0)
        context.commit_in_transaction(3, producer_id=2, partition=1)
        context.end_transaction(commit=True, producer_id=1)
        assert context.fetch_offset() == 1
        assert context.fetch_offset(stable=True) == UNSTABLE
        context.end_transaction(commit=False, producer_id=3)
        context.end_transaction(commit=True, producer_id=2)
        assert [context.fetch_offset(partition=index, stable=True) for index in (0, 1)] == [2, 3]


def test_a_marker_is_for_the_groups_of_one_partition() -> None:
    with Context(partition_count=20) as context:
        one, other = "a", "b"
        assert context.coordinator.partition_for(one) != context.coordinator.partition_for(other)
        for group in (one, other):
            context.commit_in_transaction(9, group=group)
        context.end_transaction(commit=True, partition=context.coordinator.partition_for(one))
        assert context.fetch_offset(group=one, stable=True) == 9
        assert context.fetch_offset(group=other, stable=True) == UNSTABLE


def test_between_a_plain_and_a_transactional_commit_the_later_record_counts() -> None:
    with Context() as context:
        context.commit_in_transaction(9, partition=0)
        context.commit_offset(11, partition=0)
        context.commit_offset(12, partition=1)
        context.commit_in_transaction(8, partition=1)
        context.end_transaction(commit=True)
        assert [context.fetch_offset(partition=index) for index in (0, 1)] == [11, 8]
        assert context.hard_state() == context.replayed_state()


def test_transactions_are_ordered_by_their_records_and_not_by_their_markers() -> None:
    with Context() as context:
        context.commit_in_transaction(1, producer_id=1)
        context.commit_in_transaction(2, producer_id=2)
        context.end_transaction(commit=True, producer_id=2)
        context.end_transaction(commit=True, producer_id=1)
        assert context.fetch_offset() == 2


# --- who may commit


def test_from_v3_on_members_commit_under_their_generation() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        context.static_group(["i"], group="s")
        assert context.transactional_error(member_id=member_id, generation=1) is ErrorCode.NONE
        assert context.transactional_error(member_id=member_id, generation=0) is ErrorCode.ILLEGAL_GENERATION
        assert context.transactional_error(member_id=member_id, generation=-1) is ErrorCode.ILLEGAL_GENERATION
        assert context.transactional_error(member_id="who?", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.transactional_error(member_id="", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
        options: dict[str, Any] = {"group": "s", "generation": 1}
        assert context.transactional_error(instance="i", member_id="?", **options) is ErrorCode.FENCED_INSTANCE_ID
        assert context.transactional_error(instance="j", member_id="?", **options) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.transactional_error() is ErrorCode.NONE  # as all commits before v3


def test_a_group_that_does_not_exist_accepts_commits_without_generation() -> None:
    with Context() as context:
        assert context.transactional_error(member_id="m", generation=1) is ErrorCode.ILLEGAL_GENERATION
        found = context.transactional_error(member_id="m", generation=1, version=6)
        assert found is ErrorCode.GROUP_ID_NOT_FOUND, "an error that producers know from v6 on"
        assert context.state() is GroupState.DEAD
        assert context.transactional_error(member_id="m") is ErrorCode.NONE
        assert context.state() is GroupState.EMPTY
        context.end_transaction(commit=False)
        assert context.state() is GroupState.EMPTY
        context.sleep(context.config.retention_check_interval_ms)
        assert context.state() is GroupState.DEAD


def test_a_member_may_commit_while_the_group_rebalances() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        context.new_member()
        assert context.state() is GroupState.PREPARING_REBALANCE
        assert context.transactional_error(member_id=member_id, generation=1) is ErrorCode.NONE
        join = context.join(member_id)
        assert context.state() is GroupState.COMPLETING_REBALANCE
        assert context.transactional_error(member_id=member_id, generation=1) is ErrorCode.ILLEGAL_GENERATION
        generation = join.response.generation_id
        assert context.transactional_error(member_id=member_id, generation=generation) is ErrorCode.NONE


def test_a_commit_in_a_transaction_does_not_extend_the_session() -> None:
    with Context() as context:
        (member_id,) = context.stable_group(session_ms=10_000)
        context.sleep(9_000)
        assert context.transactional_error(member_id=member_id, generation=1) is ErrorCode.NONE
        context.sleep(2_000)
        assert context.transactional_error(member_id=member_id, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_group_needs_a_name() -> None:
    with Context() as context:
        assert context.transactional_error(group="") is ErrorCode.INVALID_GROUP_ID


def test_metadata_has_a_limit() -> None:
    with Context(metadata_max_bytes=10) as context:
        assert context.transactional_error(metadata="x" * 11) is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert context.log.records() == []
        assert context.transactional_error(metadata="x" * 10) is ErrorCode.NONE
        assert context.transactional_error(metadata=None) is ErrorCode.NONE


# --- errors of the log and of the coordinator


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_failed_commit_leaves_nothing(code: ErrorCode, answered: ErrorCode) -> None:
    with Context() as context:
        context.fail(code)
        assert context.transactional_error() is answered
        assert context.pending() == {} == context.shard.transactions
        assert context.state() is GroupState.DEAD


def test_a_commit_is_answered_when_it_is_committed_and_so_is_the_marker() -> None:
    with Context() as context:
        context.hold()
        commit = context.commit_in_transaction(9)
        assert not commit.done
        context.commit()
        assert commit.response.topics[0].partitions[0].error_code == ErrorCode.NONE
        context.hold()
        marker = context.end_transaction(commit=True)
        assert not marker.done
        context.commit()
        assert marker.result()
        assert context.fetch_offset() == 9


def test_a_marker_that_is_not_written_ends_nothing() -> None:
    with Context() as context:
        context.commit_in_transaction(9)
        context.fail(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        with pytest.raises(KafkaError) as caught:
            context.end_transaction(commit=True).result()
        assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert context.fetch_offset(stable=True) == UNSTABLE
        assert context.end_transaction(commit=True).result()
        assert context.fetch_offset(stable=True) == 9


def test_a_marker_that_stays_uncommitted_is_an_error_on_which_it_is_sent_again() -> None:
    with Context() as context:
        context.commit_in_transaction(9)
        context.hold()
        marker = context.end_transaction(commit=True)
        context.sleep(context.config.commit_timeout_ms + 1)
        with pytest.raises(KafkaError) as caught:
            marker.result()
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = context.end_transaction(commit=True)
        context.commit()
        assert again.result()
        assert context.fetch_offset(stable=True) == 9


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_coordinator_leaves_unanswered_is_decided_by_the_log(lost: bool) -> None:
    with Context() as context:
        context.commit_in_transaction(8)
        context.hold()
        commit = context.commit_in_transaction(9, producer_id=8)
        marker = context.end_transaction(commit=True)
        context.resign()
        assert commit.response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert isinstance(marker.error, KafkaError)
        assert marker.error.code is ErrorCode.NOT_COORDINATOR
        if lost:
            context.log.lose_uncommitted()
        context.commit()
        context.restart()
        assert context.pending() == {("g", "t", 0): {7: 8} if lost else {8: 9}}
        assert context.fetch_offset() == (-1 if lost else 8)


def test_a_marker_for_another_coordinator_is_refused() -> None:
    with Context() as context:
        marker = EndTransaction(7, 0, 0, True, 2)
        assert error_of(context, marker, partition=1) is ErrorCode.NOT_COORDINATOR
        begin_load(context)
        assert error_of(context, marker) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        context.coordinator.close()
        assert error_of(context, marker) is ErrorCode.NOT_COORDINATOR


def begin_load(context: Context) -> None:
    """Begin a load that does not end."""
    context.commit_offset()
    context.resign()
    context.log.load_gate = asyncio.Event()
    context.start_load()


def error_of(context: Context, marker: EndTransaction, partition: int = 0) -> ErrorCode:
    answer = context.coordinator.end_transaction(partition, marker)
    assert isinstance(answer.error, KafkaError)
    return answer.error.code


@pytest.mark.parametrize("version", range(7))
def test_producers_before_2_3_get_no_error_of_a_load(version: int) -> None:
    with Context() as context:
        begin_load(context)
        expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert context.transactional_error(version=version) is expected
        context.resign()
        assert context.transactional_error(version=version) is ErrorCode.NOT_COORDINATOR


def request_of(partitions: int) -> TxnOffsetCommitRequest:
    committed = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata=""
        )
        for index in range(partitions)
    ]
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=committed)
    return TxnOffsetCommitRequest(transactional_id="tx", group_id="g", producer_id=7, producer_epoch=0, topics=[topic])


# --- verification


def test_the_transaction_is_verified_for_the_partition_of_the_group_before_the_append() -> None:
    guard = object()
    with Context(partition_count=20) as context:
        partition = context.coordinator.partition_for("g")

        async def verify(asked: int) -> object:
            assert asked == partition
            assert context.log.appends == 0
            return guard

        assert context.transactional_error(verify=verify) is ErrorCode.NONE
        assert context.log.guards == [guard]


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_transaction_that_is_not_verified_commits_nothing(code: ErrorCode, answered: ErrorCode) -> None:
    async def verify(_partition: int) -> object:
        raise KafkaError(code)

    with Context() as context:
        assert context.transactional_error(verify=verify) is answered
        assert context.log.appends == 0


# --- what happens to the group meanwhile


def test_pending_offsets_and_those_that_they_replace_do_not_expire() -> None:
    with Context(retention_ms=HOUR_MS) as context:
        context.commit_offset(5, topic="t")
        context.commit_offset(5, topic="u")
        context.commit_in_transaction(9, topic="t")
        context.commit_in_transaction(9, topic="v")
        context.sleep(3 * HOUR_MS)
        assert [context.fetch_offset(topic) for topic in "tuv"] == [5, -1, -1]
        assert context.pending() == {("g", "t", 0): {7: 9}, ("g", "v", 0): {7: 9}}
        context.end_transaction(commit=False)
        context.sleep(HOUR_MS)
        assert context.state() is GroupState.DEAD
        assert context.hard_state() == context.replayed_state() == {}


def test_a_group_with_pending_offsets_alone_does_not_expire() -> None:
    with Context(retention_ms=HOUR_MS) as context:
        context.commit_in_transaction(9)
        context.sleep(3 * HOUR_MS)
        assert context.state() is GroupState.EMPTY
        context.end_transaction(commit=True)
        assert context.fetch_offset(stable=True) == 9


@pytest.mark.parametrize("commit", [False, True])
def test_a_deleted_offset_does_not_come_back_with_the_marker(commit: bool) -> None:
    with Context() as context:
        context.commit_offset(5)
        context.commit_in_transaction(9, producer_id=7)
        context.commit_in_transaction(9, producer_id=8)
        context.commit_in_transaction(9, producer_id=8, topic="u")
        assert delete_offset(context) is ErrorCode.NONE
        assert context.fetch_offset(stable=True) == -1
        assert list(context.shard.transactions) == [8]
        for producer_id in (7, 8):
            context.end_transaction(commit=commit, producer_id=producer_id)
        assert [context.fetch_offset(topic, stable=True) for topic in "tu"] == [-1, 9 if commit else -1]
        assert context.hard_state() == context.replayed_state()


def test_a_pending_offset_alone_can_be_deleted_and_committed_again() -> None:
    with Context() as context:
        context.commit_in_transaction(9)
        assert delete_offset(context) is ErrorCode.NONE
        assert context.pending() == {}
        context.commit_in_transaction(10)
        context.end_transaction(commit=True)
        assert context.fetch_offset() == 10


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_group_does_not_come_back_with_the_marker(again: bool) -> None:
    with Context() as context:
        context.commit_offset(5)
        context.commit_in_transaction(9, topic="t")
        context.commit_in_transaction(9, topic="u")
        assert delete_group(context) is ErrorCode.NONE
        assert context.state() is GroupState.DEAD
        if again:
            context.commit_in_transaction(10, topic="u")
        context.end_transaction(commit=True)
        assert [context.fetch_offset(topic, stable=True) for topic in "tu"] == [-1, 10 if again else -1]
        assert context.hard_state() == context.replayed_state()


def test_pending_offsets_of_a_deleted_topic_are_forgotten() -> None:
    with Context() as context:
        context.commit_in_transaction(9, topic="t")
        context.commit_in_transaction(9, topic="u")
        context.coordinator.on_topics_deleted(["t"])
        context.settle()
        assert context.pending() == {("g", "u", 0): {7: 9}}
        context.end_transaction(commit=True)
        assert [context.fetch_offset(topic) for topic in "tu"] == [-1, 9]


def test_all_offsets_of_a_group_are_those_that_count_with_the_unstable_ones_marked() -> None:
    with Context() as context:
        context.commit_offset(5, topic="t")
        context.commit_offset(6, topic="u")
        context.commit_in_transaction(9, topic="t")
        context.commit_in_transaction(9, topic="v")
        assert context.fetch_all_offsets() == {("t", 0): 5, ("u", 0): 6}
        assert context.fetch_all_offsets(stable=True) == {("t", 0): UNSTABLE, ("u", 0): 6}


# --- pieces


def test_a_commit_of_many_partitions_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PARTITIONS_PER_COMMIT", 3)
    with Context() as context:
        response = context.run(context.coordinator.commit_transactional_offsets(request_of(8), 5))
        (topic,) = response.topics
        assert [part.partition_index for part in topic.partitions] == list(range(8))
        assert {part.error_code for part in topic.partitions} == {0}
        assert context.log.appends == 3
        context.end_transaction(commit=True)
        assert [context.fetch_offset(partition=index) for index in range(8)] == list(range(8))
