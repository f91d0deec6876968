"""Message sets: kafka-python's and aiokafka's builders as judges; conversion up to batches; any bytes in."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import LOG_APPEND_TIME, MAGIC_AT, CorruptBatch, Record, RecordBatch
from gregor.protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, compress
from gregor.protocol.records.message_sets import Message, iter_messages
from gregor.protocol.records.up_conversion import upconvert
from tests.support.foreign_records import aiokafka_batches, aiokafka_sets, kafka_batches, kafka_sets

NOW = 1_400_000_000_000
PAIRS: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"v" * 500),
    (b"", None),
    (None, None),
    (b"k" * 300, b""),
]

JUDGES = pytest.mark.parametrize("judge", [kafka_sets, aiokafka_sets], ids=["kafka-python", "aiokafka"])
MAGICS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])


def message(
    value: bytes | None,
    *,
    key: bytes | None = None,
    offset: int = 0,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = NOW,
) -> bytes:
    """One entry of a set, written by the book."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def wrapper(codec: int, inner: bytes, *, magic: int = 1, offset: int = 0, attributes: int = 0, **fields: Any) -> bytes:
    packed = compress(codec, inner)
    if magic == 0 and codec == LZ4:
        packed = packed[:6] + bytes([packed[6] ^ 0xFF]) + packed[7:]  # the wrong header checksum of KAFKA-3160
    return message(packed, magic=magic, offset=offset, attributes=attributes | codec, **fields)


def foreign_set(judge: Any, magic: int, codec: int) -> bytes:
    builder = judge.LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, (key, value) in enumerate(PAIRS):
        builder.append(offset, timestamp=NOW + offset if magic else None, key=key, value=value)
    return bytes(builder.build())


def expected(magic: int, codec: int, first_offset: int = 0) -> list[Message]:
    return [
        Message(first_offset + at, NOW + at if magic else -1, 0, key, value, magic, codec)
        for at, (key, value) in enumerate(PAIRS)
    ]


@JUDGES
@MAGICS
@CODECS
def test_reads_foreign_sets(judge: Any, magic: int, codec: int) -> None:
    if magic == 0 and codec == LZ4:
        inner = b"".join(message(value, key=key, offset=at, magic=0) for at, (key, value) in enumerate(PAIRS))
        data = wrapper(LZ4, inner, magic=0, offset=len(PAIRS) - 1)
    else:
        data = foreign_set(judge, magic, codec)
    assert data[MAGIC_AT] == magic
    assert [one._replace(offset=0) for one in iter_messages(data)] == [
        one._replace(offset=0) for one in expected(magic, codec)
    ]


@MAGICS
@CODECS
def test_conversion_keeps_what_there_is(magic: int, codec: int) -> None:
    entries = [
        message(value, key=key, offset=at, magic=magic, timestamp=NOW + at) for at, (key, value) in enumerate(PAIRS)
    ]
    data = b"".join(entries) if codec == NONE else wrapper(codec, b"".join(entries), magic=magic, offset=4)
    batch = RecordBatch(upconvert(memoryview(data)))
    assert batch.crc_ok()
    assert (batch.base_offset, batch.last_offset, batch.record_count, batch.compression) == (0, 4, 5, codec)
    assert (batch.producer_id, batch.base_sequence, batch.timestamp_type) == (-1, -1, 0)
    assert batch.max_timestamp == (NOW + 4 if magic else -1)
    assert list(batch.records()) == [
        Record(one.offset, one.timestamp, one.key, one.value, []) for one in expected(magic, codec)
    ]


@pytest.mark.parametrize("judge", [kafka_batches, aiokafka_batches], ids=["kafka-python", "aiokafka"])
def test_foreign_readers_read_a_converted_set(judge: Any) -> None:
    data = foreign_set(kafka_sets, 1, GZIP)
    batch = judge.DefaultRecordBatch(bytearray(upconvert(data)))
    assert batch.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value) for record in batch] == [
        (at, NOW + at, key, value) for at, (key, value) in enumerate(PAIRS)
    ]


def test_offsets_within_wrappers() -> None:
    # Magic 1: inner offsets are relative, here with a gap as compaction leaves them; the wrapper has the last one.
    inner = message(b"a", offset=0) + message(b"b", offset=3)
    data = wrapper(GZIP, inner, offset=103)
    assert [one.offset for one in iter_messages(data)] == [100, 103]
    # Magic 0: they are absolute, whatever offset the wrapper has.
    inner = message(b"a", offset=50, magic=0) + message(b"b", offset=51, magic=0)
    assert [one.offset for one in iter_messages(wrapper(GZIP, inner, magic=0, offset=51))] == [50, 51]


