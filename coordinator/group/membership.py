"""SyncGroup (v0 to v5), Heartbeat (v0 to v4) and LeaveGroup (v0 to v5): the requests of members between joins.

SyncGroup v5 carries the protocol type and name, which must be the group's (KIP-559). LeaveGroup v3 names several
members, also static ones by instance id alone (KIP-345), so that an administrator can remove them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.joining import UNKNOWN_MEMBER
from gregor.coordinator.group.member import Member
from gregor.coordinator.group.rebalance import Rebalances, departure
from gregor.coordinator.group.soft_state import SoftState
from gregor.coordinator.group.states import ANSWERS, Action, GroupState, Request
from gregor.coordinator.history.causes import Cause, Trigger
from gregor.coordinator.result import ALL_RECORDS, Record, Result
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    GroupMetadataKey,
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_log = logging.getLogger(__name__)
_HEARTBEAT = ANSWERS[Request.HEARTBEAT]
_SYNC = ANSWERS[Request.SYNC]
_LEAVE = ANSWERS[Request.LEAVE]


class SteadyMember(NamedTuple):
    """A member of a stable group, as it was when it sent a heartbeat."""

    membership: Membership
    member: Member
    generation: int
    group_instance_id: str | None


class Memberships:
    """The requests of members of the groups of one shard."""

    def __init__(self, soft: SoftState, rebalances: Rebalances) -> None:
        self._soft = soft
        self._timers = soft.timers
        self._rebalances = rebalances

    # --- heartbeat

    def heartbeat(self, group_id: str, generation: int, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Restart a member's session; return the error that stands for the state of its group."""
        membership = self._soft.memberships.get(group_id)
        if membership is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = _request_error(membership, member_id, group_instance_id, generation)
        if error:
            return error
        self._rebalances.watch_session(membership, membership.members[member_id])
        answer = _HEARTBEAT[membership.state]
        return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE

    def renewal(self, request: HeartbeatRequest) -> Callable[[], bool] | None:
        """Return what serves the same heartbeat when it comes again: it restarts the session and returns True, if the
        request would succeed in the same stable group; else it does nothing. None if it does not succeed now."""
        membership = self._soft.memberships.get(request.group_id)
        if membership is None or membership.state is not GroupState.STABLE:
            return None
        member_id, instance_id, generation = request.member_id, request.group_instance_id, request.generation_id
        if _request_error(membership, member_id, instance_id, generation):
            return None
        member = membership.members[member_id]
        return partial(self._renew, SteadyMember(membership, member, generation, instance_id))

    def _renew(self, steady: SteadyMember) -> bool:
        membership, member, generation, instance_id = steady
        # An unloaded shard has no memberships and no timers.
        return (
            self._soft.memberships.get(membership.group_id) is membership
            and membership.state is GroupState.STABLE
            and membership.generation == generation
            and membership.members.get(member.member_id) is member
            and (instance_id is None or membership.static_members.get(instance_id) == member.member_id)
            and self._timers.restart(member.timer_key, member.session_timeout_ms)
        )

    # --- sync

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Result:
        """Answers with a SyncGroupResponse; parked until the leader's assignment is committed."""
        membership = self._soft.memberships.get(request.group_id)
        if membership is None:
            return _refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID)
        error = _request_error(membership, request.member_id, request.group_instance_id, request.generation_id)
        if error:
            return _refuse_sync(error)
        if _differs(request.protocol_type, membership.protocol_type) or _differs(
            request.protocol_name, membership.protocol
        ):
            return _refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        answer = _SYNC[membership.state]
        if isinstance(answer, ErrorCode):
            return _refuse_sync(answer)
        self._rebalances.synced(membership, request.member_id)
        member = membership.members[request.member_id]
        if answer is Action.SERVE:
            return Result(_assignment_response(membership, member.assignment), confirms_below=ALL_RECORDS)
        membership.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        parked = member.park_sync()
        result = Result()
        if member.member_id == membership.leader:
            result = self._stabilise(membership, request, now_ms)
        return result.answer_instead(parked)

    def _stabilise(self, membership: Membership, request: SyncGroupRequest, now_ms: int) -> Result:
        """Write the leader's assignment; replay makes the group Stable, and commit completes the parked syncs."""
        assignments = {given.member_id: given.assignment for given in request.assignments}
        forgotten = sum(member_id not in assignments for member_id in membership.members)
        if forgotten:
            _log.warning(
                "Group %r: the assignment of the leader of generation %d lacks %d members",
                membership.group_id,
                membership.generation,
                forgotten,
            )
        releases = []
        for member in membership.members.values():
            if (parked := member.pop_sync()) is not None:
                response = _assignment_response(membership, assignments.get(member.member_id, b""))
                releases.append((parked, response))
                # Being parked kept it alive; from here on heartbeats must.
                self._rebalances.watch_session(membership, member)
        self._rebalances.assigning(membership, now_ms)
        record = Record(GroupMetadataKey(group=membership.group_id), membership.to_metadata(assignments))
        return Result(
            records=[record],
            releases=releases,
            on_failure=partial(self._rebalances.sync_failed, membership, now_ms),
        )

    # --- leave

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Result:
        """Answers with a LeaveGroupResponse of v3 and later, one entry per member of the request."""
        membership = self._soft.memberships.get(request.group_id)
        if membership is None:
            answers = [_left(who, ErrorCode.UNKNOWN_MEMBER_ID) for who in request.members]
            return Result(LeaveGroupResponse(members=answers))
        causes: list[Cause] = []
        answers = [_left(who, self._leave_one(membership, who, causes)) for who in request.members]
        if causes and _LEAVE[membership.state] is Action.REBALANCE:
            result = self._rebalances.begin(membership, causes, f"{len(causes)} members left", now_ms)
        else:
            for cause in causes:
                self._rebalances.note(membership, cause, now_ms)
            result = self._rebalances.try_complete_join(membership, now_ms)
        self._soft.tidy(membership.group_id)
        return result.answer_instead(LeaveGroupResponse(members=answers))

    def _leave_one(
        self, membership: Membership, who: LeaveGroupRequest.MemberIdentity, causes: list[Cause]
    ) -> ErrorCode:
        member_id = who.member_id
        if member_id in membership.pending:
            self._rebalances.forget_pending(membership, member_id)
            return ErrorCode.NONE
        if member_id == UNKNOWN_MEMBER and who.group_instance_id is not None:
            member_id = membership.static_members.get(who.group_instance_id, UNKNOWN_MEMBER)
        error = membership.member_error(member_id, who.group_instance_id)
        if not error:
            _log.info("Group %r: member %r leaves: %r", membership.group_id, member_id, who.reason or "not provided")
            member = membership.members[member_id]
            causes.append(departure(Trigger.MEMBER_LEFT, member, reason=who.reason))
            self._rebalances.discharge(membership, member)
        return error


def _request_error(membership: Membership, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
    error = membership.member_error(member_id, group_instance_id)
    if not error and generation != membership.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _differs(given: str | None, present: str | None) -> bool:
    """Before v5 requests have no protocol, which is never wrong."""
    return given is not None and present is not None and given != present


def _refuse_sync(error: ErrorCode) -> Result:
    return Result(SyncGroupResponse(error_code=error))


def _assignment_response(membership: Membership, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=membership.protocol_type, protocol_name=membership.protocol, assignment=assignment
    )


def _left(who: LeaveGroupRequest.MemberIdentity, error: ErrorCode) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=error
    )
