"""The state of each partition in the data folders of this broker: loaded, not loaded yet, or failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.log.log import Log


class PendingFolder(NamedTuple):
    """A partition's folder that is not loaded yet."""

    folder: DataFolder
    path: str
    unchecked_bytes: int


class LogTable:
    """A partition is in one of `logs`, `pending` and `failed`; of all but the pending ones `homes` has the folder."""

    __slots__ = ("failed", "high_watermarks", "homes", "logs", "pending", "unlinkable")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.pending: dict[TopicPartition, PendingFolder] = {}
        self.failed: dict[TopicPartition, Exception] = {}
        self.homes: dict[TopicPartition, DataFolder] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """From the checkpoints that the last start has read."""
        self.unlinkable: list[str] = []
        """Leftovers, files and folders: for a thread to remove."""
