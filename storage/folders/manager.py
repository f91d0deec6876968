"""All logs of a broker, across its data folders: loading, creating, removing and closing them, and their checkpoints.

    manager.lock(); manager.load_meta(cluster_id, broker_id)
    for log in manager.load(): ...          # a step at a time; None means "worked a millisecond, more to do"
    ...                                     # logs, get, get_or_create, remove, checkpoints
    manager.close_all()

A log that could not be loaded is in `failed` and stays so until the next start: no log is created in its place, because
its data may still be valid. Not thread-safe; only what `checkpoints` returns may run on a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gregor.config.topic import LogConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, Uuid, random_uuid, uuid_to_text
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP
from gregor.storage.folders.checkpoint_contents import keep
from gregor.storage.folders.closing import close_all_cleanly
from gregor.storage.folders.data_folders import DataFolders, DiskErrors
from gregor.storage.folders.identity import PARTITION_METADATA_FILE, format_partition_metadata
from gregor.storage.folders.loading import FailureHandlers, LoadProgress, LogLoader
from gregor.storage.folders.log_checkpoints import LogCheckpoints
from gregor.storage.folders.log_table import LogTable, NewFolder, NewFolders, NewPartition
from gregor.storage.folders.moves import LogMoves
from gregor.storage.folders.names import FolderKind, folder_name, marked_folder_name
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.log.contents import LoadedParts, LogIdentity
from gregor.storage.log.epochs import LeaderEpochs
from gregor.storage.log.log import Log
from gregor.storage.producers.state import ProducerStates

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Call, Steps
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.folders.loading import ScanHelper
    from gregor.storage.folders.move import LogMove
    from gregor.storage.fs.files import Files

_log = logging.getLogger(__name__)


class LogManager:
    """The logs, by (topic, partition), and the data folders they lie in. Owns and names its parts: the data folders,
    the table of partitions, the loader, the moves between folders and the checkpoints."""

    def __init__(
        self, config: BrokerConfig, files: Files, clock_ms: Callable[[], int], scan_helper: ScanHelper | None = None
    ) -> None:
        """`scan_helper` checks segments in another process after a crash."""
        self._files = files
        self._clock_ms = clock_ms
        self._folders = DataFolders(config.log_dirs, files, clock_ms)
        self._table = table = LogTable()
        self.logs = table.logs
        self.failed = table.failed
        self.disk_errors = DiskErrors()
        self._new_folders = NewFolders(files)
        self.moves = LogMoves(files, table, self.log_failed)
        self.checkpoints = LogCheckpoints(self._folders, table, self.moves, files)
        self._loader = LogLoader(
            config,
            files,
            clock_ms,
            self._folders,
            table,
            self.moves,
            self.checkpoints,
            scan_helper,
            FailureHandlers(self.log_failed, self._failed_while_loading),
        )

    # Data folders

    @property
    def folders(self) -> list[DataFolder]:
        return self._folders.all

    @property
    def broker_id(self) -> int | None:
        return self._folders.broker_id

    def online_folders(self) -> list[DataFolder]:
        """The data folders that have not failed."""
        return self._folders.online()

    def lock(self) -> None:
        """See DataFolders.lock."""
        self._folders.lock()

    def unlock(self) -> None:
        self._folders.unlock()

    def load_meta(self, cluster_id: str | None, broker_id: int | None) -> str:
        """See DataFolders.load_meta."""
        return self._folders.load_meta(cluster_id, broker_id)

    def release_reserves(self) -> None:
        """Free the room that is reserved for a stop and for a start. Raises nothing."""
        self._folders.release_reserves()

    # Loading

    @property
    def progress(self) -> LoadProgress:
        return self._loader.progress

    @property
    def listed(self) -> bool:
        """`is_loading` knows every partition: `load` has listed all folders."""
        return self._loader.listed

    @property
    def waits(self) -> bool:
        """`load` has nothing left to do but to wait for other processes."""
        return self._loader.waits

    def load(self, topic_config: Callable[[str], LogConfig] | None = None) -> Iterator[Log | None]:
        """See LogLoader.load."""
        return self._loader.load(topic_config)

    def is_loading(self, topic: str, partition: int) -> bool:
        """Return whether `load` has found the partition, but not loaded it yet."""
        return TopicPartition(topic, partition) in self._table.pending

    def has_topic(self, topic: str) -> bool:
        """Return whether a data folder holds a partition of that topic, loaded or not."""
        return any(name == topic for keys in (self._table.pending, self.logs, self.failed) for name, _ in keys)

    def pop_unlinkable(self) -> list[str]:
        """Return the leftovers that were found since the last call, files and folders, for a thread to remove."""
        return self._table.pop_unlinkable()

    # Logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get(TopicPartition(topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: Uuid, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """Return the partition's log, with this configuration; a new one is created in the data folder with the fewest.

        `is_new` is False for a partition that this broker may have had before: while a data folder has failed, no log
        is created for it, as its records may be there. Raises KafkaError: INCONSISTENT_TOPIC_ID when the log belongs to
        another topic of that name, KAFKA_STORAGE_ERROR when it could not be loaded, is not loaded yet, or cannot be
        created.
        """
        key = TopicPartition(topic, partition)
        log = self.logs.get(key)
        if log is None:
            return self._create(key, topic_id, config, is_new)
        if log.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
            try:
                self._write_topic_id(log.directory, topic_id)
            except OSError as error:
                self.disk_errors.report(self._table.homes[key], log, error)
                raise _storage_error(f"cannot write the topic id of {topic}-{partition}", error) from error
            log.assign_topic_id(topic_id)
        elif topic_id not in (log.topic_id, ZERO_UUID):
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} holds topic {uuid_to_text(log.topic_id)}, not {uuid_to_text(topic_id)}",
            )
        log.configure(config)
        return log

    def plan_folders(self, partitions: Sequence[NewPartition]) -> Call:
        """Return the call, for a thread, that makes the folders of partitions whose logs are about to be created."""
        return self._new_folders.plan(partitions, self.online_folders())

    def discard_folders(self) -> None:
        """Remove the folders of `plan_folders` that are not used."""
        self._new_folders.discard()

    def remove(self, topic: str, partition: int) -> str:
        """Remove a log from the table and mark its folder for deletion; returns the path, for a thread to remove.

        Slices that readers hold stay readable. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR.
        """
        key = TopicPartition(topic, partition)
        log = self.logs.get(key)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {topic}-{partition}")
        # First the copy of a move: a start must not find it without the original.
        if (copy := self.moves.cancel(key)) is not None:
            self._table.unlinkable.append(copy)
        folder = self._table.homes[key]
        path = f"{folder.path}/{marked_folder_name(topic, partition, FolderKind.DELETE, random_uuid())}"
        try:
            self._files.rename(log.directory, path)
        except OSError as error:
            self.disk_errors.report(folder, log, error)
            raise _storage_error(f"cannot rename {log.directory}", error) from error
        log.retire()
        log.close(clean=False)
        del self.logs[key], self._table.homes[key]
        self._table.high_watermarks.pop(key, None)
        folder.remove_partition()
        self.checkpoints.removed(key)
        self.checkpoints.names_changed(folder.path)
        return path

    def folder_of(self, log: Log) -> str:
        """Return the path of the data folder that holds the log."""
        return self._table.homes[TopicPartition(log.topic, log.partition)].path

    def forget_producers_after(self, expiration_ms: int) -> None:
        """Apply another producer.id.expiration.ms to all logs, also to those that are not loaded yet."""
        self._loader.forget_producers_after(expiration_ms)
        for log in self.logs.values():
            log.producers.forget_after(expiration_ms)

    def size_bytes(self, topic: str) -> int:
        """Return the size on disk of all partitions of a topic that this broker has."""
        return sum(log.size_bytes for (name, _), log in self.logs.items() if name == topic)

    def high_watermark_checkpoint(self, topic: str, partition: int) -> int:
        """Return the checkpoint that the last start has read; 0 for a log that was created since."""
        return self._table.high_watermarks.get(TopicPartition(topic, partition), 0)

    def describe(self) -> Iterator[tuple[str, str, int, int, int, bool]]:
        """Yield of each log: data folder, topic, partition, bytes, the number of offsets that it is behind its high
        watermark, and whether it is the copy of a move. Logs may be added and removed between two steps."""
        for key, log in self.logs.walk():
            home = self._table.homes.get(key)
            if home is not None:
                behind = max(log.high_watermark - log.log_end_offset, 0)
                yield home.path, log.topic, log.partition, log.size_bytes, behind, False
            if (move := self.moves.under_way.get(key)) is not None:
                yield move.folder.path, log.topic, log.partition, move.size_bytes, move.lag, True

    def finish_move(self, move: LogMove) -> tuple[Log, str]:
        """Do as LogMove.finish. The old folder must not be removed before the next checkpoints are written."""
        moved, old = self.moves.finish(move, self._clock_ms())
        self.checkpoints.names_changed(move.home.path, move.folder.path)
        return moved, old

    # Failures

    def fail_folder(self, folder: DataFolder, error: Exception) -> list[TopicPartition]:
        """Stop using the data folder until the next start; returns the partitions that were in use."""
        lost = self.begin_failure(folder, error)
        for log in lost:
            self.fail_log(log, error)
        return [TopicPartition(log.topic, log.partition) for log in lost]

    def begin_failure(self, folder: DataFolder, error: Exception) -> list[Log]:
        """Do the part of `fail_folder` that must not wait: from now on nothing is written there. Returns the logs in
        the folder, for each of which `fail_log` must be called: thousands of them need some time."""
        if folder.failure is not None:
            return []
        folder.fail(error)
        self.moves.folder_failed(folder)
        lost = [log for key, log in self.logs.items() if self._table.homes[key] is folder]
        for log in lost:
            log.retire()
        return lost

    def fail_log(self, log: Log, error: Exception) -> None:
        """Do as `fail_folder` for one partition alone."""
        key = TopicPartition(log.topic, log.partition)
        if self.logs.get(key) is log:
            if (copy := self.moves.cancel(key)) is not None:
                self._table.unlinkable.append(copy)
            del self.logs[key]
            self.failed[key] = error
            keep(key, log, self._table.homes[key])
            log.retire()
            log.close(clean=False)

    def report(self, errors: Mapping[str, OSError]) -> None:
        """Report the errors, by data folder, that the writing of checkpoints has returned."""
        for folder in self.folders:
            if (error := errors.get(folder.path)) is not None:
                self.disk_errors.report(folder, None, error)

    def _failed_while_loading(self, folder: DataFolder, error: OSError) -> None:
        if self.disk_errors.has_handler:
            self.disk_errors.report(folder, None, error)
        else:
            self.fail_folder(folder, error)
            self._folders.failed_at_start(folder, error)

    def log_failed(self, log: Log, error: OSError) -> None:
        """Report the error with which a method of the log fails."""
        key = TopicPartition(log.topic, log.partition)
        home = self._table.homes.get(key)
        if home is not None and self.logs.get(key) is log:
            self.disk_errors.report(home, log, error)

    def _create(self, key: TopicPartition, topic_id: Uuid, config: LogConfig, is_new: bool) -> Log:
        topic, partition = key
        if key in self._table.pending:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is still being loaded")
        if (error := self.failed.get(key)) is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} failed: {error}")
        if not is_new and len(self.online_folders()) < len(self.folders):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} may lie in a data folder that has failed"
            )
        if key in self.checkpoints.stale_keys and (errors := self.checkpoints.remove_stale_now()):
            self.report(errors)
            raise _storage_error("cannot write checkpoints", next(iter(errors.values())))
        expiration_ms = self._loader.producer_expiration_ms
        last_error: Exception | None = None
        made = self._new_folders.pop(key)
        preferred = self.moves.pop_preferred(key) or (None if made is None else made.folder)
        for folder in sorted(self.online_folders(), key=lambda one: (one is not preferred, one.partitions_count)):
            directory = f"{folder.path}/{folder_name(topic, partition)}"
            try:
                log = Log.open(
                    directory,
                    LogIdentity(topic, partition, topic_id),
                    config,
                    self._files,
                    now_ms=self._clock_ms(),
                    producer_expiration_ms=expiration_ms,
                    on_error=self.log_failed,
                    loaded=self._make_folder(directory, topic_id, made),
                )
            except (OSError, KafkaError) as failure:
                last_error = failure
                # The log may be created in the next folder, and then this one must not remain.
                with suppress(OSError):
                    self._files.remove_directory(directory)
                cause = failure if isinstance(failure, OSError) else failure.__cause__
                if isinstance(cause, OSError):
                    self.disk_errors.report(folder, None, cause)
                continue
            if made is not None and made.path != directory:
                with suppress(OSError):
                    self._files.remove_directory(made.path)
            self.logs[key] = log
            self._table.homes[key] = folder
            folder.add_partition()
            self.checkpoints.names_changed(folder.path)
            return log
        raise _storage_error(f"no data folder accepts {topic}-{partition}", last_error) from last_error

    def _make_folder(self, directory: str, topic_id: Uuid, made: NewFolder | None) -> LoadedParts:
        """Make the folder of a new log, unless it was made in advance. Returns the parts of a new one, in which nothing
        needs to be searched."""
        producers = ProducerStates(self._files, directory, self._loader.producer_expiration_ms)
        if made is not None and (made.path, made.partition.topic_id) == (directory, topic_id):
            if topic_id != ZERO_UUID:
                self.checkpoints.sync_later(f"{directory}/{PARTITION_METADATA_FILE}")
            epoch = made.partition.leader_epoch
            epochs = LeaderEpochs.of_new_file(self._files, directory, epoch) if epoch >= 0 else None
            return LoadedParts([], producers, epochs or LeaderEpochs(self._files, directory), has_files=True)
        is_fresh = not self._files.exists(directory)
        self._files.make_directory(directory)
        if topic_id != ZERO_UUID:
            self._write_topic_id(directory, topic_id)
        return LoadedParts([], producers, LeaderEpochs(self._files, directory)) if is_fresh else LoadedParts()

    def _write_topic_id(self, directory: str, topic_id: Uuid) -> None:
        # Worth neither a wait for the disk nor for room on it: the metadata of the cluster has the id, too.
        path = f"{directory}/{PARTITION_METADATA_FILE}"
        try:
            self._files.write_atomically(path, format_partition_metadata(topic_id), sync=False)
        except OSError as error:
            if not is_full(error):
                raise
            return
        self.checkpoints.sync_later(path)

    # Periodic work

    def prefetching_ages(self, now_ms: int) -> Steps[None]:
        """Fetch the ages of segments before a `retention_pass`, which then reads nothing."""
        for count, (_, log) in enumerate(self.logs.walk(), 1):
            if not log.work.cleaning and not log.offline:
                yield from log.prefetching(partial(log.retention.due_count, now_ms, waits_for_disk=False))
            if not count % ITEMS_PER_STEP:
                yield None

    def retention_pass(
        self, now_ms: int, is_served: Callable[[str, int], bool] = lambda topic, partition: True
    ) -> Iterator[tuple[list[str], int]]:
        """Apply retention to one log a step; yields the paths that are to be unlinked, and after how many ms
        (file.delete.delay.ms). A log that fails is skipped with an error in the broker's log, one that is not served is
        skipped silently."""
        for key, log in self.logs.walk():
            if not is_served(*key):
                continue
            try:
                paths = log.retention.delete_due(now_ms)
            except KafkaError as error:
                if not is_full(error):
                    _log.error("%s: retention failed: %s", log.directory, error)
                continue
            yield paths, log.config.file_delete_delay_ms

    def forget_removed(self) -> Steps[None]:
        """Remove the offsets of removed partitions from the checkpoint files."""
        self.report((yield from self.checkpoints.remove_stale()))

    # Closing

    def close_all(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: sync and close every log, then write the checkpoints, and last of all the marker by which the
        next start trusts them. A data folder where an operation failed gets no marker. Where `load` has not listed all
        folders they stay as the last stop, or a crash, has left them. Raises nothing."""
        # Before, the checkpoint files have offsets of partitions that are not known yet; `load` removed the markers.
        clean = self._close_logs() if self.listed else [one for one in self.online_folders() if one.was_clean]
        for folder in clean:
            try:
                folder.put_clean_marker(broker_epoch)
            except OSError as error:
                self._stop_is_not_clean(folder, error)
        self.unlock()

    def _close_logs(self) -> list[DataFolder]:
        """Close every log and write the checkpoints; returns the folders where nothing failed."""
        self.moves.leave_wishes()
        failed = close_all_cleanly(list(self.logs.values()), self._files, self._clock_ms())
        unclean = {self._table.homes[TopicPartition(log.topic, log.partition)].path for log in failed}
        unclean.update(pending.folder.path for pending in self._table.pending.values() if not pending.folder.was_clean)
        unclean.update(self._table.homes[key].path for key in self.failed)
        errors = self.checkpoints.write_all()
        for folder in self.online_folders():
            if (failure := errors.get(folder.path)) is not None:
                self._stop_is_not_clean(folder, failure)
        return [folder for folder in self.online_folders() if folder.path not in unclean | errors.keys()]

    @staticmethod
    def _stop_is_not_clean(folder: DataFolder, error: OSError) -> None:
        _log.error("%s: the stop is not clean, the next start checks its logs: %s", folder.path, error)


def _storage_error(doing: str, error: Exception | None) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing}: {error}")
