"""Batches converted down: read back by our own reader, kafka-python and aiokafka, beside an obvious twin."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import LOG_APPEND_TIME, CorruptBatch, Record, RecordBatch, build_batch, iter_batches
from gregor.protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from gregor.protocol.records.down_conversion import Converted, UnsupportedCodec, down_converting, truncate_message
from gregor.protocol.records.message_sets import Message, iter_messages
from gregor.protocol.records.up_conversion import upconvert
from gregor.protocol.turns import run_all
from tests.support.foreign_records import aiokafka_sets, kafka_sets

NOW = 1_400_000_000_000
PLENTY = 1 << 20

JUDGES = pytest.mark.parametrize("judge", [kafka_sets, aiokafka_sets], ids=["kafka-python", "aiokafka"])
MAGICS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])


def record(offset: int, value: bytes | None = b"value", key: bytes | None = b"key", timestamp: int = NOW) -> Record:
    return Record(offset, timestamp, key, value, [("header", b"gone")])


RECORDS = [
    record(100),
    record(101, b"v" * 500, None, NOW + 7),
    record(104, None, b"", NOW - 5),  # 102 and 103 were compacted away
    record(105, None, None, -1),
    record(109, b"", b"k" * 300),
]


def convert(data: bytes | bytearray, magic: int, first_offset: int = 0, max_bytes: int = PLENTY) -> Converted:
    return run_all(down_converting(data, magic, first_offset, max_bytes))


def expected(records: list[Record], magic: int, codec: int, timestamp_type: int = 0) -> list[Message]:
    return [
        Message(one.offset, one.timestamp if magic else -1, timestamp_type, one.key, one.value, magic, codec)
        for one in records
    ]


@MAGICS
@CODECS
def test_messages_are_those_of_the_batch(magic: int, codec: int) -> None:
    set_bytes, next_offset = convert(build_batch(RECORDS, compression=codec), magic, 100)
    assert list(iter_messages(set_bytes)) == expected(RECORDS, magic, codec)
    assert next_offset == 110


@JUDGES
@pytest.mark.parametrize(
    ("magic", "codec"),  # neither reads LZ4 of magic 0
    [(0, NONE), (0, GZIP), (0, SNAPPY), (1, NONE), (1, GZIP), (1, SNAPPY), (1, LZ4)],
)
def test_foreign_readers_read_it(judge: Any, magic: int, codec: int) -> None:
    set_bytes = convert(build_batch(RECORDS, compression=codec), magic, 100).message_set
    found: list[tuple[Any, ...]] = []
    for start, end in entries(set_bytes):
        batch = judge.LegacyRecordBatch(bytearray(set_bytes[start:end]), magic)
        assert batch.validate_crc()
        found += [(one.offset, one.timestamp, one.key, one.value) for one in batch]
    times = [one.timestamp if magic else None for one in RECORDS]
    if judge is aiokafka_sets:  # to which -1 is no time
        times = [None if time == -1 else time for time in times]
    assert found == [(one.offset, time, one.key, one.value) for one, time in zip(RECORDS, times, strict=True)]


def entries(set_bytes: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(set_bytes):
        end = position + 12 + int.from_bytes(set_bytes[position + 8 : position + 12], "big")
        yield position, end
        position = end


def test_bytes_of_a_plain_message() -> None:
    """By the book: offset, size, crc, magic, attributes, timestamp, key, value."""
    body = struct.pack(">bbq", 1, 0, NOW) + b"\x00\x00\x00\x01k\x00\x00\x00\x01v"
    entry = struct.pack(">qiI", 7, len(body) + 4, crc32(body)) + body
    set_bytes = convert(build_batch([record(7, b"v", b"k")]), 1).message_set
    assert set_bytes == entry
    body = struct.pack(">bb", 0, 0) + b"\xff\xff\xff\xff\xff\xff\xff\xff"
    entry = struct.pack(">qiI", 7, len(body) + 4, crc32(body)) + body
    assert convert(build_batch([record(7, None, None)]), 0).message_set == entry


@MAGICS
def test_offsets_within_a_wrapper(magic: int) -> None:
    set_bytes = convert(build_batch(RECORDS, compression=GZIP), magic, 105).message_set
    offset, _, _, its_magic, attributes = struct.unpack_from(">qiIbb", set_bytes)
    assert (offset, its_magic, attributes) == (109, magic, GZIP)
    value = set_bytes[(26 if magic else 18) + 8 :]
    inner = gzip.decompress(value)
    offsets = [int.from_bytes(inner[start : start + 8], "big") for start, _ in entries(inner)]
    assert offsets == ([0, 1, 4, 5, 9] if magic else [100, 101, 104, 105, 109])
    if magic:  # the wrapper has the newest of its timestamps
        assert struct.unpack_from(">q", set_bytes, 18) == (NOW + 7,)


def test_lz4_of_magic_0_has_the_wrong_header_checksum() -> None:
    frame = convert(build_batch(RECORDS, compression=LZ4), 0).message_set[26:]
    right = convert(build_batch(RECORDS, compression=LZ4), 1).message_set[34:]
    assert frame[:6] == right[:6] == compress(LZ4, b"x")[:6]
    # Bytes that KafkaLZ4BlockOutputStream of 0.10.2.2 writes behind 60 40, with and without
    # useBrokenFlagDescriptorChecksum.
    assert (frame[6], right[6]) == (0x1A, 0x82)


@MAGICS
@CODECS
def test_append_time(magic: int, codec: int) -> None:
    batch = build_batch(RECORDS, compression=codec, timestamp_type=LOG_APPEND_TIME, timestamp_ms=NOW + 99)
    stamped = [one._replace(timestamp=NOW + 99) for one in RECORDS]
    set_bytes = convert(batch, magic, 100).message_set
    assert list(iter_messages(set_bytes)) == expected(stamped, magic, codec, LOG_APPEND_TIME if magic else 0)


def test_a_plain_batch_loses_what_lies_before_the_offset_asked_for() -> None:
    batch = build_batch(RECORDS)
    assert [one.offset for one in iter_messages(convert(batch, 1, 102).message_set)] == [104, 105, 109]
    # A compressed message is sent as a whole: the consumer drops the messages before its offset.
    batch = build_batch(RECORDS, compression=SNAPPY)
    assert [one.offset for one in iter_messages(convert(batch, 1, 102).message_set)] == [100, 101, 104, 105, 109]


@MAGICS
def test_a_large_message_is_cut_off_but_with_a_codec(magic: int) -> None:
    plain, packed = (
        convert(build_batch([record(7, b"v" * 99)], compression=codec), magic)[0] for codec in (NONE, GZIP)
    )
    for size in range(len(plain) + 2):
        assert truncate_message(plain, size) == plain[:size]
        assert truncate_message(packed, size) == packed
    assert truncate_message(plain, -1) == truncate_message(b"", 0) == b""


def test_batches_that_have_no_message() -> None:
    control = build_batch([(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")], base_offset=50, control=True)
    assert convert(control, 1, 50) == (b"", 51)
    # Return the rest of a batch without records after compaction: a header, for its producer's sequence.
    empty = bytearray(build_batch([record(60)])[:61])
    struct.pack_into(">i", empty, 8, 49)
    struct.pack_into(">i", empty, 57, 0)
    struct.pack_into(">I", empty, 17, crc32c(bytes(empty[21:])))
    assert convert(empty, 0, 60) == (b"", 61)
    # The last record of a batch was compacted away, and the reader stands behind the one before.
    gap = bytearray(build_batch([record(70), record(71)]))
    struct.pack_into(">i", gap, 23, 5)
    struct.pack_into(">I", gap, 17, crc32c(bytes(gap[21:])))
    assert convert(gap, 1, 73) == (b"", 76)
    # The same where it is compressed, and what is left is no news to the reader.
    gap = bytearray(build_batch([record(70), record(71)], compression=GZIP))
    struct.pack_into(">i", gap, 23, 5)
    struct.pack_into(">I", gap, 17, crc32c(bytes(gap[21:])))
    assert convert(gap, 1, 72) == convert(gap, 0, 75) == (b"", 76)
    assert [one.offset for one in iter_messages(convert(gap, 1, 71).message_set)] == [70, 71]
    both = control + empty + build_batch([record(80)])
    assert [one.offset for one in iter_messages(convert(both, 1, 50).message_set)] == [80]


def test_zstd_cannot_be_converted() -> None:
    packed = build_batch([record(1)], compression=ZSTD)
    with pytest.raises(UnsupportedCodec):
        convert(packed, 1)
    # Behind others it ends the set; the reader receives the error when it fetches from there.
    set_bytes, next_offset = convert(build_batch([record(0)]) + packed + build_batch([record(2)]), 1)
    assert ([one.offset for one in iter_messages(set_bytes)], next_offset) == ([0], 1)


def test_a_damaged_batch_is_not_given_a_new_checksum() -> None:
    good = build_batch([record(0)])
    bad = build_batch([record(1, b"value")]).replace(b"value", b"vAlue")
    with pytest.raises(CorruptBatch, match="checksum"):
        convert(bad, 1)
    set_bytes, next_offset = convert(good + bad, 1)
    assert ([one.offset for one in iter_messages(set_bytes)], next_offset) == ([0], 1)


def test_a_body_that_does_not_unpack_ends_the_set_too() -> None:
    packed = build_batch([record(1, random.Random(1).randbytes(5000))], compression=GZIP)
    packed[61:71] = bytes(10)
    struct.pack_into(">I", packed, 17, crc32c(bytes(packed[21:])))
    assert convert(build_batch([record(0)]) + packed, 1).next_offset == 1
    with pytest.raises(CorruptBatch, match="gzip"):
        convert(packed, 1)


def test_a_batch_cut_off_at_the_end_is_left() -> None:
    data = build_batch([record(0)]) + build_batch([record(1)])
    for end in range(len(data)):
        set_bytes, next_offset = convert(data[:end], 1)
        assert [one.offset for one in iter_messages(set_bytes)] == ([0] if end >= len(data) // 2 else [])
        assert next_offset == (1 if end >= len(data) // 2 else 0)


@CODECS
def test_the_limit_holds_but_for_the_first_message(codec: int) -> None:
    batches = [build_batch([record(3 * at + n, b"x" * 100) for n in range(3)], compression=codec) for at in range(4)]
    data = b"".join(batches)
    whole = convert(data, 1)
    ends = [end for _, end in entries(whole.message_set)]
    for limit in range(len(whole.message_set) + 2):
        set_bytes, next_offset = convert(data, 1, 0, limit)
        assert set_bytes == whole.message_set[: len(set_bytes)]
        assert len(set_bytes) == max([end for end in ends if end <= limit], default=ends[0]) or codec
        assert len(set_bytes) <= max(limit, ends[0])
        found = [one.offset for one in iter_messages(set_bytes)]
        assert found == list(range(next_offset))
    assert whole.next_offset == 12


def test_slices_are_short_and_codecs_are_handed_out() -> None:
    large = [record(at, bytes(50)) for at in range(1000)]
    steps = list_steps(build_batch(large))
    assert steps == [None] * 15
    steps = list_steps(build_batch(large, compression=GZIP))
    assert [step is None for step in steps] == [False] + [True] * 15 + [False]
    assert list_steps(build_batch(large[:10], compression=GZIP)) == []
    big = [record(at, random.Random(at).randbytes(200_000)) for at in range(10)]
    assert list_steps(build_batch(big), max_bytes=1 << 30)[1:] == [None] * 4  # behind the checksum
    steps = list_steps(build_batch(big, compression=GZIP), max_bytes=1 << 30)
    assert [step is None for step in steps] == [False] * 2 + [True] * 4 + [False]
    # Records that are left out need time, too.
    assert list_steps(build_batch(large), first_offset=999) == [None] * 15


def list_steps(data: bytearray, first_offset: int = 0, max_bytes: int = PLENTY) -> list[Any]:
    slices = down_converting(data, 1, first_offset, max_bytes)
    seen: list[Any] = []
    done = None
    while True:
        try:
            step = slices.send(done)
        except StopIteration:
            return seen
        seen.append(step)
        done = step() if step is not None else None


# -- the twin ------------------------------------------------------------------------------------------------------


def twin(data: bytes, magic: int, first_offset: int) -> list[Message]:
    """Return the messages that a consumer must find in the set, if it has room for all."""
    found = []
    for batch in iter_batches(data):
        if batch.is_control:
            continue
        kept = [one for one in batch.records() if batch.compression or one.offset >= first_offset]
        found += expected(kept, magic, batch.compression, batch.timestamp_type if magic else 0)
    return found


field = st.none() | st.binary(max_size=20)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    data = bytearray()
    offset = draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(1, 4))):
        records = []
        for _ in range(draw(st.integers(1, 5))):
            records.append(Record(offset, draw(st.integers(-1, 2**60)), draw(field), draw(field), []))
            offset += draw(st.integers(1, 3))
        data += build_batch(
            records,
            compression=draw(st.sampled_from([NONE, GZIP, SNAPPY, LZ4])),
            control=draw(st.integers(0, 9)) == 0,
            timestamp_type=draw(st.integers(0, 1)),
            timestamp_ms=NOW,
        )
    return bytes(data)


@given(data=logs(), magic=st.integers(0, 1), skip=st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_the_same_as_the_twin(data: bytes, magic: int, skip: int) -> None:
    first = RecordBatch(data)
    first_offset = min(first.base_offset + skip, first.last_offset)
    set_bytes, next_offset = convert(data, magic, first_offset)
    assert list(iter_messages(set_bytes)) == twin(data, magic, first_offset)
    assert next_offset == max(batch.next_offset for batch in iter_batches(data))


@given(data=logs(), magic=st.integers(0, 1), limit=st.integers(1, 400))
@settings(max_examples=100, deadline=None)
def test_reading_on_misses_nothing(data: bytes, magic: int, limit: int) -> None:
    """A consumer that always continues behind the last message that it received, or at the offset of the response."""
    batches = list(iter_batches(data))
    offset = batches[0].base_offset
    end = batches[-1].next_offset
    found: list[Message] = []
    while offset < end:
        rest = b"".join(batch.memory() for batch in batches if batch.last_offset >= offset)
        set_bytes, next_offset = convert(rest, magic, offset, limit)
        part = [one for one in iter_messages(set_bytes) if one.offset >= offset]
        found += part
        assert next_offset > offset
        offset = part[-1].offset + 1 if part else next_offset
    assert found == twin(data, magic, 0)


@given(data=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes(data: bytes) -> None:
    try:
        convert(data, 1)
    except (CorruptBatch, UnsupportedCodec):
        return


def test_any_changed_byte() -> None:
    chance = random.Random(7)
    data = build_batch(RECORDS, compression=GZIP)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        try:
            convert(changed, chance.randrange(2))
        except (CorruptBatch, UnsupportedCodec):
            continue


@MAGICS
@CODECS
def test_down_and_up_again(magic: int, codec: int) -> None:
    records = [Record(at, NOW + at, b"k%d" % at, bytes(at), []) for at in range(200)]
    data = build_batch(records, compression=codec)
    up = RecordBatch(upconvert(convert(data, magic).message_set))
    assert list(up.records()) == [one._replace(timestamp=one.timestamp if magic else -1) for one in records]
