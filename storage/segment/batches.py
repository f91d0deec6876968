"""The header of a record batch (magic 2), as storage reads it: without the records.

    position  bytes
      0       8      base offset
      8       4      length: bytes that follow this field
     12       4      partition leader epoch
     16       1      magic, 2
     17       4      CRC-32C of everything after this field
     21       2      attributes: compression 0-2, append time 3, transactional 4, control 5, delete horizon 6
     23       4      last offset delta
     27       8      base timestamp
     35       8      max timestamp
     43       8      producer id
     51       2      producer epoch
     53       4      base sequence
     57       4      record count
     61              records

Base offset and leader epoch lie outside the checksum: a broker sets them in place. (Kafka's DefaultRecordBatch.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from struct import Struct

from gregor.protocol.records import batch as records
from gregor.protocol.records.checksum import crc32c

HEADER = records.HEADER
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
producer id, producer epoch, base sequence, record count."""

OFFSETS = Struct(">qiibIhi")
"""The header up to the last offset delta."""

LEADER_FIELDS = Struct(">qii")
"""The fields that a leader sets: base offset, (length,) leader epoch."""

STAMP = Struct(">Ih")
"""At 17: crc and attributes."""

LENGTH_POSITION = records.LENGTH_AT
MAGIC_POSITION = records.MAGIC_AT
CRC_POSITION = records.CRC_AT
CRC_START = records.ATTRIBUTES_AT
MAX_TIMESTAMP_POSITION = records.MAX_TIMESTAMP_AT
HEADER_BYTES = records.RECORD_BATCH_OVERHEAD
LENGTH_OVERHEAD = records.LOG_OVERHEAD
"""A batch is larger than its length field by this number of bytes."""

APPEND_TIME_BIT = records.TIMESTAMP_TYPE_BIT
TRANSACTIONAL_BIT = records.TRANSACTIONAL_BIT
CONTROL_BIT = records.CONTROL_BIT
CODEC_MASK = records.COMPRESSION_MASK
MAX_CODEC = 4

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
SEQUENCE_MASK = 0x7FFFFFFF
"""After 2^31 - 1 sequence numbers continue with 0."""

NO_TIMESTAMP = records.NO_TIMESTAMP


class BatchHeader:
    """A view of one batch's header. `size_bytes` and `last_offset` are derived; the magic is 2."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset",
        "leader_epoch",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    position: int
    """Of the batch's first byte, in the file or the buffer."""
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def read(cls, buffer: bytes | bytearray | memoryview, at: int = 0) -> BatchHeader:
        """Read the header at this position of a buffer, without any check. struct.error if it is not whole."""
        header = cls()
        (header.base_offset, length, header.leader_epoch, _, header.crc, header.attributes, last_offset_delta,
         header.base_timestamp, header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
         header.record_count) = HEADER.unpack_from(buffer, at)  # fmt: skip
        header.position = at
        header.size_bytes = length + LENGTH_OVERHEAD
        header.last_offset = header.base_offset + last_offset_delta
        return header

    def __repr__(self) -> str:
        return f"BatchHeader({self.base_offset}..{self.last_offset}, {self.size_bytes} bytes at {self.position})"


class Defect(Enum):
    """The reason why a walk has ended before the end."""

    FORMAT = 1
    """No header of magic 2 with a length that holds one."""
    OFFSETS = 2
    """Offsets that go back, or lie too far from the first one."""
    INCOMPLETE = 3
    CHECKSUM = 4


