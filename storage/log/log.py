"""One partition's log: the parts it is made of, and how it is opened.

    Segments        the list of segments, the active one last
    Appender        leader's and follower's appends
    Reader          slices for fetches
    Searcher        offsets by timestamp, in slices
    Roller          ends the active segment and begins the next one
    Flusher         syncs, and the recovery point
    SegmentSwap     replaces segments by compacted ones
    Truncation      removes the end of the log
    Retention       removes its beginning

The parts share what storage.log.state has, the producers and the epochs, and nothing else. Callers use those that the
log shows, as `flusher`, `retention`, `swap`, `offsets`, `producers` and `epochs`: the log has a method of its own only
for what concerns several parts, or a part that it keeps to itself. None of the parts refers
to the log, which is freed as soon as its last user drops it (a cycle may stay for good: broker.jobs.gc_policy).
Methods raise KafkaError with KAFKA_STORAGE_ERROR when a file cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from gregor.storage.log.append import Appender, AppendInfo
from gregor.storage.log.contents import LoadedParts, LogContents, LogIdentity, load_contents
from gregor.storage.log.flush import Flusher, FlushPlan
from gregor.storage.log.read import LogSlice, Reader
from gregor.storage.log.retention import Retention
from gregor.storage.log.roll import Roller
from gregor.storage.log.search import Found, Searcher
from gregor.storage.log.state import AppendLimits, LogHealth, LongWork, Segments
from gregor.storage.log.swap import SegmentSwap
from gregor.storage.log.truncate import Truncation
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.protocol.ids import Uuid
    from gregor.protocol.turns import Steps
    from gregor.storage.fs.files import Files
    from gregor.storage.log.compaction import DirtyRange
    from gregor.storage.segment.segment import Segment
    from gregor.storage.segment.transaction_index import Aborted

__all__ = ["AppendInfo", "FlushPlan", "Log", "LogSlice", "ignore_error"]


def ignore_error(_log: Log, _error: OSError) -> None:
    """The `on_error` of a log that no data folder depends on."""


class Log:
    """Not thread-safe: everything is called on one thread, except FlushPlan.run. The methods that requests call are
    those of the parts, and callers on the path of requests read `offsets`: both are reached without a frame in
    between."""

    __slots__ = (
        "__weakref__",
        "_appender",
        "_config",
        "_health",
        "_reader",
        "_roller",
        "_searcher",
        "_segments",
        "_truncation",
        "append_as_follower",
        "append_as_leader",
        "directory",
        "epochs",
        "flusher",
        "offsets",
        "partition",
        "producers",
        "read",
        "retention",
        "swap",
        "topic",
        "topic_id",
        "work",
    )

    def __init__(
        self,
        directory: str,
        identity: LogIdentity,
        config: LogConfig,
        contents: LogContents,
        files: Files,
        *,
        now_ms: int,
        on_error: Callable[[Log, OSError], None],
    ) -> None:
        segments, producers, epochs, offsets, is_new = contents
        self.directory = directory
        self.topic, self.partition, self.topic_id = identity
        self.work = work = LongWork()
        self.offsets = offsets
        self.producers = producers
        self.epochs = epochs
        self._config = config
        self._segments = held = Segments(files, directory, segments, names_changed=is_new)
        limits = AppendLimits()
        report = partial(_report, ref(self), on_error)
        self._health = health = LogHealth(directory, f"{self.topic}-{self.partition}", limits, report)
        self.flusher = flusher = Flusher(offsets, held, health, producers, epochs, config, now_ms)
        self._roller = roller = Roller(offsets, held, limits, health, producers, flusher, config)
        self._appender = appender = Appender(offsets, held, limits, health, producers, epochs, roller, config)
        self._reader = reader = Reader(offsets, held, health)
        self._searcher = Searcher(offsets, held, health)
        self.swap = swap = SegmentSwap(offsets, held, health, producers)
        self._truncation = Truncation(offsets, held, health, producers, epochs, flusher, roller, swap)
        self.retention = Retention(offsets, held, health, producers, epochs, roller, work, config)
        self.append_as_leader = appender.append_as_leader
        self.append_as_follower = appender.append_as_follower
        self.read = reader.read

    @classmethod
    def open(
        cls,
        directory: str,
        identity: LogIdentity,
        config: LogConfig,
        files: Files,
        *,
        now_ms: int,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        loaded: LoadedParts = LoadedParts(),  # noqa: B008 (immutable)
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        on_error: Callable[[Log, OSError], None] = ignore_error,
    ) -> Log:
        """Open the log in a folder, or create one if the folder (which must exist) holds no segment.

        The folder must have been closed cleanly, or recovered: all batches are whole, the indexes complete. `loaded`
        holds what recovery has loaded already. `on_error` is called with every error of the operating system that a
        method fails with, before it raises. Raises OldMessageFormat and KafkaError.
        """
        contents = load_contents(
            files,
            directory,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            producer_expiration_ms=producer_expiration_ms,
            loaded=loaded,
        )
        return cls(directory, identity, config, contents, files, now_ms=now_ms, on_error=on_error)

    def __repr__(self) -> str:
        return f"Log({self.directory!r}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> LogConfig:
        return self._config

    def configure(self, config: LogConfig) -> None:
        """Replace the configuration, at any time; the next append obeys the new one."""
        self._config = config
        self._appender.configure(config)
        self._roller.configure(config)
        self.flusher.configure(config)
        self.retention.configure(config)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Give a log its topic id when it has none: an old release created it."""
        self.topic_id = topic_id

    # State

    @property
    def log_start_offset(self) -> int:
        return self.offsets.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.offsets.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.offsets.high_watermark

    @property
    def recovery_point(self) -> int:
        return self.offsets.recovery_point

    @property
    def offline(self) -> bool:
        """A file could not be restored to a known state, or the log is retired: nothing is appended any more."""
        return self._health.offline

    @property
    def distrusted(self) -> bool:
        """A sync found no room: a flush must write everything above the recovery point again."""
        return self._health.distrusted

    @property
    def is_special(self) -> bool:
        """Batches of the usual kind need more than a check of their header."""
        return self._appender.is_special

    @property
    def generation(self) -> int:
        """Changes with every truncation: a copy from before is no longer a prefix of the log."""
        return self._segments.generation

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def first_segment_offset(self) -> int:
        # A truncation that failed may have left no segment.
        return self._segments.bases[0] if self._segments.bases else self.log_start_offset

    @property
    def segments_count(self) -> int:
        return len(self._segments.items)

    def figures(self) -> tuple[int, int, int, int, int, int, int]:
        """Return size in bytes, log start offset, log end offset, number of segments, high watermark, last stable
        offset and min.insync.replicas."""
        # A scrape calls this for each log: the usual cases need no other frame.
        offsets, segments = self.offsets, self._segments
        high_watermark, items = offsets.high_watermark, segments.items
        count = len(items)
        return (
            items[0].size_bytes if count == 1 else segments.size_bytes,
            offsets.log_start_offset,
            offsets.log_end_offset,
            count,
            high_watermark,
            high_watermark if self.producers.transactions is None else self.last_stable_offset,
            self._config.min_insync_replicas,
        )

    @property
    def segments(self) -> tuple[Segment, ...]:
        """In offset order, the active one last; not to be changed."""
        return tuple(self._segments.items)

    def retire(self) -> None:
        """Write nothing any more: the files under the log's names may belong to another log by now."""
        self._health.retire()

    def names_changed(self) -> None:
        """Files were made or renamed in the log's folder: the next flush syncs that, too."""
        self._segments.note_new_names()

    # Leader epochs

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins at an offset; has no effect when repeated."""
        self._appender.assign_epoch(epoch, start_offset)

    def latest_epoch(self) -> int | None:
        latest = self.epochs.latest
        return latest if latest >= 0 else None

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to the given one; (-1, -1) if that is not known."""
        return self.epochs.end_offset_for(leader_epoch, self.offsets.log_end_offset)

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The lowest offset of a transaction that is not decided; None without one (storage.producers.transactions)."""
        transactions = self.producers.transactions
        first = None if transactions is None else transactions.first_unstable(self.offsets.high_watermark)
        return first if first is None else max(first, self.offsets.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Consumers with isolation.level=read_committed see offsets below it."""
        high_watermark, first = self.offsets.high_watermark, self.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    def aborted_transactions(self, from_offset: int, upper_offset: int, waits_for_disk: bool = True) -> Aborted:
        """As in Reader."""
        return self._reader.aborted_transactions(from_offset, upper_offset, waits_for_disk)

    # Reading and searching

    def end_offset_of(self, piece: LogSlice, waits_for_disk: bool = True) -> int:
        """As in Reader."""
        return self._reader.end_offset_of(piece, waits_for_disk)

    def offsets_before(self, timestamp_ms: int, max_count: int, now_ms: int) -> list[int]:
        return self._reader.offsets_before(timestamp_ms, max_count, now_ms)

    def offset_for_timestamp(self, timestamp_ms: int) -> Steps[Found | None]:
        """As in Searcher."""
        return self._searcher.offset_for_timestamp(timestamp_ms)

    def offset_of_max_timestamp(self) -> Steps[Found | None]:
        """As in Searcher."""
        return self._searcher.offset_of_max_timestamp()

    def prefetching(self, read: Callable[[], object]) -> Steps[None]:
        """Fetch what `read` reads of this log without a wait for the disk. See `Searcher.prefetching`."""
        return self._searcher.prefetching(read)

    # Rolling, truncation, compaction

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new active segment at `base_offset`, by default the log end offset. Does nothing when the active
        segment is empty and begins there already."""
        return self._roller.roll(now_ms, base_offset)

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Remove all batches that reach up to `offset` or beyond it; the log ends there then. A follower removes the
        batches that its leader does not have."""
        self._truncation.truncate_to(offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Remove everything; the log is empty and begins at `offset`."""
        self._truncation.restart_at(offset, now_ms)

    def begin_with(self, records: memoryview | bytes | bytearray, now_ms: int = 0) -> None:
        """Move the start of an empty log back to that of the first of these batches. See `Truncation.begin_with`."""
        self._truncation.begin_with(records, now_ms)

    def dirty_range(self, now_ms: int, stable_offset: int | None = None, *, waits_for_disk: bool = True) -> DirtyRange:
        """Return how far the log is compacted and how far it can be. Raises KafkaError KAFKA_STORAGE_ERROR."""
        stable = self.last_stable_offset if stable_offset is None else stable_offset
        return self.swap.dirty_range(self._config, now_ms, stable, waits_for_disk)

    def close(self, clean: bool) -> None:
        """Close all files. `clean` completes the files that a start without recovery needs (the last time index entry,
        a producer snapshot) and syncs everything; without it nothing is written any more."""
        if clean and not self.offline:
            self.flusher.close_cleanly()
        for segment in self._segments.items:
            segment.close()


def _report(log: ReferenceType[Log], on_error: Callable[[Log, OSError], None], error: OSError) -> None:
    """Report an error to `on_error`, unless the log was freed: then it is in no table."""
    if (failed := log()) is not None:
        on_error(failed, error)
