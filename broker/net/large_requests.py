"""Requests about tens of thousands of items: decoded and handled in turns, between which other work proceeds.

Apache Kafka has threads for that. Here a request is decoded, and an answer encoded, in steps of a fraction of a
millisecond (protocol.codec.compiler), which go through the broker's gate; the handlers do the same with their own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from gregor.protocol.deferred import Deferred, outcome_of

if TYPE_CHECKING:
    from gregor.broker.net.receive_buffers import BufferPool, OwnedBuffer

LARGE_REQUEST_BYTES = 16 * 1024
"""To decode a longer request at once could need several milliseconds. Produce requests are exempt: their records are
not decoded."""


async def serve_large(
    handle: Callable[[Any], Any],
    decoded: Awaitable[tuple[Any, int]],
    data: memoryview,
    owned: OwnedBuffer | None,
    pool: BufferPool,
) -> Any:
    """Return the response to a request that is being decoded from `data`. After the decoding the buffer `owned`, which
    contains the data, returns to the pool. Raises MalformedMessage, and the errors of the handler."""
    try:
        request, _ = await decoded
    finally:
        data.release()
        if owned is not None:
            pool.give_back(owned)
    result = handle(request)
    if isinstance(result, Deferred):
        return await outcome_of(result, asyncio.get_running_loop().create_future())
    return await result if isinstance(result, Awaitable) else result
