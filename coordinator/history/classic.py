"""Observes the rebalances of the classic groups of one shard: calls from their phases in, finished rebalances out.

Soft state of a rebalance that is under way, no more: a coordinator that is unloaded loses it with the rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gregor.coordinator.history.causes import JOINS, Cause, Identity, MemberView, Trigger
from gregor.coordinator.history.rebalance import (
    MAX_CLAIMS,
    Arrival,
    Assigned,
    Claim,
    GroupType,
    Outcome,
    Rebalance,
    RebalanceLog,
)


class ClassicMember(MemberView, Protocol):
    """A member of a classic group."""

    @property
    def assignment(self) -> bytes: ...
    @property
    def protocols(self) -> Mapping[str, bytes]: ...


class ClassicGroup(Protocol):
    """The membership of a classic group."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def protocol_type(self) -> str | None: ...
    @property
    def state_timestamp_ms(self) -> int: ...
    @property
    def members(self) -> Mapping[str, ClassicMember]: ...


class ClassicRebalances:
    """At most one rebalance of a group is under way: from `begin` to `written`, or to the next `begin`."""

    def __init__(self, log: RebalanceLog) -> None:
        self._log = log
        self._open: dict[str, Rebalance] = {}
        self._restored: set[str] = set()

    def restored(self, group_id: str) -> None:
        """The log has members of the group, with which another coordinator began."""
        self._restored.add(group_id)

    def on_unloaded(self) -> None:
        """Drop what is under way."""
        self._open.clear()
        self._restored.clear()

    # --- begin

    def begin(self, group: ClassicGroup, causes: Sequence[Cause], now_ms: int) -> None:
        """A rebalance begins; to be called while the members have the assignments of the last generation."""
        group_id = group.group_id
        chained = self._open.pop(group_id, None)
        if chained is not None:
            self._end(chained, Outcome.SUPERSEDED, now_ms)
        rebalance = self._open[group_id] = Rebalance(
            group_id=group_id,
            group_type=GroupType.CLASSIC,
            epoch=group.generation + 1,
            began_ms=now_ms,
            before={_name(member): member.assignment for member in group.members.values()},
            protocol_before=group.protocol,
            before_ms=group.state_timestamp_ms,
            after_load=group_id in self._restored,
        )
        if chained is not None:
            rebalance.continue_from(chained)
        for cause in causes:
            self._apply(rebalance, cause, now_ms)

    def join(self, group_id: str, cause: Cause, now_ms: int) -> None:
        """A member joins in a rebalance that is under way. It is a cause of its own only if the member is new."""
        rebalance = self._open.get(group_id)
        if rebalance is None:
            return
        if cause.trigger is Trigger.MEMBER_REJOINED:
            rebalance.joins[cause.member.member_id] = now_ms
        else:
            self._apply(rebalance, cause, now_ms)

    def add_cause(self, group_id: str, cause: Cause, now_ms: int) -> None:
        """Another cause comes about while the rebalance is under way."""
        rebalance = self._open.get(group_id)
        if rebalance is not None:
            self._apply(rebalance, cause, now_ms)

    def _apply(self, rebalance: Rebalance, cause: Cause, now_ms: int) -> None:
        rebalance.add_cause(cause, now_ms)
        if cause.trigger in JOINS:
            rebalance.joins[cause.member.member_id] = now_ms
        elif cause.assignment is not None:
            rebalance.removed.append(Arrival(cause.member, now_ms))
            name = cause.member.name
            if cause.assignment or name in rebalance.before:
                rebalance.before.setdefault(name, cause.assignment)
                rebalance.gone.setdefault(name, now_ms)

    # --- the next generation

    def formed(self, group: ClassicGroup, now_ms: int) -> None:
        """The wait for joins is over, and `group` has the next generation."""
        rebalance = self._open.get(group.group_id)
        if rebalance is None:
            return
        self._restored.discard(group.group_id)
        protocol = group.protocol
        rebalance.joined(group.generation, now_ms, group.protocol_type, protocol)
        for member in group.members.values():
            at_ms = rebalance.joins.get(member.member_id, -1)
            rebalance.arrivals.append(Arrival(Identity.of(member), at_ms))
            name = _name(member)
            if at_ms >= 0 and protocol is not None and name in rebalance.before:
                claims = rebalance.claims.setdefault(name, [])
                if len(claims) < MAX_CLAIMS:
                    claims.append(Claim(at_ms, member.protocols.get(protocol, b"")))

    def emptied(self, group: ClassicGroup, now_ms: int) -> None:
        """The wait for joins is over, and no member is left."""
        rebalance = self._open.get(group.group_id)
        if rebalance is not None:
            self._restored.discard(group.group_id)
            rebalance.joined(group.generation + 1, now_ms, group.protocol_type)
            rebalance.assigning(now_ms)

    def assigning(self, group_id: str, now_ms: int) -> None:
        """The assignment of the leader is about to be written."""
        rebalance = self._open.get(group_id)
        if rebalance is not None:
            rebalance.assigning(now_ms)

    def written(self, group_id: str, generation: int, assigned: Sequence[Assigned]) -> None:
        """The log has the generation with these assignments; without members it is an empty one."""
        rebalance = self._open.get(group_id)
        if rebalance is not None and rebalance.joined_ms >= 0 and rebalance.epoch == generation:
            del self._open[group_id]
            self._end(rebalance, Outcome.ASSIGNED if assigned else Outcome.EMPTY, rebalance.ended_ms, assigned)

    # --- end

    def _end(self, rebalance: Rebalance, outcome: Outcome, now_ms: int, assigned: Sequence[Assigned] = ()) -> None:
        rebalance.end(outcome, now_ms, assigned)
        if rebalance.joined_ms >= 0:
            self._log.record(rebalance)

    def drop(self, group_id: str) -> None:
        """The group is as it was before the rebalance that is under way."""
        self._open.pop(group_id, None)

    def ended(self, group_id: str) -> None:
        """The group is deleted, or no classic group any more."""
        self._open.pop(group_id, None)
        self._restored.discard(group_id)


def _name(member: MemberView) -> str:
    return member.member_id if member.group_instance_id is None else member.group_instance_id
