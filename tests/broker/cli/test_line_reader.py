"""Lines to records, against the rules of Kafka's LineMessageReader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.line_reader import LineReader, LineRecord

KEYED = {"parse.key": "true"}
FULL = {"parse.key": "true", "parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, b"a\tb", LineRecord(None, b"a\tb", [])),
        ({}, b"", LineRecord(None, b"", [])),
        (KEYED, b"a\tb\tc", LineRecord(b"a", b"b\tc", [])),
        (KEYED, b"\tb", LineRecord(b"", b"b", [])),
        ({**KEYED, "key.separator": "::"}, b"a::b", LineRecord(b"a", b"b", [])),
        ({"parse.key": " TRUE "}, b"a\tb", LineRecord(b"a", b"b", [])),
        ({"parse.headers": "true"}, b"h:1,i:2\tv", LineRecord(None, b"v", [("h", b"1"), ("i", b"2")])),
        (FULL, b"h:1\tk\tv", LineRecord(b"k", b"v", [("h", b"1")])),
        (FULL, b"h:a:b\tk\tv", LineRecord(b"k", b"v", [("h", b"a:b")])),
        ({**KEYED, "null.marker": "NULL"}, b"NULL\tNULL", LineRecord(None, None, [])),
        ({**FULL, "null.marker": "NULL"}, b"NULL\tk\tv", LineRecord(b"k", b"v", [])),
        ({**FULL, "null.marker": "NULL"}, b"h:NULL\tk\tv", LineRecord(b"k", b"v", [("h", None)])),
        ({**KEYED, "ignore.error": "true"}, b"alone", LineRecord(None, b"alone", [])),
        ({**FULL, "ignore.error": "true"}, b"h\tk\tv", LineRecord(b"k", b"v", [("h", None)])),
        ({}, b"\xff\xfe", LineRecord(None, b"\xff\xfe", [])),
    ],
)
def test_lines(properties: dict[str, str], line: bytes, record: LineRecord) -> None:
    assert LineReader(properties).parse(line, 1) == record


@pytest.mark.parametrize(
    ("properties", "line", "named"),
    [
        (KEYED, b"alone", "line 7 has no key.separator"),
        ({"parse.headers": "true"}, b"alone", "line 7 has no headers.delimiter"),
        ({"parse.headers": "true"}, b"h\tv", "headers.key.separator"),
        ({"parse.headers": "true", "null.marker": "N"}, b"N:1\tv", "null.marker"),
    ],
)
def test_broken_lines_are_named(properties: dict[str, str], line: bytes, named: str) -> None:
    with pytest.raises(CommandError, match=named):
        LineReader(properties).parse(line, 7)


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.delimiter": ","},
        {"headers.separator": ":"},
        {"headers.key.separator": "\t"},
        {"null.marker": "\t"},
        {"null.marker": ":"},
        {"key.separator": ""},
        {"parse.keys": "true"},
    ],
)
def test_properties_that_cannot_work(properties: dict[str, str]) -> None:
    with pytest.raises(CommandError):
        LineReader(properties)


@settings(max_examples=60)
@given(st.binary(max_size=30), st.sampled_from([{}, KEYED, FULL, {**FULL, "ignore.error": "true", "null.marker": "N"}]))
def test_any_bytes_make_a_record_or_a_named_error(line: bytes, properties: dict[str, str]) -> None:
    try:
        record = LineReader(properties).parse(line, 1)
    except CommandError as error:
        assert "line 1" in str(error)
        return
    if not properties:
        assert record == LineRecord(None, line, [])
