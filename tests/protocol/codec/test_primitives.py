"""gregor.protocol.codec.primitives: varints and tag sections, the slow ends of the compiled codecs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.codec.primitives import read_uvarint, skip_tags, write_string_length, write_uvarint
from gregor.protocol.errors import MalformedMessage
from tests.protocol.reference_codec import uvarint


@given(st.integers(0, 2**32 - 1) | st.integers(0, 300))
def test_uvarint_there_and_back(value: int) -> None:
    out = bytearray(b"ab")
    write_uvarint(out, value)
    assert out == b"ab" + uvarint(value)
    assert read_uvarint(out + b"tail", 2) == (value, len(out))


@pytest.mark.parametrize("value", [0, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**32 - 1])
def test_uvarint_at_each_length(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert len(out) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(out, 0) == (value, len(out))


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\x7f"])
def test_uvarint_beyond_32_bits(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_uvarint(data, 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_uvarint_cut_short(data: bytes) -> None:
    # The codec around it turns the end of the buffer into MalformedMessage.
    with pytest.raises(IndexError):
        read_uvarint(data, 0)


def test_skip_tags() -> None:
    section = uvarint(3) + uvarint(0) + uvarint(2) + b"ab" + uvarint(300) + uvarint(0) + uvarint(2**32 - 1) + b"\x01c"
    assert skip_tags(section + b"tail", 1, 3, len(section) + 4) == len(section)


def test_skip_tags_counts_past_127() -> None:
    section = uvarint(200) + b"\x05\x00" * 200
    assert skip_tags(section, 1, section[0], len(section)) == len(section)


@pytest.mark.parametrize("section", [b"\x02\x00\x00\x01", b"\x01\x00\x05abcd", b"\x01\x00\xff\xff\xff\xff\x0f"])
def test_skip_tags_refuses_what_runs_past_the_end(section: bytes) -> None:
    with pytest.raises(MalformedMessage):
        skip_tags(section, 1, section[0], len(section))


def test_string_length_has_an_end() -> None:
    out = bytearray()
    write_string_length(out, 32768)
    assert out == uvarint(32768)
    with pytest.raises(ValueError, match="32768 bytes is longer than 32767"):
        write_string_length(out, 32769)
