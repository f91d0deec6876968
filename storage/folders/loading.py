"""Loads all partitions at a start: finds their folders, decides between two of one partition, and opens their logs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from posixpath import basename, dirname
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gregor.config.topic import LogConfig
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import ZERO_UUID, random_uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.folders.log_table import PendingFolder
from gregor.storage.folders.move import MOVED_FILE
from gregor.storage.folders.names import FolderKind, folder_name, marked_folder_name, parse_folder_name
from gregor.storage.fs.disk_errors import BROKEN
from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.log import Log
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint, is_segment_name, unchecked_bytes

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.storage.folders.data_folder import Contents, DataFolder
    from gregor.storage.folders.data_folders import DataFolders
    from gregor.storage.folders.log_checkpoints import LogCheckpoints
    from gregor.storage.folders.log_table import LogTable
    from gregor.storage.folders.moves import LogMoves
    from gregor.storage.fs.files import Files
    from gregor.storage.segment.scan import Scan

_log = logging.getLogger(__name__)

STEP_S = 0.001
FOLDERS_PER_STEP = 32
"""Partition folders listed between two yields."""


class DuplicatePartition(Exception):
    """The same partition lies in two data folders; `str()` names the remedy."""


class LoadProgress:
    """The progress of `LogManager.load`. Bytes are those that must be checked after a crash; 0 after a clean stop."""

    __slots__ = ("bytes_done", "bytes_total", "partitions_done", "partitions_total")

    def __init__(self) -> None:
        self.partitions_done = 0
        self.partitions_total = 0
        self.bytes_done = 0
        self.bytes_total = 0

    def found(self, size_bytes: int) -> None:
        """Count a partition with this many bytes to check."""
        self.partitions_total += 1
        self.bytes_total += size_bytes

    def found_again(self) -> None:
        """Count a partition less: another folder of it was counted, too. Its bytes are not checked twice, and remain
        counted until the end."""
        self.partitions_total -= 1

    def checked(self, size_bytes: int) -> None:
        """Count bytes that were checked."""
        self.bytes_done += size_bytes

    def finished(self, left_bytes: int) -> None:
        """Count a partition that is loaded or has failed, with the bytes that need no check any more."""
        self.partitions_done += 1
        self.bytes_done += left_bytes

    def __str__(self) -> str:
        text = f"{self.partitions_done} of {self.partitions_total} partitions"
        if self.bytes_total:
            text += f", {self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB checked"
        return text


class ScanHelper(Protocol):
    """Another process that checks segments."""

    def accepts(self, path: str, scan: Scan, left_bytes: int) -> bool:
        """Return whether the process continues the walk over this .log file. The scan `is_delegated` then until it
        `is_over`, or until the walk must be continued here after all. `left_bytes` are still to be checked in all
        partitions together."""


class FailureHandlers(NamedTuple):
    """The handlers of the disk errors of logs."""

    on_log_error: Callable[[Log, OSError], None]
    """Called by a log with each error of the operating system, during loading and after it."""
    on_disk_failure: Callable[[DataFolder, OSError], None]
    """Called when a disk fails while logs are loaded from it: the data folder is not to be used any more."""


class _Loading:
    """A partition's folder while it is loaded."""

    __slots__ = ("key", "left_bytes", "loader", "pending")

    def __init__(self, key: TopicPartition, pending: PendingFolder) -> None:
        self.key = key
        self.pending = pending
        self.loader: FolderLoader | None = None
        self.left_bytes = pending.unchecked_bytes
        """Of those that the progress counts."""

    def load(self, loader: FolderLoader, *, was_clean: bool) -> Generator[int, None, Log]:
        """Begin to load the folder; yields the bytes that were checked."""
        self.loader = loader
        return loader.load(was_clean)

    def checked(self, size_bytes: int) -> int:
        """Note that bytes were checked, and return how many of them the progress counts."""
        counted = min(size_bytes, self.left_bytes)
        self.left_bytes -= counted
        return counted

    @property
    def scan(self) -> Scan | None:
        """The walk that is under way."""
        return None if self.loader is None else self.loader.scan


