"""Reads the batches of a simulated log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.records.batch import LOG_OVERHEAD

if TYPE_CHECKING:
    from gregor.storage.log.log import Log

READ_BYTES = 1 << 24


def bytes_below(log: Log, start: int, end: int) -> bytes:
    """The batches from `start` on that begin below `end`."""
    pieces = []
    offset = start
    while offset < end:
        piece = log.read(offset, READ_BYTES, end)
        data = piece.read()
        piece.release()
        if not data:
            break
        pieces.append(data)
        offset = _next_offset(data)
    return b"".join(pieces)


def _next_offset(data: bytes) -> int:
    """Return the offset behind the last batch; read only each batch's length (at 8) and last offset delta (at 23)."""
    position = next_position = 0
    while next_position < len(data):
        position = next_position
        next_position += int.from_bytes(data[position + 8 : position + 12]) + LOG_OVERHEAD
    return int.from_bytes(data[position : position + 8]) + int.from_bytes(data[position + 23 : position + 27]) + 1
