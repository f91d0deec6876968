"""A connection from this broker to another: one request at a time, answered in the newest version both sides know.

The answer is decoded where it was received. Record batches in it are views of the connection's buffer, good until the
next request: what goes into a log from there was copied by nobody but the kernel.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from gregor.config.listeners import address_text
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.client import (
    MAX_CORRELATION_ID,
    RequestCodec,
    UnsupportedVersion,
    newest_version,
    version_ranges,
)
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ApiMessage, ApiVersionsRequest
from gregor.protocol.turns import Gate

MIN_BUFFER_BYTES = 64 * 1024
KEPT_BUFFER_BYTES = 16 * 1024 * 1024
"""A buffer that had to be larger than this, for one answer, is let go after it."""
MAX_ANSWER_BYTES = 1024 * 1024 * 1024

_LONG = frozenset({ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ALTER_PARTITION})
"""Of these there may be thousands of partitions in one: other work proceeds meanwhile."""

ResultT = TypeVar("ResultT")
Following = Callable[[Any], ApiMessage | None]


class PeerError(OSError):
    """The other broker cannot be reached, went away, or does not answer as a broker does. Worth another try later."""


class _Wire(asyncio.BufferedProtocol):
    """Receives one frame after the other; the one that is complete stays where it is until the next is asked for."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray(MIN_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._answered: Callable[[memoryview], None] | None = None
        self._failed: Callable[[PeerError], None] | None = None
        self._lost: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class, alike in what it does

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer):
            # An answer fills it to the last byte: there is nothing to read, but room must be given to find that out.
            self._resize(self._end + 1)
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._end < SIZE_BYTES:
            return
        size = SIZE_BYTES + int.from_bytes(self._view[:SIZE_BYTES])
        if self._answered is None or self._end > size:
            self._fail("it sends a response without a request")
        elif size > MAX_ANSWER_BYTES:
            self._fail(f"it announces a response of {size} bytes, more than {MAX_ANSWER_BYTES}")
        elif self._end == size:
            self._settle()
        elif self._end == len(self._buffer):
            # By half of what has come, not by what is announced; nearly all answers fit anyway.
            self._resize(min(size + 1, self._end * 2))

    @property
    def has_bytes(self) -> bool:
        return self._end > 0

    def _settle(self) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(self._view[SIZE_BYTES : self._end])

    def _resize(self, size_bytes: int) -> None:
        larger = bytearray(size_bytes)
        larger[: self._end] = self._view[: self._end]
        self._buffer, self._view = larger, memoryview(larger)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc is not None else "it closed the connection")

    def _fail(self, why: str) -> None:
        self._lost = self._lost or why
        failed, self._answered, self._failed = self._failed, None, None
        if failed is not None:
            failed(PeerError(self._lost))
        self.close()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def ask(
        self,
        frame: bytes | bytearray,
        answered: Callable[[memoryview], None],
        failed: Callable[[PeerError], None],
    ) -> None:
        """Send a frame; one of both is called, `answered` with the answer, without its size. The view of the answer
        before is no longer good."""
        if self._lost is not None:
            raise PeerError(self._lost)
        assert self.transport is not None
        self._end = 0
        if len(self._buffer) > KEPT_BUFFER_BYTES:
            self._resize(MIN_BUFFER_BYTES)
        self._answered, self._failed = answered, failed
        self.transport.write(frame)


class _Conversation:
    """Questions of one kind, each following from the answer before, without a turn of the loop in between."""

    def __init__(self, wire: _Wire, codec: RequestCodec, following: Following, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = loop.create_future()
        self._wire = wire
        self._codec = codec
        self._following = following
        self._correlation_id = 0
        self._loop = loop
        self._sent_s = loop.time()
        self._timeout_s = timeout_s
        self._watch = loop.call_later(timeout_s, self._look)

    def ask(self, request: ApiMessage) -> None:
        self._correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        frame = self._codec.frame(request, self._correlation_id)
        self._sent_s = self._loop.time()
        self._wire.ask(frame, self._answered, self._end)

    def _answered(self, answer: memoryview) -> None:
        try:
            following = self._following(self._codec.decode(answer, self._correlation_id)[0])
            if following is not None:
                self.ask(following)
                return
        except Exception as error:
            self._end(error)
            return
        self._end(None)

    def close(self) -> None:
        """Nobody waits for it any more."""
        self._watch.cancel()

    def _look(self) -> None:
        left_s = self._sent_s + self._timeout_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look)
        else:
            self._end(TimeoutError())

    def _end(self, error: Exception | None) -> None:
        self._watch.cancel()
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