class LogLoader:
    """Part of LogManager: fills its table."""

    def __init__(
        self,
        config: BrokerConfig,
        files: Files,
        clock_ms: Callable[[], int],
        folders: DataFolders,
        table: LogTable,
        moves: LogMoves,
        checkpoints: LogCheckpoints,
        scan_helper: ScanHelper | None,
        failures: FailureHandlers,
    ) -> None:
        self._files = files
        self._clock_ms = clock_ms
        self._folders = folders
        self._table = table
        self._moves = moves
        self._checkpoints = checkpoints
        self._scan_helper = scan_helper
        self._failures = failures
        self._default_config = LogConfig.defaults(config)
        self._ends_at_gaps = bool(config["zookeeper.connect"])
        """In a cluster other brokers may have replicas: records that a power cut has removed from the middle of a log
        can be fetched from them, if the log ends where they are missing. With a gap it would count as complete."""
        self._delegated: list[tuple[_Loading, Generator[int, None, Log]]] = []
        self._producer_expiration_ms: int = config["producer.id.expiration.ms"]
        self.progress = LoadProgress()
        self.listed = False
        """The table has every partition: `load` has listed all folders."""
        self.waits = False
        """`load` has nothing left to do but to wait for other processes."""

    @property
    def producer_expiration_ms(self) -> int:
        return self._producer_expiration_ms

    def forget_producers_after(self, expiration_ms: int) -> None:
        """Apply another producer.id.expiration.ms to the logs that are loaded or created from now on."""
        self._producer_expiration_ms = expiration_ms

    def load(self, topic_config: Callable[[str], LogConfig] | None = None) -> Iterator[Log | None]:
        """Load every partition's folder, those with the least to check first.

        Yields each log, in the table by then, and None about every millisecond of work: other things can be done in
        between, served logs included. Without `topic_config` the logs get the broker's defaults (`Log.configure`
        can replace them at any time). Raises DuplicatePartition and OSError before the first log.
        """
        started_s = time.monotonic()
        yield from self._find_folders()
        self.listed = True
        unclean = [folder.path for folder in self._folders.online() if not folder.was_clean]
        if self.progress.bytes_total:
            _log.info(
                "%s: no clean stop, checking up to %.1f MB in %d partitions",
                ", ".join(unclean), self.progress.bytes_total / 1e6, self.progress.partitions_total,
            )  # fmt: skip
        for key, pending in sorted(self._table.pending.items(), key=lambda item: item[1].unchecked_bytes):
            loading = _Loading(key, pending)
            yield from self._advance(loading, self._steps(loading, topic_config))
            yield from self._return()
        while self._delegated:
            self.waits = True
            yield None
            self.waits = False
            yield from self._return()
        if self._table.logs or self._table.failed:
            _log.info("loaded %s in %.0f ms", self.progress, (time.monotonic() - started_s) * 1000)

    def _find_folders(self) -> Iterator[None]:
        listed = 0
        found: list[tuple[DataFolder, Contents]] = []
        for folder in self._folders.online():
            try:
                folder.remove_clean_marker()
                folder.read_checkpoints()
                found.append((folder, folder.list_partitions()))
            except OSError as error:
                self._folders.failed_at_start(folder, error)
        self._find_copies(found)
        for folder, contents in found:
            self._table.unlinkable.extend(contents.marked)
            for path, name in contents.partitions:
                key = TopicPartition(name.topic, name.partition)
                if (other := self._table.pending.get(key)) is not None:
                    if not self._replaces(path, other.path):
                        continue
                    other.folder.remove_partition()
                    self.progress.found_again()
                size_bytes = 0
                if not folder.was_clean:
                    with suppress(OSError):  # loading it raises the error again
                        size_bytes = unchecked_bytes(self._files, path, folder.recovery_points.get(key, 0))
                self._table.pending[key] = PendingFolder(folder, path, size_bytes)
                folder.add_partition()
                self.progress.found(size_bytes)
                listed += 1
                if listed % FOLDERS_PER_STEP == 0:
                    yield None
            # A new partition of that name must not inherit the offsets of the one that was removed.
            for offsets in folder.offsets():
                self._checkpoints.stale_keys.update(offsets.keys() - self._table.pending.keys())

    def _find_copies(self, found: list[tuple[DataFolder, Contents]]) -> None:
        """Handle what moves between data folders have left (folders.move): complete copies become the partition."""
        present = {
            TopicPartition(name.topic, name.partition) for _, contents in found for _, name in contents.partitions
        }
        marked = {basename(path) for _, contents in found for path in contents.marked}
        for folder, contents in found:
            for path, name in contents.copies:
                original = basename(path).removesuffix(FolderKind.FUTURE.value) + FolderKind.DELETE.value
                key = TopicPartition(name.topic, name.partition)
                if key in present:
                    contents.marked.extend(self._moves.wish(key, folder, path))
                elif original in marked:
                    final = f"{folder.path}/{folder_name(name.topic, name.partition)}"
                    self._files.rename(path, final)
                    self._files.sync_directory(folder.path)  # the original, on another disk, is removed soon
                    contents.partitions.append((final, name))
                    present.add(key)
                else:
                    _log.warning("%s is the copy of a partition that is not here: left alone", path)

    def _replaces(self, path: str, other: str) -> bool:
        """Return whether the first of two folders of one partition is the valid one."""
        for loser, winner in ((path, other), (other, path)):
            if not self._holds_segments(loser):
                self._table.unlinkable.append(loser)
                return winner is path
            if self._files.exists(f"{winner}/{MOVED_FILE}") and not self._files.exists(f"{loser}/{MOVED_FILE}"):
                name = parse_folder_name(basename(loser))
                assert name is not None
                aside = marked_folder_name(*name[:2], FolderKind.STRAY, random_uuid())
                self._files.rename(loser, f"{dirname(loser)}/{aside}")
                _log.warning("%s was moved to %s: what was left there is now %s", loser, winner, aside)
                return winner is path
        raise DuplicatePartition(
            f"{other} and {path} are the same partition. Move one of them away: the older one, or the one on a disk "
            f"that failed"
        )

    def _holds_segments(self, path: str) -> bool:
        """Return False for a folder that was created for a partition which then was created in the next data folder."""
        return any(is_segment_name(entry.name) for entry in self._files.list_directory(path))

    def _steps(self, loading: _Loading, topic_config: Callable[[str], LogConfig] | None) -> Generator[int, None, Log]:
        (topic, partition), folder, path = loading.key, loading.pending.folder, loading.pending.path
        loader = FolderLoader(
            self._files,
            path,
            LogIdentity(topic, partition, folder.read_topic_id(path) or ZERO_UUID),
            topic_config(topic) if topic_config is not None else self._default_config,
            LogCheckpoint(
                folder.log_start_offsets.get(loading.key, 0),
                folder.recovery_points.get(loading.key, 0),
                (folder.cleaned_offsets.get(loading.key) or 0) if self._ends_at_gaps else None,
                folder.high_watermarks.get(loading.key, 0),
            ),
            producer_expiration_ms=self._producer_expiration_ms,
            now_ms=self._clock_ms(),
            on_error=self._failures.on_log_error,
        )
        return (yield from loading.load(loader, was_clean=folder.was_clean))

    def _return(self) -> Iterator[Log | None]:
        """Continue with the partitions whose delegated walk has ended."""
        for waiting in self._delegated.copy():
            scan = waiting[0].scan
            if scan is None or not scan.is_delegated:
                self._delegated.remove(waiting)
                yield from self._advance(*waiting)

    def _advance(self, loading: _Loading, steps: Generator[int, None, Log]) -> Iterator[Log | None]:
        """Load until the log is loaded or has failed, or its walk is delegated."""
        progress, folder = self.progress, loading.pending.folder
        log = None
        until_s = time.monotonic() + STEP_S
        while log is None:
            if folder.failure is not None:
                self._not_loaded(loading, folder.failure)
                return
            try:
                done = next(steps)
            except StopIteration as finished:
                log = finished.value
            except (OSError, KafkaError, ValueError) as error:
                self._not_loaded(loading, error)
                return
            else:
                progress.checked(loading.checked(done))
                if time.monotonic() >= until_s:
                    if loading.loader is not None and self._delegates(loading.loader):
                        self._delegated.append((loading, steps))
                        return
                    yield None
                    until_s = time.monotonic() + STEP_S
        self._finish(loading)
        key = loading.key
        checkpoint = folder.high_watermarks.get(key, 0)
        # Kept here until the partition, which knows the replicas, sets it: the next checkpoint must not lose it.
        log.offsets.restore_high_watermark(checkpoint)
        self._table.high_watermarks[key] = checkpoint
        log.offsets.mark_cleaned_to(folder.cleaned_offsets.get(key))
        self._table.logs[key] = log
        yield log

    def _delegates(self, loader: FolderLoader) -> bool:
        left_bytes = self.progress.bytes_total - self.progress.bytes_done
        return (
            self._scan_helper is not None
            and loader.scan is not None
            and self._scan_helper.accepts(loader.scanned_path, loader.scan, left_bytes)
        )

    def _not_loaded(self, loading: _Loading, error: Exception) -> None:
        """Note that a partition cannot be loaded. The others are served; but where the disk is at fault, its whole data
        folder goes offline (as in Kafka's LogManager)."""
        folder = loading.pending.folder
        self._finish(loading)
        self._table.failed[loading.key] = error
        if error is not folder.failure:
            _log.error("%s cannot be loaded and is not served: %s", loading.pending.path, error)
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in BROKEN:
                self._failures.on_disk_failure(folder, cause)

    def _finish(self, loading: _Loading) -> None:
        """Note that a partition is no longer pending, whether it was loaded or not."""
        del self._table.pending[loading.key]
        self._table.homes[loading.key] = loading.pending.folder
        if loading.loader is not None:
            self._table.unlinkable.extend(loading.loader.unlinkable)
        self.progress.finished(loading.left_bytes)
