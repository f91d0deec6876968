"""The soft state of a shard: live memberships with their parked answers, and timers."""

from __future__ import annotations

from collections.abc import Mapping

from gregor.coordinator.group.group import Group, Membership
from gregor.coordinator.group.member import session_key
from gregor.coordinator.group.states import GroupState
from gregor.coordinator.ports import Timers
from gregor.protocol.errors import ErrorCode


class SoftState:
    """Soft state of one shard. Dropped at unload and rebuilt from the log; reads hard state, never writes it.

    A group without entry here is exactly as the log describes it.
    """

    def __init__(self, groups: Mapping[str, Group], timers: Timers) -> None:
        self._groups = groups
        self.timers = timers
        self.memberships: dict[str, Membership] = {}

    def find(self, group_id: str) -> Membership | None:
        """Return the live membership of a group, or one made from the log; None if there is no such group."""
        membership = self.memberships.get(group_id)
        if membership is None and (group := self._groups.get(group_id)) is not None:
            return Membership.from_metadata(group_id, group.metadata)
        return membership

    def open(self, group_id: str) -> Membership:
        """As `find`, for a request that will change the membership; a group that does not exist comes into being."""
        membership = self.find(group_id) or Membership(group_id)
        return self.memberships.setdefault(group_id, membership)

    def state(self, group_id: str) -> GroupState:
        """Return the state of a group; Dead if there is none."""
        membership = self.memberships.get(group_id)
        if membership is not None:
            return membership.state
        group = self._groups.get(group_id)
        if group is None:
            return GroupState.DEAD
        return GroupState.STABLE if group.metadata is not None and group.metadata.members else GroupState.EMPTY

    def close(self, group_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Forget the live membership of a group; its parked requests fail with the error."""
        membership = self.memberships.pop(group_id, None)
        if membership is None:
            return
        for member in membership.members.values():
            membership.answer_join(member, error=error)
            membership.answer_sync(member, error=error)
            self.timers.cancel(member.timer_key)
        for member_id in membership.pending:
            self.timers.cancel(session_key(group_id, member_id))
        self.timers.cancel(join_key(group_id))
        self.timers.cancel(sync_key(group_id))

    def tidy(self, group_id: str) -> None:
        """Forget the entry of an empty group without pending member ids."""
        membership = self.memberships.get(group_id)
        if membership is not None and membership.state is GroupState.EMPTY and not membership.pending:
            self.close(group_id)

    def close_all(self, error: ErrorCode) -> None:
        """The shard is unloaded."""
        for group_id in list(self.memberships):
            self.close(group_id, error)


def join_key(group_id: str) -> tuple[str, str]:
    """The key of the timer that ends the wait for joins."""
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    """The key of the timer that ends the wait for syncs."""
    return ("sync", group_id)
