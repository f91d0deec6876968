"""What the broker does about its disks: one without room, one that fails, one that is well again.

- Full: whoever writes gets KAFKA_STORAGE_ERROR, reads go on. What retention finds due goes at once, and so do files
  that only wait for `file.delete.delay.ms`. Nothing else happens: an append that finds room is one like any other, so
  writing resumes by itself. One line in the broker's log says that it began and what helps, one that it is over.
  In a cluster, partitions that other brokers have in sync are left to them meanwhile: the controller is told that
  they are offline here, so that another leads and none waits for this one. They follow again when there is room.
- Failed (the device or its mount, or files that cannot be used): the partitions of that data folder go offline, for
  their clients with KAFKA_STORAGE_ERROR, and the controller is told so that it looks for other leaders. Where it is
  not plain that the whole folder is at fault, it is tried out first; if it works, only the one partition goes.
- No folder left: the broker ends.
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
"""Looks between two retention runs on a full disk."""
_ENOUGH_BYTES = 64 * 1024 * 1024
_ENOUGH_SHARE = 50
"""A disk has room again when that much, or one part in so many of it, is free: less would be gone at once."""
_TRIED_BYTES = 256 * 1024
"""Taken and given back to see that this user may have it: a quota does not show in what is free."""

Suspect = tuple["Log | None", OSError]


class DiskWatch:
    """One broker's. `trouble` handles `LogManager.disk_errors`."""

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
        """`announce` has the controller ask again what this broker serves, `retain` runs retention over all logs, `end`
        stops the broker for a reason."""
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
        """Called inside whatever ran into the error; what follows from it comes with the loop's next turn."""
        self._loop.call_soon(self._judge, folder, log, error)

    def full(self, folder: DataFolder, cause: str) -> None:
        """There is no room in a data folder. Says so once, until there is some again."""
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
        elif error.errno in OF_THE_PROCESS:
            logger.error("%s: %s", folder.path if log is None else log.directory, error)
        elif error.errno in BROKEN:
            self._fail_folder(folder, error)
        elif folder in self._suspects:
            self._suspects[folder].append((log, error))
        else:
            self._suspects[folder] = [(log, error)]
            self._background.spawn(self._try_out(folder))

    async def _try_out(self, folder: DataFolder) -> None:
        failure = await self._background.run(folder.probe)
        suspects = self._suspects.pop(folder)
        if failure is not None:
            self._fail_folder(folder, failure)
            return
        lost = []
        for log, error in suspects:
            if log is None:
                logger.error("%s: %s", folder.path, error)
            elif self._logs.get(log.topic, log.partition) is log:
                logger.error(
                    "%s is offline: %s. Repair it and restart the broker; its folder's other partitions are served",
                    log.directory, error,
                )  # fmt: skip
                self._logs.fail_log(log, error)
                lost.append(TopicPartition(log.topic, log.partition))
        if lost:
            self._replicas.disk_failed(lost)
            self._background.spawn(self.tell_controller())

    def _fail_folder(self, folder: DataFolder, error: OSError) -> None:
        if folder.failure is not None:
            return
        lost = self._logs.begin_failure(folder, error)
        logger.error(
            "%s failed, its %d partitions are offline: %s. The other data folders are served. Repair or mount it, or "
            "remove it from log.dirs, and restart the broker",
            folder.path, len(lost), error,
        )  # fmt: skip
        self._background.spawn(self._give_up(lost, error))
        if not self._logs.online_folders():
            self._end("all data folders (log.dirs) have failed")

    async def _give_up(self, lost: list[Log], error: OSError) -> None:
        """In turns. Whose turn is still to come takes nothing, as its log is retired, and is read from while that
        works; the controller asks when all of them say that they failed."""
        turns = self._background.gate.turns()
        for log in lost:
            await turns.next()
            if self._logs.get(log.topic, log.partition) is log:
                self._logs.fail_log(log, error)
                self._replicas.disk_failed([TopicPartition(log.topic, log.partition)])
        if self._logs.online_folders():
            await self.tell_controller()

    async def tell_controller(self) -> None:
        """That it has to ask again what this broker serves, and what it has deleted."""
        try:
            await self._announce()
        except StoreError as error:
            logger.error("the controller could not be notified that other logs are served now: %s", error)

    # -- full ------------------------------------------------------------------------------------------------------

    async def _leave_to_others(self, folder: DataFolder) -> list[TopicPartitionKey]:
        """What others have is offline here until it is taken up again. In turns: whose turn is still to come cannot
        write either."""
        keys = [key for key, log in self._logs.logs.items() if self._logs.folder_of(log) == folder.path]
        aside: list[TopicPartitionKey] = []
        turns = self._background.gate.turns()
        for key in keys:
            await turns.next()
            aside += self._replicas.suspend([key])
        if aside:
            logger.warning("%s: other brokers lead its %d partitions until there is room", folder.path, len(aside))
            self._background.spawn(self.tell_controller())
        return aside

    async def _wait_for_room(self, folder: DataFolder) -> None:
        began_s = time.monotonic()
        aside = await self._leave_to_others(folder)
        looks = 0
        while True:
            if looks % _RETAIN_EVERY == 0:
                await self._retain()
            self._background.remove_now()
            looks += 1
            await asyncio.sleep(_POLL_EVERY_S)
            if folder.failure is not None:
                return
            if await self._background.run(_has_room, folder):
                break
        folder.mark_writable()
        logger.info("%s has room again after %.0f s: writing resumes", folder.path, time.monotonic() - began_s)
        await self._background.run(folder.keep_reserve)
        self._replicas.resume(aside)
        await self.tell_controller()  # it may have asked for logs that could not be made

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
    return free_bytes >= enough_bytes and folder.has_room_for(min(enough_bytes, _TRIED_BYTES))
