"""All logs of a broker, across its data folders: loading them at start, making and removing them, checkpoints, the end.

    manager.lock(); manager.load_meta(cluster_id, broker_id)
    for log in manager.load(): ...          # a step at a time; None means "worked a millisecond, more to do"
    ...                                     # logs, get, get_or_create, remove, checkpoints
    manager.close_all()

A log that could not be loaded is in `failed` and stays so until the next start: nothing is made in its place, because
its data may still be good. Not thread-safe; only what `checkpoints` returns may run on a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from posixpath import basename, dirname
from typing import TYPE_CHECKING, NamedTuple

from config.topic import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import ZERO_UUID, Uuid, random_uuid, uuid_to_text
from protocol.slices import run_slices
from storage.checkpoint_contents import gather, keep
from storage.checkpoint_plan import CheckpointOrder, CheckpointPlan
from storage.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    Offsets,
)
from storage.closing import close_all_cleanly
from storage.data_folders import DataFolders
from storage.disk_errors import is_full
from storage.epochs import LeaderEpochs
from storage.folder_names import FolderKind, folder_name, marked_folder_name, parse_folder_name
from storage.identity import PARTITION_METADATA_FILE, format_partition_metadata
from storage.log import Log
from storage.log_move import MOVED_FILE
from storage.log_moves import LogMoves
from storage.producer_state import ProducerStates
from storage.recovery import FolderLoader, is_segment_name, unchecked_bytes

if TYPE_CHECKING:
    from config.broker import BrokerConfig
    from protocol.slices import Slices
    from storage.data_folder import Contents, DataFolder
    from storage.files import Files
    from storage.log_move import LogMove
    from storage.log_state import LogState

logger = logging.getLogger(__name__)

STEP_S = 0.001
FOLDERS_PER_STEP = 32
"""Partition folders listed between two yields."""

Key = tuple[str, int]

_ALL_CHECKPOINTS = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)


class DuplicatePartition(Exception):
    """The same partition lies in two data folders; `str()` says what to do."""


class LoadProgress:
    """How far `LogManager.load` has come. Bytes are those that must be checked after a crash; 0 after a clean stop."""

    __slots__ = ("bytes_done", "bytes_total", "partitions_done", "partitions_total")

    def __init__(self) -> None:
        self.partitions_done = 0
        self.partitions_total = 0
        self.bytes_done = 0
        self.bytes_total = 0

    def __str__(self) -> str:
        text = f"{self.partitions_done} of {self.partitions_total} partitions"
        if self.bytes_total:
            text += f", {self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB checked"
        return text


class _Pending(NamedTuple):
    """A partition's folder that is not loaded yet."""

    folder: DataFolder
    path: str
    unchecked_bytes: int


