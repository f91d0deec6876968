"""The frame of a schema registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.spark_jobs.formats.framing import NO_FRAME, NotDecodable, message_indexes, schema_id_of


def zigzag(number: int) -> bytes:
    """Encode a zigzag varint, independent of the decoder."""
    left, found = (number << 1) ^ (number >> 31), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary())
def test_id_and_indexes_are_read(schema_id: int, indexes: list[int], message: bytes) -> None:
    value = b"\0" + schema_id.to_bytes(4) + zigzag(len(indexes)) + b"".join(map(zigzag, indexes)) + message
    assert schema_id_of(value) == schema_id
    assert message_indexes(value) == (tuple(indexes), len(value) - len(message))


def test_a_single_zero_is_the_first_message() -> None:
    assert message_indexes(b"\0\0\0\0\1\0rest") == ((0,), 6)


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\1"])
def test_a_value_without_a_frame_is_not_decodable(value: bytes) -> None:
    with pytest.raises(NotDecodable, match=NO_FRAME):
        schema_id_of(value)


@given(st.binary(max_size=30))
def test_any_bytes_have_indexes_or_are_not_decodable(tail: bytes) -> None:
    try:
        indexes, position = message_indexes(b"\0\0\0\0\1" + tail)
    except NotDecodable:
        return
    assert indexes and 5 < position <= 5 + len(tail)
