"""Checks a data folder without changing it, for `gregor verify`.

Segments are checked by verify_segment. This module compares the files of a partition and of the data folder with the
offsets of each log. A folder may be in use: files that a running broker has not written yet are not reported.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.folders.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    MalformedFile,
    Offsets,
    parse_offsets,
)
from gregor.storage.folders.data_folder import CLEAN_SHUTDOWN_FILE
from gregor.storage.folders.identity import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    parse_meta_properties,
    parse_partition_metadata,
)
from gregor.storage.folders.names import FolderKind, PartitionFolder, parse_folder_name
from gregor.storage.fs.folder_lock import is_locked
from gregor.storage.log.epochs import FILE_NAME as EPOCHS_FILE
from gregor.storage.log.epochs import parse_epochs
from gregor.storage.producers.snapshot import parse_snapshot
from gregor.storage.recovery.recovery import is_segment_name
from gregor.storage.segment.leftovers import CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX
from gregor.storage.segment.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from gregor.storage.verify.segment import EPOCHS_AGAIN, PRODUCERS_AGAIN, Expected, Finding, LastBatch, verify_segment
from gregor.storage.verify.transactions import TransactionCheck

if TYPE_CHECKING:
    from gregor.storage.fs.files import DirectoryEntry, Files

CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
CHECKPOINT_FILES = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSETS_FILE)
FOREIGN_FOLDERS = ("__cluster_metadata-0", "remote-log-index-cache")

_BESIDE = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_LEFT_OVER = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)

AGAIN = "The broker is writing here; run the check again"

_IGNORED = {
    RECOVERY_POINT_FILE: "A start ignores it and, after a crash, checks the logs from their beginning",
    LOG_START_OFFSET_FILE: "A start ignores it: records that were deleted from the middle of a segment appear again",
    HIGH_WATERMARK_FILE: "A start ignores it and uses the offsets of the replicas in sync",
    CLEANER_OFFSETS_FILE: "A start ignores it and compacts from the beginning",
}


class Progress(NamedTuple):
    """The progress, in bytes of all segments that were found at the beginning."""

    path: str
    done_bytes: int
    total_bytes: int


class Totals:
    """The partitions, segments, batches and bytes that were checked."""

    def __init__(self) -> None:
        self.partitions = 0
        self.segments = 0
        self.batches = 0
        self.bytes = 0

    def begin_partition(self) -> None:
        """Count a partition."""
        self.partitions += 1

    def add_segment(self, batches: int, size_bytes: int) -> None:
        """Count a segment with its valid batches."""
        self.segments += 1
        self.batches += batches
        self.bytes += size_bytes


class FolderReport(NamedTuple):
    """The small files and the partitions of a data folder."""

    path: str
    in_use: bool
    was_clean: bool
    partitions: list[tuple[str, PartitionFolder]]
    checkpoints: dict[str, Offsets]
    total_bytes: int


def read_folder(files: Files, path: str, found: Callable[[Finding], None]) -> FolderReport:
    """Read the small files of a data folder, and list its partitions. Raises OSError."""
    meta_path = f"{path}/{META_PROPERTIES_FILE}"
    try:
        parse_meta_properties(files.read_bytes(meta_path), meta_path)
    except FileNotFoundError:
        found(Finding(meta_path, "the file is missing", "Is this a data folder? A start would treat it as a new one"))
    except MalformedFile as error:
        found(Finding(meta_path, error.reason, "Write broker.id, cluster.id and version=0 into it, or remove it"))
    checkpoints: dict[str, Offsets] = {}
    for name in CHECKPOINT_FILES:
        try:
            checkpoints[name] = parse_offsets(files.read_bytes(f"{path}/{name}"), f"{path}/{name}")
        except FileNotFoundError:
            checkpoints[name] = {}
        except MalformedFile as error:
            checkpoints[name] = {}
            found(Finding(f"{path}/{name}", error.reason, _IGNORED[name]))
    partitions = []
    total_bytes = deleted = 0
    for entry in sorted(files.list_directory(path)):
        if not entry.is_directory:
            continue
        partition = None if entry.name in FOREIGN_FOLDERS else parse_folder_name(entry.name)
        where = f"{path}/{entry.name}"
        if partition is None:
            if entry.name not in FOREIGN_FOLDERS:
                what = "a folder that is no partition's"
                found(Finding(where, what, "Move it elsewhere: Apache Kafka would not start on it", harmless=True))
        elif partition.kind is FolderKind.DELETE:
            deleted += 1
        else:
            if partition.kind is FolderKind.STRAY:
                found(Finding(where, "a partition that was set aside", "No broker serves or removes it", harmless=True))
            partitions.append((where, partition))
            total_bytes += _segment_bytes(files, where)
    if deleted:
        what = f"{deleted} folders of deleted partitions"
        found(Finding(path, what, "The broker removes them in a minute or at its next start", harmless=True))
    was_clean = files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")
    return FolderReport(path, is_locked(path), was_clean, partitions, checkpoints, total_bytes)


def find_duplicates(reports: list[FolderReport], found: Callable[[Finding], None]) -> None:
    """Report partitions that lie in more than one data folder."""
    homes = [
        (folder.topic, folder.partition)
        for report in reports
        for _, folder in report.partitions
        if folder.kind is FolderKind.CURRENT
    ]
    twice = {key for key, count in Counter(homes).items() if count > 1}
    for report in reports:
        for path, folder in report.partitions:
            if (folder.topic, folder.partition) in twice and folder.kind is FolderKind.CURRENT:
                remedy = "No broker starts with both: move the one with the older records elsewhere"
                found(Finding(path, "the partition lies in another data folder, too", remedy))


def verify_folder(
    files: Files, report: FolderReport, found: Callable[[Finding], None], totals: Totals, *, records: bool = False
) -> Generator[Progress, None, None]:
    """Check the partitions of one folder. A partition that cannot be read is a finding; the others are checked.

    `records`: decompress and read each record, too.
    """
    done_bytes = 0
    for path, folder in report.partitions:
        totals.begin_partition()
        try:
            for walked_bytes in _Partition(files, report, path, folder, found, totals).walk(records):
                done_bytes += walked_bytes
                yield Progress(path, done_bytes, report.total_bytes)
        except OSError as error:
            if report.in_use and isinstance(error, FileNotFoundError):
                found(Finding(path, f"{error.filename} was removed meanwhile", AGAIN, harmless=True))
            else:
                what = f"{error.filename or 'a file'}: {(error.strerror or str(error)).lower()}"
                found(Finding(path, what, "Check permissions and the disk"))


class _Partition:
    """One partition's folder."""

    def __init__(
        self,
        files: Files,
        report: FolderReport,
        path: str,
        folder: PartitionFolder,
        found: Callable[[Finding], None],
        totals: Totals,
    ) -> None:
        self._files = files
        self._report = report
        self._path = path
        self._key = TopicPartition(folder.topic, folder.partition)
        self._current = folder.kind is FolderKind.CURRENT
        self._found = found
        self._totals = totals
        self._names = {entry.name: entry.size_bytes for entry in _listed(files, path)}

    def _note(self, name: str, what: str, remedy: str, harmless: bool = False) -> None:
        self._found(Finding(f"{self._path}/{name}" if name else self._path, what, remedy, harmless))

    def walk(self, records: bool) -> Generator[int, None, None]:
        self._check_names()
        epochs = self._epochs()
        producers, snapshots = self._producers()
        bases = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in self._names if is_segment_name(name))
        end_offset = bases[0] if bases else 0
        last_epoch = -1
        whole = True
        in_use = self._report.in_use
        start_offset = None if in_use else self._report.checkpoints[LOG_START_OFFSET_FILE].get(self._key, 0)
        findings: list[Finding] = []
        transactions = TransactionCheck(lambda problem: findings.append(Finding(*problem)), start_offset)
        for at, base in enumerate(bases):
            segment = Segment.open(self._files, self._path, base)
            next_base = bases[at + 1] if at + 1 < len(bases) else None
            growing = in_use and next_base is None
            clean = self._report.was_clean
            expected = Expected(epochs, producers, next_base, growing, records, start_offset, may_have_room=not clean)
            findings.clear()
            try:
                walked = yield from verify_segment(
                    self._files, segment, expected, findings.append, last_epoch, transactions
                )
            finally:
                segment.close()
                self._report_segment(base, findings)
            self._totals.add_segment(walked.batches, walked.end_position)
            last_epoch = walked.last_epoch
            end_offset = walked.next_offset
            whole = walked.end_position == segment.size_bytes
            if whole and next_base is not None and end_offset < next_base:
                what = f"no batch has the offsets {end_offset} to {next_base - 1}"
                self._note(f"{base:020d}{LOG_SUFFIX}", what, "Usual in compacted topics only", harmless=True)
        if whole and self._current:
            self._compare_ends(bases, end_offset, epochs, snapshots)

    def _report_segment(self, base: int, findings: list[Finding]) -> None:
        """Report the findings of a segment, unless the broker replaced it during the walk: then the files that were
        compared did not belong together."""
        name = f"{base:020d}{LOG_SUFFIX}"
        path = f"{self._path}/{name}"
        if (
            findings
            and self._report.in_use
            and (
                not self._files.exists(path)
                or (name + DELETED_SUFFIX not in self._names and self._files.exists(path + DELETED_SUFFIX))
            )
        ):
            self._note(name, "the segment was replaced or deleted meanwhile", AGAIN, harmless=True)
            return
        for finding in findings:
            self._found(finding)

    def _check_names(self) -> None:
        if PARTITION_METADATA_FILE in self._names:
            path = f"{self._path}/{PARTITION_METADATA_FILE}"
            try:
                parse_partition_metadata(self._files.read_bytes(path), path)
            except MalformedFile as error:
                self._note(PARTITION_METADATA_FILE, error.reason, "A start that knows the topic's id writes it again")
        logs = {name for name in self._names if is_segment_name(name)}
        if not logs:
            self._note("", "there is no segment", "A start makes an empty one", harmless=self._report.in_use)
        left_over = []
        for name in sorted(self._names):
            if name.endswith(_LEFT_OVER):
                left_over.append(name)
            elif name.endswith(_BESIDE) and name.rpartition(".")[0] + LOG_SUFFIX not in logs:
                self._note(name, "there is no log of that name", "A start removes it", harmless=True)
            elif name.endswith(LOG_SUFFIX) and name not in logs:
                self._note(name, "no name of a segment: 20 digits are", "Rename it or move it elsewhere")
        if left_over:
            what = f"{len(left_over)} files of segments that were replaced or deleted, such as {left_over[0]}"
            self._note("", what, "The broker removes them in a minute or at its next start", harmless=True)

    def _epochs(self) -> list[tuple[int, int]]:
        try:
            entries = parse_epochs(self._files.read_bytes(f"{self._path}/{EPOCHS_FILE}"))
        except FileNotFoundError:
            return []
        except ValueError as error:
            self._note(EPOCHS_FILE, str(error), "A start reads the epochs from the batches instead")
            return []
        for (epoch, start), (next_epoch, next_start) in itertools.pairwise(entries):
            if next_epoch <= epoch or next_start <= start:
                what = f"epoch {next_epoch} from offset {next_start} follows epoch {epoch} from {start}"
                self._note(EPOCHS_FILE, what, EPOCHS_AGAIN)
                return []
        return entries

    def _producers(self) -> tuple[dict[int, LastBatch], list[tuple[str, int]]]:
        """Return the last batches in the snapshots by the offset of the last record, and (name, offset of the last
        record in it) of each snapshot."""
        batches: dict[int, LastBatch] = {}
        snapshots = []
        for name in sorted(self._names):
            stem = name.removesuffix(SNAPSHOT_SUFFIX)
            if stem == name or not (stem.isascii() and stem.isdigit()):
                continue
            try:
                entries = parse_snapshot(self._files.read_bytes(f"{self._path}/{name}"))
            except ValueError as error:
                self._note(name, str(error), "A start passes it over, and reads the batches behind the one before it")
                continue
            snapshots.append((name, int(stem)))
            for entry in entries:
                for last_sequence, last_offset, _, _ in entry.batches[-1:]:
                    if last_offset >= int(stem):
                        what = (
                            f"producer {entry.producer_id} wrote offset {last_offset}, which lies behind the snapshot"
                        )
                        self._note(name, what, PRODUCERS_AGAIN)
                    elif last_sequence >= 0:
                        recorded = LastBatch(entry.producer_id, entry.epoch, last_sequence, f"{self._path}/{name}")
                        batches[last_offset] = recorded
        return batches, snapshots

    def _compare_ends(
        self, bases: list[int], end_offset: int, epochs: list[tuple[int, int]], snapshots: list[tuple[str, int]]
    ) -> None:
        folder, key = self._report, self._key
        for name in CHECKPOINT_FILES:
            offset = folder.checkpoints[name].get(key)
            if offset is not None and offset > end_offset:
                what = f"{key[0]}-{key[1]} has offset {offset} in the checkpoint, but its log ends at {end_offset}"
                remedy = "Records were lost with the end of the log. A start continues with the records that are there"
                self._found(Finding(f"{folder.path}/{name}", what, remedy))
        closed_at = folder.checkpoints[RECOVERY_POINT_FILE].get(key, end_offset)
        if folder.was_clean and not folder.in_use and closed_at < end_offset:
            what = f"{key[0]}-{key[1]} was closed at offset {closed_at}, but its log ends at {end_offset}"
            remedy = f"Remove {CLEAN_SHUTDOWN_FILE} while the broker is stopped: a start checks what lies behind"
            self._found(Finding(f"{folder.path}/{RECOVERY_POINT_FILE}", what, remedy))
        if epochs and epochs[-1][1] > end_offset:
            what = f"epoch {epochs[-1][0]} begins at {epochs[-1][1]}, but the log ends at {end_offset}"
            self._note(EPOCHS_FILE, what, "A start forgets that epoch")
        for name, offset in snapshots:
            if offset > end_offset:
                what = f"a snapshot of offset {offset}, but the log ends at {end_offset}"
                self._note(name, what, "A start removes it, if it is none of a running broker")


def _listed(files: Files, path: str) -> list[DirectoryEntry]:
    return [entry for entry in files.list_directory(path) if not entry.is_directory]


def _segment_bytes(files: Files, path: str) -> int:
    """Return the size of the segments of a partition; 0 for one whose folder a running broker renamed meanwhile."""
    try:
        return sum(entry.size_bytes for entry in _listed(files, path) if is_segment_name(entry.name))
    except FileNotFoundError:
        return 0
