"""Requests and answers about tens of thousands of things: decoded, handled and encoded with turns for others.

Apache Kafka has threads for that. Here a request is decoded, and an answer encoded, in steps of a fraction of a
millisecond (protocol.codec.compiler), which go through the broker's gate; the handlers do the same with their own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any

from gregor.broker.net.responses import EncodedResponse
from gregor.broker.registry import Later
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ResponseHeader

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.net.receive_buffers import OwnedBuffer
    from gregor.broker.registry import Entry

LARGE_REQUEST_BYTES = 16 * 1024
"""Decoded at once, a request of more than that could take several milliseconds. Produce requests do not: their records
are not looked at."""

# Their answers may hold pieces of files, and are mostly records.
_RECORDS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})


async def serve_large(
    broker: ConnectionContext,
    entry: Entry,
    call: Call,
    decoded: Awaitable[tuple[Any, int]],
    data: memoryview,
    owned: OwnedBuffer | None,
) -> Any:
    """The answer to a request that is being decoded from `data`; after that the buffer `owned`, in which the data lies,
    goes back to the pool. Raises MalformedMessage, and what the handler raises."""
    try:
        request, _ = await decoded
    finally:
        data.release()
        if owned is not None:
            broker.buffers.give_back(owned)
    result = entry.handler(broker, request, call)
    if isinstance(result, Later):
        return await _answered(broker.loop, result)
    return await result if isinstance(result, Awaitable) else result


async def _answered(loop: asyncio.AbstractEventLoop, later: Later) -> Any:
    answer: asyncio.Future[Any] = loop.create_future()

    def answered(response: Any) -> None:
        if not answer.done():
            answer.set_result(response)

    later.then(answered)
    try:
        return await answer
    finally:
        later.cancel()


def may_be_long(entry: Entry, response: Any) -> bool:
    """Whether encoding the response could take long: it is not encoded yet, and its size is not that of records."""
    return entry.key not in _RECORDS and not isinstance(response, EncodedResponse)


def encode_in_steps(entry: Entry, version: int, correlation_id: int, response: Any) -> Generator[None, None, bytearray]:
    """The frame of a response that holds no pieces of files."""
    out = bytearray(SIZE_BYTES)
    ResponseHeader(correlation_id=correlation_id).encode_into(out, entry.response_header_version(version))
    yield from response.encode_in_steps(out, version)
    out[:SIZE_BYTES] = (len(out) - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
    return out
