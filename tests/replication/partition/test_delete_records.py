"""DeleteRecords at the leader: the new log start offset, and the low watermark of all replicas."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.partition.delete_records import HIGH_WATERMARK, delete_records_before, low_watermark
from gregor.replication.partition.partition import Partition
from tests.replication.replicas import LAG, NOW, Replica, code_of, state
from tests.storage.logs import batch, open_log
from tests.storage.memory_files import MemoryFiles


def leader(replicas: list[int], records: int) -> Replica:
    replica = Replica(0)
    replica.lead(0, replicas, replicas, 0)
    replica.append(records)
    return replica


def test_the_low_watermark_follows_when_the_followers_have_sent_their_start() -> None:
    partition = leader([0, 1], 5).partition
    partition.leadership.update_follower(1, 5, NOW, log_start_offset=0)
    calls: list[int] = []
    partition.delayed.watch(lambda: calls.append(low_watermark(partition)))
    assert delete_records_before(partition, 3) == 3
    assert (partition.log_start_offset, low_watermark(partition)) == (3, 0)
    partition.leadership.update_follower(1, 5, NOW, log_start_offset=3)
    assert calls == [0, 3]


def test_a_dead_follower_in_sync_holds_the_low_watermark_until_the_controller_removes_it() -> None:
    """It may be the leader already, while this broker has not received that: its records are not deleted."""
    alive = {1, 2}
    partition = Partition("orders", 0, bytes(16), 0, lag_time_max_ms=LAG, is_alive=alive.__contains__)
    partition.use_log(open_log(MemoryFiles()))
    partition.become_leader(state(0, 0, [0, 1], [0, 1, 2]), NOW)
    partition.append(batch(5), NOW, 1)
    for follower in (1, 2):
        partition.leadership.update_follower(follower, 5, NOW, log_start_offset=0)
    low_watermarks: list[int] = []
    partition.delayed.watch(lambda: low_watermarks.append(low_watermark(partition)))
    delete_records_before(partition, 3)
    partition.leadership.update_follower(2, 5, NOW, log_start_offset=2)
    alive.clear()
    partition.leadership.check_progress(NOW)
    assert set(low_watermarks) == {0} == {low_watermark(partition)}
    partition.leadership.commit_isr([0], NOW)
    assert low_watermarks[-1] == 3


def test_the_death_of_a_follower_out_of_sync_moves_the_low_watermark() -> None:
    alive = {1}
    partition = Partition("orders", 0, bytes(16), 0, lag_time_max_ms=LAG, is_alive=alive.__contains__)
    partition.use_log(open_log(MemoryFiles()))
    partition.become_leader(state(0, 0, [0], [0, 1]), NOW)
    partition.append(batch(5), NOW, 1)
    partition.leadership.update_follower(1, 1, NOW, log_start_offset=0)
    delete_records_before(partition, 3)
    low_watermarks: list[int] = []
    partition.delayed.watch(lambda: low_watermarks.append(low_watermark(partition)))
    partition.leadership.check_progress(NOW)
    before = len(low_watermarks)
    partition.leadership.check_progress(NOW)
    assert len(low_watermarks) == before, "nothing has moved since"
    alive.clear()
    partition.leadership.check_progress(NOW)
    assert low_watermarks[-1] == 3


def test_the_high_watermark_stands_for_all_that_is_committed() -> None:
    partition = leader([0], 4).partition
    assert delete_records_before(partition, HIGH_WATERMARK) == 4
    assert (partition.log_start_offset, low_watermark(partition)) == (4, 4)


@pytest.mark.parametrize("offset", [-2, 9])
def test_offsets_out_of_range_are_refused(offset: int) -> None:
    partition = leader([0], 4).partition
    with pytest.raises(KafkaError) as error:
        delete_records_before(partition, offset)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log_start_offset == 0


def test_a_follower_deletes_nothing() -> None:
    replica = leader([0, 1], 4)
    replica.follow(1, 1, [0, 1], [0, 1], 1)
    with pytest.raises(KafkaError) as error:
        delete_records_before(replica.partition, 1)
    assert code_of(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER
