"""The groups whose tombstones an operation is about to write: their histories end when these are replayed.

A group that becomes one of the other protocol has the same tombstones, and keeps its history.
"""

from __future__ import annotations

from gregor.coordinator.history.rebalance import RebalanceLog


class Deletions:
    """By group the last generation or epoch, from the operation to the replay of its records."""

    def __init__(self, log: RebalanceLog) -> None:
        self._log = log
        self._expected: dict[str, int] = {}

    def expect(self, group_id: str, epoch: int) -> None:
        """The tombstone of the group is about to be written."""
        self._expected[group_id] = epoch

    def replayed(self, group_id: str) -> bool:
        """The log has a tombstone of the group; return whether it was expected."""
        epoch = self._expected.pop(group_id, None)
        if epoch is not None:
            self._log.forget(group_id, epoch)
        return epoch is not None

    def failed(self, _error: object = None) -> None:
        """The tombstones could not be written, or not all of them."""
        self._expected.clear()
