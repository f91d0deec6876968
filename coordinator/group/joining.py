"""JoinGroup (v0 to v9): admission of members, and their ids.

v4: a dynamic member without id is sent one and joins again with it (KIP-394). v5: static members (KIP-345). v7: the
protocol type is in the response. v9: the response may let a static leader that came back skip the assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gregor.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.member import Member, protocols_by_name
from gregor.coordinator.group.rebalance import Rebalances, departure, described, generation_response, refused_join
from gregor.coordinator.group.soft_state import SoftState
from gregor.coordinator.group.states import ANSWERS, Action, GroupState, Request
from gregor.coordinator.history.causes import Cause, Identity, Rejoin, Trigger
from gregor.coordinator.result import ALL_RECORDS, Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import random_uuid
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, JoinGroupRequest

UNKNOWN_MEMBER = ""
"""The member id of a join whose sender has none yet."""


def _random_uuid() -> str:
    text = random_uuid().hex()  # the module uuid costs the start of a broker some milliseconds
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Joiner(NamedTuple):
    """A join request in the form that the coordinator works with, and where it came from."""

    request: JoinGroupRequest
    client_id: str
    client_host: str
    version: int
    protocols: dict[str, bytes]
    rebalance_timeout_ms: int

    @classmethod
    def of(cls, request: JoinGroupRequest, client_id: str | None, client_host: str, version: int) -> Joiner:
        """v0 has no rebalance timeout of its own."""
        rebalance_ms = request.rebalance_timeout_ms
        return cls(
            request=request,
            client_id=client_id or "",
            client_host=client_host,
            version=version,
            protocols=protocols_by_name(request.protocols),
            rebalance_timeout_ms=rebalance_ms if version >= 1 and rebalance_ms >= 0 else request.session_timeout_ms,
        )

    @property
    def reason(self) -> str:
        """The reason for the join that the client gives (v8)."""
        return repr(self.request.reason or "not provided")


class Joining:
    """JoinGroup for the groups of one shard."""

    def __init__(
        self, config: GroupConfig, soft: SoftState, rebalances: Rebalances, new_uuid: Callable[[], str] | None = None
    ) -> None:
        self._config = config
        self._soft = soft
        self._rebalances = rebalances
        self._new_uuid = new_uuid or _random_uuid

    def join(self, joiner: Joiner, now_ms: int) -> Result:
        """Answers with a JoinGroupResponse, parked until the next generation unless it can be given at once."""
        request = joiner.request
        state = self._soft.state(request.group_id)
        if state is GroupState.DEAD:
            return self.join_new_group(joiner, now_ms)
        membership = self._soft.open(request.group_id)
        if not self._has_room(membership, request.member_id):
            result = self._turn_away(membership, request.member_id, now_ms)
        elif not membership.supports(request.protocol_type, joiner.protocols):
            result = _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id == UNKNOWN_MEMBER:
            result = self._join_unknown(membership, joiner, now_ms)
        elif request.member_id in membership.pending and request.group_instance_id is None:
            result = self._admit(membership, joiner, request.member_id, now_ms)
        else:
            result = self._rejoin(membership, joiner, now_ms)
        self._soft.tidy(request.group_id)
        return result

    def join_new_group(self, joiner: Joiner, now_ms: int) -> Result:
        """The first join brings a group into being: in the log as an empty one."""
        request = joiner.request
        if request.member_id != UNKNOWN_MEMBER:
            return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        if not request.protocol_type or not joiner.protocols:
            return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER)
        result = self._join_unknown(self._soft.open(request.group_id), joiner, now_ms)
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )
        record = Record(GroupMetadataKey(group=request.group_id), value)
        return result.begin_with([record], lambda error: self._rebalances.abandon(request.group_id, error))

    # --- group.max.size

    def _has_room(self, membership: Membership, member_id: str) -> bool:
        """Members count by what they hold: while a group prepares, a place is a parked join.

        So a group that is too large after a load or a change of the setting keeps those who rejoin first.
        """
        member = membership.members.get(member_id)
        match membership.state:
            case GroupState.EMPTY:
                return True
            case GroupState.PREPARING_REBALANCE:
                parked = member is not None and member.parked_join is not None
                return parked or membership.parked_joins < self._config.max_size
            case _:
                return member is not None or len(membership.members) < self._config.max_size

    def _turn_away(self, membership: Membership, member_id: str, now_ms: int) -> Result:
        member = membership.members.get(member_id)
        result = Result()
        if member is not None:
            cause = departure(Trigger.GROUP_TOO_LARGE, member, f"more than {self._config.max_size} members")
            self._rebalances.discharge(membership, member)
            self._rebalances.note(membership, cause, now_ms)
            result = self._rebalances.try_complete_join(membership, now_ms)
        elif member_id in membership.pending:
            result = self._rebalances.drop_pending(membership, member_id, now_ms)
        result.response = _refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER).response
        return result

    # --- without member id

    def _join_unknown(self, membership: Membership, joiner: Joiner, now_ms: int) -> Result:
        request = joiner.request
        instance_id = request.group_instance_id
        member_id = f"{joiner.client_id if instance_id is None else instance_id}-{self._new_uuid()}"
        if instance_id is not None:
            old_id = membership.static_members.get(instance_id)
            if old_id is not None:
                return self._replace(membership, joiner, membership.members[old_id], member_id, now_ms)
        elif joiner.version >= 4:
            self._rebalances.watch_pending(membership, member_id, request.session_timeout_ms)
            return _refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._admit(membership, joiner, member_id, now_ms)

    def _admit(self, membership: Membership, joiner: Joiner, member_id: str, now_ms: int) -> Result:
        request = joiner.request
        member = Member(
            member_id,
            request.group_instance_id,
            joiner.client_id,
            joiner.client_host,
            rebalance_timeout_ms=joiner.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=joiner.protocols,
            group_id=membership.group_id,
        )
        member.is_new = True
        membership.add_newcomer(member, request.protocol_type)
        self._rebalances.watch_session(membership, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        cause = Cause(Trigger.MEMBER_JOINED, Identity.of(member), request.reason)
        reason = f"new member {member_id!r}; client reason: {joiner.reason}"
        return self._park(membership, member, cause, reason, now_ms)

    def _park(self, membership: Membership, member: Member, cause: Cause, reason: str, now_ms: int) -> Result:
        """The answer comes with the next generation."""
        parked: Deferred[Any] = Deferred()
        membership.park_join(member, parked)
        return self._rebalances.begin_or_continue(membership, cause, reason, now_ms).answer_instead(parked)

    # --- with member id

    def _rejoin(self, membership: Membership, joiner: Joiner, now_ms: int) -> Result:
        request = joiner.request
        error = membership.member_error(request.member_id, request.group_instance_id)
        if error:
            return _refuse(error, request.member_id)
        member = membership.members[request.member_id]
        answer = ANSWERS[Request.REJOIN][membership.state]
        repeats = answer is Action.REPEAT or (
            answer is Action.REPEAT_TO_FOLLOWER and membership.leader != member.member_id
        )
        if repeats and member.offers(joiner.protocols):
            # Most likely the client did not get the response to its first join.
            return Result(generation_response(membership, member.member_id), confirms_below=ALL_RECORDS)
        rejoin = Rejoin(member.protocols, joiner.protocols, membership.leader == member.member_id)
        cause = Cause(Trigger.MEMBER_REJOINED, Identity.of(member), request.reason, rejoin=rejoin)
        membership.update(member, joiner.protocols, joiner.rebalance_timeout_ms, request.session_timeout_ms)
        reason = f"member {member.member_id!r} rejoins in {membership.state}; client reason: {joiner.reason}"
        return self._park(membership, member, cause, reason, now_ms)

    # --- static members

    def _replace(self, membership: Membership, joiner: Joiner, old: Member, member_id: str, now_ms: int) -> Result:
        """Let the new process of a static member replace the old one, under a new id."""
        request = joiner.request
        new = old.replaced_by(member_id, membership.group_id)
        answer = ANSWERS[Request.REPLACE][membership.state]
        if answer is Action.KEEP_PROTOCOL:
            new.offer(joiner.protocols, joiner.rebalance_timeout_ms, request.session_timeout_ms)
            others = [new if member is old else member for member in membership.members.values()]
            if membership.select_protocol(others) == membership.protocol:
                return self._keep_generation(membership, joiner, old, new)
        membership.replace(old, new)
        membership.update(new, joiner.protocols, joiner.rebalance_timeout_ms, request.session_timeout_ms)
        self._rebalances.cancel_session(old)
        self._rebalances.watch_session(membership, new)
        cause = Cause(
            Trigger.STATIC_MEMBER_REPLACED, Identity.of(new), request.reason, f"it was {old.member_id} before"
        )
        reason = f"static member {request.group_instance_id!r} is back as {member_id!r}; client reason: {joiner.reason}"
        return self._park(membership, new, cause, reason, now_ms)

    def _keep_generation(self, membership: Membership, joiner: Joiner, old: Member, new: Member) -> Result:
        """Write only the new id to the log, without a rebalance; the replay of that record puts it in place."""
        members = [new if member is old else member for member in membership.members.values()]
        leads = membership.leader == old.member_id
        leader = new.member_id if leads else membership.leader
        value = membership.to_metadata({member.member_id: member.assignment for member in members}, members, leader)
        response = generation_response(membership, new.member_id)
        if joiner.version >= 9:
            response = response.replaced(leader=leader or "", skip_assignment=leads)
            if leads:
                response = response.replaced(members=described(members, membership.protocol))
        # Before v9 the leader in the response is the old id, so that a leader that came back does not assign anew.
        membership.candidates[new.member_id] = new
        self._rebalances.cancel_session(old)
        self._rebalances.watch_session(membership, new)

        def roll_back(_error: ErrorCode) -> None:
            membership.candidates.pop(new.member_id, None)
            self._rebalances.cancel_session(new)
            self._rebalances.watch_session(membership, old)

        return Result(response, [Record(GroupMetadataKey(group=membership.group_id), value)], on_failure=roll_back)


def _refuse(error: ErrorCode, member_id: str) -> Result:
    return Result(refused_join(error, member_id))
