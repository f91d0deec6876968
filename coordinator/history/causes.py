"""The causes of rebalances: an event, its member, and the reason that the client gave (KIP-800)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol


class Trigger(StrEnum):
    """The kinds of causes, as records and reports name them."""

    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member rejoined"
    """Nothing that the coordinator knows of had changed; the client's reason is all there is."""
    STATIC_MEMBER_REPLACED = "static member replaced"
    SUBSCRIPTION_CHANGED = "subscription changed"
    TOPICS_CHANGED = "topics changed"
    """A subscribed topic was created or deleted, or has more partitions."""
    ASSIGNOR_CHANGED = "assignor changed"
    METADATA_CHANGED = "member metadata changed"
    """Data of the member's own, such as user data of its assignor, or its rack."""
    PARTITIONS_REVOKED = "partitions revoked"
    """The second half of a cooperative rebalance: a member gave partitions up, for others to get them."""
    MEMBER_LEFT = "member left"
    SESSION_TIMEOUT = "session timeout"
    REBALANCE_TIMEOUT = "rebalance timeout"
    """A member did not rejoin, or did not revoke its partitions, in time."""
    SYNC_TIMEOUT = "sync timeout"
    """A member did not fetch its assignment in time."""
    COORDINATOR_CHANGED = "coordinator changed"
    GROUP_TOO_LARGE = "group too large"
    ASSIGNMENT_NOT_WRITTEN = "assignment not written"
    PROTOCOL_CHANGED = "group protocol changed"
    """From classic to the consumer protocol, or back."""


class MemberView(Protocol):
    """The attributes of a member that causes and histories read."""

    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...


class Identity(NamedTuple):
    """A member, and where it connects from. A static member keeps its `name` under a new member id."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str

    @classmethod
    def of(cls, member: MemberView) -> Identity:
        return cls(member.member_id, member.group_instance_id, member.client_id, member.client_host)

    @property
    def name(self) -> str:
        """The instance id of a static member, the member id of another."""
        return self.member_id if self.group_instance_id is None else self.group_instance_id


NO_MEMBER = Identity("", None, "", "")


class Rejoin(NamedTuple):
    """The offers of a member before and now, by assignor; and whether it leads the group."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    leads: bool


class Cause(NamedTuple):
    """One cause. The recorder sets `at_ms`. A member that is gone had this `assignment`."""

    trigger: Trigger
    member: Identity = NO_MEMBER
    reason: str | None = None
    detail: str = ""
    at_ms: int = -1
    assignment: bytes | None = None
    rejoin: Rejoin | None = None


JOINS = frozenset(
    {
        Trigger.MEMBER_JOINED,
        Trigger.MEMBER_REJOINED,
        Trigger.STATIC_MEMBER_REPLACED,
    }
)
"""Their member has joined by them."""
