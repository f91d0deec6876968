"""The limit on what is recorded: a group that rebalances without end must not fill the log, nor the memory.

A group may have BURST rebalances recorded at once, and one more every REFILL_MS. Beyond that only its newest one is
held, until it may be recorded, with the number of those that it replaced.
"""

from __future__ import annotations

from gregor.coordinator.history.rebalance import Rebalance

BURST = 20
REFILL_MS = 10_000
"""512 records of a storm then go back for more than an hour."""
MAX_PENDING = 2_000
MAX_HELD = 10_000
MAX_BUDGETS = 20_000


class Storms:
    """Accepts rebalances, and returns those that may be recorded."""

    def __init__(self) -> None:
        self._pending: dict[str, list[Rebalance]] = {}
        self._pending_count = 0
        self._held: dict[str, Rebalance] = {}
        # By group the records that it may write, and when they were counted. A group without entry has BURST.
        self._budgets: dict[str, tuple[float, int]] = {}
        self.lost = 0
        """Rebalances of groups for which there was no room at all."""

    def add(self, rebalance: Rebalance, now_ms: int) -> None:
        """Add a rebalance that has ended."""
        group_id = rebalance.group_id
        replaced = self._held.pop(group_id, None)
        if replaced is not None:
            rebalance.replaces(replaced)
        if self._pending_count < MAX_PENDING and self._spend(group_id, now_ms):
            self._pending.setdefault(group_id, []).append(rebalance)
            self._pending_count += 1
            return
        if len(self._held) >= MAX_HELD:
            self.lost += 1 + self._held.pop(next(iter(self._held))).not_recorded
        self._held[group_id] = rebalance

    def pop(self, now_ms: int) -> list[Rebalance]:
        """Return and forget those that may be recorded now; those of a group in their order."""
        due = [rebalance for some in self._pending.values() for rebalance in some]
        self._pending.clear()
        self._pending_count = 0
        for group_id in list(self._held):
            if len(due) >= MAX_PENDING:
                break
            if self._spend(group_id, now_ms):
                due.append(self._held.pop(group_id))
        if len(self._budgets) > MAX_BUDGETS:
            full = [name for name, budget in self._budgets.items() if _refilled(budget, now_ms) >= BURST]
            for name in full:
                del self._budgets[name]
        return due

    def forget(self, group_id: str) -> None:
        """The group was deleted."""
        self._held.pop(group_id, None)
        self._pending_count -= len(self._pending.pop(group_id, ()))

    @property
    def budgets_count(self) -> int:
        """The number of groups that have used up a part of their budget."""
        return len(self._budgets)

    def __bool__(self) -> bool:
        return bool(self._pending or self._held)

    def _spend(self, group_id: str, now_ms: int) -> bool:
        budget = self._budgets.get(group_id)
        left = BURST if budget is None else _refilled(budget, now_ms)
        if left < 1:
            return False
        self._budgets[group_id] = left - 1, now_ms
        return True


def _refilled(budget: tuple[float, int], now_ms: int) -> float:
    left, since_ms = budget
    return min(BURST, left + max(0, now_ms - since_ms) / REFILL_MS)
