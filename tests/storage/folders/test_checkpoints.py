"""Offset checkpoint files: the format, what is malformed and how the error names it, fuzz."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.storage.folders.checkpoints import MalformedFile, Offsets, format_offsets, parse_offsets

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=12)
OFFSETS = st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=8)


def test_layout_is_kafkas() -> None:
    # The bytes that Apache Kafka 3.9.1 wrote for two partitions of topic demo.
    data = b"0\n2\ndemo 1 0\ndemo 0 17\n"
    assert parse_offsets(data, "f") == {("demo", 1): 0, ("demo", 0): 17}
    assert format_offsets({("demo", 1): 0, ("demo", 0): 17}) == data


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n", b"0\n0"])
def test_nothing_written_yet(data: bytes) -> None:
    assert parse_offsets(data, "f") == {}


def test_any_white_space_and_line_end() -> None:
    assert parse_offsets(b"0\r\n1\r\na \t0   5\r\n", "f") == {("a", 0): 5}


def test_the_last_of_two_entries_holds() -> None:
    assert parse_offsets(b"0\n2\na 0 5\na 0 6\n", "f") == {("a", 0): 6}


@pytest.mark.parametrize(
    ("data", "line_number", "named"),
    [
        (b"1\n0\n", 1, "'1'"),
        (b"x\n0\n", 1, "'x'"),
        (b"\n0\n", 1, "''"),
        (b"0\nmany\n", 2, "'many'"),
        (b"0\n-1\n", 2, "'-1'"),
        (b"0\n1\na 0\n", 3, "'a 0'"),
        (b"0\n1\na 0 5 6\n", 3, "'a 0 5 6'"),
        (b"0\n1\na b 5\n", 3, "'a b 5'"),
        (b"0\n2\na 0 5\na 1 -5\n", 4, "'a 1 -5'"),
        (b"0\n1\na 0 1_0\n", 3, "'a 0 1_0'"),
        (b"0\n1\na 0 9223372036854775808\n", 3, "9223372036854775808"),
        (b"0\n1\na 2147483648 0\n", 3, "2147483648"),
        (b"0\n1\n\xff 0 5\n", 3, "UTF-8"),
        (b"0\n1\n\n", 3, "''"),
        (b"0\n2\na 0 5\n", None, "announces 2 entries, 1 follow"),
        (b"0\n0\na 0 5\n", None, "announces 0 entries, 1 follow"),
    ],
)
def test_malformed_names_file_and_line(data: bytes, line_number: int | None, named: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        parse_offsets(data, "/data/some-checkpoint")
    assert caught.value.line_number == line_number
    text = str(caught.value)
    assert text.startswith("/data/some-checkpoint")
    assert named in text
    assert line_number is None or f"line {line_number}" in text


@settings(max_examples=40, deadline=None)
@given(OFFSETS)
def test_round_trip(offsets: Offsets) -> None:
    assert parse_offsets(format_offsets(offsets), "f") == offsets


@settings(max_examples=40, deadline=None)
@given(OFFSETS, st.data())
def test_a_cut_file_never_yields_wrong_entries(offsets: Offsets, data: st.DataObject) -> None:
    # Only the last offset may lose digits, when nothing but the line end was to follow them: the count still agrees.
    whole = format_offsets(offsets)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        parsed = parse_offsets(cut, "f")
    except MalformedFile:
        return
    if parsed:
        assert list(parsed) == list(offsets)
        assert list(parsed.values())[:-1] == list(offsets.values())[:-1]


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.text("0123 \na-\r\t", max_size=40).map(str.encode)))
def test_fuzz_only_the_documented_error(data: bytes) -> None:
    try:
        parsed = parse_offsets(data, "f")
    except MalformedFile:
        return
    assert parse_offsets(format_offsets(parsed), "f") == parsed
