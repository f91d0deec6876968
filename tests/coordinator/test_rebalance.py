"""The phases of a rebalance and the timers that end them."""

from typing import Any

import pytest

from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.context import Context

DELAY_MS = 3_000


# --- the initial delay


def test_a_new_group_waits_for_more_members() -> None:
    with Context() as context:
        _, join = context.new_member()
        context.sleep(DELAY_MS - 10)
        assert not join.done
        context.sleep(10)
        assert join.response.generation_id == 1


def test_each_newcomer_extends_the_delay() -> None:
    with Context() as context:
        _, first = context.new_member()
        context.sleep(2_000)
        context.new_member()
        context.sleep(1_500)
        assert not first.done
        context.sleep(2_500)
        assert len(first.response.members) == 2


def test_the_delay_is_not_extended_beyond_the_rebalance_timeout() -> None:
    with Context() as context:
        _, first = context.new_member(rebalance_ms=7_000)
        started = context.now_ms()
        joins = []
        while not first.done:
            joins.append(context.new_member(rebalance_ms=7_000)[1])
            context.sleep(500)
        assert 7_000 <= context.now_ms() - started <= 7_500
        assert len(first.response.members) == 15
        assert joins[0].done


def test_without_a_delay_the_first_generation_comes_at_once() -> None:
    with Context(initial_rebalance_delay_ms=0) as context:
        _, join = context.new_member()
        context.sleep(0)
        assert join.response.generation_id == 1


def test_the_end_of_the_delay_does_not_wait_for_ids_that_are_not_used() -> None:
    with Context() as context:
        _, join = context.new_member()
        context.join()
        context.sleep(DELAY_MS)
        assert join.response.generation_id == 1


def test_a_group_that_everybody_left_while_it_formed_becomes_empty() -> None:
    with Context() as context:
        member_id, join = context.new_member()
        assert context.leave(member_id).response.members[0].error_code == 0
        assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.state() is GroupState.PREPARING_REBALANCE
        context.sleep(DELAY_MS)
        assert (context.state(), context.shard.soft.memberships) == (GroupState.EMPTY, {})
        assert context.hard_state() == context.replayed_state()


# --- waiting for joins


def test_members_that_do_not_rejoin_are_left_behind() -> None:
    with Context() as context:
        leader, follower, third = context.stable_group(3, rebalance_ms=20_000, session_ms=60_000)
        rejoins = [context.join(who, rebalance_ms=20_000, session_ms=60_000) for who in (leader, third)]
        context.sleep(19_990)
        assert not any(rejoin.done for rejoin in rejoins)
        context.sleep(10)
        assert [member.member_id for member in rejoins[0].response.members] == [leader, third]
        assert context.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_member_decides_how_long_a_rebalance_waits() -> None:
    with Context() as context:
        patient, _ = context.new_member(rebalance_ms=90_000, session_ms=200_000)
        hasty, first = context.new_member(rebalance_ms=6_000, session_ms=200_000)
        context.sleep(3 * DELAY_MS)
        assert first.done
        context.sync_all([patient, hasty], 1)
        rejoin = context.join(hasty, protocols=[("range", b"new")])
        context.sleep(89_990)
        assert not rejoin.done
        context.sleep(10)
        assert rejoin.response.leader == hasty


def test_a_rebalance_waits_for_an_id_that_was_handed_out() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        told = context.join(session_ms=8_000).response.member_id
        rejoin = context.join(member_id)
        assert not rejoin.done
        newcomer = context.join(told)
        assert len(rejoin.response.members) == 2
        assert newcomer.response.generation_id == 2


def test_an_id_that_is_not_used_holds_a_rebalance_up_for_one_session() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        context.join(session_ms=8_000)
        rejoin = context.join(member_id)
        context.sleep(7_990)
        assert not rejoin.done
        context.sleep(10)
        assert len(rejoin.response.members) == 1


