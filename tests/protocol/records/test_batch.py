"""Record batches: kafka-python and aiokafka as judges both ways; any bytes give records or CorruptBatch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import (
    CRC_AT,
    LOG_APPEND_TIME,
    RECORD_BATCH_OVERHEAD,
    CorruptBatch,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    whole_batches_bytes,
)
from tests.support.foreign_records import aiokafka_batches, kafka_batches

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", []),
    Record(1, NOW + 5, None, b"v" * 300, [("h", b"1"), ("h", None), ("ключ", b"")]),
    Record(2, NOW - 7, b"", None, []),
    Record(3, NOW, None, None, [("x" * 200, b"y" * 200)]),
]


def foreign_build(module: Any, codec: int, records: list[Record], **producer: int) -> bytes:
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer.get("transactional", 0),
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=1 << 20,
    )
    for delta, record in enumerate(records):
        builder.append(delta, record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def foreign_read(module: Any, data: bytes) -> list[Record]:
    batch = module.DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    return [
        Record(
            record.offset, record.timestamp, record.key, record.value, [(name, value) for name, value in record.headers]
        )
        for record in batch
    ]


JUDGES = pytest.mark.parametrize("judge", [kafka_batches, aiokafka_batches], ids=["kafka-python", "aiokafka"])
CODECS = pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])


def with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[21:])))
    return batch


@JUDGES
@CODECS
def test_reads_foreign_batches(judge: Any, codec: int) -> None:
    # Enough bytes for the builders to find compression worth while.
    records = RECORDS + [Record(4 + at, NOW + at, b"k", b"the same value " * 20, []) for at in range(10)]
    data = foreign_build(judge, codec, records, producer_id=77, producer_epoch=3, base_sequence=11, transactional=1)
    batch = RecordBatch(data)
    assert batch.crc_ok()
    assert list(batch.records()) == records
    assert (batch.size_bytes, batch.magic, batch.compression, batch.record_count) == (len(data), 2, codec, len(records))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (77, 3, 11, 24)
    assert (batch.is_transactional, batch.is_control, batch.timestamp_type) == (True, False, 0)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 13, 14)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 9)


@JUDGES
@CODECS
def test_foreign_readers_read_ours(judge: Any, codec: int) -> None:
    data = bytes(build_batch(RECORDS, compression=codec))
    assert foreign_read(judge, data) == RECORDS


@JUDGES
def test_uncompressed_bytes_equal_those_of_foreign_builders(judge: Any) -> None:
    ours = build_batch(RECORDS, leader_epoch=0)
    theirs = bytearray(foreign_build(judge, 0, RECORDS))
    theirs[12:16] = bytes(4)  # each client writes another leader epoch; the broker sets it
    assert ours == theirs


def test_pairs_get_offsets_and_the_time() -> None:
    batch = RecordBatch(
        build_batch(
            [(b"a", b"1"), (None, b"2"), (b"c", None)],
            base_offset=40,
            timestamp_ms=NOW,
            producer_id=9,
            producer_epoch=1,
            base_sequence=5,
            leader_epoch=6,
            transactional=True,
            control=True,
        )
    )
    assert list(batch.records()) == [
        Record(40, NOW, b"a", b"1", []),
        Record(41, NOW, None, b"2", []),
        Record(42, NOW, b"c", None, []),
    ]
    assert (batch.leader_epoch, batch.is_control, batch.is_transactional, batch.producer_id) == (6, True, True, 9)
    assert (batch.last_offset, batch.last_sequence, batch.has_delete_horizon) == (42, 7, False)


def test_records_keep_their_offsets_with_gaps() -> None:
    gappy = [RECORDS[0]._replace(offset=100), RECORDS[1]._replace(offset=107)]
    batch = RecordBatch(build_batch(gappy))
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 107, 2)
    assert list(batch.records()) == gappy
    lower = RecordBatch(build_batch(gappy, base_offset=90))
    assert (lower.base_offset, lower.last_offset) == (90, 107)
    assert list(lower.records()) == gappy


def test_what_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    with pytest.raises(ValueError, match="does not follow"):
        build_batch([RECORDS[1], RECORDS[0]])
    with pytest.raises(ValueError, match="does not follow"):
        build_batch([RECORDS[0]], base_offset=1)


def test_log_append_time_stamps_all_records() -> None:
    batch = RecordBatch(build_batch(RECORDS, timestamp_type=LOG_APPEND_TIME, timestamp_ms=NOW + 1000))
    assert (batch.timestamp_type, batch.max_timestamp) == (LOG_APPEND_TIME, NOW + 1000)
    assert {record.timestamp for record in batch.records()} == {NOW + 1000}


def test_sequences_wrap() -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = [(None, b"")] * 3
    batch = RecordBatch(build_batch(pairs, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert batch.last_sequence == 0
    assert RecordBatch(build_batch(pairs)).last_sequence == -1


def test_header_keys_survive_whatever_their_bytes() -> None:
    data = build_batch([Record(0, NOW, None, None, [("k\udcff", b"v")])])
    (record,) = RecordBatch(data).records()
    assert b"k\xff" in data
    assert record.headers == [("k\udcff", b"v")]


def test_a_view_in_the_middle_of_a_buffer() -> None:
    one, two = build_batch(RECORDS), build_batch([(b"k", b"v")], base_offset=4)
    batch = RecordBatch(memoryview(b"junk" + one + two), 4 + len(one))
    assert batch.crc_ok()
    assert bytes(batch.memory()) == two
    assert "offsets 4..4, 1 records" in repr(batch)


def test_iter_batches_whole_byte_by_byte_and_with_a_tail() -> None:
    parts = [build_batch(RECORDS, compression=codec) for codec in range(5)]
    data = bytes(b"".join(parts))
    ends = [sum(map(len, parts[: count + 1])) for count in range(len(parts))]
    assert [bytes(batch.memory()) for batch in iter_batches(data)] == [bytes(part) for part in parts]
    for end in range(len(data) + 1):
        assert len(list(iter_batches(data[:end]))) == sum(1 for whole in ends if whole <= end)
        assert whole_batches_bytes(data[:end]) == max((whole for whole in ends if whole <= end), default=0)
    assert len(list(iter_batches(data + b"tail"))) == len(parts)


def test_iter_batches_stops_at_nonsense() -> None:
    good = build_batch(RECORDS)
    old_format = bytearray(good)
    old_format[16] = 1
    too_short = bytearray(good)
    struct.pack_into(">i", too_short, 8, 48)
    negative = bytearray(good)
    struct.pack_into(">i", negative, 8, -100)
    for bad, reason in ((old_format, "magic 1"), (too_short, "60 bytes"), (negative, "-88 bytes")):
        assert whole_batches_bytes(good + bad) > len(good)  # so that a reader of these comes upon it
        batches = iter_batches(good + bad)
        assert next(batches).size_bytes == len(good)
        with pytest.raises(CorruptBatch, match=reason):
            next(batches)


def test_a_batch_that_is_not_all_there() -> None:
    data = bytes(build_batch(RECORDS))
    for end in range(len(data)):
        with pytest.raises(CorruptBatch):
            RecordBatch(data[:end])
    with pytest.raises(CorruptBatch):
        RecordBatch(data, -1)
    with pytest.raises(CorruptBatch, match="magic 0, not 2"):
        RecordBatch(bytes(26))


def test_every_flipped_byte_after_the_crc_is_noticed() -> None:
    data = build_batch(RECORDS)
    for at in range(17, len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x40
        assert not RecordBatch(flipped).crc_ok()
    flipped = bytearray(data)
    struct.pack_into(">q", flipped, 0, 12345)  # what a leader sets lies outside the checksum
    struct.pack_into(">i", flipped, 12, 7)
    assert RecordBatch(flipped).crc_ok()


@pytest.mark.parametrize("count", [0, 1, 3, 5, 2**31 - 1, -1])
@CODECS
def test_a_wrong_record_count(codec: int, count: int) -> None:
    data = build_batch(RECORDS, compression=codec)
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(CorruptBatch):
        list(RecordBatch(with_crc(data)).records())


def record_bytes(*fields: bytes) -> bytes:
    body = b"\x00" + b"".join(fields)
    return bytes([len(body) * 2]) + body


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (record_bytes(b"\x00\x00", b"\x01\x01\x00\x00"), "off the size"),
        (record_bytes(b"\x00\x00", b"\x0aab", b"\x01\x00"), "reaches beyond its record"),
        (record_bytes(b"\x00\x00", b"\x01\x01", b"\x01"), "header count of -1"),
        (record_bytes(b"\x00\x00", b"\x01\x01", b"\x02\x01\x01"), "header without a key"),
        (record_bytes(b"\x00\x00", b"\x01\x01", b"\x04\x00\x01"), "ends within record 0"),
        (record_bytes(b"\xff" * 10 + b"\x01\x00", b"\x01\x01\x00"), "too many bytes"),
        (record_bytes(b"\x00", b"\xff" * 5 + b"\x01", b"\x01\x01\x00"), "too many bytes"),
        (b"\x7f", "of -64 bytes"),
        (b"\x01", "of -1 bytes"),
        (b"\x00", "ends within record 0"),
        (b"", "ends within record 0"),
        (b"\xfe\xff\xff\xff\x0f", "of which 0 are there"),
    ],
)
def test_broken_records(record: bytes, reason: str) -> None:
    good = build_batch([(None, None)])
    data = good[:RECORD_BATCH_OVERHEAD] + record
    struct.pack_into(">i", data, 8, len(data) - 12)
    with pytest.raises(CorruptBatch, match=reason):
        list(RecordBatch(with_crc(data)).records())


def test_offsets_stay_within_64_bits() -> None:
    data = build_batch([(None, None), (None, None)])
    for base_offset in (2**63 - 1, -1):
        struct.pack_into(">q", data, 0, base_offset)
        with pytest.raises(CorruptBatch, match="a record of offset"):
            list(RecordBatch(data).records())


def test_timestamps_whose_distance_overflows() -> None:
    records = [Record(0, -(2**63), None, None, []), Record(1, 2**63 - 1, None, None, []), Record(2, 0, None, None, [])]
    assert list(RecordBatch(build_batch(records)).records()) == records


def test_lengths_below_zero_are_null_as_in_java() -> None:
    good = build_batch([(None, None)])
    data = good[:RECORD_BATCH_OVERHEAD] + record_bytes(b"\x00\x00", b"\x09", b"\x03", b"\x00")
    struct.pack_into(">i", data, 8, len(data) - 12)
    assert list(RecordBatch(data).records()) == [Record(0, -1, None, None, [])]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_a_corrupt_batch(codec: int) -> None:
    data = build_batch([(None, bytes(1_000_000))], compression=codec)
    with pytest.raises(CorruptBatch, match="more than 50000 bytes"):
        RecordBatch(data).records(max_decompressed_bytes=50_000)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_a_corrupt_batch(codec: int) -> None:
    data = build_batch([(None, b"v")])
    data[22] = codec
    with pytest.raises(CorruptBatch, match="unknown codec"):
        RecordBatch(data).records()


def slow_varints(data: bytes) -> Iterator[int]:
    """The obvious reading of zigzag varints, for comparison."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield value // 2 if value % 2 == 0 else -(value + 1) // 2
            value = shift = 0


