"""Moves a log to another data folder while it is written to.

    <topic>-<partition>.<id>-future     in the other folder: the copy under way
    <topic>-<partition>.<id>-delete     in the old folder: the original, after the swap, with the id of the copy

    move = LogMove(files, log, directory)
    while (plan := move.plan(CHUNK_BYTES)) is not None:
        in_a_thread(plan.run); move.copied(plan)        # appends continue meanwhile
    moved = move.finish(...)                            # on the loop: the last bytes, two renames, the new Log

All three files of a segment only ever grow (a truncation, which changes the log's generation, restarts the move),
so a copy is a prefix of them, and to catch up only new bytes are copied. Segments that retention or compaction has
removed meanwhile are dropped from the copy. An interrupted move resumes behind the segments that were copied whole
(gregor.storage.folders.move_progress); the rest of the copy is removed.

A crash before the first rename leaves the original, one after it the copy, which the next start renames: the id that
both share proves that it was complete. A power cut may keep the second rename and lose the first; then MOVED_FILE marks
the newer one of the two.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.storage.folders.data_folder import DataFolder
from gregor.storage.folders.identity import PARTITION_METADATA_FILE
from gregor.storage.folders.move_progress import CopiedSegment, format_progress, parse_progress
from gregor.storage.folders.names import FolderKind, marked_folder_name
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.log.contents import LoadedParts, LogIdentity
from gregor.storage.log.epochs import LeaderEpochs
from gregor.storage.log.log import Log
from gregor.storage.producers.state import ProducerStates
from gregor.storage.segment.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_stem,
)

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files

MOVED_FILE = "gregor-moved"
"""In a copy, and in a log that was one until its name is on the disk. Apache Kafka ignores it."""

CHUNK_BYTES = 32 * 1024 * 1024
"""Copied and synced in one plan."""
LAST_BYTES = 128 * 1024
"""At most this much is copied on the loop, in the swap."""
READ_BYTES = 1024 * 1024

_STREAMS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class _SegmentCopy:
    """The files of one segment in the other folder, and their progress."""

    __slots__ = ("_files", "_system", "copied", "copied_bytes", "has_small_files", "is_complete", "source", "stem")

    def __init__(self, files: Files, directory: str, source: Segment, copied: CopiedSegment | None = None) -> None:
        """`copied`: an earlier attempt has copied it whole."""
        self.source = source
        self.stem = file_stem(directory, source.base_offset)
        self._system = files
        self._files: list[File] = []
        self.copied = copied
        """The record of the copy for the next attempt; None until it is complete."""
        self.copied_bytes = [0, 0, 0] if copied is None else [*copied.sizes]
        self.has_small_files = copied is not None
        """Including its snapshot, which may be the only state of some producers."""
        self.is_complete = copied is not None
        if copied is not None:
            self._files = [files.open(path) for path in self.paths()]

    def paths(self) -> list[str]:
        return [self.stem + suffix for suffix in _STREAMS]

    def files(self) -> list[File]:
        """Return the files; they are created at the first use, as creating those of all segments at once is slow."""
        if not self._files:
            self._files = [self._system.create(path) for path in self.paths()]
        return self._files

    def close(self) -> None:
        for file in self._files:
            file.close()

    def advance(self, plan: CopyPlan) -> None:
        """Note the progress that a plan has made."""
        self.copied_bytes = plan.done_bytes
        self.is_complete = plan.completes
        self.has_small_files = bool(plan.small)
        if plan.completes:
            log_bytes, index_bytes, time_bytes = plan.done_bytes
            self.copied = CopiedSegment((log_bytes, index_bytes, time_bytes), plan.source)

    def target_bytes(self) -> tuple[int, int, int]:
        """Return the sizes up to which the files can be copied. A full disk, from which logs are often moved, has no
        room for the last index entries: `finish` copies these from memory."""
        source = self.source
        try:
            source.write_indexes()
        except OSError as error:
            if not is_full(error):
                error.filename = source.log.path
                raise
        return source.size_bytes, source.offset_index.written_bytes, source.time_index.written_bytes

    def pending_entries(self) -> tuple[bytes, bytes, bytes]:
        return b"", self.source.offset_index.pending, self.source.time_index.pending

    def remaining_bytes(self) -> int:
        return self.source.size_bytes - self.copied_bytes[0]


class CopyPlan:
    """The next piece to copy on a thread. Must be passed to `LogMove.copied`, whether its run has succeeded or not."""

    __slots__ = (
        "_directory",
        "_files",
        "_held",
        "_pieces",
        "completes",
        "copy",
        "done_bytes",
        "end_offset",
        "error",
        "generation",
        "progress",
        "small",
        "source",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        copy: _SegmentCopy,
        pieces: list[tuple[File, File, int, int]],
        small: list[tuple[str, str]],
        generation: int,
        completes: bool,
        end_offset: int,
        progress: bytes,
    ) -> None:
        """`pieces` are (from, to, start, end); `small` files are (from, to) and may be missing. `completes`: nothing
        can be appended to this segment any more. `end_offset`: the log is copied up to it then, -1 if more follows.
        `progress`: the segments that were complete before. Raises OSError; then nothing is held."""
        self.copy = copy
        self._files = files
        self._directory = directory
        self._pieces = pieces
        self.small = small
        self.generation = generation
        self.completes = completes
        self.progress = progress
        self.end_offset = end_offset
        self.done_bytes = [end for _, _, _, end in pieces]
        self.error: OSError | None = None
        self._held: list[File] = []
        try:
            for source, target, _, _ in pieces:
                for file in (source, target):
                    file.hold()
                    self._held.append(file)
            self.source = pieces[0][0].identity()
        except OSError:
            self.release()
            raise

    @property
    def size_bytes(self) -> int:
        """The size of all pieces."""
        return sum(end - start for _, _, start, end in self._pieces)

    def run(self) -> None:
        """Copy and sync, on any thread. Keeps an error for `copied`."""
        try:
            for source, target, start, end in self._pieces:
                if end > start:
                    _copy(source, target, start, end)
                    target.sync()
            with suppress(FileNotFoundError):
                self._files.write_atomically(f"{self._directory}/{MOVED_FILE}", self.progress, sync=False)
            for path, target_path in self.small:
                with suppress(FileNotFoundError):
                    self._files.write_atomically(target_path, self._files.read_bytes(path))
            with suppress(FileNotFoundError):  # cancelled meanwhile
                self._files.sync_directory(self._directory)
        except OSError as error:
            self.error = error

    def release(self) -> None:
        for file in self._held:
            file.release()
        self._held = []


class LogMove:
    """The move of one log from `home` to `folder`; `directory` is the directory of the copy until the swap."""

    def __init__(
        self,
        files: Files,
        log: Log,
        home: DataFolder,
        folder: DataFolder,
        unique_id: bytes,
        *,
        on_error: Callable[[Log, OSError], None],
        resumes: bool = False,
    ) -> None:
        """Create the directory of the copy, unless the move `resumes` with that of an earlier attempt. `on_error` is
        that of the moved log. Raises OSError."""
        self.log = log
        self.home = home
        self.folder = folder
        self.cancelled = False
        self._on_error = on_error
        self._files = files
        self._id = unique_id
        self._copies: list[_SegmentCopy] = []
        self._generation = log.generation
        self._synced_offset = log.log_start_offset
        self.directory = f"{folder.path}/{self._name(FolderKind.FUTURE)}"
        marker = f"{log.directory}/{MOVED_FILE}"
        if files.exists(marker):  # an earlier move was interrupted at its end: the original must not count as newer
            files.sync_directory(home.path)
            files.unlink(marker)
        self.unlinkable: list[str] = []
        """Files that an earlier attempt has left, to be unlinked on a thread."""
        self._progress = b""
        if resumes:
            self._resume()
        else:
            files.make_directory(self.directory)
        files.write_atomically(f"{self.directory}/{MOVED_FILE}", self._progress, sync=False)

    def _name(self, kind: FolderKind) -> str:
        return marked_folder_name(self.log.topic, self.log.partition, kind, self._id)

    @property
    def recovery_point(self) -> int:
        """The copy is synced below this offset."""
        return min(self._synced_offset, self.log.log_end_offset)

    @property
    def size_bytes(self) -> int:
        return sum(copy.copied_bytes[0] for copy in self._copies)

    @property
    def lag(self) -> int:
        """The number of offsets that the synced part of the copy is behind."""
        return self.log.log_end_offset - self.recovery_point

    @property
    def remaining_bytes(self) -> int:
        return self.log.size_bytes - self.size_bytes

    def failed_folder(self, error: OSError) -> DataFolder:
        """Return the folder that an error of this move concerns."""
        path = error.filename
        at_home = isinstance(path, str) and path.startswith(f"{self.log.directory}/")
        return self.home if at_home or path == self.log.directory else self.folder

    # Resuming

    def _resume(self) -> None:
        """Keep the copies of segments that have not changed."""
        files = self._files
        there = {entry.name: entry.size_bytes for entry in files.list_directory(self.directory)}
        known = parse_progress(files.read_bytes(f"{self.directory}/{MOVED_FILE}")) if MOVED_FILE in there else {}
        kept = {MOVED_FILE, PARTITION_METADATA_FILE}
        for source in self.log.segments[:-1]:
            copied = known.get(source.base_offset)
            if copied is not None and copied.source == source.log.identity():
                copy = _SegmentCopy(files, self.directory, source, copied)
                names = [os.path.basename(path) for path in copy.paths()]
                if [there.get(name) for name in names] == [*copied.sizes]:
                    self._copies.append(copy)
                    kept.update(names)
                    kept.update(os.path.basename(path) for _, path in self._small_files_of(copy))
        for name in there.keys() - kept:
            path = f"{self.directory}/{name}"
            if not name.endswith(DELETED_SUFFIX):  # the later unlink must not remove a new file of that name
                files.rename(path, path + DELETED_SUFFIX)
                path += DELETED_SUFFIX
            self.unlinkable.append(path)
        self._note_progress()

    def _note_progress(self) -> None:
        copied = {copy.source.base_offset: copy.copied for copy in self._copies if copy.copied is not None}
        self._progress = format_progress(copied)

    # Copying

    def plan(self, max_bytes: int = CHUNK_BYTES) -> CopyPlan | None:
        """Plan the next piece; None when only the part is left that `finish` copies. Raises OSError, KafkaError."""
        self._follow_segments()
        log = self.log
        active = log.segments[-1]
        for copy in self._copies:
            if copy.is_complete:
                continue
            is_active = copy.source is active
            wanted = list(copy.target_bytes())
            if copy.has_small_files:
                if wanted == copy.copied_bytes:
                    continue
                if is_active and copy.remaining_bytes() <= LAST_BYTES and self._synced_offset >= active.base_offset:
                    return None
            whole = wanted[0] - copy.copied_bytes[0] <= max_bytes
            if not whole:
                wanted = [copy.copied_bytes[0] + max_bytes, *copy.copied_bytes[1:]]
            completes = whole and not is_active and not any(copy.pending_entries())
            small = self._small_files_of(copy) if whole else []
            end_offset = log.log_end_offset if whole and is_active else -1
            pieces = list(zip(copy.source.files(), copy.files(), copy.copied_bytes, wanted, strict=True))
            return CopyPlan(
                self._files,
                self.directory,
                copy,
                pieces,
                small,
                self._generation,
                completes,
                end_offset,
                self._progress,
            )
        self._synced_offset = max(self._synced_offset, active.base_offset)
        return None

    def copied(self, plan: CopyPlan) -> None:
        """Release a plan after its run. Raises the error of the run."""
        plan.release()
        if plan.generation != self.log.generation:
            return  # all of it is copied again; the error may only mean that the source was truncated
        if plan.error is not None:
            raise plan.error
        plan.copy.advance(plan)
        if plan.completes:
            self._note_progress()
        if plan.end_offset >= 0:
            self._synced_offset = plan.end_offset

    def _small_files_of(self, copy: _SegmentCopy) -> list[tuple[str, str]]:
        return [
            (copy.source.stem + suffix, copy.stem + suffix) for suffix in (SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        ]

    def _follow_segments(self) -> None:
        log = self.log
        segments = log.segments
        if self._generation != log.generation:
            self._generation = log.generation
            self._synced_offset = log.log_start_offset
            present: set[int] = set()
            self._progress = format_progress({})
            self._files.write_atomically(f"{self.directory}/{MOVED_FILE}", self._progress, sync=False)
        else:
            present = {id(segment) for segment in segments}
        kept = []
        for copy in self._copies:
            if id(copy.source) in present:
                kept.append(copy)
            else:
                self._drop(copy)
        known = {id(copy.source) for copy in kept}
        new = [_SegmentCopy(self._files, self.directory, segment) for segment in segments if id(segment) not in known]
        if new:  # a compacted one among them is not synced, nor copied
            self._synced_offset = min(self._synced_offset, new[0].source.base_offset)
        self._copies = sorted(kept + new, key=lambda copy: copy.source.base_offset)

    def _drop(self, copy: _SegmentCopy) -> None:
        copy.close()
        for suffix in (*_STREAMS, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            self._files.unlink(copy.stem + suffix)

    # Swapping

    def is_caught_up(self) -> bool:
        """Return whether `finish` may be called in the same turn of the loop. Raises OSError."""
        if self.log.work.cleaning or self.log.offline or self.log.distrusted:
            return False
        self._follow_segments()
        return self.remaining_bytes <= LAST_BYTES

    def finish(self, now_ms: int) -> tuple[Log, str]:
        """Replace the log by its copy; returns the moved log, and the path of the old one, to be removed. The old Log
        must not be used any more. After an error (OSError, KafkaError, ValueError) nothing has changed."""
        log = self.log
        for copy in self._copies:
            targets = copy.files()
            for slot, end in enumerate(copy.target_bytes() if not copy.is_complete else ()):
                if end > copy.copied_bytes[slot]:
                    source = copy.source.files()[slot]
                    source.hold()
                    try:
                        _copy(source, targets[slot], copy.copied_bytes[slot], end)
                    finally:
                        source.release()
                    copy.copied_bytes[slot] = end
            for slot, entries in enumerate(copy.pending_entries()):
                if entries:
                    targets[slot].truncate(copy.copied_bytes[slot])  # as in _copy
                    _write_all(targets[slot], entries)
            self._finish_transaction_index(copy)
        epochs = LeaderEpochs(self._files, self.directory)
        epochs.assign_many(log.epochs.entries())
        epochs.write_unwritten()
        for copy in self._copies:
            copy.close()
        final = f"{self.folder.path}/{os.path.basename(log.directory)}"
        old = f"{self.home.path}/{self._name(FolderKind.DELETE)}"
        self._files.rename(log.directory, old)
        try:
            self._files.rename(self.directory, final)
            try:
                moved = self._open(final, now_ms)
            except BaseException:
                self._files.rename(final, self.directory)
                raise
        except BaseException:
            self._files.rename(old, log.directory)
            raise
        log.retire()
        log.close(clean=False)
        return moved, old

    def _finish_transaction_index(self, copy: _SegmentCopy) -> None:
        """Add the transactions that were aborted since the file was copied: its synced bytes stay as they are."""
        source = copy.source.transaction_index
        if source is None or copy.is_complete:
            return
        path = copy.stem + TRANSACTION_INDEX_SUFFIX
        target = self._files.open(path) if self._files.exists(path) else self._files.create(path)
        try:
            content = source.content()
            target.truncate(min(target.size_bytes(), len(content)))
            _write_all(target, content[target.size_bytes() :])
        finally:
            target.close()

    def _open(self, directory: str, now_ms: int) -> Log:
        log = self.log
        producers = ProducerStates(self._files, directory, log.producers.expiration_ms)
        producers.list_snapshots(entry.name for entry in self._files.list_directory(directory))
        producers.adopt(log.producers)
        epochs = LeaderEpochs.load(self._files, directory)
        epochs.distrust_file()
        segments = [self._opened(directory, copy.source) for copy in self._copies]
        # The last bytes of these are not synced, and recovery only checks what lies above the recovery point.
        incomplete = [copy.source.base_offset for copy in self._copies[:-1] if not copy.is_complete]
        moved = Log.open(
            directory,
            LogIdentity(log.topic, log.partition, log.topic_id),
            log.config,
            self._files,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            recovery_point=min([self.recovery_point, *incomplete]),
            loaded=LoadedParts(segments, producers, epochs),
            on_error=self._on_error,
        )
        if moved.log_end_offset != log.log_end_offset:
            raise ValueError(f"the copy ends with {moved.log_end_offset}, the log with {log.log_end_offset}")
        moved.offsets.restore_high_watermark(log.high_watermark)
        moved.offsets.mark_cleaned_to(log.offsets.cleaned_offset)
        moved.names_changed()
        return moved

    def _opened(self, directory: str, source: Segment) -> Segment:
        segment = Segment.open(self._files, directory, source.base_offset, size_bytes=source.size_bytes)
        segment.continue_as(source)
        return segment

    def abandon(self) -> None:
        """Drop the move; its copy stays as it is."""
        self.cancelled = True
        self.log.work.cancel_move()

    def cancel(self) -> str:
        """Cancel the move; returns the path of the copy, to be removed. Raises OSError."""
        self.cancelled = True
        deleted_path = f"{self.folder.path}/{self._name(FolderKind.DELETE)}"
        for copy in self._copies:
            copy.close()
        self._files.rename(self.directory, deleted_path)
        return deleted_path

    def leave_wish(self) -> None:
        """Suspend the move: its directory stays, by which the next start finds it, with the segments that are copied
        whole. Apache Kafka treats it as a copy that it has begun itself, and resumes it. Raises OSError."""
        self.cancelled = True
        for copy in self._copies:
            copy.close()
        if not any(copy.is_complete for copy in self._copies):
            self._files.remove_directory(self.directory)
            self._files.make_directory(self.directory)
            return
        for copy in self._copies:
            if not copy.is_complete:
                self._drop(copy)
        self._files.write_atomically(f"{self.directory}/{MOVED_FILE}", self._progress)


def _copy(source: File, target: File, start: int, end: int) -> None:
    """Copy these bytes of one file, which must be held, to the end of another. May run on a thread if both are held."""
    target.truncate(start)  # an earlier attempt may have put pending index entries there
    descriptor = source.fileno()
    while start < end:
        try:
            data = os.pread(descriptor, min(READ_BYTES, end - start), start)
        except OSError as error:
            error.filename = source.path
            raise
        if not data:
            raise OSError(errno.ENODATA, "a segment is shorter than it was", source.path)
        start += len(data)
        _write_all(target, data)


def _write_all(target: File, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[target.write(view) :]
