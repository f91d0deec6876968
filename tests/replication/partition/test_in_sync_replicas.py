"""The in-sync set: who joins and who leaves it, and the high watermark against a brute-force twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.partition.in_sync_replicas import InSyncReplicas
from gregor.replication.partition.partition import Partition
from tests.replication.fakes import CountingLog
from tests.replication.replicas import LAG, NOW, code_of, leader_of, state


def test_a_lagging_follower_leaves_and_rejoins_when_it_has_caught_up() -> None:
    partition = leader_of(CountingLog(), [0, 1])
    partition.leadership.update_follower(1, 0, NOW)
    partition.append(b"abc", NOW, 1)
    assert partition.in_sync.isr_to_shrink(partition.log_end_offset, NOW + LAG) is None
    shrunk = partition.in_sync.isr_to_shrink(partition.log_end_offset, NOW + LAG + 1)
    assert shrunk == [0]
    assert partition.in_sync.stays_in_sync(1, 0)
    assert not partition.in_sync.stays_in_sync(1, 3), "it has fetched at no such offset"
    partition.in_sync.propose(shrunk)
    # It is in the set until the change is decided: each fetch of it must be checked again.
    assert (1 in partition.isr, partition.in_sync.stays_in_sync(1, 0)) == (True, False)
    assert partition.in_sync.isr_to_shrink(partition.log_end_offset, NOW + LAG + 1) is None
    # Not decided yet: the old, larger set still holds the HW.
    partition.append(b"d", NOW + LAG + 2, 1)
    assert partition.high_watermark == 0
    partition.isr_decided([0], 1, NOW + LAG + 3)
    assert (partition.high_watermark, partition.isr) == (4, [0])
    partition.leadership.update_follower(1, 3, NOW + LAG + 4)
    assert partition.in_sync.isr_to_expand(1, partition.high_watermark) is None
    partition.leadership.update_follower(1, 4, NOW + LAG + 5)
    assert partition.in_sync.isr_to_expand(1, partition.high_watermark) == [0, 1]
    partition.in_sync.propose([0, 1])
    partition.append(b"e", NOW + LAG + 6, 1)
    assert partition.high_watermark == 4
    partition.isr_decided([0, 1], 2, NOW + LAG + 7)
    partition.leadership.update_follower(1, 5, NOW + LAG + 8)
    assert (partition.high_watermark, partition.isr) == (5, [0, 1])


def test_a_refused_proposal_leaves_the_committed_set() -> None:
    partition = leader_of(CountingLog(), [0, 1], isr=[0])
    partition.in_sync.propose([0, 1])
    partition.append(b"a", NOW + LAG + 1, 1)
    assert partition.high_watermark == 0
    partition.leadership.isr_refused(NOW + LAG + 1)
    assert partition.high_watermark == 1


def test_followers_from_before_this_epoch_do_not_join() -> None:
    # HW 2, but this epoch starts at 6: a follower at 4 may lack records an earlier leader committed.
    partition = leader_of(CountingLog(log_end_offset=6, high_watermark=2), [0, 1, 2], isr=[0, 2], epoch=1)
    partition.leadership.update_follower(1, 4, NOW)
    assert partition.in_sync.isr_to_expand(1, partition.high_watermark) is None
    partition.leadership.update_follower(1, 6, NOW)
    assert partition.in_sync.isr_to_expand(1, partition.high_watermark) == [0, 2, 1]


def test_leading_again_in_the_same_epoch_begins_afresh() -> None:
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
    partition.leadership.update_follower(2, 4, later)
    assert partition.in_sync.isr_to_expand(2, partition.high_watermark) is None


@pytest.mark.parametrize("gone", [True, False])
def test_a_caught_up_follower_outside_the_isr_holds_the_high_watermark_back(gone: bool) -> None:
    alive = {0, 1, 2}
    partition = Partition("t", 0, bytes(16), 0, lag_time_max_ms=LAG, is_alive=alive.__contains__)
    partition.use_log(CountingLog())  # type: ignore[assignment]
    partition.become_leader(state(0, 0, [0, 1], [0, 1, 2]), NOW)
    partition.leadership.update_follower(2, 0, NOW)
    partition.append(b"abc", NOW, -1)
    answers: list[ErrorCode] = []
    partition.leadership.when_committed(3, answers.append)
    partition.leadership.update_follower(1, 3, NOW)
    partition.leadership.check_progress(NOW + LAG)
    assert (partition.high_watermark, answers) == (0, [])
    if gone:
        alive.discard(2)
        partition.leadership.check_progress(NOW)
    else:
        partition.leadership.check_progress(NOW + LAG + 1)
    assert (partition.high_watermark, answers) == (3, [ErrorCode.NONE])


def test_dead_brokers_neither_join_nor_hold_back() -> None:
    partition = Partition("t", 0, bytes(16), 0, lag_time_max_ms=LAG, is_alive=lambda broker_id: broker_id != 1)
    log: Any = CountingLog()
    partition.use_log(log)
    partition.become_leader(state(0, 0, [0], [0, 1]), NOW)
    partition.leadership.update_follower(1, 0, NOW)
    assert partition.in_sync.isr_to_expand(1, partition.high_watermark) is None
    partition.append(b"a", NOW, 1)
    assert partition.high_watermark == 1


def test_a_broker_that_is_no_replica_is_refused() -> None:
    partition = leader_of(CountingLog(), [0, 1])
    with pytest.raises(KafkaError) as error:
        partition.leadership.update_follower(9, 0, NOW)
    assert code_of(error) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_stale_decisions_are_ignored() -> None:
    partition = leader_of(CountingLog(), [0, 1])
    partition.isr_decided([0], 0, NOW)
    assert partition.isr == [0, 1]


def test_only_a_follower_in_sync_that_stays_in_the_set_needs_no_check_at_its_next_fetch() -> None:
    in_sync = InSyncReplicas(0, LAG, lambda _broker_id: True)
    in_sync.assign([0, 1, 2], [0, 1])
    for broker_id in (1, 2):
        in_sync.followers[broker_id].fetched(5, 0, 5, NOW)
    assert [in_sync.stays_in_sync(broker_id, 5) for broker_id in (1, 2, 3)] == [True, False, False]
    in_sync.propose([0, 1, 2])
    assert in_sync.stays_in_sync(1, 5)
    in_sync.commit([0, 1])
    in_sync.propose([0])
    assert not in_sync.stays_in_sync(1, 5)
    in_sync.clear()
    assert not in_sync.stays_in_sync(1, 5)


def test_a_fetch_that_did_not_name_the_partition_counts_for_a_caught_up_follower() -> None:
    in_sync = InSyncReplicas(0, LAG, lambda _broker_id: True)
    in_sync.assign([0, 1, 2], [0, 1, 2])
    in_sync.followers[1].fetched(5, 0, 5, NOW)
    in_sync.followers[2].fetched(4, 0, 5, NOW)
    for broker_id in (1, 2, 3):
        in_sync.record_caught_up(broker_id, 5, NOW + LAG)
    assert in_sync.isr_to_shrink(6, NOW + 2 * LAG) == [0, 1]
    assert in_sync.isr_to_shrink(6, NOW + 2 * LAG + 1) == [0]


def test_the_low_watermark_is_that_of_the_live_replicas_and_of_those_in_sync() -> None:
    """A follower in sync that is not alive may be the next leader, with the records that the others deleted."""
    alive = {1, 2}
    in_sync = InSyncReplicas(0, LAG, alive.__contains__)
    in_sync.assign([0, 1, 2], [0])
    assert in_sync.low_watermark(7) == -1, "no follower has sent its log start offset"
    in_sync.followers[1].fetched(9, 3, 9, NOW)
    in_sync.followers[2].fetched(9, 5, 9, NOW)
    assert (in_sync.low_watermark(7), in_sync.low_watermark(2)) == (3, 2)
    alive.discard(1)
    assert in_sync.low_watermark(7) == 5
    in_sync.propose([0, 1])
    assert in_sync.low_watermark(7) == 3, "the controller may have the follower in sync already"
    in_sync.commit([0, 1])
    assert in_sync.low_watermark(7) == 3
    in_sync.commit([0])
    assert in_sync.low_watermark(7) == 5


def test_followers_that_stay_keep_their_positions_and_broker_epochs() -> None:
    in_sync = InSyncReplicas(0, LAG, lambda _broker_id: True)
    in_sync.assign([0, 1, 2], [0, 1, 2])
    in_sync.followers[1].broker_epoch = 8
    in_sync.assign([3, 1, 0], [0, 1])
    assert [in_sync.broker_epoch(broker_id) for broker_id in (1, 2, 3)] == [8, -1, -1]
    assert sorted(in_sync.followers) == [1, 3]
    assert [follower.broker_id for follower in in_sync.followers_in_sync()] == [1]


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

    def advance(self, now: int) -> None:
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
    twin.advance(NOW)
    now, epoch = NOW, 0
    for step in steps:
        before = partition.high_watermark
        if step[0] == "append":
            partition.append(b"x" * step[1], now, 1)
            partition.leadership.check_progress(
                now
            )  # an append with several in sync does not check what time has changed
            twin.end += step[1]
        elif step[0] == "fetch" and step[1] in replicas:
            # A follower that repeats its position changes no HW (as in Kafka), so time alone must not either.
            offset = twin.end * step[2] // 100
            if twin.fetches[step[1]] and twin.fetches[step[1]][-1][0] == offset:
                continue
            partition.leadership.update_follower(step[1], offset, now)
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
        twin.advance(now)
        assert partition.high_watermark == twin.high_watermark
        assert before <= partition.high_watermark <= partition.log_end_offset
