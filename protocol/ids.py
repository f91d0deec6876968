"""Uuids as Kafka writes them (KIP-516): 16 bytes on the wire, 22 characters of url-safe base64 in text."""

import base64
import binascii
import os

Uuid = bytes
"""Always 16 raw bytes."""

ZERO_UUID: Uuid = bytes(16)
"""Stands for "no id" in every message."""

_RESERVED = frozenset(number.to_bytes(16, "big") for number in range(100))
"""Kafka keeps the first hundred for itself (class DirectoryId): never handed out."""


def uuid_to_text(uuid: Uuid) -> str:
    """The form of `partition.metadata`, `meta.properties` and the tools."""
    return base64.urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    """The inverse of `uuid_to_text`; raises ValueError on anything that is not 16 bytes of url-safe base64."""
    if len(text) != 22 or not text.isascii() or not _NOT_URL.isdisjoint(text):
        raise ValueError(f"not a uuid of 22 url-safe base64 characters: {text!r}")
    try:
        return base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not a uuid of 22 url-safe base64 characters: {text!r}") from error


def random_uuid() -> Uuid:
    """A fresh version 4 uuid whose text does not start with "-": tools would take that for an option.

    Two lines set its version, as uuid.uuid4 does: that module costs a start 2 ms.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        # The first character encodes the first six bits; 62 is "-".
        if raw[0] >> 2 != 62 and bytes(raw) not in _RESERVED:
            return bytes(raw)


_NOT_URL = frozenset("+/=")
