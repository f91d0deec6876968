"""Message sets converted up to record batches: beside their slow twin, in slices, within limits."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import CorruptBatch, RecordBatch, build_batch
from gregor.protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, compress, with_wrong_lz4_header_checksum
from gregor.protocol.records.message_sets import InvalidMessageSet, append_message, iter_messages
from gregor.protocol.records.up_conversion import MessageTooLarge, upconvert, upconverting
from gregor.protocol.turns import ITEMS_PER_STEP, run_all

NOW = 1_700_000_000_000
Field = bytes | None
Content = tuple[int, Field, Field]
"""timestamp, key, value"""


def message_set(magic: int, *contents: Content, attributes: int = 0, first_offset: int = 0) -> bytes:
    out = bytearray()
    for offset, (timestamp, key, value) in enumerate(contents, first_offset):
        append_message(out, offset, magic, attributes, timestamp, key, value)
    return bytes(out)


def wrapped(codec: int, magic: int, *contents: Content, time_bit: int = 0, timestamp: int = NOW) -> bytes:
    packed = compress(codec, message_set(magic, *contents))
    if codec == LZ4 and magic == 0:
        packed = with_wrong_lz4_header_checksum(packed)
    return message_set(magic, (timestamp, None, packed), attributes=codec | time_bit)


def with_checksum(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 12, crc32(changed[16:]))
    return bytes(changed)


def plain(count: int, size_bytes: int = 20) -> list[Content]:
    return [(NOW + at, None, b"%d" % at * size_bytes) for at in range(count)]


# -- the twin ------------------------------------------------------------------------------------------------------

fields = st.none() | st.binary(max_size=12) | st.integers(60, 140).map(bytes)
times = st.sampled_from([-1, 0, NOW, NOW + 1, NOW - 70_000, 2**63 - 1]) | st.integers(-1, 2**62)
contents = st.lists(st.tuples(times, fields, fields), min_size=1, max_size=5)


@st.composite
def sets(draw: st.DrawFn) -> bytes:
    data = b""
    for _ in range(draw(st.integers(1, 4))):
        magic, codec = draw(st.integers(0, 1)), draw(st.sampled_from([NONE, NONE, GZIP, SNAPPY, LZ4]))
        some, time_bit = draw(contents), draw(st.sampled_from([0, 0, 0, 8]))
        if codec == NONE:
            data += message_set(magic, *some, attributes=time_bit, first_offset=draw(st.integers(0, 99)))
        else:
            data += wrapped(codec, magic, *some, time_bit=time_bit, timestamp=draw(times))
    return data


@given(data=sets())
@settings(max_examples=150, deadline=None)
def test_the_same_as_the_twin(data: bytes) -> None:
    found = list(iter_messages(data))
    batch = RecordBatch(upconvert(data))
    append_time = max(one.timestamp_type for one in found)
    assert batch.crc_ok() and batch.timestamp_type == append_time
    assert (batch.base_offset, batch.record_count, batch.last_offset_delta) == (0, len(found), len(found) - 1)
    assert batch.compression == next((one.codec for one in found if one.codec), NONE)
    newest = max(one.timestamp for one in found)
    assert (batch.base_timestamp, batch.max_timestamp) == (found[0].timestamp, newest)
    times = [newest] * len(found) if append_time else [one.timestamp for one in found]
    assert [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in batch.records()] == [
        (at, time, one.key, one.value, []) for at, (time, one) in enumerate(zip(times, found, strict=True))
    ]


def test_the_bytes_of_a_builder() -> None:
    for count in (1, 63, 64, 65, 8191, 8192, 8200):
        some = plain(count, 1)
        made = build_batch([(key, value) for _, key, value in some], timestamp_ms=NOW)
        assert upconvert(message_set(1, *[(NOW, key, value) for _, key, value in some])) == made


# -- steps ---------------------------------------------------------------------------------------------------------


def steps(data: bytes) -> list[Any]:
    work = upconverting(data)
    found: list[Any] = []
    try:
        step = next(work)
        while True:
            found.append(step)
            step = work.send(step()) if step is not None else next(work)
    except StopIteration:
        return found


def test_steps_are_short_and_what_is_long_is_handed_out() -> None:
    some = plain(10 * ITEMS_PER_STEP)
    assert [step is None for step in steps(message_set(1, *some))] == [True] * 9 + [False]
    # The set is unpacked, in as many steps, and packed again.
    noise = [(NOW, None, struct.pack(">q", at * 0x9E3779B97F4A7C15 % 2**62)) for at in range(20 * ITEMS_PER_STEP)]
    assert [step is None for step in steps(wrapped(GZIP, 1, *noise))] == [False] + [True] * 19 + [False]
    large = [(NOW, None, bytes(100_000))] * 10
    assert 3 <= sum(step is None for step in steps(message_set(1, *large))) <= 10
    many = b"".join(wrapped(SNAPPY, 1, one) for one in some)
    assert sum(step is None for step in steps(many)) == len(some) - 1  # a wrapper is a step
    assert steps(message_set(0, *some[:9])) == []


def test_a_buffer_of_the_callers_own() -> None:
    data = wrapped(LZ4, 1, *plain(100))
    buffer = bytearray()
    assert run_all(upconverting(data, buffer)) is buffer
    assert buffer == upconvert(data)


# -- limits and errors ---------------------------------------------------------------------------------------------


def test_an_entry_above_the_limit_is_too_large() -> None:
    small = message_set(1, *plain(3, 50))
    size_bytes = len(message_set(1, *plain(1, 50)))
    assert RecordBatch(run_all(upconverting(small, max_message_bytes=size_bytes))).record_count == 3
    with pytest.raises(MessageTooLarge, match=f"a message of {size_bytes} bytes"):
        run_all(upconverting(small, max_message_bytes=size_bytes - 1))
    # Of a wrapper its own size counts, whatever is in it.
    packed = wrapped(GZIP, 1, (NOW, None, bytes(100_000)))
    assert RecordBatch(run_all(upconverting(packed, max_message_bytes=len(packed)))).record_count == 1
    with pytest.raises(MessageTooLarge):
        run_all(upconverting(packed, max_message_bytes=len(packed) - 1))


def test_a_batch_without_a_codec_is_given_up_as_soon_as_it_is_too_large() -> None:
    data = message_set(1, *plain(100 * ITEMS_PER_STEP)) + b"what is never looked at"
    with pytest.raises(MessageTooLarge, match="more than 1000"):
        run_all(upconverting(data, max_plain_bytes=1000))
    packed = wrapped(GZIP, 1, *plain(1000))
    assert RecordBatch(run_all(upconverting(packed, max_plain_bytes=1000))).record_count == 1000


ONE = message_set(1, (NOW, b"k", b"value"))


@pytest.mark.parametrize(
    ("data", "again"),
    [
        (ONE[:-1] + b"!", True),
        (ONE[:-1], True),
        (ONE + b"tail", True),
        (with_checksum(ONE, 16, ">b", 3), True),
        (b"", False),
        (with_checksum(ONE, 17, ">b", 4), False),
        (with_checksum(ONE, 17, ">b", 1), False),
        (with_checksum(ONE, 18, ">q", -2), False),
        (with_checksum(ONE, 26, ">i", 2), False),
        (with_checksum(ONE, 26, ">i", 2**31 - 1), False),
        (wrapped(GZIP, 1, *plain(2))[:-1], True),
        (message_set(1, (NOW, None, None), attributes=GZIP), False),
        (message_set(1, (NOW, None, compress(GZIP, b"")), attributes=GZIP), False),
        (message_set(1, (NOW, None, compress(GZIP, message_set(0, (NOW, None, b"x")))), attributes=GZIP), False),
        (message_set(1, (NOW, None, compress(GZIP, wrapped(GZIP, 1, (NOW, None, b"x")))), attributes=GZIP), False),
        (message_set(1, (NOW, None, compress(GZIP, ONE[:-1] + b"!")), attributes=GZIP), True),
    ],
)
def test_whether_it_is_of_use_to_send_it_again(data: bytes, again: bool) -> None:
    """A checksum that is wrong, or an end that is missing, may be right the next time."""
    with pytest.raises(CorruptBatch) as caught:
        upconvert(data)
    assert isinstance(caught.value, InvalidMessageSet) != again