class LogManager(DataFolders):
    """The logs, by (topic, partition), and the data folders they lie in."""

    def __init__(self, config: BrokerConfig, files: Files, clock_ms: Callable[[], int]) -> None:
        super().__init__(config.log_dirs, files, clock_ms)
        self._default_config = LogConfig.defaults(config)
        self._producer_expiration_ms: int = config["producer.id.expiration.ms"]
        self.logs: dict[Key, Log] = {}
        self.failed: dict[Key, Exception] = {}
        self.progress = LoadProgress()
        self.listed = False
        """Whether `load` has come so far that `is_loading` knows every partition."""
        self.unlinkable: list[str] = []
        """Leftovers that `load` has found, files and folders: for a thread to remove. Take them and empty the list."""
        self._pending: dict[Key, _Pending] = {}
        self._homes: dict[Key, DataFolder] = {}
        self._high_watermarks: dict[Key, int] = {}
        self.moves = LogMoves(files, self.logs, self._homes)
        self._order = CheckpointOrder()
        self._stale_keys: set[Key] = set()
        """Of removed partitions: the checkpoint files may still hold their offsets."""
        self._unsynced_paths: list[str] = []
        self._unsynced_folders: set[str] = set()

    # Start

    def load(self, topic_config: Callable[[str], LogConfig] | None = None) -> Iterator[Log | None]:
        """Loads every partition's folder, those with the least to check first.

        Yields each log, in `logs` by then, and None about every millisecond of work: other things can be done in
        between, served logs included. Without `topic_config` the logs get the broker's defaults (a log's `config` can
        be replaced at any time). Raises DuplicatePartition and OSError before the first log.
        """
        started_s = time.monotonic()
        yield from self._find_folders()
        self.listed = True
        unclean = [folder.path for folder in self.online_folders() if not folder.was_clean]
        if self.progress.bytes_total:
            logger.info(
                "%s: no clean stop, checking up to %.1f MB in %d partitions",
                ", ".join(unclean), self.progress.bytes_total / 1e6, self.progress.partitions_total,
            )  # fmt: skip
        for key, pending in sorted(self._pending.items(), key=lambda item: item[1].unchecked_bytes):
            yield from self._load_one(key, pending, topic_config)
        if self.logs or self.failed:
            logger.info("loaded %s in %.0f ms", self.progress, (time.monotonic() - started_s) * 1000)

    def is_loading(self, topic: str, partition: int) -> bool:
        """Whether `load` knows the partition, but has not come to it."""
        return (topic, partition) in self._pending

    def _find_folders(self) -> Iterator[None]:
        listed = 0
        found: list[tuple[DataFolder, Contents]] = []
        for folder in self.online_folders():
            try:
                folder.take_clean_marker()
                folder.read_checkpoints()
                found.append((folder, folder.list_partitions()))
            except OSError as error:
                self._failed_at_start(folder, error)
        self._find_copies(found)
        for folder, contents in found:
            self.unlinkable += contents.marked
            for path, name in contents.partitions:
                key = name.topic, name.partition
                if (other := self._pending.get(key)) is not None:
                    if not self._replaces(path, other.path):
                        continue
                    other.folder.partitions_count -= 1
                    self.progress.partitions_total -= 1
                size_bytes = 0
                if not folder.was_clean:
                    with suppress(OSError):  # loading it will say what is wrong with it
                        size_bytes = unchecked_bytes(self._files, path, folder.recovery_points.get(key, 0))
                self._pending[key] = _Pending(folder, path, size_bytes)
                folder.partitions_count += 1
                self.progress.partitions_total += 1
                self.progress.bytes_total += size_bytes
                listed += 1
                if listed % FOLDERS_PER_STEP == 0:
                    yield None
            # Whoever makes such a partition anew must not inherit the offsets of the one that was removed.
            for offsets in folder.offsets():
                self._stale_keys.update(offsets.keys() - self._pending.keys())

    def _find_copies(self, found: list[tuple[DataFolder, Contents]]) -> None:
        """What moves between data folders have left (storage.log_move): complete copies become the partition."""
        present = {name[:2] for _, contents in found for _, name in contents.partitions}
        marked = {basename(path) for _, contents in found for path in contents.marked}
        for folder, contents in found:
            for path, name in contents.copies:
                original = basename(path).removesuffix(FolderKind.FUTURE.value) + FolderKind.DELETE.value
                if name[:2] in present:
                    self.moves.wishes[name[:2]] = folder
                    contents.marked.append(path)
                elif original in marked:
                    final = f"{folder.path}/{folder_name(name.topic, name.partition)}"
                    self._files.rename(path, final)
                    contents.partitions.append((final, name))
                    present.add(name[:2])
                else:
                    logger.warning("%s is the copy of a partition that is not here: left alone", path)

    def _replaces(self, path: str, other: str) -> bool:
        """Whether the first of two folders of one partition is the one that counts."""
        for loser, winner in ((path, other), (other, path)):
            if not self._holds_segments(loser):
                self.unlinkable.append(loser)
                return winner is path
            if self._files.exists(f"{winner}/{MOVED_FILE}") and not self._files.exists(f"{loser}/{MOVED_FILE}"):
                name = parse_folder_name(basename(loser))
                assert name is not None
                aside = marked_folder_name(*name[:2], FolderKind.STRAY, random_uuid())
                self._files.rename(loser, f"{dirname(loser)}/{aside}")
                logger.warning("%s was moved to %s: what was left there is now %s", loser, winner, aside)
                return winner is path
        raise DuplicatePartition(
            f"{other} and {path} are the same partition. Move one of them away: the older one, or the one on a disk "
            f"that failed"
        )

    def _holds_segments(self, path: str) -> bool:
        """False of a folder that was made for a partition and left at once: the next data folder took it."""
        return any(is_segment_name(entry.name) for entry in self._files.list_directory(path))

    def _load_one(
        self, key: Key, pending: _Pending, topic_config: Callable[[str], LogConfig] | None
    ) -> Iterator[Log | None]:
        progress = self.progress
        bytes_before = progress.bytes_done
        steps = self._load_folder(key, pending, topic_config)
        log = None
        until_s = time.monotonic() + STEP_S
        while log is None:
            try:
                done = next(steps)
            except StopIteration as finished:
                log = finished.value
            except (OSError, KafkaError, ValueError) as error:
                # One partition that cannot be read must not keep the others from being served.
                logger.error("%s cannot be loaded and is not served: %s", pending.path, error)
                self.failed[key] = error
                break
            else:
                progress.bytes_done = min(progress.bytes_done + done, bytes_before + pending.unchecked_bytes)
                if time.monotonic() >= until_s:
                    yield None
                    until_s = time.monotonic() + STEP_S
        del self._pending[key]
        self._homes[key] = pending.folder
        progress.partitions_done += 1
        progress.bytes_done = bytes_before + pending.unchecked_bytes
        if log is not None:
            checkpoint = pending.folder.high_watermarks.get(key, 0)
            # Kept here until somebody who knows the replicas sets it: the next checkpoint must not lose it.
            log.high_watermark = min(max(checkpoint, log.log_start_offset), log.log_end_offset)
            self._high_watermarks[key] = checkpoint
            log.cleaned_offset = pending.folder.cleaned_offsets.get(key)
            log.on_error = self._log_failed
            self.logs[key] = log
            yield log

    def _load_folder(
        self, key: Key, pending: _Pending, topic_config: Callable[[str], LogConfig] | None
    ) -> Generator[int, None, Log]:
        folder = pending.folder
        loader = FolderLoader(
            self._files,
            pending.path,
            topic=key[0],
            partition=key[1],
            topic_id=folder.read_topic_id(pending.path) or ZERO_UUID,
            config=topic_config(key[0]) if topic_config is not None else self._default_config,
            producer_expiration_ms=self._producer_expiration_ms,
            now_ms=self._clock_ms(),
            log_start_offset=folder.log_start_offsets.get(key, 0),
            recovery_point=folder.recovery_points.get(key, 0),
        )
        try:
            return (yield from loader.load(folder.was_clean))
        finally:
            self.unlinkable += loader.unlinkable

    # Logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: Uuid, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """The partition's log, with this configuration; a new one lies in the data folder that has the fewest.

        `is_new` is False of a partition that this broker may have had before: while a data folder has failed, no log
        is made for it, as its records may lie there. Raises KafkaError: INCONSISTENT_TOPIC_ID when the log belongs to
        another topic of that name, KAFKA_STORAGE_ERROR when it could not be loaded, is not loaded yet, or cannot be
        made.
        """
        key = topic, partition
        log = self.logs.get(key)
        if log is None:
            return self._create(key, topic_id, config, is_new)
        if log.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
            try:
                self._write_topic_id(log.directory, topic_id)
            except OSError as error:
                self.on_trouble(self._homes[key], log, error)
                raise _storage_error(f"cannot write the topic id of {topic}-{partition}", error) from error
            log.topic_id = topic_id
        elif topic_id not in (log.topic_id, ZERO_UUID):
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} holds topic {uuid_to_text(log.topic_id)}, not {uuid_to_text(topic_id)}",
            )
        log.config = config
        return log

    def remove(self, topic: str, partition: int) -> str:
        """Takes a log out of use and marks its folder for deletion; returns the folder's path, for a thread to remove.

        What readers hold stays readable. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR.
        """
        key = topic, partition
        log = self.logs.get(key)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {topic}-{partition}")
        # First the copy under way: on its own it must not be found by a start.
        if (copy := self.moves.cancel(key)) is not None:
            self.unlinkable.append(copy)
        folder = self._homes[key]
        path = f"{folder.path}/{marked_folder_name(topic, partition, FolderKind.DELETE, random_uuid())}"
        try:
            self._files.rename(log.directory, path)
        except OSError as error:
            self.on_trouble(folder, log, error)
            raise _storage_error(f"cannot rename {log.directory}", error) from error
        log.retire()
        log.close(clean=False)
        del self.logs[key], self._homes[key]
        self._high_watermarks.pop(key, None)
        folder.partitions_count -= 1
        self._stale_keys.add(key)
        self._unsynced_folders.add(folder.path)
        return path

    def folder_of(self, log: Log) -> str:
        """Path of the data folder that holds the log."""
        return self._homes[log.topic, log.partition].path

    def forget_producers_after(self, expiration_ms: int) -> None:
        """Another producer.id.expiration.ms, for all logs, those not loaded yet included."""
        self._producer_expiration_ms = expiration_ms
        for log in self.logs.values():
            log.forget_producers_after(expiration_ms)

    def size_bytes(self, topic: str) -> int:
        """On disk, of all partitions of a topic that this broker has."""
        return sum(log.size_bytes for (name, _), log in self.logs.items() if name == topic)

    def high_watermark_checkpoint(self, topic: str, partition: int) -> int:
        """As the last start found it; 0 of a log that is younger."""
        return self._high_watermarks.get((topic, partition), 0)

    def describe(self) -> Iterator[tuple[str, str, int, int, int, bool]]:
        """Of each log: data folder, topic, partition, bytes, how many records it is behind its high watermark, and
        whether it is the copy that a move is making. Logs may come and go between two steps."""
        for key, log in list(self.logs.items()):
            home = self._homes.get(key)
            if home is not None:
                behind = max(log.high_watermark - log.log_end_offset, 0)
                yield home.path, log.topic, log.partition, log.size_bytes, behind, False
            if (move := self.moves.under_way.get(key)) is not None:
                yield move.folder.path, log.topic, log.partition, move.size_bytes, move.lag, True

    def finish_move(self, move: LogMove) -> tuple[Log, str]:
        """As LogMove.finish. The old folder must not be removed before the next checkpoints are written."""
        moved, old = self.moves.finish(move, self._clock_ms())
        self._unsynced_folders |= {move.home.path, move.folder.path}
        return moved, old

    # Failures

    def fail_folder(self, folder: DataFolder, error: Exception) -> list[Key]:
        """Nothing in the data folder is used any more, until the next start; returns the partitions that were."""
        if folder.failure is not None:
            return []
        folder.failure = error
        self.moves.folder_failed(folder)
        lost = [key for key in self.logs if self._homes[key] is folder]
        for key in lost:
            self.fail_log(self.logs[key], error)
        return lost

    def fail_log(self, log: Log, error: Exception) -> None:
        """As fail_folder, for one partition alone."""
        key = log.topic, log.partition
        if self.logs.get(key) is log:
            if (copy := self.moves.cancel(key)) is not None:
                self.unlinkable.append(copy)
            del self.logs[key]
            self.failed[key] = error
            keep(key, log, self._homes[key])
            log.retire()
            log.close(clean=False)

    def report(self, errors: Mapping[str, OSError]) -> None:
        """Takes what the writing of checkpoints returned: the errors by data folder."""
        for folder in self.folders:
            if (error := errors.get(folder.path)) is not None:
                self.on_trouble(folder, None, error)

    def _log_failed(self, log: LogState, error: OSError) -> None:
        home = self._homes.get((log.topic, log.partition))
        if home is not None and self.logs.get((log.topic, log.partition)) is log:
            self.on_trouble(home, log, error)

    def _create(self, key: Key, topic_id: Uuid, config: LogConfig, is_new: bool) -> Log:
        topic, partition = key
        if key in self._pending:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is still being loaded")
        if (error := self.failed.get(key)) is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} failed: {error}")
        if not is_new and len(self.online_folders()) < len(self.folders):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} may lie in a data folder that has failed"
            )
        if key in self._stale_keys:
            plan = CheckpointPlan(self._files, self._order, run_slices(self._gather(_ALL_CHECKPOINTS)))
            if errors := plan.run(sync=False):
                self.report(errors)
                raise _storage_error("cannot write checkpoints", next(iter(errors.values())))
            self._stale_keys.clear()
        expiration_ms = self._producer_expiration_ms
        last_error: Exception | None = None
        preferred = self.moves.take_preferred(key)
        for folder in sorted(self.online_folders(), key=lambda one: (one is not preferred, one.partitions_count)):
            directory = f"{folder.path}/{folder_name(topic, partition)}"
            try:
                is_fresh = not self._files.exists(directory)
                self._files.make_directory(directory)
                if topic_id != ZERO_UUID:
                    self._write_topic_id(directory, topic_id)
                log = Log.open(
                    directory,
                    config,
                    self._files,
                    topic=topic,
                    partition=partition,
                    topic_id=topic_id,
                    now_ms=self._clock_ms(),
                    producer_expiration_ms=expiration_ms,
                    # In a folder that was not there, nothing needs to be looked for.
                    segments=[] if is_fresh else None,
                    producers=ProducerStates(self._files, directory, self._producer_expiration_ms)
                    if is_fresh
                    else None,
                    epochs=LeaderEpochs(self._files, directory) if is_fresh else None,
                )
            except (OSError, KafkaError) as failure:
                last_error = failure
                # A next folder may take it, and none may be left behind then.
                with suppress(OSError):
                    self._files.remove_directory(directory)
                cause = failure if isinstance(failure, OSError) else failure.__cause__
                if isinstance(cause, OSError):
                    self.on_trouble(folder, None, cause)
                continue
            log.on_error = self._log_failed
            self.logs[key] = log
            self._homes[key] = folder
            folder.partitions_count += 1
            self._unsynced_folders.add(folder.path)
            return log
        raise _storage_error(f"no data folder takes {topic}-{partition}", last_error) from last_error

    def _write_topic_id(self, directory: str, topic_id: Uuid) -> None:
        # Worth neither a wait for the disk nor for room on it: without it, the id is known to who knows the topic.
        path = f"{directory}/{PARTITION_METADATA_FILE}"
        try:
            self._files.write_atomically(path, format_partition_metadata(topic_id), sync=False)
        except OSError as error:
            if not is_full(error):
                raise
            return
        self._unsynced_paths.append(path)

    # From time to time

    def retention_pass(self, now_ms: int) -> Iterator[list[str]]:
        """Applies retention to one log a step; yields the paths that are to be unlinked after file.delete.delay.ms.
        A log that fails is passed over with an error in the broker's log."""
        for key, log in list(self.logs.items()):
            if self.logs.get(key) is not log:
                continue  # moved or removed meanwhile
            try:
                paths = log.delete_old_segments(now_ms)
            except KafkaError as error:
                if not is_full(error):
                    logger.error("%s: retention failed: %s", log.directory, error)
                continue
            yield paths

    def checkpoints(self) -> Callable[[], dict[str, OSError]]:
        """Recovery points and log start offsets as they are now, to be written by calling the result on a thread. What
        that returns is for `report`."""
        return self._plan_checkpoints(RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE)

    def high_watermark_checkpoints(self) -> Callable[[], dict[str, OSError]]:
        """As `checkpoints`, for the high watermarks, which are wanted more often."""
        return self._plan_checkpoints(HIGH_WATERMARK_FILE)

    def log_start_checkpoints(self) -> Callable[[], dict[str, OSError]]:
        """The log start offsets alone, without a wait for the disk: DeleteRecords writes them before it answers."""
        plan = CheckpointPlan(self._files, self._order, run_slices(self._gather([LOG_START_OFFSET_FILE])))
        return lambda: plan.run(sync=False)

    def cleaner_checkpoints(self) -> Callable[[], dict[str, OSError]]:
        """As `checkpoints`, for the offsets up to which logs are compacted."""
        return self._plan_checkpoints(CLEANER_OFFSET_FILE)

    def write_checkpoints(self) -> dict[str, OSError]:
        """All of them, here and now; returns the errors by data folder."""
        return self._plan_checkpoints(*_ALL_CHECKPOINTS)()

    def checkpoints_in_slices(self) -> Slices[Callable[[], dict[str, OSError]]]:
        """As `checkpoints`, with turns for others while the offsets are gathered."""
        return self._plan_in_slices(RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE)

    def high_watermark_checkpoints_in_slices(self) -> Slices[Callable[[], dict[str, OSError]]]:
        return self._plan_in_slices(HIGH_WATERMARK_FILE)

    def _plan_in_slices(self, *names: str) -> Slices[Callable[[], dict[str, OSError]]]:
        """With them goes what was put off: syncing new partition.metadata files, and folders that were renamed."""
        number = self._order.next_number()
        contents = yield from self._gather(names)
        paths, self._unsynced_paths = self._unsynced_paths, []
        online = {folder.path for folder in self.online_folders()}
        directories, self._unsynced_folders = sorted(self._unsynced_folders & online), set()
        return CheckpointPlan(self._files, self._order, contents, paths, directories, number).run

    def _plan_checkpoints(self, *names: str) -> Callable[[], dict[str, OSError]]:
        return run_slices(self._plan_in_slices(*names))

    def _gather(self, names: Sequence[str]) -> Generator[None, None, dict[str, Offsets]]:
        # What is not loaded keeps what it had.
        unserved = self._pending.keys() | self.failed.keys()
        contents = yield from gather(names, self.online_folders(), self.logs, self._homes, unserved)
        for name in names:
            self.moves.add_offsets(name, contents)
        return contents

    # The end

    def close_all(self, broker_epoch: int = -1) -> None:
        """The clean stop: every log is synced and closed, then come the checkpoints, and last of all the marker that
        lets the next start trust all that. A data folder where something failed gets no marker. Raises nothing."""
        self.moves.leave_wishes()
        failed = close_all_cleanly(list(self.logs.values()), self._files, self._clock_ms())
        unclean = {self._homes[log.topic, log.partition].path for log in failed}
        unclean.update(pending.folder.path for pending in self._pending.values() if not pending.folder.was_clean)
        unclean.update(self._homes[key].path for key in self.failed)
        errors = self.write_checkpoints()
        for folder in self.online_folders():
            try:
                if (failure := errors.get(folder.path)) is not None:
                    raise failure
                if folder.path not in unclean:
                    folder.put_clean_marker(broker_epoch)
            except OSError as error:
                logger.error("%s: the stop is not clean, the next start checks its logs: %s", folder.path, error)
        self.unlock()


def _storage_error(doing: str, error: Exception | None) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing}: {error}")
