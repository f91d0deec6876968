"""One member of a group, as the coordinator knows it while the group is loaded."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Protocol

from gregor.protocol.deferred import Deferred
from gregor.protocol.messages import GroupMetadataValue


class OfferedProtocol(Protocol):
    """A protocol of a join request, or of the record of a member."""

    name: str
    metadata: bytes


def protocols_by_name(protocols: Iterable[OfferedProtocol]) -> dict[str, bytes]:
    """Return the metadata by the names of the protocols. Of two with one name the first counts, as in Apache Kafka
    (ClassicGroupMember)."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol.metadata)
    return by_name


class Member:
    """A process that joined. Timeouts, protocols and parked answers are soft state; the rest is also in the log.

    `protocols` maps what the member can speak, most wanted first, to its metadata (for consumers: assignor name to
    subscription). The log keeps only the entry of the group's protocol, so after a load that is all there is.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "timer_key",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        group_id: str,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.parked_join: Deferred[Any] | None = None
        self.parked_sync: Deferred[Any] | None = None
        # Until its first generation a member has no id to send heartbeats with, so being parked does not keep it alive.
        self.is_new = False
        # Kept because every heartbeat needs it.
        self.timer_key = session_key(group_id, member_id)

    def offer(self, protocols: dict[str, bytes], rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Replace the protocols and timeouts by those of another join."""
        self.protocols = protocols
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    def joined_generation(self) -> None:
        """The member is part of a generation, and knows its id."""
        self.is_new = False

    def assign(self, assignment: bytes) -> None:
        """The member has this assignment; an empty one until its leader has sent the next."""
        self.assignment = assignment

    def park_sync(self) -> Deferred[Any]:
        """Return the answer to a sync, which waits for the assignment of the leader."""
        self.parked_sync = Deferred()
        return self.parked_sync

    def pop_sync(self) -> Deferred[Any] | None:
        """Return the parked answer, which the caller completes."""
        parked, self.parked_sync = self.parked_sync, None
        return parked

    def park_join(self, parked: Deferred[Any]) -> Deferred[Any] | None:
        """Keep the answer to a join until the next generation; return the one to the join before, if it is parked."""
        before, self.parked_join = self.parked_join, parked
        return before

    def pop_join(self) -> Deferred[Any] | None:
        """Return the parked answer, which the caller completes."""
        parked, self.parked_join = self.parked_join, None
        return parked

    @classmethod
    def from_record(cls, written: GroupMetadataValue.MemberMetadata, protocol: str | None, group_id: str) -> Member:
        """The member as the log has it."""
        # Version 0 of the value had no rebalance timeout.
        rebalance_ms = written.session_timeout if written.rebalance_timeout == -1 else written.rebalance_timeout
        return cls(
            written.member_id,
            written.group_instance_id,
            written.client_id,
            written.client_host,
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=written.session_timeout,
            protocols={} if protocol is None else {protocol: written.subscription},
            group_id=group_id,
            assignment=written.assignment,
        )

    def to_record(self, protocol: str, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        """The member as the log keeps it, with the assignment it is given."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.protocols[protocol],
            assignment=assignment,
        )

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its place over restarts (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def excused(self) -> bool:
        """Whether its session may not end now: it waits for us, and clients send no heartbeat meanwhile."""
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    def offers(self, protocols: dict[str, bytes]) -> bool:
        """Whether this is what the member offered before, order included."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Container[str]) -> str:
        """The protocol it wants most among those that all members speak."""
        return next(name for name in self.protocols if name in candidates)

    def replaced_by(self, member_id: str, group_id: str) -> Member:
        """The same static member under a new id."""
        return Member(
            member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
            group_id=group_id,
            assignment=self.assignment,
        )


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The key of the timer that ends a member's session, or that of an id which was handed out and not yet used."""
    return ("session", group_id, member_id)
