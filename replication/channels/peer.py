"""A connection from this broker to another: one request at a time, in the newest version that both sides know.

A response is decoded where it was received. Record batches in it are views of the connection's buffer, valid until the
next request: the kernel makes the only copy of what goes from there into a log.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import socket
import struct
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gregor.config.listeners import address_text
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
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
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.turns import Gate

if TYPE_CHECKING:
    from gregor.protocol.sasl.login import Session
    from gregor.protocol.sasl.mechanism import ClientMechanism

    Login = Generator[tuple[ApiMessage, int], Any, Session]

MIN_BUFFER_BYTES = 64 * 1024
KEPT_BUFFER_BYTES = 16 * 1024 * 1024
"""A buffer that grew beyond this for one response is replaced after it."""
MAX_RESPONSE_BYTES = 1024 * 1024 * 1024

_RESET = struct.pack("ii", 1, 0)
"""Of SO_LINGER: on, for no time. To close the socket drops what is unsent, and resets the connection."""
_LONG = frozenset({ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ALTER_PARTITION})
"""Requests with up to thousands of partitions: they are encoded and decoded in steps, between which other work runs."""

ResultT = TypeVar("ResultT")
NextRequest = Callable[[Any], ApiMessage | None]


class PeerError(OSError):
    """The other broker cannot be reached, closed the connection, or violated the protocol. A retry may succeed."""


class _Wire(asyncio.BufferedProtocol):
    """Receives one response after the other; each stays in the buffer until the next request is sent."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray(MIN_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._on_response: Callable[[memoryview], None] | None = None
        self._on_failure: Callable[[PeerError], None] | None = None
        self._lost: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own with the same methods

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer):
            # A response ends at the last byte of the buffer: there is nothing to read, but a buffer may not be empty.
            self._resize(self._end + 1)
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._end < SIZE_BYTES:
            return
        size = SIZE_BYTES + int.from_bytes(self._view[:SIZE_BYTES])
        if self._on_response is None or self._end > size:
            self._fail("it sends a response without a request")
        elif size > MAX_RESPONSE_BYTES:
            self._fail(f"it announces a response of {size} bytes, more than {MAX_RESPONSE_BYTES}")
        elif self._end == size:
            self._complete()
        elif self._end == len(self._buffer):
            # The buffer grows by what has been received, not by what is announced; nearly all responses fit anyway.
            self._resize(min(size + 1, self._end * 2))

    @property
    def has_bytes(self) -> bool:
        return self._end > 0

    @property
    def lost(self) -> bool:
        """Whether the connection has ended, perhaps while no request was in flight."""
        return self._lost is not None

    def _complete(self) -> None:
        on_response, self._on_response = self._on_response, None
        if on_response is not None:
            on_response(self._view[SIZE_BYTES : self._end])

    def _resize(self, size_bytes: int) -> None:
        larger = bytearray(size_bytes)
        larger[: self._end] = self._view[: self._end]
        self._buffer, self._view = larger, memoryview(larger)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc is not None else "it closed the connection")

    def _fail(self, why: str) -> None:
        self._lost = self._lost or why
        on_failure, self._on_response, self._on_failure = self._on_failure, None, None
        if on_failure is not None:
            on_failure(PeerError(self._lost))
        self.close()

    def close(self) -> None:
        """Close the connection. The bytes of a request in flight that are still on this host are never delivered: the
        system would deliver them when a broken link works again, behind a repetition over another connection. A marker
        of a transaction that comes so late would end the next one of the same producer epoch."""
        if self.transport is None:
            return
        if self._on_response is not None:
            opened: socket.socket | None = self.transport.get_extra_info("socket")
            if opened is not None:  # else it is closed already
                with suppress(OSError):  # the same
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def send(
        self,
        frame: bytes | bytearray,
        on_response: Callable[[memoryview], None],
        on_failure: Callable[[PeerError], None],
    ) -> None:
        """Send a request's frame. Either `on_response` is called, with the response without its size, or `on_failure`.

        The view of the response before is no longer valid.
        """
        if self._lost is not None:
            raise PeerError(self._lost)
        assert self.transport is not None
        self._end = 0
        if len(self._buffer) > KEPT_BUFFER_BYTES:
            self._resize(MIN_BUFFER_BYTES)
        self._on_response, self._on_failure = on_response, on_failure
        self.transport.write(frame)


