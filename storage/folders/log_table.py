"""Where each partition of this broker's data folders stands: loaded, not loaded yet, or failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.log.log import Log

Key = tuple[str, int]
"""topic, partition."""


class PendingFolder(NamedTuple):
    """A partition's folder that is not loaded yet."""

    folder: DataFolder
    path: str
    unchecked_bytes: int


class LogTable:
    """A partition is in one of `logs`, `pending` and `failed`; of all but the pending ones `homes` has the folder."""

    __slots__ = ("failed", "high_watermarks", "homes", "logs", "pending", "unlinkable")

    def __init__(self) -> None:
        self.logs: dict[Key, Log] = {}
        self.pending: dict[Key, PendingFolder] = {}
        self.failed: dict[Key, Exception] = {}
        self.homes: dict[Key, DataFolder] = {}
        self.high_watermarks: dict[Key, int] = {}
        """As the checkpoints of the last start had them."""
        self.unlinkable: list[str] = []
        """Leftovers, files and folders: for a thread to remove."""

    def holds(self, key: Key, log: Log) -> bool:
        """Whether this is the partition's log: it may have been moved or removed."""
        return self.logs.get(key) is log
