"""Responses on their way out: the frame around a message, and the pieces of files that it may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.deferred import Deferred
from gregor.protocol.framing import SIZE_BYTES

if TYPE_CHECKING:
    from gregor.broker.net.outbound import Chunk, FileRegion
    from gregor.broker.registry import Entry

ResultT = TypeVar("ResultT")

_INT32 = Struct(">i")
# Size field and correlation id; from header version 1 on, no tagged fields.
_HEADS = (bytes(8), bytes(9))


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
    out = bytearray(_HEADS[header_version])
    splices: list[tuple[int, Any]] = []
    response.encode_into(out, version, splices)
    size = len(out) - SIZE_BYTES
    for _, region in splices:
        size += region.size_bytes
    _INT32.pack_into(out, 0, size)
    _INT32.pack_into(out, SIZE_BYTES, correlation_id)
    return out, splices


def encode_response(entry: Entry, version: int, correlation_id: int, response: Any) -> list[Chunk]:
    """The frame of a response as chunks: bytes, and the file regions that its records fields hold."""
    out, splices = encode_frame(entry.header_versions[version][1], version, correlation_id, response)
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


def encode_in_steps(entry: Entry, version: int, correlation_id: int, response: Any) -> Generator[None, None, bytearray]:
    """The frame of a response that holds no pieces of files, with a turn for others after each short step."""
    out = bytearray(_HEADS[entry.header_versions[version][1]])
    yield from response.encode_in_steps(out, version)
    _INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    _INT32.pack_into(out, SIZE_BYTES, correlation_id)
    return out


class PendingResponse(Deferred[Sequence["Chunk"]]):
    """The place of a response among those of its connection; completed with its chunks once `source` is.

    When its connection ends, it cancels the source, unless the request changes something: that is done to its end.
    """

    __slots__ = ("correlation_id", "entry", "source", "version")

    def __init__(self, entry: Entry, version: int, correlation_id: int, source: Deferred[Any]) -> None:
        super().__init__()
        self.entry = entry
        self.version = version
        self.correlation_id = correlation_id
        self.source = source

    def cancel(self) -> bool:
        if not self.entry.changes:
            self.source.cancel()
        return super().cancel()


def deferred_task(task: asyncio.Future[ResultT]) -> Deferred[ResultT]:
    """The result of a task; when it is cancelled, so is the task."""
    deferred: Deferred[ResultT] = Deferred()

    def ended(task: asyncio.Future[ResultT]) -> None:
        if task.cancelled():
            deferred.cancel()
        elif (error := task.exception()) is not None:
            deferred.fail(error)
        else:
            deferred.complete(task.result())

    task.add_done_callback(ended)
    deferred.then(lambda deferred: task.cancel() if deferred.cancelled else None)
    return deferred
