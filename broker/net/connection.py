"""One client connection: the asyncio shell around gregor.protocol.framing.

Bytes come into the shared receive buffer or, for a frame that does not fit one read, into an owned one
(net.receive_buffers); whole requests are dispatched at once, on the loop, and their answers leave in order
(protocol.framing.ResponseQueue, broker.net.outbound). As in Apache Kafka a connection has one request at work at a
time, so a client's later request sees the effect of its earlier one; only Produce requests overlap, since their
order is settled by the append. Nothing here waits for another connection.

Back-pressure, both ways: reading stops while a request is at work and another one is already here, while the peer does
not take its answers, and while the receive budget has no room for a long frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from gregor.broker.context import Call
from gregor.broker.log import logger
from gregor.broker.net.large_requests import LARGE_REQUEST_BYTES, encode_in_steps, may_be_long, serve_large
from gregor.broker.net.outbound import Chunk, Outbound
from gregor.broker.net.produce_fast_path import OWED, ProduceRoutes
from gregor.broker.net.receive_buffers import SHARED_BYTES, Admission, BufferPool, OwnedBuffer
from gregor.broker.net.responses import encode_response
from gregor.broker.registry import Later
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.framing import (
    FRAME_HEAD,
    HEAD_BYTES,
    SIZE_BYTES,
    FramingError,
    ResponseQueue,
    Slot,
    client_id_at,
    frame_size,
    request_head,
    skip_tagged_fields,
)
from gregor.protocol.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.registry import Entry


_PRODUCE = ApiKey.PRODUCE.value
_numbers = count()
"""Of connections, in the order in which they came."""
LEAST_PROGRESS_BYTES = 64 * 1024
"""What must come of a long frame between two sweeps while others wait for the memory that it holds."""


class Connection(asyncio.BufferedProtocol):
    """Created by the server for each accepted socket; lives until `connection_lost`."""

    __slots__ = (
        "_admission",
        "_begin",
        "_broker",
        "_busy",
        "_end",
        "_expects_long_frame",
        "_held",
        "_need",
        "_outbound",
        "_owed",
        "_owned",
        "_pool",
        "_queue",
        "_queued",
        "_reading",
        "_routes",
        "_seen_bytes",
        "_transport",
        "closed",
        "host",
        "listener",
        "number",
        "peer",
        "quiet_sweeps",
        "sockname",
        "stalled_sweeps",
    )

    def __init__(self, broker: ConnectionContext, listener: str) -> None:
        self._broker = broker
        self.listener = listener
        self.number = next(_numbers)
        self._pool: BufferPool = broker.buffers
        self._owned: OwnedBuffer | None = None
        self._begin = self._end = self._need = self._seen_bytes = 0
        self._expects_long_frame = False
        self._admission: Admission | None = None
        self._held: Admission | None = None
        self._busy = False
        self._queued = False
        self._reading = True
        self._queue: ResponseQueue[Chunk] = ResponseQueue()
        self._routes = ProduceRoutes(broker, self)
        self._owed: asyncio.Future[Any] | Later | None = None
        self.closed = False
        self.peer = self.host = "?"
        self.sockname: tuple[Any, ...] = ()
        self.quiet_sweeps = self.stalled_sweeps = 0

    # ---- asyncio's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's own class, alike in what it does
        peername = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(peername[0])
        self.peer = f"{self.host}:{peername[1]}"
        self.sockname = transport.get_extra_info("sockname") or ()
        self._outbound = Outbound(self._broker.loop, transport, self._go_on)
        refusal = self._broker.connections.add(self)
        if refusal is not None:
            self.fail(refusal)
            return
        loop = self._broker.loop
        delay_s = self._broker.connections.delay_s(self.listener, loop.time())
        if delay_s is None:
            self.fail("too many came at the same time (max.connection.creation.rate)")
        elif delay_s > 0:
            # Not `pause_reading`: uvloop begins to read when this returns, whatever was said before.
            self.hold()
            loop.call_later(delay_s, self.go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_of_life()

    def eof_received(self) -> bool:
        self._broker.connections.left(self, self._broker.loop)
        return True  # the transport is closed in its turn, not here and now

    def finish(self) -> None:
        """The peer has left: nothing can be answered any more."""
        self._end_of_life()
        self._transport.close()

    def pause_writing(self) -> None:
        self._outbound.transport_paused()

    def resume_writing(self) -> None:
        self._outbound.transport_resumed()

    def get_buffer(self, sizehint: int) -> memoryview:
        owned = self._owned
        if owned is None:
            if not self._expects_long_frame or (owned := self._pool.take_warm()) is None:
                return self._pool.shared_view
            self._owned = owned
            self._begin = self._end = self._need = 0
        elif self._admission is None:
            return owned.view[self._end : SHARED_BYTES]
        elif self._end == owned.capacity:
            owned.grow(self._pool.next_capacity(owned, self._need))
        return owned.view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.quiet_sweeps = 0
        owned = self._owned
        if owned is None:
            self._take(self._pool.shared_view, 0, nbytes)
        else:
            self._end = end = self._end + nbytes
            # Without a place in the budget a long frame comes to SHARED_BYTES, then it has to ask for one.
            if end - self._begin >= self._need or (self._admission is None and end >= SHARED_BYTES):
                self._take(owned.view, self._begin, end)

    # ---- requests in ----------------------------------------------------------------------------------------------

    def _take(self, view: memoryview, start: int, end: int) -> None:
        """Dispatch the whole requests in `view[start:end]` and keep the rest."""
        if self._queued:
            self._queued = False
            self._broker.connections.queued -= 1
        limit = self._broker.max_request_bytes
        waiting = self._queue.slots
        need = 0
        answers = b""  # of requests that came in one read: they leave in one write, and wake the peer once
        try:
            while end - start >= SIZE_BYTES + HEAD_BYTES:
                size, key, version, correlation_id = FRAME_HEAD.unpack_from(view, start)
                if not HEAD_BYTES <= size <= limit:
                    frame_size(view, start, limit)
                stop = start + SIZE_BYTES + size
                if stop > end or self._busy or self._outbound.blocked:
                    break
                self._expects_long_frame = size > SHARED_BYTES
                answer = None
                if key == _PRODUCE:
                    answer = self._routes.produce(view, start + SIZE_BYTES, stop, version, correlation_id)
                if answer is not None and answer is not OWED and not waiting:
                    answers += answer
                else:
                    if answers:
                        self._transport.write(answers)
                        answers = b""
                    if answer is not None:
                        # Behind others that are owed, or owed itself.
                        if answer is not OWED:
                            self._send(None, [answer])
                        start = stop
                        continue
                    self._dispatch(view, start + SIZE_BYTES, stop, key, version, correlation_id)
                    if self.closed:
                        return
                start = stop
            if end - start >= SIZE_BYTES:
                need = frame_size(view, start, limit) + SIZE_BYTES
        except (FramingError, MalformedMessage) as error:
            if answers:
                self._transport.write(answers)
            self.fail(str(error))
            return
        if answers:
            self._transport.write(answers)
        if start == end:
            if self._owned is not None or not self._reading:
                self._let_go()
        else:
            self._keep(view, start, end, need)

    def _let_go(self) -> None:
        """No partial frame: the buffer and its place in the budget are free for others."""
        if self._owned is not None:
            self._pool.give_back(self._owned)
            self._owned = None
        if self._admission is not None:
            self._admission.release()
            self._admission = None
        if not self._reading:
            self._resume_reading()

    def _keep(self, view: memoryview, start: int, end: int, need: int) -> None:
        """Keep the unparsed `view[start:end]`, the beginning of a frame of `need` bytes (0: not known yet)."""
        owned = self._owned
        if owned is None:
            owned = self._owned = self._pool.take()
            owned.view[: end - start] = view[start:end]
        else:
            owned.compact(start, end)
        self._begin, self._end, self._need = 0, end - start, need
        whole = self._end >= need > 0
        if self._admission is not None and self._admission.frame_bytes != need:
            self._admission.release()
            self._admission = None
        admission = self._admission
        full = False
        if need > SHARED_BYTES and not whole and admission is None:
            self._check_head(owned.view)
            if self.closed:
                return  # refused: it must not take a place in the budget that nobody would give back
            full = self._end >= SHARED_BYTES
            # Behind a request at work there is nothing to receive for yet: no place in the budget either.
            if full and not self._busy:
                admission = self._admission = self._broker.receive_budget.admit(need, self._admitted)
                self._seen_bytes, self.stalled_sweeps = self._end, 0
        if whole and not self._queued:
            self._queued = True
            self._broker.connections.queued += 1
        if whole or (full and admission is None) or (admission is not None and not admission.admitted):
            self._pause_reading()
        elif not self._reading:
            self._resume_reading()

    def _check_head(self, view: memoryview) -> None:
        """Refuse a long frame of an unknown API before receiving it."""
        if self._end >= SIZE_BYTES + HEAD_BYTES:
            key, version, _ = request_head(view, SIZE_BYTES)
            try:
                self._entry(key, version)
            except FramingError as error:
                self.fail(f"a request of {self._need} bytes: {error}")

    def _admitted(self) -> None:
        if not self.closed:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._reading and not self.closed:
            self._reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._reading and not self.closed and not (self._busy and self._queue_is_full):
            self._reading = True
            self._transport.resume_reading()

    @property
    def _queue_is_full(self) -> bool:
        connections = self._broker.connections
        return connections.queued >= connections.max_queued

    def _work(self) -> None:
        """A request is at work that the next ones have to wait for; where enough of them wait, no more are read."""
        self._busy = True
        if self._queue_is_full:
            self._pause_reading()

    def hold(self) -> None:
        """A request of a pipelined API has to come to its end before the next one: until `go_on` none is taken up, and
        what it holds in memory keeps its place in the budget, even if the connection ends meanwhile.
        """
        self._busy = True
        self._held, self._admission = self._admission, None

    def go_on(self) -> None:
        """The end of `hold`, which must come."""
        self._busy = False
        if self._held is not None:
            self._held.release()
            self._held = None
        self._go_on()

    def _go_on(self) -> None:
        """Something that held requests up is over: take up what is already here."""
        if self.closed or self._busy or self._outbound.blocked:
            return
        if self._owned is not None and self._end:
            self._take(self._owned.view, self._begin, self._end)
        elif not self._reading:
            self._resume_reading()

    # ---- one request ----------------------------------------------------------------------------------------------

    def _dispatch(self, view: memoryview, start: int, stop: int, key: int, version: int, correlation_id: int) -> None:
        try:
            entry = self._entry(key, version)
        except FramingError:
            if key != ApiKey.API_VERSIONS.value:
                raise
            self._refuse_version(correlation_id)
            return
        client_id, position = None, start + HEAD_BYTES
        header_version = entry.request_header_version(version)
        if header_version:
            client_id, position = client_id_at(view, position, stop)
        if header_version >= 2:
            position = skip_tagged_fields(view, position, stop)
        call = Call(self, key, version, correlation_id, client_id)
        if stop - start > LARGE_REQUEST_BYTES and key != _PRODUCE:
            request = self._decode_large(entry, view, position, stop, call)
            if request is None:
                return
        else:
            request = entry.decode(view[:stop], version, position)
        if key == _PRODUCE:
            self._routes.learn(request, view, start, stop, version)
        try:
            result = entry.handler(self._broker, request, call)
        except Exception as error:  # a bug: its request must not take the loop or other connections along
            self._failed(entry, version, error)
            return
        if isinstance(result, Later):
            self._work()
            self._owed = result
            result.then(partial(self._settle, self._queue.open(), entry, version, correlation_id))
            return
        if not isinstance(result, Awaitable):
            self._answer(None, entry, version, correlation_id, result)
            return
        self._owe(entry, version, correlation_id, result)

    def _decode_large(self, entry: Entry, view: memoryview, position: int, stop: int, call: Call) -> Any:
        """The request; or None if it takes longer: then it will be answered by itself. What was received stays as it is
        until then: alone in an owned buffer it goes along with it, else it is copied."""
        owned = self._owned
        if owned is not None and stop == self._end:
            self._owned = None
            data = view[:stop]
        else:
            owned, data, position = None, memoryview(bytes(view[position:stop])), 0
        decoded = self._broker.gate.start(entry.decode_in_steps(data, call.version, position))
        if not isinstance(decoded, Awaitable):
            self._owned = owned or self._owned
            return decoded[0]
        # Its place in the budget is free when it is answered.
        held, self._admission = self._admission, None
        answer = serve_large(self._broker, entry, call, decoded, data, owned)
        task = self._owe(entry, call.version, call.correlation_id, answer)
        if held is not None:
            release = held.release
            task.add_done_callback(lambda _: release())
        return None

    def _owe(self, entry: Entry, version: int, correlation_id: int, result: Awaitable[Any]) -> asyncio.Future[Any]:
        """The answer comes when `result` is there."""
        slot = self._queue.open()
        if not entry.pipelined:
            self._work()
        task = asyncio.ensure_future(result, loop=self._broker.loop)
        if entry.changes:
            self._broker.background.keep(task)
        else:
            self._owed = task
        task.add_done_callback(partial(self._finish, slot, entry, version, correlation_id))
        return task

    def _entry(self, key: int, version: int) -> Entry:
        """The handler of that version. Raises FramingError."""
        entry = self._broker.handlers.get(key)
        if entry is None:
            raise FramingError(f"API key {key} (version {version}) is not served")
        if not entry.min_version <= version <= entry.max_version:
            raise FramingError(
                f"{entry.key.name} version {version} is not served, only {entry.min_version} to {entry.max_version}"
            )
        return entry

    def _refuse_version(self, correlation_id: int) -> None:
        """KIP-511: whatever version of ApiVersions was asked for, this answer has the form of version 0."""
        key = ApiKey.API_VERSIONS.value
        entry = self._broker.handlers[key]
        served = ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=entry.min_version, max_version=entry.max_version
        )
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])
        self._answer(None, entry, 0, correlation_id, refusal)

    def _finish(
        self, slot: Slot[Chunk], entry: Entry, version: int, correlation_id: int, task: asyncio.Future[Any]
    ) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, MalformedMessage):
            self.fail(str(error))
        elif error is not None:
            self._failed(entry, version, error)
        elif not self.closed:
            self._settle(slot, entry, version, correlation_id, task.result())

    def _settle(self, slot: Slot[Chunk], entry: Entry, version: int, correlation_id: int, response: Any) -> None:
        """An answer that was owed is there."""
        if not entry.pipelined:
            self._busy = False
        self._answer(slot, entry, version, correlation_id, response)
        if not self._busy:
            self._go_on()

    def _failed(self, entry: Entry, version: int, error: BaseException) -> None:
        logger.error("%s version %d from %s failed", entry.key.name, version, self.peer, exc_info=error)
        self.fail(f"{entry.key.name} could not be answered")

    def _answer(self, slot: Slot[Chunk] | None, entry: Entry, version: int, correlation_id: int, response: Any) -> None:
        chunks: list[Chunk] = []
        try:
            if response is not None and may_be_long(entry, response):
                frame = self._broker.gate.start(encode_in_steps(entry, version, correlation_id, response))
                if not isinstance(frame, bytearray):
                    self._encode_rest(slot or self._queue.open(), entry, version, frame)
                    return
                chunks = [frame]
            elif response is not None:
                chunks = encode_response(entry, version, correlation_id, response)
        except Exception as error:  # a bug too: the handler's answer does not fit its version
            self._failed(entry, version, error)
            return
        self._send(slot, chunks)

    def _encode_rest(self, slot: Slot[Chunk], entry: Entry, version: int, frame: Awaitable[bytearray]) -> None:
        """A long answer is not encoded yet."""
        self._work()
        self._owed = task = asyncio.ensure_future(frame, loop=self._broker.loop)
        task.add_done_callback(partial(self._encoded, slot, entry, version))

    def _encoded(self, slot: Slot[Chunk], entry: Entry, version: int, task: asyncio.Future[bytearray]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._failed(entry, version, error)
        elif not self.closed:
            self._busy = False
            self._send(slot, [task.result()])
            self._go_on()

    def _send(self, slot: Slot[Chunk] | None, chunks: Sequence[Chunk]) -> None:
        if slot is None and self._queue.slots:
            slot = self._queue.open()  # known at once, but others before it are not
        if slot is not None:
            chunks = self._queue.fill(slot, chunks)
        if chunks:
            self._outbound.send(chunks)

    def owe(self) -> Slot[Chunk]:
        """The place of an answer that comes later, by `pay`."""
        return self._queue.open()

    def pay(self, slot: Slot[Chunk], frame: bytes | bytearray) -> None:
        if not self.closed:
            self._send(slot, [frame])

    # ---- the end --------------------------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """End the connection because of what the peer did; the log says what and who."""
        if not self.closed:
            logger.warning("closing connection from %s: %s", self.peer, reason)
            self.close()

    def close(self) -> None:
        self._end_of_life()
        self._transport.abort()

    def sweep(self, sweeps_until_idle: int, sweeps_until_stalled: int) -> None:
        """Called at even intervals: ends a connection that is idle, or that holds budget for a frame that does not
        come.
        """
        # A parked request is no silence, nor is an answer that the peer takes slowly.
        awake = self._busy or (self._outbound.blocked and self._outbound.moved())
        self.quiet_sweeps = 0 if awake else self.quiet_sweeps + 1
        if self._admission is not None and self._admission.admitted and self._admission.contended and not self._busy:
            progress_bytes, self._seen_bytes = self._end - self._seen_bytes, self._end
            self.stalled_sweeps = 0 if progress_bytes >= LEAST_PROGRESS_BYTES else self.stalled_sweeps + 1
            if self.stalled_sweeps > sweeps_until_stalled:
                self.fail(
                    f"{self._end} of {self._need} bytes of a request came, then next to nothing; others wait for room"
                )
        elif 0 < sweeps_until_idle < self.quiet_sweeps:
            logger.info("closing connection from %s: idle for connections.max.idle.ms", self.peer)
            self.close()

    def _end_of_life(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._queued:
            self._queued = False
            self._broker.connections.queued -= 1
        self._outbound.close()
        if self._owed is not None:
            self._owed.cancel()
            self._owed = None
        self._let_go()
        self._routes.close()
        self._broker.connections.discard(self)
