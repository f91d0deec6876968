"""A reader of DER (X.690), as far as key stores and the names of certificates need it."""

from __future__ import annotations

SEQUENCE, SET = 0x30, 0x31
INTEGER, BIT_STRING, OCTET_STRING, OBJECT_IDENTIFIER = 0x02, 0x03, 0x04, 0x06


class DerError(ValueError):
    """The bytes are not the expected DER."""


class DerReader:
    """Reads the elements in some bytes one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def next_tag(self) -> int:
        """Return the tag of the next element without reading it."""
        if self.at_end:
            raise DerError("an element is missing")
        return self._data[self._position]

    def element(self) -> tuple[int, bytes, bytes]:
        """Return the tag, the content and all bytes of the next element."""
        data, start = self._data, self._position
        tag = self.next_tag()
        if tag & 0x1F == 0x1F:
            raise DerError("a tag has more than one byte")
        at = start + 2
        if at > len(data):
            raise DerError("a length is missing")
        size = data[start + 1]
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or at + count > len(data):
                raise DerError("a length is malformed")
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise DerError("an element ends too late")
        self._position = at + size
        return tag, data[at : at + size], data[start : at + size]

    def content(self, tag: int) -> bytes:
        """Return the content of the next element, which must have this tag."""
        found, content, _ = self.element()
        if found != tag:
            raise DerError(f"an element has the tag {found:#x} instead of {tag:#x}")
        return content

    def sequence(self) -> DerReader:
        return DerReader(self.content(SEQUENCE))

    def set(self) -> DerReader:
        return DerReader(self.content(SET))

    def octets(self) -> bytes:
        return self.content(OCTET_STRING)

    def object_identifier(self) -> str:
        return oid_text(self.content(OBJECT_IDENTIFIER))


def oid_text(content: bytes) -> str:
    """Return an object identifier as numbers with dots."""
    if not content or content[-1] & 0x80:
        raise DerError("an object identifier is malformed")
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
