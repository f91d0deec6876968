"""Following a leader that has deleted the records with which those of the follower would have to be compared."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gregor.replication.partition.delete_records import delete_records_before
from tests.replication.replicas import NOW, Replica, exchange, pair


def diverged(deleted_before: int, batches: Sequence[int] = (15,)) -> tuple[Replica, Replica]:
    """A leader of epoch 1 with offsets 0 to 19, and a follower that has its first five and, in place of the next
    eight, eight of an older epoch that were never committed."""
    leader, follower = Replica(0), Replica(1)
    leader.lead(0, [0], [0, 1], 0)
    leader.append(5)
    follower.lead(0, [1], [0, 1], 0)
    follower.append(5)
    follower.append(8)
    leader.lead(1, [0], [0, 1], 1)
    for count in batches:
        leader.append(count)
    delete_records_before(leader.partition, deleted_before)
    follower.follow(0, 1, [0], [0, 1], 1)
    return leader, follower


def is_as_its_leader(follower: Replica, leader: Replica) -> bool:
    for _ in range(6):
        for key in exchange(follower, leader):
            log = leader.log
            follower.fetcher.reset_to_range(key, 1, log.log_start_offset, log.log_end_offset, NOW)
    return (
        follower.contents(20) == leader.contents(20)
        and follower.log.log_start_offset == leader.log.log_start_offset
        and follower.log.log_end_offset == leader.log.log_end_offset
    )


def test_a_log_that_diverges_in_front_of_the_leaders_start_is_found() -> None:
    leader, follower = diverged(13)
    assert leader.log.epochs.entries() == [(1, 5)]
    exchange(follower, leader)
    assert follower.log.log_end_offset == 5
    assert is_as_its_leader(follower, leader)


@pytest.mark.parametrize(("high_watermark", "batches"), [(5, (15,)), (13, (15,)), (5, (8, 7))])
def test_a_log_in_front_of_that_of_a_leader_that_cannot_compare_begins_with_it(
    high_watermark: int, batches: Sequence[int]
) -> None:
    leader, follower = diverged(13, batches)
    leader.log.epochs.clear()
    leader.log.assign_epoch(1, 13)  # as with Kafka's leaders
    follower.log.offsets.high_watermark = high_watermark
    exchange(follower, leader)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (13, 13)
    assert is_as_its_leader(follower, leader)


def test_a_follower_that_was_compared_does_not_begin_anew_when_all_is_deleted() -> None:
    leader, follower = pair(4)
    while follower.log.log_end_offset < 4:
        exchange(follower, leader)
    assert follower.log.high_watermark < 4
    exchange(follower, leader)
    delete_records_before(leader.partition, 4)
    follower.log.offsets.high_watermark = 3
    exchange(follower, leader)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (4, 4)
    assert follower.log.epochs.entries() == [(0, 0)]  # a log that begins anew has none