def test_another_leader_is_found_when_the_leader_does_not_rejoin() -> None:
    with Context() as context:
        leader, follower = context.static_group(["a", "b"], rebalance_ms=15_000, session_ms=100_000)
        rejoin = context.join(follower, instance="b", protocols=[("range", b"new")], session_ms=100_000)
        context.sleep(60_000)
        assert rejoin.response.leader == follower
        # A static member keeps its place while its session lasts.
        assert {member.member_id for member in rejoin.response.members} == {leader, follower}


def test_a_group_whose_static_members_all_stay_away_waits_until_their_sessions_end() -> None:
    with Context() as context:
        first, second = context.static_group(["a", "b"], rebalance_ms=10_000, session_ms=25_000)
        context.join(version=3)
        dynamic = next(who for who in context.shard.soft.memberships["g"].members if who not in (first, second))
        context.leave(dynamic)
        context.sleep(10_000)
        assert context.state() is GroupState.PREPARING_REBALANCE
        context.sleep(15_000)
        assert context.state() is GroupState.EMPTY


# --- waiting for syncs


def test_members_that_do_not_sync_are_removed() -> None:
    with Context() as context:
        leader, one = context.new_member(rebalance_ms=20_000, session_ms=100_000)
        lazy, _ = context.new_member(rebalance_ms=20_000, session_ms=100_000)
        context.sleep(3 * DELAY_MS)
        assert one.done
        sync = context.sync(leader, 1, {leader: b"all"})
        assert sync.response.assignment == b"all"
        assert context.state() is GroupState.STABLE
        context.sleep(20_000)
        assert context.state() is GroupState.PREPARING_REBALANCE
        assert context.heartbeat(lazy, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.join(leader).response.generation_id == 2


def test_if_nobody_syncs_the_group_becomes_empty() -> None:
    with Context() as context:
        context.new_member(rebalance_ms=20_000, session_ms=100_000)
        context.sleep(DELAY_MS + 20_000)
        assert context.state() is GroupState.EMPTY
        assert context.hard_state() == context.replayed_state()


def test_without_a_rebalance_timeout_a_member_has_its_session_to_sync() -> None:
    with Context() as context:
        leader, one = context.new_member(rebalance_ms=0, session_ms=30_000)
        context.sleep(DELAY_MS)
        assert one.done
        context.sleep(29_000 - DELAY_MS)
        assert context.sync(leader, 1, {leader: b"all"}).response.assignment == b"all"
        assert context.state() is GroupState.STABLE


def test_without_a_rebalance_timeout_too_a_member_that_does_not_sync_is_removed() -> None:
    with Context() as context:
        leader, _ = context.new_member(rebalance_ms=0, session_ms=30_000)
        context.sleep(DELAY_MS + 20_000)
        assert context.heartbeat(leader, 1) is ErrorCode.NONE
        context.sleep(10_000)
        assert context.state() is GroupState.EMPTY


def test_a_sync_timer_of_an_old_generation_does_no_harm() -> None:
    with Context() as context:
        leader, follower = context.stable_group(2, rebalance_ms=10_000, session_ms=200_000)
        options: Any = {"rebalance_ms": 10_000, "session_ms": 200_000}
        context.sleep(5_000)
        context.join(leader, **options)
        context.join(follower, **options)
        context.sync_all([leader, follower], 2)
        context.sleep(100_000)
        assert context.state() is GroupState.STABLE


def test_a_join_while_syncs_are_parked_sends_everybody_back() -> None:
    with Context() as context:
        leader, join = context.new_member()
        follower, _ = context.new_member()
        context.sleep(3 * DELAY_MS)
        assert join.done
        parked = context.sync(follower, 1)
        context.join(version=3)
        assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert context.sync(leader, 1).error is ErrorCode.REBALANCE_IN_PROGRESS


# --- sessions


def test_a_session_ends_without_heartbeats() -> None:
    with Context() as context:
        (member_id,) = context.stable_group(session_ms=10_000)
        context.sleep(9_990)
        assert context.state() is GroupState.STABLE
        context.sleep(10)
        assert context.state() is GroupState.EMPTY
        assert context.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_session_alive() -> None:
    with Context() as context:
        (member_id,) = context.stable_group(session_ms=10_000)
        for _ in range(20):
            context.sleep(9_000)
            assert context.heartbeat(member_id, 1) is ErrorCode.NONE


def test_the_end_of_a_session_starts_a_rebalance_for_the_others() -> None:
    with Context() as context:
        _, follower = context.stable_group(2, session_ms=10_000)
        context.sleep(6_000)
        context.heartbeat(follower, 1)
        context.sleep(6_000)
        assert context.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        response = context.join(follower).response
        assert (response.leader, response.generation_id) == (follower, 2)


def test_a_session_that_ends_during_a_rebalance_lets_it_go_on() -> None:
    with Context() as context:
        leader, _ = context.stable_group(2, session_ms=10_000, rebalance_ms=300_000)
        rejoin = context.join(leader)
        context.sleep(10_000)
        assert [member.member_id for member in rejoin.response.members] == [leader]


def test_whoever_waits_in_a_rebalance_needs_no_heartbeats() -> None:
    with Context() as context:
        leader, follower = context.stable_group(2, session_ms=10_000, rebalance_ms=300_000)
        rejoin = context.join(leader, session_ms=10_000, rebalance_ms=300_000)
        for _ in range(10):
            context.sleep(6_000)
            context.heartbeat(follower, 1)
        assert not rejoin.done
        context.join(follower, rebalance_ms=300_000)
        assert rejoin.response.generation_id == 2
        parked = context.sync(follower, 2)
        for _ in range(10):
            context.sleep(6_000)
            context.heartbeat(leader, 2)
        assert not parked.done
        context.sync(leader, 2, {follower: b"x"})
        assert parked.response.assignment == b"x"
        context.sleep(10_000)
        assert context.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_first_join_that_stays_parked_is_given_up_after_five_minutes() -> None:
    with Context() as context:
        leader, follower = context.static_group(["a", "b"], session_ms=600_000, rebalance_ms=900_000)
        newcomer, join = context.new_member(rebalance_ms=900_000)
        context.sleep(299_990)
        assert not join.done
        context.sleep(10)
        assert (join.error, join.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
        assert newcomer not in context.shard.soft.memberships["g"].members
        assert {leader, follower} == set(context.shard.soft.memberships["g"].members)


def test_loaded_sessions_start_anew() -> None:
    with Context() as context:
        leader, follower = context.stable_group(2, session_ms=10_000)
        context.sleep(9_000)
        context.restart()
        context.sleep(9_000)
        assert context.heartbeat(leader, 1) is ErrorCode.NONE
        context.sleep(2_000)
        assert context.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# --- what cannot be written


@pytest.mark.parametrize(
    ("log_error", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_an_assignment_that_cannot_be_written_sends_everybody_back(log_error: ErrorCode, error: ErrorCode) -> None:
    with Context() as context:
        leader, _ = context.new_member()
        follower, _ = context.new_member()
        context.sleep(3 * DELAY_MS)
        before = context.hard_state()
        parked = context.sync(follower, 1)
        context.fail(log_error)
        assert context.sync(leader, 1, {leader: b"x"}).error is error
        assert parked.error is error
        assert context.hard_state() == before == context.replayed_state()
        assert context.state() is GroupState.PREPARING_REBALANCE
        rejoins = [context.join(leader), context.join(follower)]
        assert [rejoin.response.generation_id for rejoin in rejoins] == [2, 2]
        context.sync_all([leader, follower], 2)


def test_if_it_cannot_be_written_that_a_group_is_empty_it_is_again_what_the_log_says() -> None:
    with Context() as context:
        (member_id,) = context.stable_group(session_ms=10_000)
        context.fail()
        assert context.leave(member_id).response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.state() is GroupState.STABLE
        assert context.heartbeat(member_id, 1) is ErrorCode.NONE
        context.fail()
        context.sleep(10_000)
        assert context.state() is GroupState.STABLE
        context.sleep(10_000)
        assert context.state() is GroupState.EMPTY
        assert context.hard_state() == context.replayed_state()
