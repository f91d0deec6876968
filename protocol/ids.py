"""Uuids as Kafka writes them (KIP-516): 16 bytes on the wire, 22 characters of url-safe base64 in text."""

from __future__ import annotations

import base64
import binascii
import os

Uuid = bytes
"""Always 16 raw bytes."""

ZERO_UUID: Uuid = bytes(16)
"""Means "no id" in every message."""

_RESERVED = frozenset(number.to_bytes(16, "big") for number in range(100))
"""Kafka reserves the first hundred (class DirectoryId): no id is ever one of them."""


def uuid_to_text(uuid: Uuid) -> str:
    """Return the form of `partition.metadata`, `meta.properties` and the tools."""
    return base64.urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    """Invert `uuid_to_text`; raise ValueError on anything that is not 16 bytes of url-safe base64."""
    if len(text) != 22 or not text.isascii() or not _NOT_URL.isdisjoint(text):
        raise ValueError(f"not a uuid of 22 url-safe base64 characters: {text!r}")
    try:
        return base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not a uuid of 22 url-safe base64 characters: {text!r}") from error


def is_reserved(uuid: Uuid) -> bool:
    """Return whether an id means something else than one thing: that of no id, and Kafka's first hundred."""
    return bytes(uuid) in _RESERVED


def random_uuid() -> Uuid:
    """Return a new uuid of version 4 whose text does not start with "-", which tools would read as an option.

    Two lines set its version as uuid.uuid4 does, because an import of that module adds 2 ms to the start.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        # The first character encodes the first six bits; 62 is "-".
        if raw[0] >> 2 != 62 and not is_reserved(bytes(raw)):
            return bytes(raw)


_NOT_URL = frozenset("+/=")
