"""The receiving side of a connection before authentication: requests of few APIs, or raw tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.framing import SIZE_BYTES, FramingError, Receiver

if TYPE_CHECKING:
    from gregor.broker.registry import Entry

RAW_TOKEN = -1
"""Stands for the API key of a frame that is a raw token of SASL (SaslHandshake version 0)."""
BEFORE_AUTHENTICATION = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def before_authentication(handlers: Mapping[int, Entry]) -> dict[int, Entry]:
    """Return the part of the table that is served before authentication."""
    return {key: handlers[key] for key in BEFORE_AUTHENTICATION}


class TokenReceiver(Receiver):
    """Splits the bytes of a connection into `int32 size | token`; a token may be empty. One token at a time: the next
    one may not be a token any more."""

    def requests(self, view: bytes | bytearray | memoryview, begin: int, end: int) -> list[tuple[int, int, int, int]]:
        if end - begin < SIZE_BYTES:
            return []
        size = self._size(view, begin)
        return [(size, RAW_TOKEN, 0, 0)] if begin + SIZE_BYTES + size <= end else []

    def keep(self, view: bytes | bytearray | memoryview, begin: int, end: int) -> None:
        known = end - begin >= SIZE_BYTES
        self.frame_bytes = SIZE_BYTES + self._size(view, begin) if known else 0
        self.begin, self.end = 0, end - begin

    def _size(self, view: bytes | bytearray | memoryview, begin: int) -> int:
        size = int.from_bytes(view[begin : begin + SIZE_BYTES], signed=True)
        if not 0 <= size <= self.max_frame_bytes:
            raise FramingError(f"a token of {size} bytes is larger than sasl.server.max.receive.size or negative")
        return size
