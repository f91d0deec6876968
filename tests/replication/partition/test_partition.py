"""Partition: appends, commits, epochs and roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.control import EndTransaction
from gregor.replication.partition.offset_lookup import DEBUGGING, end_offset, epoch_end_offset, hides_committed
from gregor.replication.partition.partition import Partition
from tests.replication.fakes import CountingLog
from tests.replication.replicas import NOW, code_of, leader_of, state
from tests.storage.logs import open_log, sequenced
from tests.storage.memory_files import MemoryFiles


class TestSingleReplica:
    def test_append_is_committed_at_once(self) -> None:
        partition = leader_of(CountingLog(), [0])
        info = partition.append(b"abc", NOW, -1)
        assert (info.first_offset, info.last_offset) == (0, 2)
        assert partition.high_watermark == partition.log_end_offset == 3
        answers: list[ErrorCode] = []
        partition.leadership.when_committed(3, answers.append)
        assert answers == [ErrorCode.NONE]

    def test_existing_records_are_committed_on_becoming_leader(self) -> None:
        assert leader_of(CountingLog(log_end_offset=7, high_watermark=4), [0]).high_watermark == 7

    def test_min_insync_replicas_above_the_replication_factor_is_no_obstacle(self) -> None:
        partition = leader_of(CountingLog(min_insync_replicas=3), [0])
        partition.append(b"a", NOW, -1)
        assert partition.high_watermark == 1

    def test_a_refusing_log_moves_nothing(self) -> None:
        log = CountingLog()
        partition = leader_of(log, [0])
        woken: list[int] = []
        partition.delayed.watch(lambda: woken.append(1))
        log.refuse = KafkaError(ErrorCode.CORRUPT_MESSAGE)
        with pytest.raises(KafkaError) as error:
            partition.append(b"a", NOW, 1)
        assert code_of(error) is ErrorCode.CORRUPT_MESSAGE
        assert (partition.high_watermark, woken) == (0, [])

    def test_internal_appends_are_passed_on_as_such(self) -> None:
        partition = leader_of(CountingLog(), [0])
        outside: Any = partition.append(b"a", NOW, -1)
        inside: Any = partition.append(b"a", NOW, -1, from_client=False)
        assert (outside.from_client, inside.from_client) == (True, False)


class TestReplicated:
    def test_high_watermark_is_the_slowest_in_sync_end(self) -> None:
        partition = leader_of(CountingLog(), [0, 1, 2])
        partition.append(b"abcde", NOW, 1)
        assert partition.high_watermark == 0
        partition.leadership.update_follower(1, 5, NOW)
        assert partition.high_watermark == 0
        partition.leadership.update_follower(2, 3, NOW)
        assert partition.high_watermark == 3

    def test_acks_all_is_refused_before_writing_when_too_few_are_in_sync(self) -> None:
        partition = leader_of(CountingLog(min_insync_replicas=2), [0, 1], isr=[0])
        with pytest.raises(KafkaError) as error:
            partition.append(b"a", NOW, -1)
        assert code_of(error) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log_end_offset == 0
        partition.append(b"a", NOW, 1)
        # acks=1 writes, but nothing commits below min.insync.replicas.
        assert (partition.log_end_offset, partition.high_watermark) == (1, 0)

    def test_commit_with_too_few_left_in_sync_has_an_error_of_its_own(self) -> None:
        partition = leader_of(CountingLog(min_insync_replicas=2), [0, 1, 2], isr=[0, 1])
        partition.append(b"a", NOW, -1)
        partition.leadership.update_follower(1, 1, NOW)
        partition.isr_decided([0], 1, NOW)
        answers: list[ErrorCode] = []
        partition.leadership.when_committed(1, answers.append)
        assert answers == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    def test_commit_callbacks_come_in_offset_order(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        order: list[int] = []

        def note(offset: int) -> Callable[[ErrorCode], None]:
            return lambda error: order.append(offset)

        for offset in (3, 1, 2, 5):
            partition.leadership.when_committed(offset, note(offset))
        partition.append(b"abcd", NOW, -1)
        assert order == []
        partition.leadership.update_follower(1, 4, NOW)
        assert order == [1, 2, 3]

    @pytest.mark.parametrize(
        ("end", "expected"),
        [
            (lambda p: p.become_follower(state(1, 1, [1], [0, 1], 1)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (lambda p: p.offline(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (lambda p: p.offline(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        ],
    )
    def test_end_of_leadership_completes_all_that_is_delayed(self, end: Any, expected: ErrorCode) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        answers: list[ErrorCode] = []
        woken: list[int] = []
        partition.append(b"a", NOW, -1)
        partition.leadership.when_committed(1, answers.append)
        partition.delayed.watch(lambda: woken.append(1))
        end(partition)
        assert (answers, woken) == ([expected], [1])
        with pytest.raises(KafkaError) as error:
            partition.append(b"a", NOW, 1)
        assert code_of(error) is expected
        # A callback that comes later gets the same.
        partition.leadership.when_committed(1, answers.append)
        assert answers == [expected, expected]


class TestEpochs:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [(-1, None), (3, None), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
    )
    def test_check(self, asked: int, expected: ErrorCode | None) -> None:
        partition = leader_of(CountingLog(), [0], epoch=3)
        calls: list[Callable[[], object]] = [
            lambda: partition.check_epoch(asked),
            lambda: partition.read(0, 10, current_leader_epoch=asked),
            lambda: end_offset(partition, current_leader_epoch=asked),
            lambda: epoch_end_offset(partition, 3, current_leader_epoch=asked),
        ]
        for call in calls:
            if expected is None:
                call()
            else:
                with pytest.raises(KafkaError) as error:
                    call()
                assert code_of(error) is expected

    def test_a_new_epoch_is_noted_with_its_first_offset_once(self) -> None:
        log = CountingLog(log_end_offset=5)
        partition = leader_of(log, [0], epoch=2)
        assert log.epochs == [(2, 5)]
        partition.append(b"a", NOW, 1)
        partition.become_leader(state(0, 2, [0], [0], 1), NOW)
        assert log.epochs == [(2, 5)]
        # After a restart in the same epoch its first offset stays what it was.
        assert leader_of(log, [0], epoch=2).in_sync.epoch_start_offset == 6
        assert log.epochs == [(2, 5)]

    def test_older_partition_epochs_are_ignored(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        partition.isr_decided([0], 5, NOW)
        assert partition.become_follower(state(1, 1, [1], [0, 1], 4)) is False
        assert partition.become_leader(state(0, 1, [0, 1], [0, 1], 4), NOW) is False
        assert (partition.is_leader, partition.isr, partition.leader_epoch) == (True, [0], 0)


class TestReading:
    def test_consumers_stop_at_the_high_watermark_and_followers_at_the_end(self) -> None:
        partition = leader_of(CountingLog(log_end_offset=9, high_watermark=4), [0, 1])
        consumed: Any = partition.read(2, 100)
        replicated: Any = partition.read(2, 100, replica_id=1)
        assert (list(consumed), list(replicated)) == ([2, 3], [2, 3, 4, 5, 6, 7, 8])
        with pytest.raises(KafkaError) as error:
            partition.read(10, 100)
        assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_followers_do_not_serve(self) -> None:
        partition = Partition("t", 0, bytes(16), 0)
        log: Any = CountingLog()
        partition.use_log(log)
        assert partition.become_follower(state(1, 4, [1, 0], [1, 0])) is True
        assert partition.become_follower(state(1, 4, [1, 0], [1, 0], 1)) is False
        assert (partition.leader_id, partition.leader_epoch, partition.isr) == (1, 4, [])
        for call in (
            lambda: partition.read(0, 1),
            lambda: end_offset(partition),
            lambda: epoch_end_offset(partition, 0),
        ):
            with pytest.raises(KafkaError) as error:
                call()
            assert code_of(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end_offset(partition, replica_id=DEBUGGING) == partition.log_end_offset
        assert not hides_committed(partition)


def transactional(sequence: int = 0) -> bytearray:
    return sequenced(7, 0, sequence, transactional=True)


class TestTransactions:
    def test_a_marker_of_a_sole_leader_is_committed_at_once(self) -> None:
        partition = leader_of(open_log(MemoryFiles()), [0])
        assert partition.append_verified(transactional(), NOW, -1, partition.begin_verification(7, 0, 0, False))
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        seen: list[int] = []
        partition.delayed.watch(lambda: seen.append(partition.last_stable_offset))
        info = partition.append_marker(EndTransaction(7, 0, 1, commit=True), NOW)
        assert (info.last_offset, partition.last_stable_offset, seen) == (1, 2, [2])

    def test_the_stable_offset_moves_with_the_high_watermark(self) -> None:
        partition = leader_of(open_log(MemoryFiles()), [0, 1])
        partition.append(transactional(), NOW, -1)
        partition.append_marker(EndTransaction(7, 0, 1, commit=True), NOW)
        partition.leadership.update_follower(1, 1, NOW)
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        seen: list[int] = []
        partition.delayed.watch(lambda: seen.append(partition.last_stable_offset))
        partition.leadership.update_follower(1, 2, NOW)
        assert seen == [2]

    def test_a_marker_needs_enough_replicas_in_sync(self) -> None:
        partition = leader_of(open_log(MemoryFiles(), min_insync_replicas=2), [0, 1], [0])
        with pytest.raises(KafkaError) as error:
            partition.append_marker(EndTransaction(7, 0, 1, commit=True), NOW)
        assert code_of(error) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log_end_offset == 0

    def test_a_fenced_coordinator_writes_nothing(self) -> None:
        partition = leader_of(open_log(MemoryFiles()), [0])
        partition.append_marker(EndTransaction(7, 0, 2, commit=True), NOW)
        with pytest.raises(KafkaError) as error:
            partition.append_marker(EndTransaction(7, 0, 1, commit=True), NOW)
        assert code_of(error) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert partition.log_end_offset == 1

    def test_only_transactional_batches_need_a_guard(self) -> None:
        partition = leader_of(open_log(MemoryFiles()), [0])
        partition.append_verified(sequenced(7, 0, 0), NOW, -1, None)
        with pytest.raises(KafkaError) as error:
            partition.append_verified(transactional(1), NOW, -1, None)
        assert code_of(error) is ErrorCode.INVALID_TXN_STATE
        with pytest.raises(KafkaError) as error:
            partition.append_verified(b"short", NOW, -1, None)
        assert code_of(error) is ErrorCode.INVALID_RECORD

    def test_a_control_batch_of_a_client_is_refused_before_its_transaction_is_verified(self) -> None:
        partition = leader_of(open_log(MemoryFiles()), [0])
        guard = partition.begin_verification(7, 0, 0, True)
        for given, sequence in ((guard, 3), (guard, 0), (None, 0)):
            control = sequenced(7, 0, sequence, transactional=True, control=True)
            with pytest.raises(KafkaError, match="control") as error:
                partition.append_verified(control, NOW, -1, given)
            assert code_of(error) is ErrorCode.INVALID_RECORD
        assert partition.append_verified(transactional(), NOW, -1, guard).first_offset == 0

    def test_a_follower_neither_verifies_nor_ends_transactions(self) -> None:
        partition = Partition("t", 0, bytes(16), 1)
        partition.use_log(open_log(MemoryFiles()))
        partition.become_follower(state(0, 1, [0, 1], [0, 1]))
        marker = EndTransaction(7, 0, 1, commit=True)
        for attempt in (
            lambda: partition.begin_verification(7, 0, 0, False),
            lambda: partition.append_verified(transactional(), NOW, -1, None),
            lambda: partition.append_marker(marker, NOW),
        ):
            with pytest.raises(KafkaError) as error:
                attempt()
            assert code_of(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_without_a_log_there_is_no_stable_offset(self) -> None:
        assert Partition("t", 0, bytes(16), 1).last_stable_offset == -1