BOUNDARIES = [sign * (1 << bits) + around for bits in range(0, 63, 7) for sign in (1, -1) for around in (-1, 0, 1)]


@pytest.mark.parametrize("delta", [*BOUNDARIES, 2**62, -(2**62)])
def test_timestamp_deltas_of_every_length(delta: int) -> None:
    data = build_batch([Record(0, 0, None, None, []), Record(1, delta, None, None, [])])
    assert [record.timestamp for record in RecordBatch(data).records()] == [0, delta]
    body = bytes(data[RECORD_BATCH_OVERHEAD:])
    # First record: length, attributes, then five fields of one byte; second: length, attributes, timestamp delta.
    assert list(slow_varints(body[7:]))[2] == delta


record_texts = st.one_of(st.none(), st.binary(max_size=140))
record_strategy: st.SearchStrategy[Callable[[int], Record]] = st.builds(
    lambda timestamp, key, value, headers: lambda offset: Record(offset, timestamp, key, value, headers),
    st.integers(-1, 2**62),
    record_texts,
    record_texts,
    st.lists(st.tuples(st.text(max_size=5), record_texts), max_size=3),
)


@given(makers=st.lists(record_strategy, min_size=1, max_size=5), codec=st.integers(0, 4), base=st.integers(0, 2**60))
@settings(max_examples=30, deadline=None)
def test_any_records_come_back(makers: list[Callable[[int], Record]], codec: int, base: int) -> None:
    records = [make(base + at) for at, make in enumerate(makers)]
    batch = RecordBatch(build_batch(records, compression=codec))
    assert batch.crc_ok()
    assert list(batch.records()) == records
    assert batch.max_timestamp == max(record.timestamp for record in records)


@given(body=st.binary(max_size=120), count=st.integers(-2, 6), attributes=st.integers(-(2**15), 2**15 - 1))
@settings(max_examples=150, deadline=None)
def test_any_bytes_as_records(body: bytes, count: int, attributes: int) -> None:
    data = build_batch([(None, None)])[:RECORD_BATCH_OVERHEAD] + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">i", data, 57, count)
    with suppress(CorruptBatch):
        for record in RecordBatch(data).records():
            struct.pack(">qq", record.offset, record.timestamp)


@given(data=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_as_batches(data: bytes) -> None:
    with suppress(CorruptBatch):
        for batch in iter_batches(data):
            list(batch.records())


@given(at=st.integers(0), byte=st.integers(0, 255), codec=st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_any_changed_byte(at: int, byte: int, codec: int) -> None:
    data = build_batch(RECORDS, compression=codec)
    data[at % len(data)] = byte
    with suppress(CorruptBatch):
        for batch in iter_batches(data):
            list(batch.records(max_decompressed_bytes=100_000))
