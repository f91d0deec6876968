"""The checks of a batch before a leader appends it, by its header alone. (Its records: log.prepare.)

The append path tests the usual case in a few comparisons of its own; a batch that does not pass them is refused here,
or accepted after all. The errors, and which of several comes first, are those of Kafka's
ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and LogValidator, with one exception: a codec that
does not exist is UNSUPPORTED_COMPRESSION_TYPE here, and UNKNOWN_SERVER_ERROR there, by an exception that is not caught.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import CorruptBatch, RecordBatch
from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.control import read_end_marker
from gregor.storage.segment.batches import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAGIC_POSITION,
    MAX_CODEC,
    MAX_TIMESTAMP_POSITION,
    STAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig

MIN_MESSAGE_BYTES = 14
"""Length field of the smallest message of any format: an empty message of magic 0."""


class RefusedRecords(KafkaError):
    """A batch is refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
        """(index in the batch, description of the error), at most some hundred of them."""


def check_batch(view: memoryview, config: LogConfig, *, from_client: bool, any_size: bool = False) -> memoryview:
    """Return the batch, without a part of another one that may follow it; raises KafkaError if its header is invalid.

    `from_client` is False for batches of this broker itself (offsets, markers): control batches are legal then, and
    sequences and base offsets are not checked. `any_size`: the limit does not apply to this form of the batch.
    """
    batch_bytes = _batch_bytes(view)
    if batch_bytes is None:
        # Too short for a length, or truncated: Kafka finds no batch in it.
        raise _refusal(ErrorCode.INVALID_RECORD, f"{len(view)} bytes hold no whole record batch")
    magic = view[MAGIC_POSITION]
    if magic != 2:
        raise _refusal(ErrorCode.INVALID_RECORD, f"magic {magic}, only record batches of magic 2 are accepted")
    if _batch_bytes(view[batch_bytes:]) is not None:
        raise _refusal(
            ErrorCode.INVALID_RECORD, f"exactly one batch expected: {len(view) - batch_bytes} bytes follow it"
        )
    if batch_bytes < HEADER_BYTES:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, f"{batch_bytes} bytes are no record batch")
    view = view[:batch_bytes]
    header = BatchHeader.read(view)
    base_offset, attributes, count = header.base_offset, header.attributes, header.record_count
    last_offset_delta = header.last_offset - base_offset
    producer_id, base_sequence = header.producer_id, header.base_sequence
    if from_client and base_offset != 0:
        raise _refusal(ErrorCode.INVALID_RECORD, f"base offset {base_offset}, producers must send 0")
    if not any_size:
        check_size(batch_bytes, config)
    if crc32c(view[CRC_START:]) != header.crc:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, "wrong checksum")
    if attributes & CODEC_MASK > MAX_CODEC:
        raise _refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {attributes & CODEC_MASK}")
    if count < 1 or last_offset_delta != count - 1:
        raise _refusal(ErrorCode.INVALID_RECORD, f"{count} records with a last offset delta of {last_offset_delta}")
    if attributes & TRANSACTIONAL_BIT and producer_id < 0:
        raise _refusal(ErrorCode.INVALID_RECORD, "transactional batch without a producer id")
    if attributes & CONTROL_BIT and not from_client:
        check_control(view)
    if from_client:
        if attributes & CONTROL_BIT:
            raise _refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        if producer_id >= 0 and base_sequence < 0:
            raise _refusal(ErrorCode.INVALID_RECORD, f"sequence {base_sequence} with producer id {producer_id}")
    return view


def check_control(view: memoryview) -> None:
    """Raise INVALID_RECORD for a marker that cannot be read."""
    try:
        read_end_marker(RecordBatch(view))
    except CorruptBatch as error:
        raise _refusal(ErrorCode.INVALID_RECORD, str(error)) from None


def check_size(batch_bytes: int, config: LogConfig) -> None:
    if batch_bytes > config.max_message_bytes:
        raise _refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {batch_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )


def _batch_bytes(view: memoryview) -> int | None:
    """Return the size of the batch or message that the bytes begin with; None if it is not whole. CORRUPT_MESSAGE where
    none can begin. (Kafka's ByteBufferLogInputStream.)"""
    if len(view) < LENGTH_OVERHEAD:
        return None
    length = int.from_bytes(view[LENGTH_POSITION:LENGTH_OVERHEAD], signed=True)
    if length < MIN_MESSAGE_BYTES:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch cannot have {length} bytes after its length")
    if len(view) <= MAGIC_POSITION:
        return None
    if view[MAGIC_POSITION] > 2:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, f"there is no magic {view[MAGIC_POSITION]}")
    return length + LENGTH_OVERHEAD if length + LENGTH_OVERHEAD <= len(view) else None


def stamp_append_time(view: memoryview, now_ms: int) -> None:
    """Set the time of all records of a batch (a writable view) to now: max timestamp, attribute bit, checksum."""
    view[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = now_ms.to_bytes(8, signed=True)
    _, attributes = STAMP.unpack_from(view, CRC_POSITION)
    STAMP.pack_into(view, CRC_POSITION, 0, attributes | APPEND_TIME_BIT)
    STAMP.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]), attributes | APPEND_TIME_BIT)


def _refusal(code: ErrorCode, message: str) -> KafkaError:
    return KafkaError(code, message)
