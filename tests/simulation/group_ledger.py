"""The promises of a consumer group to its members, each checked when something shows whether it is kept.

A member owns a partition from the answer that assigns it until it revokes it, and no longer than its lease: one session
timeout after it sent the last heartbeat that was answered. The coordinator begins to count when the heartbeat arrives,
so a member that the coordinator has removed has lost its lease before. Only answers of the coordinator that ZooKeeper
names count: another one may be frozen, or cut off, and answer from what it knew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

Key = tuple[str, int]


class Holding:
    """A partition that a member owns."""

    def __init__(self, member: str, epoch: int) -> None:
        self.member = member
        self.epoch = epoch


class GroupLedger:
    """The assignments that members of one group received, and the offsets that they committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leases: dict[str, float] = {}
        """The end of the lease of each member, by member id."""
        self._holdings: dict[Key, dict[str, Holding]] = {}
        """By partition and member; more than one only where all but one have lost their lease."""
        self._epochs: dict[str, int] = {}
        self._committed: dict[Key, int] = {}
        """The last offset whose commit was acknowledged."""
        self._sent: dict[Key, int] = {}
        """The greatest offset that a member tried to commit."""
        self.transfers = 0
        """How often a partition came to another member than the one before."""
        self._last_owner: dict[Key, str] = {}
        self.is_closed = False
        """Members commit no more offsets."""

    def _violation(self, text: str) -> None:
        self._world.ledger.violation(text)

    # -- membership ------------------------------------------------------------------------------------------------

    def answered(self, member: str, epoch: int, lease_until_s: float) -> None:
        """A heartbeat succeeded: the member is in this epoch, and may own what it is assigned until then."""
        known = self._epochs.get(member, 0)
        if epoch < known:
            self._violation(f"member {member} falls from epoch {known} to {epoch}")
        self._epochs[member] = epoch
        self._leases[member] = max(lease_until_s, self._leases.get(member, 0.0))

    def forget_epoch(self, member: str) -> None:
        """The member joins a group that may be another."""
        self._epochs.pop(member, None)

    def own(self, member: str, key: Key, epoch: int) -> None:
        """The member was assigned a partition."""
        now_s = self._world.loop.time()
        holders = self._holdings.setdefault(key, {})
        for other in list(holders):
            if other != member and self._leases.get(other, 0.0) <= now_s:
                del holders[other]
        for other, holding in holders.items():
            if other != member:
                self._violation(
                    f"{key} is assigned to {member} in epoch {epoch} while {other} owns it since epoch {holding.epoch}"
                )
        holders[member] = Holding(member, epoch)
        if self._last_owner.get(key, member) != member:
            self.transfers += 1
        self._last_owner[key] = member

    def release(self, member: str, key: Key) -> None:
        """The member revoked a partition, or lost it."""
        self._holdings.get(key, {}).pop(member, None)

    def owners(self, key: Key) -> list[str]:
        """The members that own a partition now."""
        now_s = self._world.loop.time()
        return [one for one in self._holdings.get(key, {}) if self._leases.get(one, 0.0) > now_s]

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit_sent(self, key: Key, offset: int) -> None:
        self._sent[key] = max(offset, self._sent.get(key, -1))

    def committed(self, key: Key, offset: int) -> None:
        """A commit was acknowledged. Each owner continues where the one before ended."""
        known = self._committed.get(key, -1)
        if offset < known:
            self._violation(f"the commit of {offset} for {key} succeeds after that of {known}")
        self._committed[key] = max(offset, known)

    def last_committed(self, key: Key) -> int:
        return self._committed.get(key, -1)

    def fetched(self, key: Key, offset: int, at_least: int) -> None:
        """The coordinator answers with this offset; `at_least` was acknowledged before the request was sent."""
        if not at_least <= offset <= self._sent.get(key, -1):
            self._violation(
                f"the group's offset of {key} is {offset}: {at_least} was committed before, and"
                f" {self._sent.get(key, -1)} is the last that was sent"
            )
