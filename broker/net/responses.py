"""Encoded responses: the frame around a message, and the pieces of files that it may contain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.deferred import Deferred
from gregor.protocol.framing import RESPONSE_HEADS, SIZE_BYTES

if TYPE_CHECKING:
    from gregor.broker.net.outbound import Chunk, FileRegion
    from gregor.broker.registry import Entry

ResultT = TypeVar("ResultT")

_INT32 = Struct(">i")


class EncodedResponse:
    """A response that is encoded already, in pieces, in the version of the request."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts


def encode_response(entry: Entry, version: int, correlation_id: int, response: Any) -> list[Chunk]:
    """Return size field, header and message as chunks: bytes, and the file regions of the records fields."""
    out = bytearray(RESPONSE_HEADS[entry.header_versions[version][1]])
    splices: list[tuple[int, FileRegion]] = []
    if isinstance(response, EncodedResponse):
        out += b"".join(response.parts)
    else:
        response.encoders[version](response, out, splices)
    size = len(out) - SIZE_BYTES
    for _, region in splices:
        size += region.size_bytes
    _INT32.pack_into(out, 0, size)
    _INT32.pack_into(out, SIZE_BYTES, correlation_id)
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


def encode_frame(entry: Entry, version: int, response: Any) -> bytearray:
    """Return the frame of a response that has no pieces of files, with the correlation id 0."""
    (frame,) = encode_response(entry, version, 0, response)
    assert isinstance(frame, bytearray)
    return frame


def encode_in_steps(entry: Entry, version: int, correlation_id: int, response: Any) -> Generator[None, None, bytearray]:
    """Return the frame of a response without pieces of files; other work may proceed after each short step."""
    out = bytearray(RESPONSE_HEADS[entry.header_versions[version][1]])
    yield from response.encode_in_steps(out, version)
    _INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    _INT32.pack_into(out, SIZE_BYTES, correlation_id)
    return out


class PendingResponse(Deferred[Sequence["Chunk"]]):
    """The position of a response among those of its connection; completed with its chunks once `source` is complete.

    When the connection ends, the source is cancelled, unless the request changes something: then it is completed.
    """

    __slots__ = ("correlation_id", "entry", "source", "version")

    def __init__(self, entry: Entry, version: int, correlation_id: int, source: Deferred[Any]) -> None:
        super().__init__()
        self.entry = entry
        self.version = version
        self.correlation_id = correlation_id
        self.source = source

    def wait_for(self, source: Deferred[Any]) -> None:
        """The handler has returned the response that this one was waiting for before, in a Deferred of its own."""
        self.source = source

    def cancel(self) -> bool:
        if not self.entry.changes:
            self.source.cancel()
        return super().cancel()


class _Rest(Coroutine[Any, None, ResultT]):
    """A coroutine that has run to its first wait, as one that has not begun: its first step yields what is awaited."""

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, None, ResultT], awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited: tuple[object, ...] = (awaited,)

    def send(self, value: None) -> Any:
        if self._awaited:
            (awaited,), self._awaited = self._awaited, ()
            return awaited
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._awaited = ()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self  # an iterator with `send` and `throw`

    def __iter__(self) -> _Rest[ResultT]:
        return self

    def __next__(self) -> Any:
        return self.send(None)


def run_to_first_wait(outcome: ResultT | Coroutine[Any, None, ResultT]) -> ResultT | Coroutine[Any, None, ResultT]:
    """Run a coroutine up to its end or its first wait. Return its result, or the coroutine of the rest, which needs a
    task; most need none, and a task delays a response by two turns of the loop. Other outcomes of a handler are
    returned as they are."""
    if not isinstance(outcome, CoroutineType):
        return outcome
    try:
        awaited = outcome.send(None)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    return _Rest(outcome, awaited)


def deferred_task(task: asyncio.Future[ResultT]) -> Deferred[ResultT]:
    """Return the result of a task; cancelling it cancels the task."""
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
