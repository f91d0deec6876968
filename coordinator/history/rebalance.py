"""One rebalance as the coordinator observes it, and the port to which it hands the finished ones.

An observation holds references to what the coordinator has anyway; to decode and compare it is left to `summary`, which
runs when no member waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from gregor.coordinator.history.causes import Cause, Identity
from gregor.protocol.ids import Uuid

MAX_CAUSES = 16
MAX_CLAIMS = 4
"""Of one member, in a chain of rebalances none of which came to an assignment."""


class GroupType(StrEnum):
    """The protocol of the members."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Outcome(StrEnum):
    """How a rebalance ended."""

    ASSIGNED = "assigned"
    EMPTY = "empty"
    """No member is left."""
    SUPERSEDED = "superseded"
    """The next rebalance began before there was an assignment."""


class Claim(NamedTuple):
    """A join, with the subscription of the member: it has the partitions that the member still owned then."""

    at_ms: int
    subscription: bytes


class Arrival(NamedTuple):
    """A member of the new generation, and when it joined; -1 if a static member was not waited for."""

    member: Identity
    at_ms: int


Assignment = bytes
"""As the leader of a classic group sent it."""


PartitionMap = Mapping[Uuid, Collection[int]]
"""Partitions by topic id."""


class Step(NamedTuple):
    """A change of the partitions of a member of the consumer protocol: those assigned, and those to be revoked."""

    at_ms: int
    name: str
    before: tuple[PartitionMap, PartitionMap]
    after: tuple[PartitionMap, PartitionMap]


class Assigned(NamedTuple):
    """The assignment of a member."""

    name: str
    assignment: Assignment


@dataclass(slots=True)
class Rebalance:
    """A rebalance from its first cause to its end. `before` maps the members' names to the assignments that they had.

    `claims` are the joins since then and `gone` the removals since then, by name and only of the members in `before`:
    from both follows when partitions lost their owners. So a chain of rebalances without an assignment does not grow by
    the members that come and go.
    """

    group_id: str
    group_type: GroupType
    epoch: int
    began_ms: int
    causes: list[Cause] = field(default_factory=list)
    before: dict[str, Assignment] = field(default_factory=dict)
    causes_count: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    protocol_before: str | None = None
    before_ms: int = -1
    """When the assignment before this rebalance was made."""
    after_load: bool = False
    """The first rebalance since this broker became the coordinator."""
    claims: dict[str, list[Claim]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    removed: list[Arrival] = field(default_factory=list)
    joins: dict[str, int] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    joined_ms: int = -1
    ended_ms: int = -1
    outcome: Outcome = Outcome.SUPERSEDED
    assigned: Sequence[Assigned] = ()
    not_recorded: int = 0
    size: int = -1
    """Number of members, if it is not that of `arrivals`."""
    owned_before: Mapping[str, tuple[PartitionMap, PartitionMap]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    """The consumer protocol has these instead of `before`, `claims` and `assigned`."""

    def continue_from(self, superseded: Rebalance) -> None:
        """Begin where a rebalance has begun that assigned nothing: the assignments are older, and members may have
        given them up earlier."""
        # Copies: the superseded one is summarised in steps, between which this one changes.
        self.before, self.before_ms = dict(superseded.before), superseded.before_ms
        self.claims = {name: list(some) for name, some in superseded.claims.items()}
        self.gone = dict(superseded.gone)

    def joined(self, epoch: int, now_ms: int, protocol_type: str | None, protocol: str | None = None) -> None:
        """The wait for joins is over, and this is the epoch that the rebalance leads to."""
        self.epoch, self.joined_ms = epoch, now_ms
        self.protocol_type, self.protocol = protocol_type or "", protocol

    def assigning(self, now_ms: int) -> None:
        """The assignment is about to be written: the rebalance ends with it."""
        self.ended_ms = now_ms

    def reached_target(self, now_ms: int) -> None:
        """The target assignment of the epoch is written."""
        self.joined_ms = now_ms

    def end(self, outcome: Outcome, now_ms: int, assigned: Sequence[Assigned] = (), size: int = -1) -> None:
        """The rebalance is over. `size`: the number of members, if it is not that of `arrivals`."""
        self.outcome, self.ended_ms = outcome, now_ms
        self.assigned = assigned
        if size >= 0:
            self.size = size

    def replaces(self, other: Rebalance) -> None:
        """Count a rebalance that is not recorded because of this one, and those that it has replaced."""
        self.not_recorded += other.not_recorded + 1

    def add_cause(self, cause: Cause, now_ms: int) -> None:
        """Add a cause; only MAX_CAUSES are kept, the others are counted."""
        self.causes_count += 1
        if len(self.causes) < MAX_CAUSES:
            self.causes.append(cause._replace(at_ms=now_ms))


class RebalanceLog(Protocol):
    """Keeps the history. No method raises or waits."""

    def now_ms(self) -> int:
        """The wall clock."""

    def record(self, rebalance: Rebalance) -> None:
        """Keep a rebalance that has ended."""

    def forget(self, group_id: str, epoch: int) -> None:
        """Remove the history of a group that was deleted in this epoch."""


class NoHistory:
    """The RebalanceLog that keeps nothing."""

    def now_ms(self) -> int:
        """No time is kept."""
        return 0

    def record(self, rebalance: Rebalance) -> None:
        """Drop it."""

    def forget(self, group_id: str, epoch: int) -> None:
        """Nothing was kept."""
