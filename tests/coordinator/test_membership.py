"""SyncGroup, Heartbeat, LeaveGroup."""

import pytest

from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.context import Context

DELAY_MS = 3_000


def completing(context: Context) -> tuple[str, str]:
    """Two members in generation 1 that have not synced."""
    leader, _ = context.new_member()
    follower, join = context.new_member()
    context.sleep(3 * DELAY_MS)
    assert join.done
    return leader, follower


# --- sync


def test_followers_wait_for_the_leaders_assignment() -> None:
    with Context() as context:
        leader, follower = completing(context)
        parked = context.sync(follower, 1)
        assert not parked.done
        response = context.sync(leader, 1, {leader: b"L", follower: b"F"}).response
        assert (response.assignment, response.protocol_type, response.protocol_name) == (b"L", "consumer", "range")
        assert parked.response.assignment == b"F"
        assert context.sync(follower, 1).response.assignment == b"F"


def test_who_is_forgotten_by_the_leader_gets_an_empty_assignment() -> None:
    with Context() as context:
        leader, follower = completing(context)
        context.sync(leader, 1, {leader: b"L"})
        assert context.sync(follower, 1).response.assignment == b""


def test_the_assignment_is_in_the_log_as_replayed() -> None:
    with Context() as context:
        leader, follower = completing(context)
        context.sync(leader, 1, {leader: b"L", follower: b"F"})
        assert context.hard_state() == context.replayed_state()
        context.restart()
        assert context.sync(follower, 1).response.assignment == b"F"
        assert context.describe().members[0].member_assignment == b"L"


def test_assignments_are_told_only_when_they_are_committed() -> None:
    with Context() as context:
        leader, follower = completing(context)
        context.hold()
        early = context.sync(follower, 1)
        own = context.sync(leader, 1, {leader: b"L", follower: b"F"})
        late = context.sync(follower, 1)
        assert not (early.done or own.done or late.done)
        context.commit()
        assert [call.response.assignment for call in (early, own, late)] == [b"F", b"L", b"F"]


def test_a_second_sync_takes_the_place_of_the_first() -> None:
    with Context() as context:
        leader, follower = completing(context)
        first, second = context.sync(follower, 1), context.sync(follower, 1)
        assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
        context.sync(leader, 1, {follower: b"F"})
        assert second.response.assignment == b"F"


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_a_sync_of_another_generation_is_refused(generation: int) -> None:
    with Context() as context:
        leader, _ = completing(context)
        assert context.sync(leader, generation).error is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky")])
def test_a_sync_must_name_the_groups_protocol(protocol_type: str, protocol_name: str) -> None:
    with Context() as context:
        leader, _ = completing(context)
        sync = context.sync(leader, 1, protocol_type=protocol_type, protocol_name=protocol_name)
        assert sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_from_v5_on_a_sync_must_name_a_protocol_at_all() -> None:
    with Context() as context:
        leader, _ = completing(context)
        assert context.sync(leader, 1, protocol_name=None).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert context.sync(leader, 1, protocol_type=None).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        old = context.sync(leader, 1, protocol_type=None, protocol_name=None, version=4)
        assert old.error is ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_sync_responses_can_be_sent_in_every_version(version: int) -> None:
    with Context() as context:
        leader, _ = completing(context)
        assert context.sync("who?", 1, version=version).response.encode(version)
        assert context.sync(leader, 1, version=version).response.encode(version)


# --- heartbeat


def test_a_heartbeat_is_checked() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        assert context.heartbeat(member_id, 1) is ErrorCode.NONE
        assert context.heartbeat(member_id, 0) is ErrorCode.ILLEGAL_GENERATION
        assert context.heartbeat("who?", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.heartbeat(member_id, 1, group="other") is ErrorCode.UNKNOWN_MEMBER_ID


# --- leave


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        assert context.leave(member_id).response.members[0].error_code == 0
        assert context.state() is GroupState.EMPTY
        assert context.shard.soft.memberships == {}
        described = context.describe()
        assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
        assert context.hard_state() == context.replayed_state()


def test_several_members_leave_in_one_request() -> None:
    with Context() as context:
        leader, follower, third = context.stable_group(3)
        answers = context.leave(follower, "who?", third).response.members
        assert [(answer.member_id, answer.error_code) for answer in answers] == [
            (follower, ErrorCode.NONE),
            ("who?", ErrorCode.UNKNOWN_MEMBER_ID),
            (third, ErrorCode.NONE),
        ]
        assert len(context.join(leader).response.members) == 1


def test_when_nobody_could_leave_nothing_happens() -> None:
    with Context() as context:
        context.stable_group()
        assert context.leave("who?").response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert context.state() is GroupState.STABLE


def test_an_administrator_removes_static_members_by_instance_id() -> None:
    with Context() as context:
        context.static_group(["a", "b"])
        answers = context.leave(("", "a"), ("", "z"), ("", None), ("wrong", "b")).response.members
        assert [answer.error_code for answer in answers] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ]
        assert list(context.shard.soft.memberships["g"].static_members) == ["b"]


def test_whoever_is_removed_while_it_waits_is_told_to_come_as_new() -> None:
    with Context() as context:
        leader, follower = completing(context)
        parked = context.sync(follower, 1)
        context.leave(follower)
        assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
        context.join(leader)
        context.sync(leader, 2, {leader: b"x"})
        member_id, join = context.new_member()
        context.leave(member_id)
        assert join.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_handed_out_can_leave_without_disturbing_the_group() -> None:
    with Context() as context:
        context.stable_group()
        told = context.join().response.member_id
        assert context.leave(told).response.members[0].error_code == 0
        assert context.state() is GroupState.STABLE
        assert context.join(told).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_goes_on_when_an_id_that_it_waits_for_leaves() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        told = context.join().response.member_id
        rejoin = context.join(member_id)
        assert not rejoin.done
        context.leave(told)
        assert rejoin.response.generation_id == 2


def test_before_v3_the_error_is_on_top() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        assert context.leave("who?", version=2).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.leave("who?", group="other", version=0).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.leave(member_id, version=2).error is ErrorCode.NONE
        assert context.state() is GroupState.EMPTY


@pytest.mark.parametrize("version", range(6))
def test_leave_responses_can_be_sent_in_every_version(version: int) -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        for who in ("who?", member_id):
            assert context.leave(who, version=version).response.encode(version)


def test_an_assignment_that_is_not_committed_is_not_served_to_later_syncs() -> None:
    """Nor is its generation to a join that is repeated, also when reads wait no longer."""
    with Context() as context:
        joins = [context.new_member() for _ in range(2)]
        context.sleep(9_000)
        (leader, _), (follower, _) = joins
        context.hold()
        first = context.sync(leader, 1, {leader: b"a", follower: b"b"})
        context.sleep(6_000)
        assert first.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        later, repeated = context.sync(follower, 1), context.join(follower)
        assert not (later.done or repeated.done)
        context.commit()
        assert (later.response.assignment, repeated.response.generation_id) == (b"b", 1)
