"""FollowerState: when a follower counts as level with its leader."""

from __future__ import annotations

from gregor.replication.partition.in_sync_replicas import UNKNOWN_OFFSET, FollowerState

LAG = 10


def test_level_at_the_fetch_counts_from_then() -> None:
    follower = FollowerState(1)
    follower.fetched(5, 0, leader_end_offset=5, now_ms=100)
    assert follower.last_caught_up_ms == 100
    assert follower.caught_up(9, 110, LAG)
    assert not follower.caught_up(9, 111, LAG)
    # At the leader's end it is level however long ago it fetched.
    assert follower.caught_up(5, 10_000, LAG)


def test_under_steady_load_it_is_level_with_the_end_of_one_fetch_ago() -> None:
    follower = FollowerState(1)
    follower.fetched(0, 0, leader_end_offset=10, now_ms=100)
    follower.fetched(10, 0, leader_end_offset=20, now_ms=150)
    assert follower.last_caught_up_ms == 100
    follower.fetched(15, 0, leader_end_offset=30, now_ms=200)
    assert follower.last_caught_up_ms == 100
    follower.fetched(30, 0, leader_end_offset=40, now_ms=250)
    assert follower.last_caught_up_ms == 200


def test_a_new_leader_knows_nothing_of_its_followers_positions() -> None:
    follower = FollowerState(1)
    follower.fetched(5, 2, leader_end_offset=5, now_ms=100)
    follower.leader_epoch_began(8, newly_leader=True, in_isr=True, now_ms=200)
    assert (follower.log_end_offset, follower.log_start_offset) == (UNKNOWN_OFFSET, UNKNOWN_OFFSET)
    # A member of the ISR has a whole lag period to show itself, others must fetch first.
    assert follower.caught_up(8, 210, LAG)
    follower.leader_epoch_began(8, newly_leader=True, in_isr=False, now_ms=200)
    assert not follower.caught_up(8, 201, LAG)


def test_a_re_elected_leader_keeps_the_positions() -> None:
    follower = FollowerState(1)
    follower.fetched(5, 2, leader_end_offset=9, now_ms=100)
    follower.leader_epoch_began(9, newly_leader=False, in_isr=True, now_ms=200)
    assert (follower.log_end_offset, follower.last_caught_up_ms) == (5, 200)


def test_a_clock_that_is_set_back_gives_nobody_more_than_the_lag_period() -> None:
    follower = FollowerState(1)
    follower.fetched(5, 0, leader_end_offset=5, now_ms=1_000_000)
    assert follower.caught_up(9, 100, LAG)
    assert follower.caught_up(9, 110, LAG)
    assert not follower.caught_up(9, 111, LAG)
    follower.fetched(5, 0, leader_end_offset=9, now_ms=2_000_000)
    follower.fetched(9, 0, leader_end_offset=12, now_ms=200)
    assert follower.last_caught_up_ms == 200, "level with the end of the fetch before, which was just now"
    assert not follower.caught_up(12, 211, LAG)