class BatchWalk:
    """Walks over the batches in a file or a buffer: iterate over it for their headers, any number at a time.

    The check after a crash (storage.segment.scan) and the search within one index interval (Segment.locate) have loops
    of their own: an object for each batch would halve the speed of the first, and the second is on the path of fetches.
    """

    __slots__ = (
        "_checks_crc",
        "_end",
        "_highest_offset",
        "_is_whole",
        "_next_offset",
        "_read",
        "_window_bytes",
        "defect",
        "position",
        "problem",
        "window",
        "window_position",
    )

    def __init__(
        self,
        read: Callable[[int, int], bytes | memoryview],
        position: int,
        end: int,
        *,
        next_offset: int,
        highest_offset: int = 2**63 - 1,
        checks_crc: bool = True,
        is_whole: bool = True,
        window_bytes: int = 1 << 20,
    ) -> None:
        """Walk from `position`, where a batch must begin, to `end`. `read` is File.read, or does the same. Base offsets
        must ascend from `next_offset`. With `is_whole`, which the check of checksums needs, the batch lies in
        `window`."""
        self._read = read
        self._end = end
        self._next_offset = next_offset
        self._highest_offset = highest_offset
        self._checks_crc = checks_crc
        self._is_whole = is_whole or checks_crc
        self._window_bytes = window_bytes
        self.position = position
        """After the walk: the end of its last valid batch."""
        self.defect: Defect | None = None
        """After the walk: the reason why it has ended there; None at the end, or before less than a header."""
        self.problem = ""
        """The defect in words."""
        self.window: bytes | memoryview = b""
        """The bytes around the present batch, from `window_position` on; until the next step."""
        self.window_position = position

    def __iter__(self) -> Iterator[BatchHeader]:
        unpack_from, read, checks_crc, is_whole = HEADER.unpack_from, self._read, self._checks_crc, self._is_whole
        position, end, next_offset, highest_offset = self.position, self._end, self._next_offset, self._highest_offset
        while position + HEADER_BYTES <= end:
            want_bytes = min(self._window_bytes, end - position)
            window = read(want_bytes, position)
            limit = len(window)
            if limit < want_bytes:
                end = position + limit  # the file is shorter than its expected size
            view = memoryview(window)
            self.window, self.window_position = window, position
            at = 0
            while at + HEADER_BYTES <= limit:
                header = BatchHeader()
                (base_offset, length, header.leader_epoch, magic, crc, header.attributes, last_offset_delta,
                 header.base_timestamp, header.max_timestamp, header.producer_id, header.producer_epoch,
                 header.base_sequence, header.record_count) = unpack_from(window, at)  # fmt: skip
                size_bytes = length + LENGTH_OVERHEAD
                last_offset = base_offset + last_offset_delta
                stop = at + size_bytes
                if (
                    magic != 2
                    or size_bytes < HEADER_BYTES
                    or last_offset_delta < 0
                    or base_offset < next_offset
                    or last_offset > highest_offset
                    or position + stop > end
                ):
                    self.position = position + at
                    self._describe(magic, length, base_offset, last_offset_delta, next_offset, end)
                    return
                if is_whole and stop > limit:
                    if at:
                        break  # it begins the next window
                    window = read(stop, position)
                    limit = len(window)
                    view = memoryview(window)
                    self.window = window
                    if limit < stop:
                        self._stop(Defect.INCOMPLETE, f"a batch of {stop} bytes, of which {limit} are there")
                        return
                if checks_crc and crc32c(view[at + CRC_START : stop]) != crc:
                    self.position = position + at
                    self._stop(
                        Defect.CHECKSUM, f"the CRC-32C of the batch of offsets {base_offset} to {last_offset} is wrong"
                    )
                    return
                header.position, header.size_bytes, header.crc = position + at, size_bytes, crc
                header.base_offset, header.last_offset = base_offset, last_offset
                yield header
                next_offset = last_offset + 1
                at = stop
            position += at
            self.position = position

    def _describe(
        self, magic: int, length: int, base_offset: int, last_offset_delta: int, next_offset: int, end: int
    ) -> None:
        """Note which limit the header at `position` exceeds."""
        size_bytes = length + LENGTH_OVERHEAD
        if magic != 2:
            self._stop(Defect.FORMAT, f"format {magic}, not 2")
        elif size_bytes < HEADER_BYTES or last_offset_delta < 0:
            self._stop(Defect.FORMAT, f"a length of {length} and a last offset delta of {last_offset_delta}")
        elif base_offset < next_offset:
            self._stop(Defect.OFFSETS, f"base offset {base_offset} where {next_offset} is the least")
        elif base_offset + last_offset_delta > self._highest_offset:
            base = self._highest_offset - MAX_RELATIVE_OFFSET
            last_offset = base_offset + last_offset_delta
            self._stop(Defect.OFFSETS, f"offset {last_offset} is too far from the segment's {base}")
        else:
            there = end - self.position
            self._stop(Defect.INCOMPLETE, f"a batch of {size_bytes} bytes, of which {there} are there")

    def _stop(self, defect: Defect, problem: str) -> None:
        self.defect, self.problem = defect, problem


def runs_of_batches(view: memoryview, max_batches: int) -> Iterator[memoryview]:
    """Split the view into parts of about `max_batches` whole batches; bytes that are no batch are in the last part. An
    empty view is one part."""
    start, limit = 0, len(view)
    while limit - start > max_batches * HEADER_BYTES:  # otherwise there cannot be more batches
        at = start
        for _ in range(max_batches):
            length = int.from_bytes(view[at + 8 : at + 12], signed=True)
            if length < HEADER_BYTES - LENGTH_OVERHEAD:
                at = limit
                break
            at += LENGTH_OVERHEAD + length
        if at >= limit:
            break
        yield view[start:at]
        start = at
    yield view[start:]
