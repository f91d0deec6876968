"""Appends to a log: one batch by its leader, or batches of the leader by a follower.

`append_as_leader` is the hottest function of the broker. It is two frames: the usual batch of the usual producer passes
a chain of comparisons in the first, and in the second one system call and a dozen assignments; a named function does
everything else. Nothing here costs per record; where the records of a topic must be checked, only those of small
batches are checked here (log.prepare).
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import CorruptBatch, RecordBatch
from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.control import EndMarker, read_end_marker
from gregor.storage.log.prepare import PreparedBatch, is_special, prepare_quickly
from gregor.storage.log.state import NEVER
from gregor.storage.log.validate import check_batch, check_control, stamp_append_time
from gregor.storage.producers.transaction_checks import aborted_by, check_in_transaction
from gregor.storage.segment.batches import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    LEADER_FIELDS,
    LENGTH_OVERHEAD,
    MAX_CODEC,
    NO_TIMESTAMP,
    SEQUENCE_MASK,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BatchWalk,
    Defect,
)
from gregor.storage.segment.segment import Segment

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.log.epochs import LeaderEpochs
    from gregor.storage.log.roll import Roller
    from gregor.storage.log.state import AppendLimits, LogHealth, LogOffsets, Segments
    from gregor.storage.producers.entry import ProducerEntry
    from gregor.storage.producers.state import ProducerStates

_USUAL_ATTRIBUTES = frozenset(
    codec | transactional for codec in range(MAX_CODEC + 1) for transactional in (0, TRANSACTIONAL_BIT)
)
_unpack_header = HEADER.unpack_from
_pack_leader_fields = LEADER_FIELDS.pack_into
_new = tuple.__new__  # the constructor of a named tuple is a function of Python, which calls this one


class AppendInfo(NamedTuple):
    """The result of an append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic's message.timestamp.type is LogAppendTime. Of a duplicate it is, as in Kafka, the timestamp
    of the batch it repeats."""
    log_start_offset: int
    duplicate: bool
    """The batch was in the log already: nothing was written, and the offsets are those of the first time."""

    def __repr__(self) -> str:
        return f"AppendInfo({self.first_offset}..{self.last_offset}{', duplicate' if self.duplicate else ''})"


class Appender:
    """Writes batches behind the end of one log."""

    __slots__ = (
        "_config",
        "_epochs",
        "_health",
        "_index_interval_bytes",
        "_limits",
        "_max_message_bytes",
        "_offsets",
        "_producers",
        "_recompresses",
        "_roller",
        "_segments",
        "_stamps_append_time",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
        "is_special",
    )

    def __init__(
        self,
        offsets: LogOffsets,
        segments: Segments,
        limits: AppendLimits,
        health: LogHealth,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        roller: Roller,
        config: LogConfig,
    ) -> None:
        self._offsets = offsets
        self._segments = segments
        self._limits = limits
        self._health = health
        self._producers = producers
        self._epochs = epochs
        self._roller = roller
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._config = config
        self._max_message_bytes = config.max_message_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._timestamp_after_max_ms = NEVER if self._stamps_append_time else config.message_timestamp_after_max_ms
        self._timestamp_before_max_ms = NEVER if self._stamps_append_time else config.message_timestamp_before_max_ms
        self._recompresses = config.compression_type not in ("producer", "uncompressed")
        self.is_special = is_special(config)
        """Whether batches of the usual kind need more than a check of their header."""

    def append_as_leader(
        self, records: memoryview | bytes | bytearray, leader_epoch: int, now_ms: int, *, from_client: bool = True
    ) -> AppendInfo:
        """Append exactly one record batch with the next offsets and the leader epoch, which are set in place if the
        buffer is writable, else in a copy. `from_client` is False for batches that the broker itself has built: they
        are not compressed, and of them only the size and the marker are checked. A batch whose records must be checked
        one by one, or compressed again, is refused with NeedsPreparation unless it is small (log.prepare).

        Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, and those of ProducerStates.check,
        KAFKA_STORAGE_ERROR among them. Then the log is as it was before.
        """
        view = records if type(records) is memoryview else memoryview(records)
        size_bytes = len(view)
        try:
            header = _unpack_header(view)
        except struct.error:
            check_batch(view, self._config, from_client=from_client)
            raise
        sent_offset, length, _, magic, crc, attributes, offset_delta, _, max_timestamp, producer_id, _, _, count = (
            header
        )
        if (
            length != size_bytes - LENGTH_OVERHEAD
            or magic != 2
            or attributes not in _USUAL_ATTRIBUTES
            or offset_delta != count - 1
            or count < 1
            or sent_offset
            or size_bytes > self._max_message_bytes
            or max_timestamp - now_ms > self._timestamp_after_max_ms
            or now_ms - max_timestamp > self._timestamp_before_max_ms
            or self.is_special
            or crc32c(view[CRC_START:]) != crc
        ):
            view = self._prepared(records, view, attributes, now_ms, from_client)
            header = _unpack_header(view)
            attributes, producer_id = header[5], header[9]
        entry = None
        if producer_id >= 0:
            entry = self._producers.entries.get(producer_id)
            if entry is None or entry.epoch != header[10] or entry.next_sequence != header[11]:
                repeated = self._check_producer(view, entry, now_ms, from_client)
                if repeated is not None:
                    return repeated
            elif entry.transaction_first_offset >= 0:
                check_in_transaction(entry, attributes)
        elif attributes & TRANSACTIONAL_BIT:
            check_batch(view, self._config, from_client=from_client)  # which refuses it
        return self._write(view, header, entry, leader_epoch, now_ms)

    def _write(
        self, view: memoryview, header: tuple[int, ...], entry: ProducerEntry | None, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Write a batch with this header, which has passed all checks."""
        _, length, _, _, _, attributes, offset_delta, _, max_timestamp, producer_id, epoch, first_sequence, _ = header
        if view.readonly or self._stamps_append_time:
            view, max_timestamp = self._own_copy(view, max_timestamp, now_ms)
        offsets, limits = self._offsets, self._limits
        first_offset = offsets.log_end_offset
        last_offset = first_offset + offset_delta
        if leader_epoch != self._epochs.latest:
            self.assign_epoch(leader_epoch, first_offset)
        segment = self._segments.active
        position = segment.size_bytes
        size_bytes = length + LENGTH_OVERHEAD
        if (
            position + size_bytes > limits.position
            or max_timestamp > limits.timestamp
            or now_ms > limits.ms
            or last_offset > limits.offset
        ):
            span = first_offset, last_offset
            segment = self._make_room(size_bytes, span, max_timestamp, now_ms, entry, first_sequence)
            position = segment.size_bytes

        _pack_leader_fields(view, 0, first_offset, length, leader_epoch)
        try:
            if segment.log.write(view) != size_bytes:
                raise OSError(errno.ENOSPC, "short write")
            if max_timestamp > segment.max_timestamp:
                segment.max_timestamp = max_timestamp
                segment.max_timestamp_offset = last_offset
            if segment.bytes_since_index_entry > self._index_interval_bytes:
                segment.append_index_entries(last_offset, position)
                segment.bytes_since_index_entry = 0
                if self._roller.indexes_full():
                    limits.check_next()
            segment.bytes_since_index_entry += size_bytes
        except OSError as error:
            self._undo_write(segment, position, error, entry, first_sequence)
        segment.size_bytes = position + size_bytes
        offsets.log_end_offset = last_offset + 1
        if producer_id >= 0:
            if attributes & TRANSACTIONAL_BIT:
                self._add_transactional(view, segment, position)
            else:
                if entry is None:
                    entry = self._producers.entry(producer_id)
                last_sequence = (first_sequence + offset_delta) & SEQUENCE_MASK if first_sequence >= 0 else -1
                entry.add(epoch, (last_sequence, last_offset, offset_delta, max_timestamp))
        append_time_ms = now_ms if self._stamps_append_time else NO_TIMESTAMP
        return _new(AppendInfo, (first_offset, last_offset, append_time_ms, offsets.log_start_offset, False))

    def _prepared(
        self,
        records: memoryview | bytes | bytearray,
        view: memoryview,
        attributes: int,
        now_ms: int,
        from_client: bool,
    ) -> memoryview:
        """Return a batch that is not of the usual kind in the form in which it is written, or refuse it."""
        if from_client or self._recompresses or len(view) > self._max_message_bytes:
            if type(records) is not PreparedBatch:
                return prepare_quickly(view, self._config, now_ms, from_client=from_client)
        elif attributes & CONTROL_BIT:
            check_control(view)
        return view

    def _own_copy(self, view: memoryview, max_timestamp: int, now_ms: int) -> tuple[memoryview, int]:
        """Return a writable copy of a batch, with the time of the append if the topic has that, and its largest
        timestamp. In a copy: if the write fails, the batch is still the one that was sent, and may be appended again.
        """
        view = memoryview(bytearray(view))
        if self._stamps_append_time:
            stamp_append_time(view, now_ms)
            max_timestamp = now_ms
        return view, max_timestamp

    def append_as_follower(self, records: memoryview | bytes | bytearray, now_ms: int) -> AppendInfo:
        """Append batches as a leader sent them: offsets, epochs and timestamps are those of the leader. A batch that is
        truncated at the end is left out; without a whole one nothing happens (the last offset lies below the first).

        Raises KafkaError: CORRUPT_MESSAGE for a damaged batch, OFFSET_OUT_OF_RANGE for one that does not continue the
        log; then nothing is appended. With KAFKA_STORAGE_ERROR some of the first batches may have been appended.
        """
        view = records if type(records) is memoryview else memoryview(records)
        offsets, limits = self._offsets, self._limits
        batches = _checked_batches(view, offsets.log_end_offset)
        markers = _markers_of(view, batches)
        first_offset = batches[0].base_offset if batches else offsets.log_end_offset
        run: list[BatchHeader] = []  # the batches that one write appends to the active segment
        run_bytes = 0
        for batch in batches:
            size_bytes, last_offset, max_timestamp = batch.size_bytes, batch.last_offset, batch.max_timestamp
            if (
                self._segments.active.size_bytes + run_bytes + size_bytes > limits.position
                or max_timestamp > limits.timestamp
                or now_ms > limits.ms
                or last_offset > limits.offset
            ):
                self._write_run(view, run, markers)
                run, run_bytes = [], 0
                self._roller.make_room(size_bytes, batch.base_offset, last_offset, max_timestamp, now_ms)
            run.append(batch)
            run_bytes += size_bytes
        self._write_run(view, run, markers)
        return AppendInfo(first_offset, offsets.log_end_offset - 1, NO_TIMESTAMP, offsets.log_start_offset, False)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins at an offset; has no effect when repeated."""
        try:
            self._epochs.assign_later(epoch, start_offset)
        except OSError as error:
            self._health.fail(error, "cannot write the leader epochs")

    def _check_producer(
        self, view: memoryview, entry: ProducerEntry | None, now_ms: int, from_client: bool
    ) -> AppendInfo | None:
        """Check a batch that is not the next one of its producer's epoch; returns the result of the append that it
        repeats. Raises KafkaError as ProducerStates.check."""
        batch = BatchHeader.read(view)
        first_sequence, last_sequence = batch.base_sequence, -1
        if first_sequence >= 0:
            last_sequence = (first_sequence + batch.last_offset - batch.base_offset) & SEQUENCE_MASK
        elif from_client:
            check_batch(view, self._config, from_client=True)
        repeated = self._producers.check(
            batch.producer_id,
            batch.producer_epoch,
            first_sequence,
            last_sequence,
            self._offsets.high_watermark,
            now_ms,
            self._segments.items,
            from_client=from_client,
        )
        if repeated is not None:
            start_offset = self._offsets.log_start_offset
            return AppendInfo(repeated.first_offset, repeated.last_offset, repeated.timestamp, start_offset, True)
        if entry is not None:
            check_in_transaction(entry, batch.attributes)
        return None

    def _make_room(
        self,
        size_bytes: int,
        offsets: tuple[int, int],
        max_timestamp: int,
        now_ms: int,
        entry: ProducerEntry | None,
        first_sequence: int,
    ) -> Segment:
        """Return the segment for a batch of these first and last offsets that is past a limit."""
        try:
            return self._roller.make_room(size_bytes, *offsets, max_timestamp, now_ms)
        except KafkaError:
            if entry is not None:
                entry.lose(first_sequence)
            raise

    def _write_run(self, view: memoryview, run: list[BatchHeader], markers: dict[int, EndMarker | None]) -> None:
        if not run:
            return
        segment = self._segments.active
        start, end = run[0].position, run[-1].position + run[-1].size_bytes
        position = segment.size_bytes
        try:
            if segment.log.write(view[start:end]) != end - start:
                raise OSError(errno.ENOSPC, "short write")
            for batch in run:
                if batch.max_timestamp > segment.max_timestamp:
                    segment.max_timestamp = batch.max_timestamp
                    segment.max_timestamp_offset = batch.last_offset
                if segment.bytes_since_index_entry > self._index_interval_bytes:
                    segment.append_index_entries(batch.last_offset, position + batch.position - start)
                    segment.bytes_since_index_entry = 0
                segment.bytes_since_index_entry += batch.size_bytes
        except OSError as error:
            self._undo_write(segment, position, error)
        segment.size_bytes = position + end - start
        if self._roller.indexes_full():
            self._limits.check_next()
        for batch in run:
            if batch.leader_epoch >= 0 and batch.leader_epoch != self._epochs.latest:
                self._begin_epoch(batch, segment, position + batch.position - start)
            if batch.attributes & CONTROL_BIT:
                self._end_transaction(batch, markers[batch.base_offset], segment, position + batch.position - start)
            else:
                self._producers.replay(batch)
            self._offsets.log_end_offset = batch.last_offset + 1

    def _begin_epoch(self, batch: BatchHeader, segment: Segment, position: int) -> None:
        """Note the leader epoch of a batch, which was written at this position but is not below the log end offset yet:
        a batch that cannot be written must leave no epoch, as the same epoch would not begin again where it is written
        later. If the epochs of a log without their file cannot be written, the batch is removed again."""
        try:
            self._epochs.assign_later(batch.leader_epoch, batch.base_offset)
        except OSError as error:
            self._undo_write(segment, position, error)

    def _add_transactional(self, view: memoryview, segment: Segment, position: int) -> None:
        """Add a batch of a transaction, or a marker, that was written at this position."""
        batch = BatchHeader.read(view)
        if batch.attributes & CONTROL_BIT:
            self._offsets.log_end_offset = batch.base_offset  # until the transaction index is written
            self._end_transaction(batch, read_end_marker(RecordBatch(view)), segment, position)
            self._offsets.log_end_offset = batch.last_offset + 1
        else:
            self._producers.replay(batch)

    def _end_transaction(self, batch: BatchHeader, marker: EndMarker | None, segment: Segment, position: int) -> None:
        """Add a control batch, which was written at this position but is not below the log end offset yet: without its
        entry in the transaction index it is removed again."""
        producers = self._producers
        aborted = aborted_by(producers.entries.get(batch.producer_id), producers.transactions, batch, marker)
        if aborted is not None:
            try:
                if segment.transaction_index is None:
                    self._segments.note_new_names()
                segment.append_aborted(aborted)
            except OSError as error:
                self._undo_write(segment, position, error)
        producers.replay(batch, marker, self._offsets.high_watermark)

    def _undo_write(
        self,
        segment: Segment,
        position: int,
        error: OSError,
        entry: ProducerEntry | None = None,
        lost_sequence: int = -1,
    ) -> NoReturn:
        """Undo a write that has failed half way, of a batch of this producer with this first sequence. Where nothing
        was written, nothing is undone: without a descriptor for the write there is none for a truncation either."""
        if entry is not None:
            entry.lose(lost_sequence)
        try:
            if segment.log.size_bytes() != position:
                segment.truncate_to(position, self._offsets.log_end_offset)
        except OSError as second:
            self._health.take_offline(second)
            self._health.fail(second, "cannot undo a failed append")
        self._roller.set_limits()
        self._health.fail(error, "cannot append")


def _checked_batches(view: memoryview, next_offset: int) -> list[BatchHeader]:
    """Return the whole batches of a leader's response, without one that is truncated at the end.

    The error is that of Kafka's UnifiedLog.analyzeAndValidateRecords, which checks the checksum of every batch before
    it compares offsets: CORRUPT_MESSAGE if any batch is damaged, else OFFSET_OUT_OF_RANGE.
    """
    walk = _walk_over(view, 0, next_offset)
    batches = list(walk)
    if walk.defect is Defect.OFFSETS:
        damaged = _first_damaged(view, walk.position)
        if damaged is None:
            raise _refused_response(ErrorCode.OFFSET_OUT_OF_RANGE, walk)
        walk = damaged
    if walk.defect is not None and walk.defect is not Defect.INCOMPLETE:
        raise _refused_response(ErrorCode.CORRUPT_MESSAGE, walk)
    return batches


def _markers_of(view: memoryview, batches: list[BatchHeader]) -> dict[int, EndMarker | None]:
    """Return the contents of the control batches by their offset. Raises KafkaError CORRUPT_MESSAGE."""
    controls = [batch for batch in batches if batch.attributes & CONTROL_BIT]
    try:
        return {batch.base_offset: read_end_marker(RecordBatch(view, batch.position)) for batch in controls}
    except CorruptBatch as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the response of the leader holds a marker that cannot be read: {error}"
        ) from None


def _walk_over(view: memoryview, position: int, next_offset: int, highest_offset: int = NEVER) -> BatchWalk:
    return BatchWalk(
        lambda size_bytes, at: view[at : at + size_bytes],
        position,
        len(view),
        next_offset=next_offset,
        highest_offset=highest_offset,
        window_bytes=len(view),
    )


def _first_damaged(view: memoryview, position: int) -> BatchWalk | None:
    """Return the walk that ends at the first damaged batch from `position` on, whatever the offsets; None without one.

    A walk compares the offsets of a batch with those of the batch before it only, so each walk gets past its first one.
    """
    while True:
        walk = _walk_over(view, position, -2 * NEVER, 2 * NEVER)
        for _ in walk:
            pass
        if walk.defect is not Defect.OFFSETS:
            return None if walk.defect in (None, Defect.INCOMPLETE) else walk
        position = walk.position


def _refused_response(code: ErrorCode, walk: BatchWalk) -> KafkaError:
    return KafkaError(code, f"the response of the leader holds {walk.problem}, at position {walk.position}")
