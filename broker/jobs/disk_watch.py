"""The broker's reaction to its disks: one without room, one that fails, one that works again.

- Full: appends fail with KAFKA_STORAGE_ERROR, reads continue. Segments whose retention has ended are deleted at once,
  and so are files that only wait for `file.delete.delay.ms`. Nothing else changes: an append that finds room succeeds,
  so writing resumes by itself. One line in the broker's log reports the beginning and the remedy, one the end.
  In a cluster, partitions that other brokers have in sync are left to them meanwhile: the controller is notified that
  they are offline here, so that another broker leads them and none waits for this one. They follow again when there is
  room. If the others are full, too, the last one in sync leads, for reads.
- Failed (the device or its mount, or files that cannot be used): the partitions of that data folder go offline, their
  clients get KAFKA_STORAGE_ERROR, and the controller is notified, so that it elects other leaders. Where it is not
  certain that the whole folder has failed, it is probed first; if it works, only the one partition goes offline.
- No folder left: the broker stops.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.protocol.topic_partition import TopicPartition, TopicPartitionKey
from gregor.replication.store.metadata_store import StoreError
from gregor.storage.fs.disk_errors import BROKEN, OF_THE_PROCESS, is_full

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.log.log import Log

_POLL_EVERY_S = 1.0
_RETAIN_EVERY = 10
"""Polls between two retention runs on a full disk."""
_ENOUGH_BYTES = 64 * 1024 * 1024
_ENOUGH_SHARE = 50
"""A disk has room again when 64 MB or one fiftieth of it are free: less would be filled at once."""
_PROBE_BYTES = 256 * 1024
"""Allocated and released as a test that this user may write that much: statvfs does not show a quota."""

Suspect = tuple["Log | None", OSError]


class DiskWatch:
    """Watches the disks of one broker. `trouble` handles `LogManager.disk_errors`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        logs: LogManager,
        replicas: ReplicaManager,
        background: Background,
        *,
        announce: Callable[[], Awaitable[None]],
        retain: Callable[[], Awaitable[None]],
        end: Callable[[str], None],
    ) -> None:
        """`announce` notifies the controller that this broker serves other logs than before, `retain` runs retention
        over all logs, `end` stops the broker for a reason."""
        self._loop = loop
        self._logs = logs
        self._replicas = replicas
        self._background = background
        self._announce = announce
        self._retain = retain
        self._end = end
        self._suspects: dict[DataFolder, list[Suspect]] = {}

    def start(self) -> None:
        self._logs.disk_errors.subscribe(self.trouble)
        self._background.spawn(self._keep_reserves())

    def trouble(self, folder: DataFolder, log: Log | None, error: OSError) -> None:
        """Handle an error in the loop's next turn; this is called in the middle of the work that has met it."""
        self._loop.call_soon(self._judge, folder, log, error)

    def full(self, folder: DataFolder, cause: str) -> None:
        """Handle a data folder without room. It is logged once, until there is some again."""
        if not folder.full and folder.failure is None:
            folder.mark_full()
            logger.error(
                "%s is full (%s): nothing can be written to it, reading continues. Writing resumes by itself when "
                "there is room: free some of its volume, or lower retention.ms or retention.bytes of large topics. "
                "Segments whose retention has ended are deleted now",
                folder.path, cause,
            )  # fmt: skip
            self._background.spawn(self._wait_for_room(folder))

    def _judge(self, folder: DataFolder, log: Log | None, error: OSError) -> None:
        if folder.failure is not None or (log is not None and self._logs.get(log.topic, log.partition) is not log):
            return
        if is_full(error) and (log is None or not log.offline):
            self.full(folder, error.strerror or str(error))
        elif error.errno in OF_THE_PROCESS and (log is None or not log.offline):
            logger.error(
                "%s stays online, though an access failed at a limit of the process or of the machine: %s. Raise that"
                " limit: ulimit -n for open files, else the memory",
                folder.path if log is None else log.directory, error,
            )  # fmt: skip
        elif error.errno in BROKEN:
            self._fail_folder(folder, error)
        elif folder in self._suspects:
            self._suspects[folder].append((log, error))
        else:
            self._suspects[folder] = [(log, error)]
            self._background.spawn(self._probe(folder))

    async def _probe(self, folder: DataFolder) -> None:
        failure = await self._background.run(folder.probe)
        suspects = self._suspects.pop(folder)
        if failure is not None:
            self._fail_folder(folder, failure)
            return
        lost = []
        for log, error in suspects:
            if log is None:
                logger.error(
                    "%s stays online, as a probe found it in order, though an access failed: %s. Check owner and"
                    " permissions of the file that the error names",
                    folder.path, error,
                )  # fmt: skip
            elif self._logs.get(log.topic, log.partition) is log:
                logger.error(
                    "%s is offline: %s. Repair it and restart the broker; its folder's other partitions are served",
                    log.directory, error,
                )  # fmt: skip
                self._logs.fail_log(log, error)
                lost.append(TopicPartition(log.topic, log.partition))
        if lost:
            self._replicas.disk_failed(lost)
            self._background.spawn(self.notify_controller())

    def _fail_folder(self, folder: DataFolder, error: OSError) -> None:
        if folder.failure is not None:
            return
        lost = self._logs.begin_failure(folder, error)
        logger.error(
            "%s failed, its %d partitions are offline: %s. The other data folders are served. Repair or mount it, or "
            "remove it from log.dirs, and restart the broker",
            folder.path, len(lost), error,
        )  # fmt: skip
        self._background.spawn(self._fail_partitions(lost, error))
        if not self._logs.online_folders():
            self._end("all data folders (log.dirs) have failed")

    async def _fail_partitions(self, lost: list[Log], error: OSError) -> None:
        """Set the partitions offline, in turns. Until its turn comes, a partition accepts no appends, as its log is
        retired, and serves reads if they work. The controller is notified when all of them are offline."""
        turns = self._background.gate.turns()
        for log in lost:
            await turns.next()
            if self._logs.get(log.topic, log.partition) is log:
                self._logs.fail_log(log, error)
                self._replicas.disk_failed([TopicPartition(log.topic, log.partition)])
        if self._logs.online_folders():
            await self.notify_controller()

    async def notify_controller(self) -> None:
        """Notify the controller that other logs are served here now, or have been deleted."""
        try:
            await self._announce()
        except StoreError as error:
            logger.error("the controller could not be notified that other logs are served now: %s", error)

    # -- full ------------------------------------------------------------------------------------------------------

    async def _leave_to_others(self, folder: DataFolder) -> list[TopicPartitionKey]:
        """Set the partitions that other brokers have offline here, until `_wait_for_room` ends that. In turns: the
        ones whose turn comes later cannot append either."""
        keys = [key for key, log in self._logs.logs.items() if self._logs.folder_of(log) == folder.path]
        aside: list[TopicPartitionKey] = []
        turns = self._background.gate.turns()
        for key in keys:
            await turns.next()
            aside += self._replicas.suspend([key])
        if aside:
            logger.warning("%s: other brokers lead its %d partitions until there is room", folder.path, len(aside))
            self._background.spawn(self.notify_controller())
        return aside

    async def _wait_for_room(self, folder: DataFolder) -> None:
        began_s = time.monotonic()
        aside = await self._leave_to_others(folder)
        polls = 0
        while True:
            if polls % _RETAIN_EVERY == 0:
                await self._retain_on(folder)
            self._background.remove_now()
            polls += 1
            await asyncio.sleep(_POLL_EVERY_S)
            if folder.failure is not None:
                return
            if await self._background.run(_has_room, folder):
                break
        folder.mark_writable()
        logger.info("%s has room again after %.0f s: writing resumes", folder.path, time.monotonic() - began_s)
        await self._background.run(folder.keep_reserve)
        self._replicas.resume(aside)
        await self.notify_controller()  # it may have sent partitions whose logs could not be created

    async def _retain_on(self, folder: DataFolder) -> None:
        try:
            await self._retain()
        except Exception:  # a bug: the wait for room must end all the same, and with it the suspensions
            logger.exception(
                "retention on the full %s failed; it runs again in %.0f s", folder.path, _RETAIN_EVERY * _POLL_EVERY_S
            )

    async def _keep_reserves(self) -> None:
        for folder in self._logs.online_folders():
            if not folder.full:
                await self._background.run(folder.keep_reserve)


def _has_room(folder: DataFolder) -> bool:
    try:
        volume = os.statvfs(folder.path)
    except OSError:
        return False
    free_bytes = volume.f_bavail * volume.f_frsize
    enough_bytes = min(_ENOUGH_BYTES, volume.f_blocks * volume.f_frsize // _ENOUGH_SHARE)
    return free_bytes >= enough_bytes and folder.has_room_for(min(enough_bytes, _PROBE_BYTES))