class _Conversation:
    """Requests of one kind, each made from the response before it within the same callback of the loop.

    `over` ends with the request that has to wait until the client has authenticated again at `until_s`, or with None.
    """

    def __init__(
        self, wire: _Wire, codec: RequestCodec, next_request: NextRequest, timeout_s: float, until_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[ApiMessage | None] = loop.create_future()
        self._until_s = until_s
        self._wire = wire
        self._codec = codec
        self._next_request = next_request
        self._correlation_id = 0
        self._loop = loop
        self._sent_s = loop.time()
        self._timeout_s = timeout_s
        self._timer = loop.call_later(timeout_s, self._check_deadline)

    def send(self, request: ApiMessage) -> None:
        self._correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        frame = self._codec.frame(request, self._correlation_id)
        self._sent_s = self._loop.time()
        self._wire.send(frame, self._on_response, self._end)

    def _on_response(self, frame: memoryview) -> None:
        try:
            request = self._next_request(self._codec.decode(frame, self._correlation_id)[0])
            if request is not None and self._sent_s < self._until_s:
                self.send(request)
                return
        except Exception as error:
            self._end(error)
            return
        self._timer.cancel()
        if not self.over.done():
            self.over.set_result(request)

    def close(self) -> None:
        """Stop the timer: no caller awaits `over` any more."""
        self._timer.cancel()

    def _check_deadline(self) -> None:
        left_s = self._sent_s + self._timeout_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_deadline)
        else:
            self._end(TimeoutError())

    def _end(self, error: Exception) -> None:
        self._timer.cancel()
        if not self.over.done():
            self.over.set_exception(error)


