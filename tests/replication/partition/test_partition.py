"""Partition: appends, commits, epochs, ISR rules, and the high watermark against a brute-force twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.partition.offset_lookup import DEBUGGING, end_offset, epoch_end_offset, hides_committed
from gregor.replication.partition.partition import Partition
from tests.replication.fakes import CountingLog
from tests.replication.replicas import state

NOW = 1_000_000
LAG = 10_000


def leader_of(log: Any, replicas: list[int], isr: list[int] | None = None, epoch: int = 0) -> Partition:
    partition = Partition("t", 0, bytes(16), 0, lag_time_max_ms=LAG)
    partition.use_log(log)
    partition.become_leader(state(0, epoch, replicas if isr is None else isr, replicas), NOW)
    return partition


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


class TestSingleReplica:
    def test_append_is_committed_at_once(self) -> None:
        partition = leader_of(CountingLog(), [0])
        info = partition.append(b"abc", NOW, -1)
        assert (info.first_offset, info.last_offset) == (0, 2)
        assert partition.high_watermark == partition.log_end_offset == 3
        answers: list[ErrorCode] = []
        partition.when_committed(3, answers.append)
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
        partition.update_follower(1, 5, NOW)
        assert partition.high_watermark == 0
        partition.update_follower(2, 3, NOW)
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

    def test_commit_with_too_few_left_in_sync_is_told(self) -> None:
        partition = leader_of(CountingLog(min_insync_replicas=2), [0, 1, 2], isr=[0, 1])
        partition.append(b"a", NOW, -1)
        partition.update_follower(1, 1, NOW)
        partition.isr_decided([0], 1, NOW)
        answers: list[ErrorCode] = []
        partition.when_committed(1, answers.append)
        assert answers == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    def test_commit_callbacks_come_in_offset_order(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        order: list[int] = []

        def note(offset: int) -> Callable[[ErrorCode], None]:
            return lambda error: order.append(offset)

        for offset in (3, 1, 2, 5):
            partition.when_committed(offset, note(offset))
        partition.append(b"abcd", NOW, -1)
        assert order == []
        partition.update_follower(1, 4, NOW)
        assert order == [1, 2, 3]

    @pytest.mark.parametrize(
        ("end", "expected"),
        [
            (lambda p: p.become_follower(state(1, 1, [1], [0, 1], 1)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (lambda p: p.offline(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (lambda p: p.offline(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        ],
    )
    def test_end_of_leadership_answers_everybody(self, end: Any, expected: ErrorCode) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        answers: list[ErrorCode] = []
        woken: list[int] = []
        partition.append(b"a", NOW, -1)
        partition.when_committed(1, answers.append)
        partition.delayed.watch(lambda: woken.append(1))
        end(partition)
        assert (answers, woken) == ([expected], [1])
        with pytest.raises(KafkaError) as error:
            partition.append(b"a", NOW, 1)
        assert code_of(error) is expected
        # Late askers hear the same.
        partition.when_committed(1, answers.append)
        assert answers == [expected, expected]


class TestReEntry:
    def test_a_watcher_may_append(self) -> None:
        partition = leader_of(CountingLog(), [0])
        seen: list[int] = []

        def watcher() -> None:
            seen.append(partition.high_watermark)
            if partition.log_end_offset < 4:
                partition.append(b"x", NOW, 1)

        partition.delayed.watch(watcher)
        partition.append(b"x", NOW, 1)
        assert seen == [1, 2, 3, 4]

    def test_commits_asked_for_inside_callbacks_are_answered_in_order_and_not_nested(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        trace: list[str] = []

        def first(error: ErrorCode) -> None:
            trace.append("first in")
            partition.when_committed(2, lambda error: trace.append("nested"))
            trace.append("first out")

        partition.append(b"abc", NOW, -1)
        partition.when_committed(1, first)
        partition.when_committed(2, lambda error: trace.append("second"))
        partition.update_follower(1, 3, NOW)
        assert trace == ["first in", "first out", "second", "nested"]

    def test_a_watcher_may_wait_for_a_commit(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        answers: list[tuple[int, ErrorCode]] = []

        def watcher() -> None:
            partition.delayed.unwatch(handle)
            partition.when_committed(1, lambda error: answers.append((1, error)))
            partition.when_committed(9, lambda error: answers.append((9, error)))

        handle = partition.delayed.watch(watcher)
        partition.append(b"a", NOW, 1)
        partition.update_follower(1, 1, NOW)
        assert answers == [(1, ErrorCode.NONE)]

    def test_an_unwatched_handle_is_not_called_even_by_the_running_round(self) -> None:
        partition = leader_of(CountingLog(), [0])
        called: list[str] = []
        handles: list[int] = []

        def first() -> None:
            called.append("first")
            partition.delayed.unwatch(handles[1])

        handles.append(partition.delayed.watch(first))
        handles.append(partition.delayed.watch(lambda: called.append("second")))
        partition.append(b"a", NOW, 1)
        assert called == ["first"]

    def test_a_failing_callback_hurts_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        called: list[object] = []

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        partition.append(b"a", NOW, 1)
        partition.delayed.watch(broken)
        partition.delayed.watch(lambda: called.append("watcher"))
        partition.when_committed(1, broken)
        partition.when_committed(1, called.append)
        partition.update_follower(1, 1, NOW)
        assert called == [ErrorCode.NONE, "watcher"]
        assert len(caplog.records) == 2

    def test_stopping_inside_a_callback(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        answers: list[ErrorCode] = []
        partition.append(b"ab", NOW, -1)
        partition.when_committed(1, lambda error: partition.offline(ErrorCode.KAFKA_STORAGE_ERROR))
        partition.when_committed(2, answers.append)
        partition.update_follower(1, 2, NOW)
        assert answers == [ErrorCode.KAFKA_STORAGE_ERROR]


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

    def test_latest_offset_is_withheld_while_it_would_go_backwards(self) -> None:
        partition = leader_of(CountingLog(log_end_offset=9, high_watermark=4), [0, 1], epoch=1)
        assert (end_offset(partition), hides_committed(partition)) == (4, True)
        assert end_offset(partition, replica_id=1) == end_offset(partition, replica_id=DEBUGGING) == 9
        partition.update_follower(1, 9, NOW)
        assert (end_offset(partition), hides_committed(partition)) == (9, False)

    def test_diverging_readers_are_told_where_to_cut(self) -> None:
        log = CountingLog(log_end_offset=10, high_watermark=10, epochs=[(1, 0), (3, 6)])
        partition = leader_of(log, [0], epoch=5)
        assert partition.diverging_epoch(-1, 10) is None
        assert partition.diverging_epoch(1, 6) is None
        assert partition.diverging_epoch(1, 7) == (1, 6)
        assert partition.diverging_epoch(2, 7) == (1, 6)
        assert partition.diverging_epoch(3, 10) is None
        for epoch, offset in ((0, 3), (6, 3)):
            with pytest.raises(KafkaError) as error:
                partition.diverging_epoch(epoch, offset)
            assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE


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


class TestIsr:
    def test_a_lagging_follower_is_to_go_and_comes_back_when_level(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        partition.update_follower(1, 0, NOW)
        partition.append(b"abc", NOW, 1)
        assert partition.in_sync.isr_to_shrink(partition.log_end_offset, NOW + LAG) is None
        shrunk = partition.in_sync.isr_to_shrink(partition.log_end_offset, NOW + LAG + 1)
        assert shrunk == [0]
        assert partition.in_sync.stays_in_sync(1, 0)
        assert not partition.in_sync.stays_in_sync(1, 3), "it has not said so"
        partition.in_sync.propose(shrunk)
        # In the set, but not for long: whoever is level now must be looked at again.
        assert (1 in partition.isr, partition.in_sync.stays_in_sync(1, 0)) == (True, False)
        assert partition.in_sync.isr_to_shrink(partition.log_end_offset, NOW + LAG + 1) is None
        # Not decided yet: the old, larger set still holds the HW.
        partition.append(b"d", NOW + LAG + 2, 1)
        assert partition.high_watermark == 0
        partition.isr_decided([0], 1, NOW + LAG + 3)
        assert (partition.high_watermark, partition.isr) == (4, [0])
        partition.update_follower(1, 3, NOW + LAG + 4)
        assert partition.in_sync.isr_to_expand(1, partition.high_watermark) is None
        partition.update_follower(1, 4, NOW + LAG + 5)
        assert partition.in_sync.isr_to_expand(1, partition.high_watermark) == [0, 1]
        partition.in_sync.propose([0, 1])
        partition.append(b"e", NOW + LAG + 6, 1)
        assert partition.high_watermark == 4
        partition.isr_decided([0, 1], 2, NOW + LAG + 7)
        partition.update_follower(1, 5, NOW + LAG + 8)
        assert (partition.high_watermark, partition.isr) == (5, [0, 1])

    def test_a_refused_proposal_leaves_the_committed_set(self) -> None:
        partition = leader_of(CountingLog(), [0, 1], isr=[0])
        partition.in_sync.propose([0, 1])
        partition.append(b"a", NOW + LAG + 1, 1)
        assert partition.high_watermark == 0
        partition.isr_refused(NOW + LAG + 1)
        assert partition.high_watermark == 1

    def test_followers_from_before_this_epoch_do_not_join(self) -> None:
        # HW 2, but this epoch starts at 6: a follower at 4 may lack records an earlier leader committed.
        partition = leader_of(CountingLog(log_end_offset=6, high_watermark=2), [0, 1, 2], isr=[0, 2], epoch=1)
        partition.update_follower(1, 4, NOW)
        assert partition.in_sync.isr_to_expand(1, partition.high_watermark) is None
        partition.update_follower(1, 6, NOW)
        assert partition.in_sync.isr_to_expand(1, partition.high_watermark) == [0, 2, 1]

    def test_leading_again_in_the_same_epoch_begins_afresh(self) -> None:
        log: Any = CountingLog()
        partition = leader_of(log, [0, 1, 2], isr=[0, 1], epoch=3)
        partition.append(b"abcde", NOW, 1)
        partition.offline(ErrorCode.KAFKA_STORAGE_ERROR)
        partition.use_log(log)
        later = NOW + 10 * LAG
        assert partition.become_leader(state(0, 3, [0, 1], [0, 1, 2]), later)
        assert (log.epochs, partition.in_sync.epoch_start_offset) == ([(3, 0)], 5)
        assert partition.in_sync.isr_to_shrink(partition.log_end_offset, later + LAG) is None
        assert partition.in_sync.isr_to_shrink(partition.log_end_offset, later + LAG + 1) == [0]
        partition.update_follower(2, 4, later)
        assert partition.in_sync.isr_to_expand(2, partition.high_watermark) is None

    @pytest.mark.parametrize("gone", [True, False])
    def test_a_level_follower_is_waited_for_while_it_lives_and_may_lag(self, gone: bool) -> None:
        alive = {0, 1, 2}
        partition = Partition("t", 0, bytes(16), 0, lag_time_max_ms=LAG, is_alive=alive.__contains__)
        partition.use_log(CountingLog())  # type: ignore[assignment]
        partition.become_leader(state(0, 0, [0, 1], [0, 1, 2]), NOW)
        partition.update_follower(2, 0, NOW)
        partition.append(b"abc", NOW, -1)
        answers: list[ErrorCode] = []
        partition.when_committed(3, answers.append)
        partition.update_follower(1, 3, NOW)
        partition.check_progress(NOW + LAG)
        assert (partition.high_watermark, answers) == (0, [])
        if gone:
            alive.discard(2)
            partition.check_progress(NOW)
        else:
            partition.check_progress(NOW + LAG + 1)
        assert (partition.high_watermark, answers) == (3, [ErrorCode.NONE])

    def test_dead_brokers_neither_join_nor_hold_back(self) -> None:
        partition = Partition("t", 0, bytes(16), 0, lag_time_max_ms=LAG, is_alive=lambda broker_id: broker_id != 1)
        log: Any = CountingLog()
        partition.use_log(log)
        partition.become_leader(state(0, 0, [0], [0, 1]), NOW)
        partition.update_follower(1, 0, NOW)
        assert partition.in_sync.isr_to_expand(1, partition.high_watermark) is None
        partition.append(b"a", NOW, 1)
        assert partition.high_watermark == 1

    def test_strangers_are_turned_away(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        with pytest.raises(KafkaError) as error:
            partition.update_follower(9, 0, NOW)
        assert code_of(error) is ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_stale_decisions_are_ignored(self) -> None:
        partition = leader_of(CountingLog(), [0, 1])
        partition.isr_decided([0], 0, NOW)
        assert partition.isr == [0, 1]


class BruteForce:
    """The definition of the HW, computed from scratch after each step from everything that ever happened."""

    def __init__(self, replicas: list[int], min_isr: int) -> None:
        self.replicas, self.isr, self.min_isr = replicas, set(replicas), min_isr
        self.end = 0
        self.fetches: dict[int, list[tuple[int, int, int]]] = {r: [] for r in replicas if r != 0}
        self.high_watermark = 0

    def last_level_ms(self, replica: int) -> int:
        """The largest t at which the newest fetch offset covered the leader's end, by trying every fetch."""
        level = NOW if replica in self.initial_isr else 0
        fetches = self.fetches[replica]
        for i, (offset, end, now) in enumerate(fetches):
            if offset >= end:
                level = max(level, now)
            elif offset >= max([-1, *(e for _, e, _ in fetches[:i])]):
                level = max(level, fetches[i - 1][2] if i else 0)
        return level

    initial_isr: frozenset[int] = frozenset()

    def settle(self, now: int) -> None:
        if len(self.isr) < min(self.min_isr, len(self.replicas)):
            return
        ends = [self.end]
        for replica, fetches in self.fetches.items():
            position = fetches[-1][0] if fetches else -1
            level = position == self.end or now - self.last_level_ms(replica) <= LAG
            if replica in self.isr or level:
                ends.append(position)
        self.high_watermark = max(self.high_watermark, min(ends))


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), st.integers(1, 3), st.integers(0, 100)),
    st.tuples(st.just("isr"), st.sets(st.integers(1, 3))),
    st.tuples(st.just("sleep"), st.integers(0, LAG)),
)