def test_several_wrappers_and_plain_messages_in_one_set() -> None:
    data = message(b"1") + wrapper(SNAPPY, message(b"2") + message(b"3")) + wrapper(GZIP, message(b"4"))
    assert [(one.value, one.codec) for one in iter_messages(data)] == [
        (b"1", NONE),
        (b"2", SNAPPY),
        (b"3", SNAPPY),
        (b"4", GZIP),
    ]
    batch = RecordBatch(upconvert(data))
    assert (batch.record_count, batch.compression) == (4, SNAPPY)


def test_append_time_of_a_wrapper_stamps_its_messages() -> None:
    inner = message(b"a", timestamp=1) + message(b"b", timestamp=2)
    data = wrapper(GZIP, inner, attributes=0x08, timestamp=NOW, offset=1)
    assert [(one.timestamp, one.timestamp_type) for one in iter_messages(data)] == [(NOW, LOG_APPEND_TIME)] * 2
    batch = RecordBatch(upconvert(data))
    assert (batch.timestamp_type, batch.max_timestamp) == (LOG_APPEND_TIME, NOW)


def test_magic_0_has_no_timestamp_type() -> None:
    (one,) = iter_messages(message(b"a", magic=0, attributes=0x08))
    assert (one.timestamp, one.timestamp_type) == (-1, 0)


GOOD = message(b"value", key=b"key")


def damaged(data: bytes, at: int, form: str, value: int) -> bytes:
    """With one field replaced and the checksum made right again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 12, crc32(changed[16:]))
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GOOD[:-1] + b"!", "wrong checksum"),
        (GOOD[:16] + b"\x02" + GOOD[17:], "magic 2"),
        (damaged(GOOD, 8, ">i", len(GOOD) - 12 + 1), "of which"),
        (damaged(GOOD, 8, ">i", -5), "of which"),
        (damaged(GOOD, 8, ">i", 10), "of which"),
        (damaged(GOOD, 26, ">i", 100), "reaches beyond its message"),
        (damaged(GOOD, 26, ">i", 9), "ends before its key or value"),
        (damaged(GOOD, 26, ">i", -1), "reaches beyond its message"),
        (damaged(GOOD, 33, ">i", 4), "follow the value"),
        (wrapper(GZIP, b""), "without messages"),
        (message(None, attributes=GZIP), "without a value"),
        (message(b"junk", attributes=GZIP), "gzip"),
        (message(b"junk", attributes=4), "codec 4"),
        (message(b"junk", attributes=7), "codec 7"),
        (wrapper(GZIP, message(b"a", magic=0)), "another format"),
        (wrapper(GZIP, message(b"a"), magic=0), "another format"),
        (wrapper(GZIP, wrapper(GZIP, message(b"a"))), "compressed again"),
        (wrapper(GZIP, message(b"a")[:-1]), "of which"),
        (wrapper(GZIP, message(b"a") + b"tail"), "stray bytes"),
        (b"", "without messages"),
    ],
)
def test_what_cannot_be_read(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        upconvert(data)


def test_every_truncation_and_a_tail_are_noticed() -> None:
    data = GOOD + wrapper(SNAPPY, GOOD)
    for end in range(1, len(data)):
        if end != len(GOOD):
            with pytest.raises(CorruptBatch):
                upconvert(data[:end])
    with pytest.raises(CorruptBatch, match="stray bytes"):
        upconvert(data + b"tail")


def test_the_limit_holds_for_all_wrappers_together() -> None:
    data = wrapper(GZIP, message(bytes(5000))) * 3
    plain_bytes = len(message(bytes(5000)))
    assert RecordBatch(upconvert(data, max_decompressed_bytes=3 * plain_bytes)).record_count == 3
    with pytest.raises(CorruptBatch, match="decompresses to more"):
        upconvert(data, max_decompressed_bytes=3 * plain_bytes - 1)


@given(data=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes(data: bytes) -> None:
    with suppress(CorruptBatch):
        upconvert(data)


@given(inner=st.binary(max_size=100), codec=st.integers(0, 7), magic=st.integers(0, 1))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_a_wrapper(inner: bytes, codec: int, magic: int) -> None:
    with suppress(CorruptBatch):
        upconvert(message(inner, magic=magic, attributes=codec))
    if codec in (GZIP, SNAPPY, LZ4):
        with suppress(CorruptBatch):
            upconvert(wrapper(codec, inner, magic=magic))


@given(at=st.integers(0), byte=st.integers(0, 255))
@settings(max_examples=80, deadline=None)
def test_any_changed_byte_with_a_right_checksum(at: int, byte: int) -> None:
    changed = bytearray(GOOD)
    changed[at % len(GOOD)] = byte
    with suppress(CorruptBatch):
        upconvert(damaged(bytes(changed), 16, ">b", changed[16] % 2))