class Peer:
    """A client of one broker, connected when first needed, and again after a failure. One request at a time."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_ms: int,
        gate: Gate,
        receive_buffer_bytes: int = -1,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        """`timeout_ms` limits an attempt to connect and the wait for each response. `receive_buffer_bytes` is that of
        the socket, -1 for the default of the system."""
        self.address = host, port
        self._client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._gate = gate
        self._receive_buffer_bytes = receive_buffer_bytes
        self._security = security
        self._correlation_ids = itertools.count(1)
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[tuple[asyncio.Transport, _Wire]] | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._mechanism: ClientMechanism | None = None
        self._authenticated_until_s = math.inf

    async def send(self, request: ApiMessage, version: int | None = None, *, newest: int | None = None) -> Any:
        """Return the response to a request, sent in `version`, or in the newest that both sides know up to `newest`.

        Raises PeerError; after that, as after a cancellation, the next request connects anew.
        """
        return await self._in_time(self._send(request, version, newest))

    async def converse(self, request: ApiMessage, version: int, next_request: NextRequest) -> None:
        """Send a request, and then each that `next_request` makes of the response before, until it returns None.

        All are of the same kind and version. `next_request` is called while receiving, and must be quick. Views in the
        last response stay valid until the next request. Raises as `send`, and the errors of `next_request`; after that
        the next request connects anew.
        """
        with self._closed_on_failure():
            following: ApiMessage | None = request
            while following is not None:
                if self._wire is None or self._must_authenticate:
                    async with asyncio.timeout(self._timeout_s):
                        await self._ready()
                assert self._wire is not None
                codec = RequestCodec(request.API_KEY, version, self._client_id)
                until_s = self._authenticated_until_s
                conversation = _Conversation(self._wire, codec, next_request, self._timeout_s, until_s)
                try:
                    conversation.send(following)
                    following = await conversation.over
                finally:
                    conversation.close()

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        """Return the oldest and newest version of an API that the broker supports, or None. Raises as `send`."""
        return await self._in_time(self._offered(api_key))

    async def _in_time(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        with self._closed_on_failure():
            async with asyncio.timeout(self._timeout_s):
                return await work

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Close the connection on any error; PeerError stands for network errors, a time-out, malformed responses."""
        try:
            yield
        except TimeoutError:
            self.close()
            raise PeerError(f"{self}: no answer within {self._timeout_s:g} s") from None
        except (OSError, MalformedMessage, UnsupportedVersion, AuthenticationFailed) as error:
            self.close()
            raise PeerError(f"{self}: {error}") from error
        except BaseException:
            self.close()
            raise

    async def _send(self, request: ApiMessage, version: int | None, newest: int | None) -> Any:
        await self._ready()
        if version is None:
            version = newest_version(self._versions, request, newest)
        return await self._exchange(request, version)

    async def _offered(self, api_key: int) -> tuple[int, int] | None:
        await self._ready()
        return self._versions.get(api_key)

    async def _ready(self) -> None:
        """Connect where there is no connection, and authenticate again where the session ends soon."""
        if self._wire is None or self._wire.lost:
            await self._connect()
        elif self._must_authenticate:
            await self._authenticate()

    @property
    def _must_authenticate(self) -> bool:
        """Whether the session of the connection ends soon."""
        return asyncio.get_running_loop().time() >= self._authenticated_until_s

    @property
    def is_answering(self) -> bool:
        """Whether the first bytes of the response to the present request have been received."""
        return self._wire is not None and self._wire.has_bytes

    def close(self) -> None:
        """Close the connection. A caller that awaits it, or a response, gets PeerError."""
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
        opened: socket.socket | None = transport.get_extra_info("socket")
        if opened is None:  # uvloop has none where the other broker has closed the connection meanwhile
            raise PeerError("it closed the connection")
        with suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes > 0:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        answer = await self._exchange(ApiVersionsRequest(), 0)
        self._versions = version_ranges(answer)
        self._authenticated_until_s = math.inf
        if self._security.new_mechanism is not None:
            self._mechanism = self._security.new_mechanism(self.address[0])
            await self._authenticate()

    async def _authenticate(self) -> None:
        """Authenticate the connection, or do so again. Raises AuthenticationFailed."""
        from gregor.protocol.sasl.login import REAUTHENTICATE_AT, Session, login  # loaded by brokers with SASL only

        assert self._mechanism is not None
        log_in = login(self._mechanism, self._versions)
        step: tuple[ApiMessage, int] | Session = next(log_in)
        while not isinstance(step, Session):
            response = await self._exchange(*step)
            # On a thread, as SCRAM hashes the password thousands of times.
            step = await asyncio.to_thread(_next_step, log_in, response)
        if step.lifetime_ms:
            lifetime_s = step.lifetime_ms / 1000
            self._authenticated_until_s = asyncio.get_running_loop().time() + lifetime_s * REAUTHENTICATE_AT
        else:
            self._authenticated_until_s = math.inf

    async def _opened(self) -> tuple[asyncio.Transport, _Wire]:
        """Open a connection. `close` ends the attempt; a connection that comes about all the same is closed."""
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._security.tls_context is not None:
            tls = {"ssl": self._security.tls_context(), "server_hostname": self.address[0]}
        attempt = self._connecting = loop.create_task(loop.create_connection(_Wire, *self.address, **tls))
        try:
            await asyncio.wait([attempt])
        except asyncio.CancelledError:
            attempt.cancel()
            attempt.add_done_callback(_drop)
            raise
        if self._connecting is not attempt:
            _drop(attempt)
            raise PeerError("the connection is not wanted any more")
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
            raise PeerError("the connection is not wanted any more")
        response: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def complete(view: memoryview) -> None:
            if not response.done():
                response.set_result(view)

        def fail(error: PeerError) -> None:
            if not response.done():
                response.set_exception(error)

        wire.send(frame, complete, fail)
        view = await response
        if key in _LONG:
            message, _ = await self._gate.run(codec.decode_in_steps(view, correlation_id))
        else:
            message, _ = codec.decode(view, correlation_id)
        return message


def _next_step(log_in: Login, response: Any) -> tuple[ApiMessage, int] | Session:
    """Return the next request of an authentication, or its end. A future cannot end with StopIteration."""
    try:
        return log_in.send(response)
    except StopIteration as end:
        session: Session = end.value
        return session


def _drop(attempt: asyncio.Task[tuple[asyncio.Transport, _Wire]]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()
