"""Truncation: a follower removes the batches that its leader does not have."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn

from gregor.protocol.errors import KafkaError
from gregor.storage.fs.disk_errors import NOT_OPENED
from gregor.storage.producers.replay import replay_producers
from gregor.storage.segment.batches import HEADER_BYTES, BatchHeader
from gregor.storage.segment.segment import OldMessageFormat

if TYPE_CHECKING:
    from gregor.storage.log.epochs import LeaderEpochs
    from gregor.storage.log.flush import Flusher
    from gregor.storage.log.roll import Roller
    from gregor.storage.log.state import LogHealth, LogOffsets, Segments
    from gregor.storage.log.swap import SegmentSwap
    from gregor.storage.producers.state import ProducerStates
    from gregor.storage.segment.segment import Segment

_OLD_FORMAT = (
    "messages from before Kafka 0.11 cannot be truncated; with the partition's folder removed, a start fetches the log "
    "from its leader"
)


class Truncation:
    """Removes the end of a log, or all of it."""

    __slots__ = ("_epochs", "_flusher", "_health", "_offsets", "_producers", "_roller", "_segments", "_swap")

    def __init__(
        self,
        offsets: LogOffsets,
        segments: Segments,
        health: LogHealth,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        flusher: Flusher,
        roller: Roller,
        swap: SegmentSwap,
    ) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health
        self._producers = producers
        self._epochs = epochs
        self._flusher = flusher
        self._roller = roller
        self._swap = swap

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove all batches that reach up to `offset` or beyond it; the log ends there then.

        Raises KafkaError: the log is offline then, unless nothing has changed. Where the offset lies in a segment of an
        old message format nothing has changed, but it goes offline as well: it cannot follow its leader any more.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate to {offset}")
        end_offset = self._offsets.log_end_offset
        try:
            if offset >= end_offset:
                # Only an epoch that begins at the end, without a batch, may have to be removed.
                self._epochs.truncate_from_end(end_offset)
            elif offset < self._segments.bases[0]:
                self.restart_at(offset, now_ms)
            else:
                self._truncate(offset)
        except OldMessageFormat:
            self._fail(OSError(errno.ENOTSUP, _OLD_FORMAT))
        except OSError as error:
            self._fail(error)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Remove everything; the log is empty and begins at `offset`."""
        try:
            with self._held(self._segments.active):  # the new segment needs as many descriptors
                self._swap.forget()
                self._unlink_segments(0)
                self._producers.clear()
                self._producers.delete_snapshots_above(-1)
                self._epochs.clear()
            segment = self._roller.create(offset, now_ms)
        except OSError as error:
            self._fail(error)
        self._roller.add(segment)
        self._offsets.restart_at(offset)
        self._finish()

    def begin_with(self, records: memoryview | bytes | bytearray, now_ms: int) -> None:
        """Move the start of an empty log back to that of the first of these batches, if the log starts in the middle of
        it. A leader whose log starts there, after DeleteRecords, sends the whole batch. (Kafka's
        Partition.appendRecordsToFollowerOrFutureReplica.)"""
        if len(records) < HEADER_BYTES:
            return
        first = BatchHeader.read(records)
        if 0 <= first.base_offset < self._offsets.log_end_offset <= first.last_offset:
            self.restart_at(first.base_offset, now_ms)

    def _truncate(self, offset: int) -> None:
        offsets, segments, producers = self._offsets, self._segments, self._producers
        index = segments.index_of(offset)
        last = segments.items[index]
        with self._held(last):
            # Before anything changes: a batch that cannot be read is an error.
            try:
                found = last.locate(offset)
            except KafkaError:
                last.refuse_old_format(0)
                raise
            self._swap.forget()
            self._unlink_segments(index + 1)
            active = segments.activate_last()
            if found is not None:
                active.truncate_to(found[0], found[2])
        self._epochs.truncate_from_end(offset)
        offsets.truncate_to(offset)
        producers.delete_snapshots_above(offset)
        if producers.entries or producers.transactions is not None:
            try:
                replay_producers(producers, segments.items, offsets.log_start_offset, offset, offsets.high_watermark)
            except KafkaError as error:
                raise OSError(errno.EBADMSG, error.message) from error
        self._finish()

    @contextmanager
    def _held(self, segment: Segment) -> Iterator[None]:
        """Keep the files of a segment open. Without descriptors for them KafkaError is raised here, where nothing has
        changed yet: the truncation may be tried again."""
        with ExitStack() as held:
            for file in segment.synced_files():
                try:
                    file.hold()
                except OSError as error:
                    if error.errno in NOT_OPENED:
                        self._health.fail(error, "cannot truncate yet")
                    continue  # the truncation fails where it needs the file
                held.callback(file.release)
            yield

    def _unlink_segments(self, kept: int) -> None:
        # From the last one on: if this is interrupted, the remaining segments have no gap.
        segments = self._segments
        for segment in reversed(segments.items[kept:]):
            self._producers.delete_snapshot(segment.base_offset)
            for path in segment.mark_deleted():
                segments.files.unlink(path)
        segments.remove_from(kept)

    def _fail(self, error: OSError) -> NoReturn:
        self._flusher.mark()  # the recovery point may have fallen
        self._health.take_offline(error)
        self._health.fail(error, "cannot truncate")

    def _finish(self) -> None:
        self._segments.truncated()
        self._flusher.truncated()
        self._roller.set_limits()
