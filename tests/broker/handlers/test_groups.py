"""Consumer groups through their whole life, over the handlers of JoinGroup, SyncGroup, Heartbeat, LeaveGroup,
DescribeGroups, ListGroups and DeleteGroups, in every version.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gregor.broker.answers.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.broker.harness import Harness

JOIN_VERSIONS = range(10)


@pytest.fixture(scope="module", autouse=True)
def coordinators(harness: Harness) -> None:
    """The offsets topic is there and its partitions are loaded."""
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)


class Member:
    """A client of a group that speaks JoinGroup `version` and the other APIs of its time."""

    def __init__(self, harness: Harness, group: str, version: int, instance: str | None = None) -> None:
        self.harness = harness
        self.group = group
        self.version = version
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.leader = False

    def _static(self, since: int, version: int) -> dict[str, Any]:
        return {"group_instance_id": self.instance} if version >= since else {}

    def join_request(self, session_timeout_ms: int = 30_000) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"subscription")
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_timeout_ms,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[protocol],
            **self._static(5, self.version),
        )
        if self.version >= 1:
            request.rebalance_timeout_ms = 30_000
        return request

    def begin_join(self) -> asyncio.Task[JoinGroupResponse]:
        """Begin a join that waits for the other members; first get the member id that version 4 and later require."""
        if self.version >= 4 and not self.id and self.instance is None:
            answer = self.harness.ask(self.join_request(), self.version)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
            self.id = answer.member_id
        return self.harness.begin(self.join_request(), self.version)

    def joined(self, response: JoinGroupResponse) -> JoinGroupResponse:
        assert response.error_code == 0
        assert self.id in ("", response.member_id) or self.instance is not None
        self.id, self.generation = response.member_id, response.generation_id
        self.leader = response.leader == response.member_id
        assert response.protocol_name == "range"
        assert response.protocol_type == ("consumer" if self.version >= 7 else None)
        assert bool(response.members) == self.leader
        return response

    def begin_sync(self, **assignments: bytes) -> asyncio.Task[SyncGroupResponse]:
        version = min(self.version, 5)
        make = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            assignments=[make(member_id=member_id, assignment=data) for member_id, data in assignments.items()],
            **self._static(3, version),
        )
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        return self.harness.begin(request, version)

    def heartbeat(self) -> ErrorCode:
        version = min(self.version, 4)
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, **self._static(3, version)
        )
        return ErrorCode(self.harness.ask(request, version).error_code)

    def leave(self) -> ErrorCode:
        version = min(self.version, 5)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.id)
            return ErrorCode(self.harness.ask(request, version).error_code)
        who = LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        if version >= 5:
            who.reason = "done"
        response = self.harness.ask(LeaveGroupRequest(group_id=self.group, members=[who]), version)
        (answer,) = response.members
        assert (response.error_code, answer.member_id) == (0, self.id)
        return ErrorCode(answer.error_code)


def alone(harness: Harness, group: str, version: int, instance: str | None = None) -> Member:
    """A group of one, stable."""
    member = Member(harness, group, version, instance)
    member.joined(harness.run(member.begin_join()))
    synced = harness.run(member.begin_sync(**{member.id: b"all"}))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return member


def describe(harness: Harness, group: str, version: int = 6, **fields: Any) -> Any:
    (found,) = harness.ask(DescribeGroupsRequest(groups=[group], **fields), version).groups
    assert found.group_id == group
    return found


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_two_members_from_the_first_join_to_the_last_leave(harness: Harness, topic: str, version: int) -> None:
    first = alone(harness, topic, version)
    assert first.leader
    assert first.heartbeat() is ErrorCode.NONE

    second = Member(harness, topic, version)
    joining = second.begin_join()
    assert not joining.done()
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoining = first.begin_join()
    response = first.joined(harness.run(rejoining))
    second.joined(harness.run(joining))
    assert first.leader and not second.leader
    assert {member.member_id for member in response.members} == {first.id, second.id}
    assert all(member.metadata == b"subscription" for member in response.members)
    assert first.generation == second.generation == 2

    waiting = second.begin_sync()
    assert not waiting.done()
    handing_in = first.begin_sync(**{first.id: b"one", second.id: b"two"})
    for task, assignment in ((waiting, b"two"), (handing_in, b"one")):
        synced = harness.run(task)
        assert (synced.error_code, synced.assignment) == (0, assignment)
        assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    assert [first.heartbeat(), second.heartbeat()] == [ErrorCode.NONE] * 2

    assert first.leave() is ErrorCode.NONE
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    second.joined(harness.run(second.begin_join()))
    assert (second.leader, second.generation) == (True, 3)
    assert second.leave() is ErrorCode.NONE
    assert describe(harness, topic).group_state == "Empty"


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_members_that_nobody_knows(harness: Harness, topic: str, version: int) -> None:
    member = alone(harness, topic, version)
    stranger = Member(harness, topic, version)
    stranger.id, stranger.generation = "nobody", member.generation
    assert harness.run(harness.begin(stranger.join_request(), version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.run(stranger.begin_sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() is stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    member.generation += 1
    assert harness.run(member.begin_sync()).error_code == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat() is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_joins_that_are_refused(harness: Harness, topic: str, version: int) -> None:
    def error(request: JoinGroupRequest) -> ErrorCode:
        response = harness.ask(request, version)
        assert response.members == []
        return ErrorCode(response.error_code)

    member = Member(harness, topic, version)
    for timeout_ms in (1, 2**31 - 1):
        assert error(member.join_request(timeout_ms)) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert error(Member(harness, "", version).join_request()) is ErrorCode.INVALID_GROUP_ID
    alone(harness, topic, version)
    other = member.join_request()
    other.protocol_type = "connect"
    assert error(other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = member.join_request()
    other.protocols[0].name = "sticky"
    assert error(other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_keeps_its_place(harness: Harness, topic: str, version: int) -> None:
    member = alone(harness, topic, version, instance="host-1")
    again = Member(harness, topic, version, instance="host-1")
    response = harness.run(again.begin_join())
    assert (response.error_code, response.generation_id) == (0, member.generation)
    assert response.skip_assignment == (version >= 9)
    again.id, again.generation = response.member_id, response.generation_id
    assert again.id != member.id
    synced = harness.run(again.begin_sync())
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert member.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.heartbeat() is ErrorCode.NONE
    by_instance = Member(harness, topic, version, instance="host-1")
    assert by_instance.leave() is ErrorCode.NONE
    assert describe(harness, topic).group_state == "Empty"


def test_a_member_that_falls_silent_is_put_out(harness: Harness, topic: str) -> None:
    member = Member(harness, topic, 3)
    joining = harness.begin(member.join_request(session_timeout_ms=30), 3)
    member.joined(harness.run(joining))
    harness.run(member.begin_sync(**{member.id: b"all"}))
    harness.until(lambda: describe(harness, topic).group_state == "Empty")
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_leaves_while_it_joins_harms_nobody(harness: Harness, topic: str) -> None:
    member = alone(harness, topic, 3)
    leaving = Member(harness, topic, 3).begin_join()
    leaving.cancel()
    harness.turn()
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoining = member.begin_join()
    response = harness.run(rejoining)
    assert response.error_code == 0


# -- descriptions of groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_describe(harness: Harness, topic: str, version: int) -> None:
    member = alone(harness, topic, 9, instance="host-1")
    found = describe(harness, topic, version)
    assert (found.error_code, found.group_state) == (0, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (one,) = found.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, "tests", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (b"subscription", b"all")
    assert one.group_instance_id == ("host-1" if version >= 4 else None)
    assert found.authorized_operations == NOT_REQUESTED
    if version >= 3:
        asked = describe(harness, topic, version, include_authorized_operations=True)
        assert asked.authorized_operations == GROUP_OPERATIONS


@pytest.mark.parametrize("version", range(7))
def test_describe_what_does_not_exist(harness: Harness, version: int) -> None:
    found = describe(harness, "no such group", version)
    assert (found.group_state, found.members) == ("Dead", [])
    assert found.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert bool(found.error_message) == (version >= 6)


@pytest.mark.parametrize("version", range(6))
def test_list(harness: Harness, topic: str, version: int) -> None:
    stable, empty = alone(harness, f"{topic}-stable", 9), alone(harness, f"{topic}-empty", 9)
    empty.leave()

    def states(**fields: Any) -> dict[str, str]:
        response = harness.ask(ListGroupsRequest(**fields), version)
        assert response.error_code == 0
        mine = [group for group in response.groups if group.group_id in (stable.group, empty.group)]
        assert {group.protocol_type for group in mine} <= {"consumer", ""}
        assert {group.group_type for group in mine} <= ({"classic"} if version >= 5 else {""})
        return {group.group_id: group.group_state for group in mine}

    told = {stable.group: "Stable", empty.group: "Empty"}
    assert states() == (told if version >= 4 else dict.fromkeys(told, ""))
    if version >= 4:
        assert states(states_filter=["Empty"]) == {empty.group: "Empty"}
        assert states(states_filter=["stable"]) == {stable.group: "Stable"}
        assert states(states_filter=["Dead"]) == {}
    if version >= 5:
        assert states(types_filter=["classic"]) == told
        assert states(types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", range(3))
def test_delete(harness: Harness, topic: str, version: int) -> None:
    busy, idle = alone(harness, f"{topic}-busy", 9), alone(harness, f"{topic}-idle", 9)
    idle.leave()
    names = [busy.group, idle.group, "no such group"]
    results = harness.ask(DeleteGroupsRequest(groups_names=names), version).results
    assert {result.group_id: ErrorCode(result.error_code) for result in results} == {
        busy.group: ErrorCode.NON_EMPTY_GROUP,
        idle.group: ErrorCode.NONE,
        "no such group": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert describe(harness, idle.group).group_state == "Dead"
    assert describe(harness, busy.group).group_state == "Stable"
