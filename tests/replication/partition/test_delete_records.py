"""DeleteRecords at the leader: the new log start offset, and the low watermark of all replicas."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.partition.delete_records import HIGH_WATERMARK, delete_records_before, low_watermark
from tests.replication.replicas import NOW, Replica, code_of


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
