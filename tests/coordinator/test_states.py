"""The state table, and every cell of it against a group that is in that state."""

import pytest

from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.states import ANSWERS, PREDECESSORS, Action, GroupState, Request
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteGroupsRequest, OffsetDeleteRequest
from tests.coordinator.context import Context

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
LEADER, FOLLOWER = "i1", "i2"


class Scene:
    """A group in one of the states: two static members where it has any, the first one leads."""

    def __init__(self, context: Context, state: GroupState) -> None:
        self.context = context
        self.ids = ["nobody", "nobody"]
        self.generation = 1
        if state is DEAD:
            return
        self.ids = context.static_group([LEADER, FOLLOWER])
        if state is EMPTY:
            assert not any(member.error_code for member in context.leave(*self.ids).response.members)
            self.generation = 2
        if state in (PREPARING, COMPLETING):
            self.rejoin = context.join(self.ids[0], instance=LEADER)
        if state is COMPLETING:
            context.join(self.ids[1], instance=FOLLOWER)
            assert self.rejoin.error is ErrorCode.NONE
            self.generation = 2
        assert context.state() is state


def admit(scene: Scene) -> Action | ErrorCode:
    before = scene.context.state()
    told = scene.context.join()
    if told.error is not ErrorCode.MEMBER_ID_REQUIRED:
        return told.error
    join = scene.context.join(told.response.member_id)
    if join.done:
        return join.error
    return Action.PARK if before is PREPARING else began(scene)


def rejoin_as(scene: Scene, position: int, instance: str | None, metadata: bytes = b"sub") -> Action | ErrorCode:
    before = scene.context.state()
    join = scene.context.join(scene.ids[position], instance=instance, protocols=[("range", metadata)])
    if not join.done:
        return Action.PARK if before is PREPARING else Action.REBALANCE
    if join.error:
        return join.error
    assert join.response.generation_id == scene.generation
    return Action.REPEAT


def rejoin(scene: Scene) -> Action | ErrorCode:
    before = scene.context.state()
    if before is PREPARING:
        # The other member is still missing, so there is something to wait for.
        return rejoin_as(scene, 0, LEADER)
    answer = rejoin_as(scene, 1, FOLLOWER if scene.ids[1] != "nobody" else None)
    if answer is not Action.REPEAT:
        return answer
    of_leader = rejoin_as(scene, 0, LEADER)
    if of_leader is Action.REBALANCE:
        return Action.REPEAT_TO_FOLLOWER
    assert rejoin_as(scene, 1, FOLLOWER, b"other") is Action.REBALANCE
    return of_leader


def replace(scene: Scene) -> Action | ErrorCode:
    before = scene.context.state()
    join = scene.context.join(instance=FOLLOWER)
    if before is STABLE and join.done:
        assert join.response.generation_id == scene.generation
        return Action.KEEP_PROTOCOL
    # In PreparingRebalance this was the last join that was missing, so the parked answer comes at once.
    assert join.done == (before is PREPARING)
    return Action.PARK if before is PREPARING else began(scene)


def sync(scene: Scene) -> Action | ErrorCode:
    call = scene.context.sync(scene.ids[1], scene.generation, instance=FOLLOWER if scene.ids[1] != "nobody" else None)
    if not call.done:
        return Action.PARK
    return call.error or Action.SERVE


def heartbeat(scene: Scene) -> Action | ErrorCode:
    return scene.context.heartbeat(scene.ids[1], scene.generation) or Action.SERVE


def leave(scene: Scene) -> Action | ErrorCode:
    before = scene.context.state()
    answer = scene.context.leave(scene.ids[1]).response.members[0]
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return Action.SERVE if before is PREPARING else began(scene)


def commit(scene: Scene) -> Action | ErrorCode:
    options = {"member_id": scene.ids[1], "generation": scene.generation}
    if scene.context.state() is DEAD:
        assert scene.context.commit_error(**options, version=9) is ErrorCode.GROUP_ID_NOT_FOUND
    return scene.context.commit_error(**options, version=8) or Action.SERVE


def commit_simple(scene: Scene) -> Action | ErrorCode:
    error = scene.context.commit_error(offset=77)
    assert scene.context.fetch_offset() == (-1 if error else 77)
    return error or Action.SERVE


def commit_in_transaction(scene: Scene) -> Action | ErrorCode:
    return (
        scene.context.transactional_error(member_id=scene.ids[1], generation=scene.generation, instance=None)
        or Action.SERVE
    )


def commit_simple_in_transaction(scene: Scene) -> Action | ErrorCode:
    error = scene.context.transactional_error(offset=77)
    assert scene.context.fetch_offset(stable=True) == -1000 - ErrorCode.UNSTABLE_OFFSET_COMMIT
    return error or Action.SERVE


def fetch(scene: Scene) -> Action | ErrorCode:
    assert scene.context.fetch_offset() == -1
    return Action.SERVE


def delete(scene: Scene) -> Action | ErrorCode:
    request = DeleteGroupsRequest(groups_names=["g"])
    results = scene.context.run(scene.context.coordinator.delete_groups(request, 2)).results
    assert scene.context.state() is DEAD or results[0].error_code
    return ErrorCode(results[0].error_code) or Action.SERVE


def delete_offsets(scene: Scene) -> Action | ErrorCode:
    request = OffsetDeleteRequest(group_id="g")
    response = scene.context.run(scene.context.coordinator.delete_offsets(request))
    return ErrorCode(response.error_code) or Action.SERVE


def began(scene: Scene) -> Action | ErrorCode:
    assert scene.context.state() is PREPARING
    return Action.REBALANCE


ASK = {
    Request.ADMIT: admit,
    Request.REJOIN: rejoin,
    Request.REPLACE: replace,
    Request.SYNC: sync,
    Request.HEARTBEAT: heartbeat,
    Request.LEAVE: leave,
    Request.COMMIT: commit,
    Request.COMMIT_SIMPLE: commit_simple,
    Request.COMMIT_IN_TRANSACTION: commit_in_transaction,
    Request.COMMIT_SIMPLE_IN_TRANSACTION: commit_simple_in_transaction,
    Request.FETCH: fetch,
    Request.DELETE: delete,
    Request.DELETE_OFFSETS: delete_offsets,
}


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("request_kind", Request)
def test_every_cell_is_what_a_group_in_that_state_does(request_kind: Request, state: GroupState) -> None:
    if state not in ANSWERS[request_kind]:
        assert request_kind is Request.REPLACE
        assert state in (EMPTY, DEAD)
        return
    with Context() as context:
        assert ASK[request_kind](Scene(context, state)) == ANSWERS[request_kind][state]


def test_every_request_is_asked() -> None:
    assert ASK.keys() == ANSWERS.keys() == set(Request)


@pytest.mark.parametrize("after", [PREPARING, COMPLETING])
@pytest.mark.parametrize("before", GroupState)
def test_only_legal_transitions_happen(before: GroupState, after: GroupState) -> None:
    membership = Membership("g")
    membership.state = before
    if before in PREDECESSORS[after]:
        membership.move_to(after, 5)
        assert (membership.state, membership.state_timestamp_ms) == (after, 5)
    else:
        with pytest.raises(ValueError, match="cannot go"):
            membership.move_to(after, 5)
        assert membership.state is before


def test_every_state_but_dead_can_be_left_and_all_can_be_reached() -> None:
    assert {before for predecessors in PREDECESSORS.values() for before in predecessors} == set(GroupState)
    assert all(PREDECESSORS[state] for state in GroupState)
