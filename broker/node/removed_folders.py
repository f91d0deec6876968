"""The folders of deleted partitions, which are renamed at once and unlinked later."""

from __future__ import annotations

from posixpath import dirname
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.storage.folders.manager import LogManager


class RemovedFolders:
    """In a single broker a power cut must not bring a deleted topic back: folders with their old names again, but no
    topic in the metadata, would be adopted (broker.node.adoption). Hence their new names are made durable first."""

    def __init__(self, logs: LogManager, background: Background, delay_ms: int) -> None:
        """The folders are unlinked after `delay_ms`, when no fetch reads them any more."""
        self._logs = logs
        self._background = background
        self._delay_ms = delay_ms
        self._unsynced: set[str] = set()

    def add(self, folder: str) -> None:
        """Have a renamed folder unlinked later."""
        self._unsynced.add(dirname(folder))
        self._background.remove_later([folder, *self._logs.pop_unlinkable()], self._delay_ms)

    async def sync(self) -> None:
        """Make the new names of the folders durable that were added since the last call: one sync for each data folder.
        The errors of disks are reported."""
        if self._unsynced:
            changed, self._unsynced = self._unsynced, set()
            self._logs.report(await self._background.fsync(self._logs.checkpoints.names(changed)))
