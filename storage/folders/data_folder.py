"""One of the data folders (`log.dirs`): its small files, and the partitions in it.

    meta.properties                     broker and cluster that it belongs to
    .lock                               held while a broker runs
    .kafka_cleanshutdown                there after a clean stop, until the next start has read it
    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint,
    cleaner-offset-checkpoint
    .gregor-reserve                     room for files that must be written when the disk is full
    <topic>-<partition>/                one folder per partition; see folder_names

Other directories are left alone. None may be created here: Apache Kafka refuses to start if it finds an unknown one.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gregor.storage.folders.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    MalformedFile,
    Offsets,
    parse_offsets,
)
from gregor.storage.folders.identity import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
    parse_partition_metadata,
)
from gregor.storage.folders.names import FolderKind, PartitionFolder, parse_folder_name
from gregor.storage.fs.disk_errors import OF_THE_PROCESS, is_full
from gregor.storage.fs.folder_lock import FolderLock

if TYPE_CHECKING:
    from gregor.protocol.ids import Uuid
    from gregor.storage.fs.files import Files

_log = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

# Plain files of our own, which Apache Kafka ignores.
RESERVE_FILE = ".gregor-reserve"
PROBE_FILE = ".gregor-probe"
RESERVE_BYTES = 1024 * 1024
MIN_RESERVE_BYTES = 32 * 1024

# Directories of Apache Kafka that are no partitions: the metadata log of KRaft, the cache of tiered storage.
_FOREIGN_FOLDERS = ("__cluster_metadata-0", "remote-log-index-cache")


class Contents(NamedTuple):
    """Paths, with their partitions."""

    partitions: list[tuple[str, PartitionFolder]]
    copies: list[tuple[str, PartitionFolder]]
    """Of unfinished moves to this folder."""
    marked: list[str]
    """To be deleted."""


class DataFolder:
    """Checkpoints read at start stay here for the partitions that are not loaded yet."""

    __slots__ = (
        "_files",
        "_lock",
        "absolute_path",
        "cleaned_offsets",
        "failure",
        "full",
        "high_watermarks",
        "log_start_offsets",
        "partitions_count",
        "path",
        "recovery_points",
        "was_clean",
    )

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.absolute_path = os.path.abspath(path)
        """The path that clients see."""
        self._files = files
        self._lock: FolderLock | None = None
        self.was_clean = False
        self.failure: Exception | None = None
        """The reason why nothing in it is served any more; None while it is in use. Reset only by the next start."""
        self.full = False
        """Whether the volume had no room when it was last written to (gregor.broker.jobs.disk_watch). Changed by
        `mark_full` and `mark_writable` only."""
        self.partitions_count = 0
        self.recovery_points: Offsets = {}
        self.log_start_offsets: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.cleaned_offsets: Offsets = {}

    def __repr__(self) -> str:
        return f"DataFolder({self.path!r})"

    def fail(self, error: Exception) -> None:
        """Note that nothing in it is served any more. The first error stays the reason."""
        if self.failure is None:
            self.failure = error

    def add_partition(self) -> None:
        """Count a partition, or a copy of one, that the folder holds: new partitions go to the one with the fewest."""
        self.partitions_count += 1

    def remove_partition(self) -> None:
        """Count one partition less."""
        self.partitions_count -= 1

    def lock(self) -> None:
        """Lock the folder, and create it if need be. Raises FolderInUse."""
        self._files.make_directory(self.path)
        self._lock = FolderLock(self.path)
        self.release_reserve()  # a start must be able to write, too

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Room

    def mark_full(self) -> None:
        """Note that the volume has no room."""
        self.full = True

    def mark_writable(self) -> None:
        """Note that the volume has room again."""
        self.full = False

    def keep_reserve(self) -> None:
        """Reserve some room for files that must be written on a full disk: checkpoints, metadata, a clean stop. May run
        on a thread. On a disk that is almost full it reserves less; no room at all is no error."""
        size_bytes = RESERVE_BYTES
        while size_bytes >= MIN_RESERVE_BYTES:
            with suppress(OSError):
                self._files.reserve(self._reserve_path, size_bytes)
                return
            size_bytes //= 2

    def release_reserve(self) -> None:
        with suppress(OSError):
            self._files.unlink(self._reserve_path)

    def has_room_for(self, size_bytes: int) -> bool:
        """Return whether so much can be written now: the volume may have room that a quota denies to this user. May run
        on a thread."""
        path = f"{self.path}/{PROBE_FILE}"
        try:
            self._files.reserve(path, size_bytes)
            self._files.unlink(path)
        except OSError:
            return False
        return True

    def probe(self) -> OSError | None:
        """Return the error of the folder as a whole; None if it works. May run on a thread."""
        path = f"{self.path}/{PROBE_FILE}"
        try:
            self._files.list_directory(self.path)
            self._files.write_atomically(path, b"", sync=False)
            self._files.unlink(path)
        except OSError as error:
            return None if is_full(error) or error.errno in OF_THE_PROCESS else error
        return None

    @property
    def _reserve_path(self) -> str:
        return f"{self.path}/{RESERVE_FILE}"

    # Identity

    @property
    def meta_path(self) -> str:
        return f"{self.path}/{META_PROPERTIES_FILE}"

    def read_meta(self) -> MetaProperties | None:
        """Read meta.properties; None when there is no such file. Raises MalformedFile."""
        data = self._read(META_PROPERTIES_FILE)
        return None if data is None else parse_meta_properties(data, self.meta_path)

    def write_meta(self, meta: MetaProperties, now_ms: int) -> None:
        self._files.write_atomically(self.meta_path, format_meta_properties(meta, now_ms))

    # The last stop

    def remove_clean_marker(self) -> bool:
        """Return whether the last stop was clean. The marker has been removed, durably, when this returns: a crash from
        now on must not count as a clean stop."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.was_clean = self._files.exists(path)
        if self.was_clean:
            self._files.unlink(path)
            self._files.sync_directory(self.path)
        return self.was_clean

    def put_clean_marker(self, broker_epoch: int) -> None:
        """Write the marker. It must be the last file that a stop writes. (Kafka's CleanShutdownFileHandler; the epoch
        is KIP-966's.)"""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._files.write_atomically(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def read_checkpoints(self) -> None:
        """Read the offset checkpoints. One that cannot be read counts as empty, with a warning: recovery then starts
        with the first segment, and the log with its first batch, as in Kafka."""
        self.recovery_points = self._read_offsets(RECOVERY_POINT_FILE)
        self.log_start_offsets = self._read_offsets(LOG_START_OFFSET_FILE)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARK_FILE)
        self.cleaned_offsets = self._read_offsets(CLEANER_OFFSET_FILE)

    def offsets(self) -> tuple[Offsets, ...]:
        """Return the entries of all checkpoints."""
        return self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaned_offsets

    # Contents

    def list_partitions(self) -> Contents:
        """List the partitions in it, by name."""
        found: list[tuple[str, PartitionFolder]] = []
        copies: list[tuple[str, PartitionFolder]] = []
        marked: list[str] = []
        strangers: list[str] = []
        for entry in sorted(self._files.list_directory(self.path)):
            if not entry.is_directory:
                continue
            name = entry.name
            path = f"{self.path}/{name}"
            folder = None if name in _FOREIGN_FOLDERS else parse_folder_name(name)
            if folder is None:
                strangers.append(name)
            elif folder.kind is FolderKind.DELETE:
                marked.append(path)
            elif folder.kind is FolderKind.CURRENT:
                found.append((path, folder))
            elif folder.kind is FolderKind.FUTURE:
                copies.append((path, folder))
            else:
                _log.warning("%s is set aside (%s): left alone", path, folder.kind.value)
        if strangers:
            _log.warning("%s holds folders that are no partitions, left alone: %s", self.path, ", ".join(strangers))
        return Contents(found, copies, marked)

    def read_topic_id(self, partition_path: str) -> Uuid | None:
        """Read the topic id from partition.metadata; None when there is none. One that cannot be read counts as
        missing, with a warning: the metadata of the cluster has the id, too."""
        path = f"{partition_path}/{PARTITION_METADATA_FILE}"
        try:
            return parse_partition_metadata(self._files.read_bytes(path), path)
        except FileNotFoundError:
            return None
        except MalformedFile as error:
            _log.warning("%s; ignoring it", error)
            return None

    def _read_offsets(self, name: str) -> Offsets:
        data = self._read(name)
        try:
            return {} if data is None else parse_offsets(data, f"{self.path}/{name}")
        except MalformedFile as error:
            _log.warning("%s; ignoring the file", error)
            return {}

    def _read(self, name: str) -> bytes | None:
        try:
            return self._files.read_bytes(f"{self.path}/{name}")
        except FileNotFoundError:
            return None