class Peer:
    """The way to one broker, connected when first needed, and again after a failure. Not for two at a time."""

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, receive_buffer_bytes: int = -1
    ) -> None:
        """`timeout_ms`: for a connection and for each answer. `receive_buffer_bytes` of the socket: -1 for the
        system's."""
        self.address = host, port
        self._client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._gate = gate
        self._receive_buffer_bytes = receive_buffer_bytes
        self._correlation_ids = itertools.count(1)
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[tuple[asyncio.Transport, _Wire]] | None = None
        self._versions: dict[int, tuple[int, int]] = {}

    async def ask(self, request: ApiMessage, version: int | None = None, *, newest: int | None = None) -> Any:
        """The answer, if no version is named in the newest that both know, up to `newest`. Raises PeerError; after
        that, as after a cancellation, the next request connects anew."""
        return await self._in_time(self._ask(request, version, newest))

    async def converse(self, request: ApiMessage, version: int, following: Following) -> None:
        """Ask, and then whatever `following` makes of each answer: the next question of the same kind and version,
        until it returns None. It is called while receiving, and must be quick. Views in the last answer stay good until
        the next question. Raises as `ask`, and what `following` does; after that the next request connects anew."""
        with self._closed_on_failure():
            if self._wire is None:
                async with asyncio.timeout(self._timeout_s):
                    await self._connect()
            assert self._wire is not None
            codec = RequestCodec(request.API_KEY, version, self._client_id)
            talk = _Conversation(self._wire, codec, following, self._timeout_s)
            try:
                talk.ask(request)
                await talk.over
            finally:
                talk.close()

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        """The oldest and the newest version in which the other side answers this, None if in none. Raises as `ask`."""
        return await self._in_time(self._offered(api_key))

    async def _in_time(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        with self._closed_on_failure():
            async with asyncio.timeout(self._timeout_s):
                return await work

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Raises PeerError for what the network, a time-out or the other side's bytes raise."""
        try:
            yield
        except TimeoutError:
            self.close()
            raise PeerError(f"{self}: no answer within {self._timeout_s:g} s") from None
        except (OSError, MalformedMessage, UnsupportedVersion) as error:
            self.close()
            raise PeerError(f"{self}: {error}") from error
        except BaseException:
            self.close()
            raise

    async def _ask(self, request: ApiMessage, version: int | None, newest: int | None) -> Any:
        if self._wire is None:
            await self._connect()
        if version is None:
            version = newest_version(self._versions, request, newest)
        return await self._exchange(request, version)

    async def _offered(self, api_key: int) -> tuple[int, int] | None:
        if self._wire is None:
            await self._connect()
        return self._versions.get(api_key)

    @property
    def is_answering(self) -> bool:
        """Whether the answer that is waited for has begun to come."""
        return self._wire is not None and self._wire.has_bytes

    def close(self) -> None:
        """Whoever waits for a connection or an answer gets PeerError."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def __str__(self) -> str:
        return address_text(*self.address)

    async def _connect(self) -> None:
        transport, self._wire = await self._opened()
        opened: socket.socket = transport.get_extra_info("socket")
        with suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes > 0:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        answer = await self._exchange(ApiVersionsRequest(), 0)
        self._versions = version_ranges(answer)

    async def _opened(self) -> tuple[asyncio.Transport, _Wire]:
        """A connection; `close` ends the attempt, and leaves none behind that nobody would ever close."""
        loop = asyncio.get_running_loop()
        attempt = self._connecting = loop.create_task(loop.create_connection(_Wire, *self.address))
        try:
            await asyncio.wait([attempt])
        except asyncio.CancelledError:
            attempt.cancel()
            attempt.add_done_callback(_drop)
            raise
        if self._connecting is not attempt:
            _drop(attempt)
            raise PeerError("it is not wanted any more")
        self._connecting = None
        return attempt.result()

    async def _exchange(self, request: ApiMessage, version: int) -> Any:
        wire = self._wire
        assert wire is not None
        key = request.API_KEY
        codec = RequestCodec(key, version, self._client_id)
        correlation_id = next(self._correlation_ids) & MAX_CORRELATION_ID
        if key in _LONG:
            frame = await self._gate.run(codec.frame_in_steps(request, correlation_id))
        else:
            frame = codec.frame(request, correlation_id)
        if wire is not self._wire:  # closed while other work proceeded
            raise PeerError("it is not wanted any more")
        came: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def settle(answer: memoryview) -> None:
            if not came.done():
                came.set_result(answer)

        def fail(error: PeerError) -> None:
            if not came.done():
                came.set_exception(error)

        wire.ask(frame, settle, fail)
        answer = await came
        if key in _LONG:
            message, _ = await self._gate.run(codec.decode_in_steps(answer, correlation_id))
        else:
            message, _ = codec.decode(answer, correlation_id)
        return message


def _drop(attempt: asyncio.Task[tuple[asyncio.Transport, _Wire]]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()
