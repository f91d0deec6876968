"""Moves of partitions from one data folder to another, by AlterReplicaLogDirs (KIP-113).

A thread of its own copies the bytes while the partition serves as before. When the copy has all but the last few, the
loop copies these and replaces the original by it, between two requests. A move that fails is cancelled with an error in
the broker's log, and the partition stays where it is; one that a stop or a crash interrupts is resumed at the next
start. `replica.alter.log.dirs.io.max.bytes.per.second` limits all moves together, from the moment it is set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gregor.broker.jobs.background import on_thread
from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.storage.folders.move import CHUNK_BYTES, MOVED_FILE
from gregor.storage.folders.names import MAX_NAME_LENGTH, FolderKind, marked_folder_name
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.fs.throttle import Pace

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.folders.move import LogMove

_RETRY_S = 0.01
"""How long to wait for a compaction or a flush that is under way when the copy is ready."""
_FULL_RETRY_S = 1.0
_POLL_EVERY_S = 0.25
"""How often a throttled move checks the limit again, which can be altered at any time."""
_MIN_CHUNK_BYTES = 64 * 1024
_LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second"


class LogMover:
    """Moves the partitions of one broker, one at a time."""

    def __init__(
        self, config: BrokerConfig, logs: LogManager, replicas: ReplicaManager, background: Background
    ) -> None:
        self._config = config
        self._pace = Pace(time.monotonic)
        self._logs = logs
        self._replicas = replicas
        self._background = background
        self._turn = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def folder(self, path: str) -> DataFolder:
        """Return the data folder of this absolute path. Raises KafkaError LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR."""
        for folder in self._logs.folders:
            if path in (folder.absolute_path, folder.path):
                if folder.failure is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has failed")
                return folder
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's data folders (log.dirs)")

    def move(self, topic: str, index: int, folder: DataFolder) -> None:
        """Move a partition's log to this folder. A log that is there already stays, and a move of it to another folder
        is cancelled. For a partition that does not exist here the folder is remembered.

        Raises KafkaError: KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION (the copy's folder name would be too long), and
        REPLICA_NOT_AVAILABLE if the partition does not exist here.
        """
        key = TopicPartition(topic, index)
        if len(marked_folder_name(topic, index, FolderKind.FUTURE, bytes(16))) > MAX_NAME_LENGTH:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is too long a name for a copy's folder")
        under_way = self._logs.moves.under_way.get(key)
        if under_way is not None and under_way.folder is not folder:
            self._remove(self._logs.moves.cancel(key))
            under_way = None
        partition = self._replicas.get(topic, index)
        log = self._logs.get(topic, index)
        if partition is not None and partition.log is None:
            partition.leadership.leader_log()  # raises the reason why it is offline
        if partition is None or log is None:
            self._logs.moves.prefer(key, folder)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"this broker has no replica of {topic}-{index}")
        if under_way is not None:
            return
        if self._logs.folder_of(log) == folder.path:
            self._remove(self._logs.moves.cancel(key))  # an interrupted one that was not resumed yet
            return
        if len(self._logs.online_folders()) < len(self._logs.folders):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "nothing is moved while a data folder has failed")
        try:
            move = self._logs.moves.begin(key, folder)
        except OSError as error:
            self._logs.disk_errors.report(folder, None, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder.path}: {error.strerror}") from error
        for path in move.unlinkable:
            self._remove(path)
        self._background.spawn(self._run(key, move))

    def resume(self) -> None:
        """Resume the moves that were interrupted: each as soon as its partition has its log. In a cluster that is when
        the controller has assigned the partition to this broker again."""
        self._replicas.on_leadership.append(lambda leaders, followers: self._resume([*leaders, *followers]))
        self._resume(self._replicas.partitions.values())

    def _resume(self, partitions: Iterable[Partition]) -> None:
        if not self._logs.moves.wishes:
            return
        for partition in partitions:
            key = TopicPartition(partition.topic, partition.partition)
            if partition.log is None or (folder := self._logs.moves.pop_wish(key)) is None:
                continue
            try:
                self.move(*key, folder)
            except KafkaError as error:
                logger.warning("%s-%d is not moved to %s: %s", *key, folder.path, error)
            self._remove(self._logs.moves.drop_left(key))  # unless the move was resumed

    async def _run(self, key: TopicPartition, move: LogMove) -> None:
        done = f", {move.size_bytes / 1e6:.1f} MB are there already" if move.size_bytes else ""
        logger.info("moving %s-%d from %s to %s%s", *key, move.home.path, move.folder.path, done)
        try:
            async with self._turn:
                await self._copy(key, move)
        except (OSError, KafkaError, ValueError) as error:
            if not move.cancelled:
                logger.error("%s-%d is not moved to %s: %s", *key, move.folder.path, error)
                self._remove(self._logs.moves.cancel(key))
                cause = error if isinstance(error, OSError) else error.__cause__
                if isinstance(cause, OSError):
                    self._logs.disk_errors.report(move.failed_folder(cause), None, cause)

    async def _copy(self, key: TopicPartition, move: LogMove) -> None:
        ready = False
        while not move.cancelled:
            limit = self._config[_LIMIT]
            if (wait_s := self._pace.wait_s(limit)) > 0:
                await asyncio.sleep(min(wait_s, _POLL_EVERY_S))
                continue
            # In pieces of a quarter of a second, so that the rate is even.
            plan = move.plan(min(CHUNK_BYTES, max(_MIN_CHUNK_BYTES, limit // 4)))
            if plan is not None:
                await self._in_thread(plan.run)
                self._pace.charge(plan.size_bytes)
                if move.cancelled:
                    plan.release()
                else:
                    move.copied(plan)
            elif not ready:
                # From the swap on the target's checkpoints apply to the log: they must be written before.
                errors = await self._background.run(run_all(self._logs.checkpoints.recovery_points()))
                self._logs.report(errors)
                if (failure := errors.get(move.folder.path)) is not None:
                    raise failure
                ready = True
            elif move.log in self._background.flushes or not move.is_caught_up():
                await asyncio.sleep(_RETRY_S)
            else:
                try:
                    moved, old = self._logs.finish_move(move)
                except OSError as error:
                    if not is_full(error) or move.failed_folder(error) is not move.home:
                        raise
                    # The full disk that the move is to relieve has no room for a longer name; all else is done.
                    self._logs.disk_errors.report(move.home, None, error)
                    await asyncio.sleep(_FULL_RETRY_S)
                    continue
                self._replicas.log_moved(moved)
                logger.info("%s-%d was moved to %s", *key, move.folder.path)
                self._logs.report(await self._background.run(run_all(self._logs.checkpoints.recovery_points())))
                self._remove(f"{moved.directory}/{MOVED_FILE}")
                self._remove(old)
                return

    def _remove(self, path: str | None) -> None:
        if path is not None:
            self._background.remove_later([path], 0)

    async def _in_thread(self, call: Callable[[], None]) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "moves")
        await on_thread(self._threads, call)

    def close(self) -> None:
        """Wait for the copy that is under way on the thread."""
        if self._threads is not None:
            self._threads.shutdown(wait=True)
