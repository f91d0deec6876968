"""Conversion of lines of text to records, by the properties of Kafka's LineMessageReader.

    h1:v1,h2:v2<TAB>key<TAB>value        parse.headers=true parse.key=true
    key<TAB>value                        parse.key=true
    value                                by default

headers.delimiter and key.separator are the tabs above, headers.separator the comma, headers.key.separator the colon.
A key, value or header value equal to null.marker becomes null. With ignore.error=true a line without its separators is
used whole as the value; without, it ends the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from gregor.broker.cli.errors import CommandError

PROPERTIES = frozenset(
    [
        *("parse.key", "key.separator", "parse.headers", "headers.delimiter", "headers.separator"),
        *("headers.key.separator", "ignore.error", "null.marker"),
    ]
)


class LineRecord(NamedTuple):
    """The record of one line."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class LineReader:
    """Parser of lines, which are bytes, so that other encodings than UTF-8 arrive unchanged."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        unknown = sorted(properties.keys() - PROPERTIES - {"topic"})
        if unknown:
            raise CommandError(f"unknown reader property {unknown[0]}; known are {', '.join(sorted(PROPERTIES))}.")

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._parse_key = flag(properties, "parse.key")
        self._parse_headers = flag(properties, "parse.headers")
        self._ignore_error = flag(properties, "ignore.error")
        self._key_separator = text("key.separator", "\t")
        self._headers_delimiter = text("headers.delimiter", "\t")
        self._headers_separator = text("headers.separator", ",")
        self._headers_key_separator = text("headers.key.separator", ":")
        self._null_marker = properties["null.marker"].encode() if "null.marker" in properties else None
        separators: dict[str, bytes | None] = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._headers_key_separator,
        }
        empty = [name for name, value in {**separators, "key.separator": self._key_separator}.items() if not value]
        if empty:
            raise CommandError(f"{empty[0]} may not be empty.")
        # key.separator and headers.delimiter may be equal: the headers end at the first, the key at the second.
        distinct = [separators, {"null.marker": self._null_marker, "key.separator": self._key_separator}]
        if self._null_marker is not None:
            distinct.append({**separators, "null.marker": self._null_marker})
        for group in distinct:
            for (name, value), (other, other_value) in combinations(group.items(), 2):
                if value == other_value:
                    raise CommandError(f"{name} and {other} must differ.")

    def parse(self, line: bytes, line_number: int) -> LineRecord:
        """Return the record of one line without its line end; raise CommandError if a separator is missing."""
        rest = line
        headers, rest = self._split_off(
            self._parse_headers, rest, self._headers_delimiter, "headers.delimiter", line_number
        )
        key, rest = self._split_off(self._parse_key, rest, self._key_separator, "key.separator", line_number)
        pairs = [] if headers is None or headers == self._null_marker else self._split_headers(headers, line_number)
        return LineRecord(self._nullable(key), self._nullable(rest), pairs)

    def _split_off(
        self, enabled: bool, line: bytes, separator: bytes, name: str, line_number: int
    ) -> tuple[bytes | None, bytes]:
        if not enabled:
            return None, line
        head, found, rest = line.partition(separator)
        if found:
            return head, rest
        if self._ignore_error:
            return None, line
        raise CommandError(f"line {line_number} has no {name} ({_shown(separator)}): {_shown(line)}")

    def _split_headers(self, headers: bytes, line_number: int) -> list[tuple[str, bytes | None]]:
        pairs: list[tuple[str, bytes | None]] = []
        for pair in headers.split(self._headers_separator):
            name, found, value = pair.partition(self._headers_key_separator)
            if not found and not self._ignore_error:
                raise CommandError(f"line {line_number} has a header without headers.key.separator: {_shown(pair)}")
            if name == self._null_marker:
                raise CommandError(f"line {line_number} has a header whose name is null.marker; a name cannot be null.")
            pairs.append((name.decode(errors="replace"), self._nullable(value) if found else None))
        return pairs

    def _nullable(self, text: bytes | None) -> bytes | None:
        return None if text is None or text == self._null_marker else text


def flag(properties: Mapping[str, str], name: str, default: bool = False) -> bool:
    """Return a boolean property as Java parses it: `true`, in upper or lower case; other texts are false."""
    return properties[name].strip().lower() == "true" if name in properties else default


def _shown(text: bytes) -> str:
    return repr(text.decode(errors="replace"))
