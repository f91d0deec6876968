"""How a group gets from one generation to the next: its phases, and the timers that end them.

A rebalance begins when a member comes, goes or changes; it waits for every member to join, hands out the next
generation, and waits for the leader's assignment, which the log then makes Stable. Until then all is soft state.
Behaviour: Kafka's GroupMetadataManager, the parts named classicGroup…
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.member import Member, session_key
from gregor.coordinator.group.soft_state import SoftState, join_key, sync_key
from gregor.coordinator.group.states import GroupState
from gregor.coordinator.history.causes import Cause, Identity, Trigger
from gregor.coordinator.history.classic import ClassicRebalances
from gregor.coordinator.result import Record, Result
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, JoinGroupResponse

_log = logging.getLogger(__name__)

MIN_REJOIN_WAIT_MS = 1000
"""A rebalance that no static member has joined is tried again after the rebalance timeout, or after this time where it
is shorter: with a rebalance timeout of 0, which kafkajs joins with, each turn of the loop would try it until the
sessions end."""


class Rebalances:
    """The phases of all groups of one shard. Methods return the result of the operation that they are part of."""

    def __init__(self, config: GroupConfig, soft: SoftState, history: ClassicRebalances) -> None:
        self._config = config
        self._soft = soft
        self._timers = soft.timers
        self._history = history

    # --- begin

    def begin_or_continue(self, membership: Membership, cause: Cause, reason: str, now_ms: int) -> Result:
        """After a member came or changed: begin a rebalance, or complete the join of the present one if all joined."""
        if membership.state is GroupState.PREPARING_REBALANCE:
            self._history.join(membership.group_id, cause, now_ms)
            return self.try_complete_join(membership, now_ms)
        return self.begin(membership, [cause], reason, now_ms)

    def begin(self, membership: Membership, causes: Sequence[Cause], reason: str, now_ms: int) -> Result:
        """Begin a rebalance. Not while one is in PreparingRebalance."""
        group_id = membership.group_id
        self._history.begin(membership, causes, now_ms)
        if membership.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(membership, ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel(sync_key(group_id))
        membership.prepare_rebalance(now_ms)
        _log.info("Group %r: rebalance of generation %d: %s", group_id, membership.generation, reason)
        if membership.forming:
            # Members of a new group usually start together: wait for more before the first generation.
            delay_ms = self._config.initial_rebalance_delay_ms
            remaining_ms = max(membership.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_forming(membership, delay_ms, remaining_ms)
            return Result()
        if membership.all_joined:
            return self.complete_join(membership, now_ms)
        self._schedule_join(membership)
        return Result()

    def note(self, membership: Membership, cause: Cause, now_ms: int) -> None:
        """Note a further cause of the rebalance that is under way, if one is."""
        self._history.add_cause(membership.group_id, cause, now_ms)

    def try_complete_join(self, membership: Membership, now_ms: int) -> Result:
        """Complete the join if all members joined; a group that forms waits for its timer instead."""
        if membership.state is GroupState.PREPARING_REBALANCE and not membership.forming and membership.all_joined:
            return self.complete_join(membership, now_ms)
        return Result()

    def _schedule_join(self, membership: Membership, least_ms: int = 0) -> None:
        end = partial(self.complete_join, membership)
        delay_ms = max(membership.rebalance_timeout_ms, least_ms)
        self._timers.schedule(join_key(membership.group_id), delay_ms, end)

    def _schedule_forming(self, membership: Membership, delay_ms: int, remaining_ms: int) -> None:
        end = partial(self._end_forming, membership, delay_ms=delay_ms, remaining_ms=remaining_ms)
        self._timers.schedule(join_key(membership.group_id), delay_ms, end)

    def _end_forming(self, membership: Membership, now_ms: int, *, delay_ms: int, remaining_ms: int) -> Result:
        """The delay is over: extend it if new members came during it, up to the rebalance timeout in all."""
        if membership.pop_newcomers() and remaining_ms > 0:
            next_ms = min(self._config.initial_rebalance_delay_ms, remaining_ms)
            self._schedule_forming(membership, next_ms, max(remaining_ms - delay_ms, 0))
            return Result()
        return self.complete_join(membership, now_ms)

    # --- the next generation

    def complete_join(self, membership: Membership, now_ms: int) -> Result:
        """Remove the dynamic members that did not join, and answer the joins with the next generation."""
        group_id = membership.group_id
        self._timers.cancel(join_key(group_id))
        members = list(membership.members.values())
        removed = [member for member in members if member.parked_join is None and not member.is_static]
        for member in removed:
            cause = departure(Trigger.REBALANCE_TIMEOUT, member, _timeout(membership.rebalance_timeout_ms))
            self._history.add_cause(group_id, cause, now_ms)
            membership.remove(member.member_id)
            self._timers.cancel(member.timer_key)
        if removed:
            _log.info("Group %r: removed %d members that did not rejoin in time", group_id, len(removed))
        if not membership.members:
            return self._become_empty(membership, now_ms)
        if not membership.elect_joined_leader():
            # Only static members, none of which joined: their sessions will end, or they will join.
            self._schedule_join(membership, MIN_REJOIN_WAIT_MS)
            return Result()
        membership.begin_generation(now_ms)
        self._history.formed(membership, now_ms)
        _log.debug("Group %r: generation %d with %d members", group_id, membership.generation, len(membership.members))
        for member in membership.members.values():
            member.joined_generation()
            self.watch_session(membership, member)
            membership.answer_join(member, generation_response(membership, member.member_id))
        end = partial(self._end_sync, membership, generation=membership.generation)
        self._timers.schedule(sync_key(group_id), membership.sync_timeout_ms, end)
        return Result()

    def _become_empty(self, membership: Membership, now_ms: int) -> Result:
        """Write that no member is left. Replay makes the group Empty; a failed append leaves it as it is in the log."""
        _log.info("Group %r: empty after generation %d", membership.group_id, membership.generation)
        self._history.emptied(membership, now_ms)
        value = GroupMetadataValue(
            protocol_type=membership.protocol_type or "",
            generation=membership.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )
        return Result(
            records=[Record(GroupMetadataKey(group=membership.group_id), value)],
            on_failure=lambda _error: self.restore(membership.group_id),
        )

    def restore(self, group_id: str) -> None:
        """Begin again with the state in the log: after a load, and after a change that could not be written."""
        self._soft.close(group_id)
        self._history.drop(group_id)
        if self._soft.state(group_id) is GroupState.STABLE:
            membership = self._soft.open(group_id)
            for member in membership.members.values():
                self.watch_session(membership, member)

    def abandon(self, group_id: str, error: ErrorCode) -> None:
        """Refuse the members of a group whose first record could not be written: it does not exist."""
        self._soft.close(group_id, error)
        self._history.drop(group_id)

    # --- sync

    def assigning(self, membership: Membership, now_ms: int) -> None:
        """The leader has sent the assignment, which is about to be written."""
        self._history.assigning(membership.group_id, now_ms)

    def synced(self, membership: Membership, member_id: str) -> None:
        """Record that the member requested its assignment."""
        membership.unsynced.discard(member_id)
        if not membership.unsynced:
            self._timers.cancel(sync_key(membership.group_id))

    def _end_sync(self, membership: Membership, now_ms: int, *, generation: int) -> Result:
        """Members that did not fetch their assignment in time are gone."""
        states = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if generation != membership.generation or membership.state not in states or not membership.unsynced:
            return Result()
        detail = _timeout(membership.sync_timeout_ms)
        causes = []
        for member in [one for one in membership.members.values() if one.member_id in membership.unsynced]:
            causes.append(departure(Trigger.SYNC_TIMEOUT, member, detail))
            membership.remove(member.member_id)
            self._timers.cancel(member.timer_key)
        return self.begin(membership, causes, f"{len(causes)} members did not sync in time", now_ms)

    def sync_failed(self, membership: Membership, now_ms: int, error: ErrorCode) -> None:
        """The assignment could not be written: have all members join again."""
        if membership.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(membership, error)
            # No member has a parked join in this state, so this only starts the wait and has no records.
            cause = Cause(Trigger.ASSIGNMENT_NOT_WRITTEN, detail=error.name)
            self.begin(membership, [cause], f"assignment not written: {error.name}", now_ms)

    def _drop_assignments(self, membership: Membership, error: ErrorCode) -> None:
        for member in membership.members.values():
            member.assign(b"")
            if membership.answer_sync(member, error):
                self.watch_session(membership, member)

    # --- sessions

    def watch_session(self, membership: Membership, member: Member, timeout_ms: int | None = None) -> None:
        """(Re)start the member's session, as every heartbeat does."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._timers.schedule(member.timer_key, delay_ms, partial(self._end_session, membership, member))

    def cancel_session(self, member: Member) -> None:
        """The id of the member is no longer in use."""
        self._timers.cancel(member.timer_key)

    def _end_session(self, membership: Membership, member: Member, now_ms: int) -> Result:
        if membership.members.get(member.member_id) is not member or member.excused:
            return Result()
        _log.info("Group %r: session of member %r ended", membership.group_id, member.member_id)
        cause = departure(Trigger.SESSION_TIMEOUT, member, _timeout(member.session_timeout_ms))
        return self.remove(membership, member, cause, f"session of member {member.member_id!r} ended", now_ms)

    def remove(self, membership: Membership, member: Member, cause: Cause, reason: str, now_ms: int) -> Result:
        """Remove a member; one whose join is parked is answered UNKNOWN_MEMBER_ID, and joins again as a new one."""
        self.discharge(membership, member)
        if membership.state is not GroupState.PREPARING_REBALANCE:
            return self.begin(membership, [cause], reason, now_ms)
        self._history.add_cause(membership.group_id, cause, now_ms)
        return self.complete_join(membership, now_ms) if membership.all_joined else Result()

    def discharge(self, membership: Membership, member: Member) -> None:
        """Remove a member and answer its parked requests, without a rebalance of the group."""
        response = refused_join(ErrorCode.UNKNOWN_MEMBER_ID, "")
        membership.answer_join(member, response)
        membership.answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        membership.remove(member.member_id)
        self._timers.cancel(member.timer_key)

    def watch_pending(self, membership: Membership, member_id: str, session_timeout_ms: int) -> None:
        """An id was handed out: a rebalance waits for it, for one session timeout."""
        membership.pending.add(member_id)
        end = partial(self.drop_pending, membership, member_id)
        self._timers.schedule(session_key(membership.group_id, member_id), session_timeout_ms, end)

    def forget_pending(self, membership: Membership, member_id: str) -> None:
        """Forget an id that was handed out and will not be used, without a rebalance of the group."""
        membership.remove(member_id)
        self._timers.cancel(session_key(membership.group_id, member_id))

    def drop_pending(self, membership: Membership, member_id: str, now_ms: int) -> Result:
        """Stop waiting for an id that was handed out."""
        self.forget_pending(membership, member_id)
        result = Result()
        if membership.state is GroupState.PREPARING_REBALANCE and membership.all_joined:
            result = self.complete_join(membership, now_ms)
        self._soft.tidy(membership.group_id)
        return result


def departure(trigger: Trigger, member: Member, detail: str = "", reason: str | None = None) -> Cause:
    """Describe the removal of a member; to be called before its assignment is dropped."""
    return Cause(trigger, Identity.of(member), reason, detail, assignment=member.assignment)


def _timeout(timeout_ms: int) -> str:
    return f"after {timeout_ms} ms"


def refused_join(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The response to a join that brings its member into no generation."""
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


def generation_response(membership: Membership, member_id: str) -> JoinGroupResponse:
    """The present generation for a member that joined; the leader gets all members, to assign partitions to them."""
    leads = member_id == membership.leader
    return JoinGroupResponse(
        generation_id=membership.generation,
        protocol_type=membership.protocol_type,
        protocol_name=membership.protocol or None,
        leader=membership.leader or "",
        member_id=member_id,
        members=described(membership.members.values(), membership.protocol) if leads else [],
    )


def described(members: Iterable[Member], protocol: str | None) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """Members with their metadata of the protocol, as the leader gets them."""
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.protocols[protocol],
        )
        for member in members
        if protocol is not None
    ]
