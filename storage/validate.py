"""What is checked of a batch before a leader appends it, from its header alone.

The append path tests the usual case in a few comparisons of its own; whatever does not pass them comes here, to be
told what is wrong or to be let through. The errors are those of Kafka's UnifiedLog and LogValidator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from protocol.errors import ErrorCode, KafkaError
from protocol.records import CorruptBatch, RecordBatch
from storage.batches import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_CODEC,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    STAMP,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from config.topic import LogConfig


def check_batch(view: memoryview, config: LogConfig, now_ms: int, *, from_client: bool) -> None:
    """Raises the KafkaError a batch deserves; returns if it may be appended.

    `from_client` is False for what this broker writes itself (offsets, markers): control batches are legal then, and
    sequences and base offsets are not looked at.
    """
    size_bytes = len(view)
    if size_bytes < HEADER_BYTES:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, f"{size_bytes} bytes are no record batch")
    (base_offset, length, _, magic, crc, attributes, last_offset_delta, _, max_timestamp, producer_id,
     _, base_sequence, count) = HEADER.unpack_from(view)  # fmt: skip
    if magic != 2:
        code = ErrorCode.INVALID_RECORD if magic in (0, 1) else ErrorCode.CORRUPT_MESSAGE
        raise _refusal(code, f"magic {magic}, only record batches of magic 2 are taken")
    batch_bytes = length + LENGTH_OVERHEAD
    if not HEADER_BYTES <= batch_bytes <= size_bytes:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, f"batch of {batch_bytes} bytes in {size_bytes} bytes")
    if batch_bytes < size_bytes:
        raise _refusal(
            ErrorCode.INVALID_RECORD, f"exactly one batch expected: {size_bytes - batch_bytes} bytes follow it"
        )
    if size_bytes > config.max_message_bytes:
        raise _refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if crc32c(view[CRC_START:]) != crc:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, "wrong checksum")
    if attributes & CODEC_MASK > MAX_CODEC:
        raise _refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {attributes & CODEC_MASK}")
    if count < 1 or last_offset_delta != count - 1:
        raise _refusal(ErrorCode.INVALID_RECORD, f"{count} records with a last offset delta of {last_offset_delta}")
    if attributes & TRANSACTIONAL_BIT and producer_id < 0:
        raise _refusal(ErrorCode.INVALID_RECORD, "transactional batch without a producer id")
    if from_client:
        if attributes & CONTROL_BIT:
            raise _refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        if attributes & APPEND_TIME_BIT:
            raise _refusal(ErrorCode.INVALID_TIMESTAMP, "producers may not set the append time type")
        if base_offset != 0:
            raise _refusal(ErrorCode.INVALID_RECORD, f"base offset {base_offset}, producers must send 0")
        if producer_id >= 0 and base_sequence < 0:
            raise _refusal(ErrorCode.INVALID_RECORD, f"sequence {base_sequence} with producer id {producer_id}")
    if config.message_timestamp_type == "CreateTime" and max_timestamp != NO_TIMESTAMP:
        check_timestamp(max_timestamp, config, now_ms)
    if config.compact and not attributes & CONTROL_BIT:
        check_keys(view)


def check_timestamp(timestamp: int, config: LogConfig, now_ms: int) -> None:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    if not earliest <= timestamp <= latest:
        raise _refusal(
            ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} of a batch lies outside of {earliest} to {latest}"
        )


def check_keys(view: memoryview) -> None:
    """Compacted topics keep the last record of each key, so each record needs one."""
    try:
        without = sum(record.key is None for record in RecordBatch(view).records())
    except CorruptBatch as error:
        raise _refusal(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if without:
        raise _refusal(ErrorCode.INVALID_RECORD, f"{without} records without a key in a compacted topic")


def stamp_append_time(view: memoryview, now_ms: int) -> None:
    """Makes now the time of all records of a batch (a writable view): max timestamp, attribute bit, checksum."""
    view[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = now_ms.to_bytes(8, signed=True)
    _, attributes = STAMP.unpack_from(view, CRC_POSITION)
    STAMP.pack_into(view, CRC_POSITION, 0, attributes | APPEND_TIME_BIT)
    STAMP.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]), attributes | APPEND_TIME_BIT)


def _refusal(code: ErrorCode, message: str) -> KafkaError:
    return KafkaError(code, message)