@settings(max_examples=40, deadline=None)
@given(replica_count=st.integers(1, 4), min_isr=st.integers(1, 4), steps=st.lists(STEP, max_size=30))
def test_high_watermark_against_brute_force(replica_count: int, min_isr: int, steps: list[Any]) -> None:
    replicas = list(range(replica_count))
    log: Any = CountingLog(min_insync_replicas=min_isr)
    partition = leader_of(log, replicas)
    twin = BruteForce(replicas, min_isr)
    twin.initial_isr = frozenset(replicas)
    twin.settle(NOW)
    now, epoch = NOW, 0
    for step in steps:
        before = partition.high_watermark
        if step[0] == "append":
            partition.append(b"x" * step[1], now, 1)
            partition.check_progress(now)  # what time has changed is not looked at with each append to several in sync
            twin.end += step[1]
        elif step[0] == "fetch" and step[1] in replicas:
            # A follower that repeats its position changes no HW (as in Kafka), so time alone must not either.
            offset = twin.end * step[2] // 100
            if twin.fetches[step[1]] and twin.fetches[step[1]][-1][0] == offset:
                continue
            partition.update_follower(step[1], offset, now)
            twin.fetches[step[1]].append((offset, twin.end, now))
        elif step[0] == "isr":
            epoch += 1
            isr = {0, *step[1]} & set(replicas)
            partition.isr_decided(sorted(isr), epoch, now)
            twin.isr = isr
        elif step[0] == "sleep":
            now += step[1]
            continue
        else:
            continue
        twin.settle(now)
        assert partition.high_watermark == twin.high_watermark
        assert before <= partition.high_watermark <= partition.log_end_offset
