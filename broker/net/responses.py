"""Responses on their way out: the frame around a message, and the pieces of files that it may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ResponseHeader

if TYPE_CHECKING:
    from gregor.broker.net.outbound import Chunk, FileRegion
    from gregor.broker.registry import Entry


class EncodedResponse:
    """A response of which the bytes are known already, in pieces."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def encode_into(self, out: bytearray, _version: int, _splices: list[Any]) -> None:
        """As a message does it; the version is that of the bytes."""
        for part in self.parts:
            out += part


def encode_frame(
    header_version: int, version: int, correlation_id: int, response: Any
) -> tuple[bytearray, list[tuple[int, FileRegion]]]:
    """Size field, header and message; and the file regions of its records fields with their positions in the bytes."""
    out = bytearray(SIZE_BYTES)
    ResponseHeader(correlation_id=correlation_id).encode_into(out, header_version)
    splices: list[tuple[int, Any]] = []
    response.encode_into(out, version, splices)
    size = len(out) - SIZE_BYTES + sum(region.size_bytes for _, region in splices)
    out[:SIZE_BYTES] = size.to_bytes(SIZE_BYTES, "big")
    return out, splices


def encode_response(entry: Entry, version: int, correlation_id: int, response: Any) -> list[Chunk]:
    """The frame of a response as chunks: bytes, and the file regions that its records fields hold."""
    out, splices = encode_frame(entry.response_header_version(version), version, correlation_id, response)
    if not splices:
        return [out]
    chunks: list[Chunk] = []
    begin = 0
    for position, region in splices:
        if position > begin:
            chunks.append(out[begin:position])
        chunks.append(region)
        begin = position
    if begin < len(out):
        chunks.append(out[begin:])
    return chunks
