"""Where each leader epoch of a partition began: the file `leader-epoch-checkpoint`.

    0           version, always 0
    2           number of the lines that follow
    0 0         leader epoch, start offset
    3 4711

Epochs and start offsets both ascend strictly. (Kafka's LeaderEpochCheckpointFile and LeaderEpochFileCache, KIP-101.)

Changes are synced only by the log's next flush, before its recovery point moves: a crash can only lose entries above
the recovery point, where recovery reads them again from the batches. For the same reason a disk without room, or a
process without descriptors, delays nothing: the next flush writes the entries that could not be written. And for the
same reason `assign_later` leaves the whole write to that flush: to replace a file costs ext4 0.2 ms and more, as it
sends the new content to the disk then, and when a broker is lost, each other one leads or follows hundreds of
partitions in a new epoch at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from gregor.storage.fs.disk_errors import OF_THE_PROCESS, is_full

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files

FILE_NAME = "leader-epoch-checkpoint"

UNKNOWN = (-1, -1)
"""(epoch, end offset) where both are unknown."""


class LeaderEpochs:
    """The (epoch, start offset) pairs of one log, and their file."""

    __slots__ = (
        "_epochs",
        "_files",
        "_on_file",
        "_start_offsets",
        "dirty",
        "exists",
        "intact",
        "latest",
        "path",
        "unwritten",
    )

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.path = f"{directory}/{FILE_NAME}"
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.latest = -1
        """The highest epoch, -1 if there is none."""
        self.dirty = False
        """Written, but not synced since; cleared by the flush that syncs `path`."""
        self.unwritten = False
        """The file is older than this: the last change was deferred, or the disk had no room for it."""
        self.exists = False
        """The file is there, with the epochs or with older ones."""
        self._on_file: list[tuple[int, int]] | None = None
        """The entries in the file, where a change was deferred."""
        self.intact = True
        """False when the file was missing or malformed: then the epochs must be read from the batches of the whole
        log."""

    @classmethod
    def load(cls, files: Files, directory: str) -> LeaderEpochs:
        """Load the file. One that is missing or empty is not `intact`: a crash may have lost its content."""
        epochs = cls(files, directory)
        epochs.read_file()
        return epochs

    def read_file(self) -> None:
        """Replace the epochs by those of the file."""
        data = self._files.read_bytes(self.path) if self._files.exists(self.path) else b""
        self._epochs.clear()
        self._start_offsets.clear()
        self.latest = -1
        try:
            for epoch, start_offset in parse_epochs(data):
                self._put(epoch, start_offset)
            self.intact = self.exists = bool(data)
        except ValueError:
            self._epochs.clear()
            self._start_offsets.clear()
            self.latest = -1
            self.intact = self.exists = False

    @classmethod
    def of_new_file(cls, files: Files, directory: str, epoch: int) -> LeaderEpochs:
        """Return the epochs of a new log, whose file was made in advance with this one, and is not synced."""
        epochs = cls(files, directory)
        epochs._put(epoch, 0)
        epochs.dirty = epochs.exists = True
        return epochs

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that the epoch begins at this offset. Nothing changes if it is the latest already and began no later;
        entries that contradict the new one are removed. If the file cannot be written, nothing has changed."""
        self.assign_many([(epoch, start_offset)])

    def assign_later(self, epoch: int, start_offset: int) -> None:
        """Do as `assign`, but let the next flush write the file, if there is one."""
        if not self.exists:
            # Without a file, the next start would read all batches of the log.
            self.assign(epoch, start_offset)
        elif self._put(epoch, start_offset):
            self.unwritten = self.dirty = self._on_file != self.entries()

    def assign_many(self, entries: list[tuple[int, int]]) -> None:
        """Do as `assign` for each of them, and write the file once."""
        before = self._epochs.copy(), self._start_offsets.copy(), self.latest
        changed = False
        for epoch, start_offset in entries:
            changed = self._put(epoch, start_offset) or changed
        if changed:
            try:
                self._write()
            except OSError:
                self._epochs, self._start_offsets, self.latest = before
                raise

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is not above `epoch`, and the offset where it ended; UNKNOWN without one.

        An epoch below the first known one ended where that begins, or before: its records are no longer in the log.
        """
        if epoch < 0:
            return UNKNOWN
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNKNOWN
        return (self._epochs[higher - 1] if higher else epoch), self._start_offsets[higher]

    def epoch_for_offset(self, offset: int) -> int | None:
        slot = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def truncate_from_end(self, end_offset: int, *, loading: bool = False) -> None:
        """Remove epochs that begin at or after the offset. While a log is `loading` the file stays as it is until the
        next change or flush, which often restores the same content: with thousands of logs that halves a start."""
        kept = bisect_left(self._start_offsets, end_offset)
        if kept < len(self._epochs):
            if loading and not self.dirty and not self.unwritten:
                self._on_file = self.entries()
            self._keep(slice(0, kept))
            if loading:
                self.unwritten = self.dirty = True
            else:
                self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended at or before the offset. The one it lies in keeps its own start.

        Kafka's LeaderEpochFileCache moves that start to the offset. A follower whose log ends at the offset, with other
        records in front of it, is then not known to diverge.
        """
        first = bisect_right(self._start_offsets, start_offset) - 1
        if first > 0:
            self._keep(slice(first, None))
            self._write()

    def clear(self) -> None:
        if self._epochs:
            self._keep(slice(0, 0))
            self._write()

    def _put(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} starting at offset {start_offset}")
        if self._epochs and epoch == self.latest and start_offset >= self._start_offsets[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest = epoch
        return True

    def _keep(self, which: slice) -> None:
        self._epochs = self._epochs[which]
        self._start_offsets = self._start_offsets[which]
        self.latest = self._epochs[-1] if self._epochs else -1

    def sync_planned(self) -> None:
        """Note that a flush is planned that syncs the file."""
        self.dirty = False

    def distrust_file(self) -> None:
        """Note that the file may not be synced: the next flush syncs it."""
        self.dirty = True

    def cover_all_batches(self) -> None:
        """Note that the epochs are read from all batches of the log, whatever the file had."""
        self.intact = True

    def write_unwritten(self) -> None:
        """Bring the file up to date, if it is not. Raises OSError where there is no room."""
        if self.unwritten:
            self._files.write_atomically(self.path, format_epochs(self.entries()), sync=False)
            self.unwritten, self.exists = False, True
            self._on_file = None

    def _write(self) -> None:
        before, self._on_file = self._on_file, None
        if before == self.entries():
            self.unwritten = self.dirty = False
            return
        try:
            self._files.write_atomically(self.path, format_epochs(self.entries()), sync=False)
            self.unwritten, self.exists = False, True
        except OSError as error:
            if not is_full(error) and error.errno not in OF_THE_PROCESS:
                raise
            self.unwritten = True
        self.dirty = True
        self.intact = True


def format_epochs(entries: list[tuple[int, int]]) -> bytes:
    lines = ["0", str(len(entries)), *(f"{epoch} {start_offset}" for epoch, start_offset in entries), ""]
    return "\n".join(lines).encode()


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """Parse the entries of a file; ValueError if it is malformed. An empty file has none: it is about to be written for
    the first time."""
    lines = data.splitlines()
    if not lines:
        return []
    if lines[0] != b"0" or len(lines) < 2 or _number(lines[1]) != len(lines) - 2:
        raise ValueError("not a leader epoch checkpoint")
    entries = []
    for line in lines[2:]:
        epoch, start_offset = line.split()  # ValueError when there are not two
        entries.append((_number(epoch), _number(start_offset)))
    return entries


def _number(text: bytes) -> int:
    # Stricter than int(), which accepts "1_000" and signs; short enough that a long run of digits costs nothing.
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"not a number: {text[:20]!r}")
    return int(text)
