"""One client connection: the asyncio shell around gregor.protocol.framing.

Whole requests are dispatched at once, on the loop, as they come in (broker.net.inbound), and their answers leave in
order (protocol.framing.ResponseQueue, broker.net.outbound). As in Apache Kafka a connection has one request at work at
a time, so a client's later request sees the effect of its earlier one; only Produce requests overlap, since their
order is settled by the append. Nothing here waits for another connection.

A handler returns a response, a Deferred of it or a coroutine. The latter two have a place in the order of the
responses, a PendingResponse, which is completed with the encoded response.

Back-pressure, both ways: broker.net.inbound says when reading stops; besides, no request is dispatched while the peer
does not take its answers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from gregor.broker.context import Call
from gregor.broker.log import logger
from gregor.broker.net.inbound import Inbound
from gregor.broker.net.large_requests import LARGE_REQUEST_BYTES, serve_large
from gregor.broker.net.outbound import Chunk, Outbound
from gregor.broker.net.produce_fast_path import ProduceRoutes
from gregor.broker.net.receive_buffers import SHARED_BYTES
from gregor.broker.net.responses import (
    EncodedResponse,
    PendingResponse,
    deferred_task,
    encode_in_steps,
    encode_response,
)
from gregor.broker.registry import entry_of
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.framing import HEAD_BYTES, SIZE_BYTES, FramingError, ResponseQueue, request_header
from gregor.protocol.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.registry import Entry

_PRODUCE = ApiKey.PRODUCE.value
_numbers = count()
"""Of connections, in the order in which they came."""


class Connection(asyncio.BufferedProtocol):
    """Created by the server for each accepted socket; lives until `connection_lost`."""

    __slots__ = (
        "_broker",
        "_inbound",
        "_outbound",
        "_responses",
        "_routes",
        "_shared_view",
        "_transport",
        "closed",
        "host",
        "listener",
        "number",
        "peer",
        "quiet_sweeps",
        "sockname",
    )

    def __init__(self, broker: ConnectionContext, listener: str) -> None:
        self._broker = broker
        self.listener = listener
        self.number = next(_numbers)
        self._shared_view = broker.buffers.shared_view
        self._inbound = Inbound(
            broker.buffers, broker.receive_budget, broker.connections, broker.handlers, broker.max_request_bytes
        )
        self._responses: ResponseQueue[Chunk] = ResponseQueue()
        self._routes = ProduceRoutes(broker)
        self.closed = False
        self.peer = self.host = "?"
        self.sockname: tuple[Any, ...] = ()
        self.quiet_sweeps = 0

    # ---- asyncio's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's own class, alike in what it does
        peername = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(peername[0])
        self.peer = f"{self.host}:{peername[1]}"
        self.sockname = transport.get_extra_info("sockname") or ()
        loop, connections = self._broker.loop, self._broker.connections
        self._inbound.opened(transport)
        self._outbound = Outbound(loop, transport, self._resume)
        refusal = connections.add(self)
        if refusal is not None:
            self.fail(refusal)
            return
        delay_s = connections.delay_s(self.listener, loop.time())
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

    def pause_writing(self) -> None:
        self._outbound.transport_paused()

    def resume_writing(self) -> None:
        self._outbound.transport_resumed()

    def get_buffer(self, sizehint: int) -> memoryview:
        inbound = self._inbound
        if inbound.owned is None and not inbound.expects_long_frame:
            return self._shared_view
        return inbound.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Dispatch the whole requests that are here and keep the rest; of 0 bytes, those that had to wait."""
        self.quiet_sweeps = 0
        inbound, outbound, receiver = self._inbound, self._outbound, self._inbound.receiver
        if inbound.owned is None:
            view, start, end = self._shared_view, 0, nbytes
        elif inbound.received(nbytes):
            view, start, end = inbound.owned.view, receiver.begin, receiver.end
        else:
            return
        if inbound.queued:
            inbound.unqueue()
        pending = self._responses.pending
        answers = b""  # of requests that came in one read: they leave in one write, and wake the peer once
        failure = ""
        try:
            while start < end and not (inbound.busy or outbound.blocked):
                heads = receiver.requests(view, start, end)
                if not heads:
                    break
                for size, key, version, correlation_id in heads:
                    if inbound.busy or outbound.blocked:
                        break
                    begin = start + SIZE_BYTES
                    stop = begin + size
                    inbound.expects_long_frame = size > SHARED_BYTES
                    answer = None
                    if key == _PRODUCE:
                        answer = self._routes.produce(view, begin, stop, version, correlation_id)
                    if type(answer) is bytes and not pending:
                        answers += answer
                    else:
                        if answers:
                            self._transport.write(answers)
                            answers = b""
                        if answer is not None:
                            self._enqueue(answer)
                        else:
                            self._dispatch(view, begin, stop, key, version, correlation_id)
                            if self.closed:
                                return
                    start = stop
            if start < end:
                inbound.keep(view, start, end)
            elif inbound.owned is not None or not inbound.reading:
                inbound.release()
        except (FramingError, MalformedMessage) as error:
            failure = str(error)
        if answers:
            self._transport.write(answers)
        if failure:
            self.fail(failure)

    # ---- one request ----------------------------------------------------------------------------------------------

    def _dispatch(self, view: memoryview, start: int, stop: int, key: int, version: int, correlation_id: int) -> None:
        broker = self._broker
        entry = broker.handlers.get(key)
        if entry is None or not entry.min_version <= version <= entry.max_version:
            self._refuse_version(key, version, correlation_id)
            return
        client_id, position = request_header(view, start + HEAD_BYTES, stop, entry.header_versions[version][0])
        call = Call(self, key, version, correlation_id, client_id)
        try:
            if key == _PRODUCE:
                request = entry.decode(view[:stop], version, position)[0]
                self._routes.learn(request, view, start, stop, version)
                result = entry.handler(broker, request, call)
            elif stop - start > LARGE_REQUEST_BYTES:
                result = self._serve_large(entry, view, position, stop, call)
            else:
                result = entry.handler(broker, entry.decode(view[:stop], version, position)[0], call)
        except MalformedMessage:
            raise
        except Exception as error:  # a bug: its request must not take the loop or other connections along
            self._failed(entry, version, error)
            return
        if isinstance(result, Deferred):
            self._defer(entry, version, correlation_id, result)
        elif hasattr(result, "__await__"):
            task = asyncio.ensure_future(result, loop=broker.loop)
            if entry.changes:
                broker.background.keep(task)
            self._defer(entry, version, correlation_id, deferred_task(task))
        else:
            self._answer(entry, version, correlation_id, result)

    def _serve_large(self, entry: Entry, view: memoryview, position: int, stop: int, call: Call) -> Any:
        """The result of a request that is decoded in steps. Where it takes longer, what was received stays as it is
        until then: alone in an owned buffer it goes along with it, else it is copied."""
        broker, inbound = self._broker, self._inbound
        owned = inbound.owned
        if owned is not None and stop == inbound.receiver.end:
            inbound.owned = None
            data = view[:stop]
        else:
            owned, data, position = None, memoryview(bytes(view[position:stop])), 0
        decoded = broker.gate.take(entry.decode_in_steps(data, call.version, position))
        if isinstance(decoded, tuple):
            inbound.owned = owned or inbound.owned
            return entry.handler(broker, decoded[0], call)
        task = asyncio.ensure_future(
            serve_large(lambda request: entry.handler(broker, request, call), decoded, data, owned, broker.buffers),
            loop=broker.loop,
        )
        # Its place in the budget is free when it is answered.
        place = inbound.take_place()
        if place is not None:
            task.add_done_callback(lambda _: place.release())
        return task

    def _refuse_version(self, key: int, version: int, correlation_id: int) -> None:
        """KIP-511: whatever version of ApiVersions was asked for, the answer has the form of version 0. Raises
        FramingError for other APIs."""
        handlers = self._broker.handlers
        try:
            entry_of(handlers, key, version)
        except FramingError:
            if key != ApiKey.API_VERSIONS.value:
                raise
        entry = handlers[key]
        served = ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=entry.min_version, max_version=entry.max_version
        )
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])
        self._answer(entry, 0, correlation_id, refusal)

    # ---- answers --------------------------------------------------------------------------------------------------

    def _defer(self, entry: Entry, version: int, correlation_id: int, source: Deferred[Any]) -> None:
        """Keep a place for a response that comes later; one that is here already is answered."""
        if source.done and source.error is None:
            self._answer(entry, version, correlation_id, source.value)
            return
        pending = PendingResponse(entry, version, correlation_id, source)
        self._enqueue(pending)
        self._wait_for(source, pending)

    def _enqueue(self, answer: Deferred[Any] | bytes) -> None:
        """The next place in the order of the responses is for this one."""
        if isinstance(answer, bytes):
            place: Deferred[Any] = Deferred()
            place.complete([answer])
        else:
            place = answer
            place.then(self._send_ready)
        self._responses.pending.append(place)

    def _wait_for(self, source: Deferred[Any], pending: PendingResponse) -> None:
        pending.source = source
        if not pending.entry.pipelined:
            self._inbound.work()
        source.then(partial(self._finished, pending))

    def _finished(self, pending: PendingResponse, source: Deferred[Any]) -> None:
        error, entry = source.error, pending.entry
        if source.cancelled:
            return
        if isinstance(error, MalformedMessage):
            self.fail(str(error))
        elif error is not None:
            self._failed(entry, pending.version, error)
        elif not self.closed:
            if not entry.pipelined:
                self._inbound.busy = False
            self._answer(entry, pending.version, pending.correlation_id, source.value, pending)
            if not entry.pipelined:
                self._resume()

    def _answer(
        self, entry: Entry, version: int, correlation_id: int, response: Any, pending: PendingResponse | None = None
    ) -> None:
        """Encode a response and send it, or put it into its place; a long one is encoded in steps and comes back."""
        chunks: list[Chunk] = []
        try:
            if type(response) is bytearray:
                chunks = [response]
            elif entry.carries_records or isinstance(response, EncodedResponse):
                if response is not None:
                    chunks = encode_response(entry, version, correlation_id, response)
            elif response is not None:
                frame = self._broker.gate.take(encode_in_steps(entry, version, correlation_id, response))
                if not isinstance(frame, bytearray):
                    rest = deferred_task(asyncio.ensure_future(frame, loop=self._broker.loop))
                    if pending is None:
                        self._defer(entry, version, correlation_id, rest)
                    else:
                        self._wait_for(rest, pending)
                    return
                chunks = [frame]
        except Exception as error:  # a bug too: the handler's answer does not fit its version
            self._failed(entry, version, error)
            return
        if pending is not None:
            pending.complete(chunks)
        elif self._responses.pending:
            place: Deferred[Any] = Deferred()
            place.complete(chunks)
            self._responses.pending.append(place)
        elif chunks:
            self._outbound.send(chunks)

    def _send_ready(self, _completed: Deferred[Any]) -> None:
        if not self.closed and (chunks := self._responses.ready()):
            self._outbound.send(chunks)

    # ---- pauses ---------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """A request of a pipelined API has to come to its end before the next one: until `go_on` none is dispatched,
        and what it holds in memory keeps its place in the budget, even if the connection ends meanwhile.
        """
        self._inbound.hold()

    def go_on(self) -> None:
        """The end of `hold`, which must come."""
        self._inbound.end_hold()
        self._resume()

    def _resume(self) -> None:
        """Something that held requests up is over: dispatch what is already here."""
        inbound = self._inbound
        if self.closed or inbound.busy or self._outbound.blocked:
            return
        if inbound.owned is not None and inbound.receiver.end:
            self.buffer_updated(0)
        else:
            inbound.resume_reading()

    # ---- the end --------------------------------------------------------------------------------------------------

    def _failed(self, entry: Entry, version: int, error: BaseException) -> None:
        logger.error("%s version %d from %s failed", entry.key.name, version, self.peer, exc_info=error)
        self.fail(f"{entry.key.name} could not be answered")

    def fail(self, reason: str) -> None:
        """End the connection because of what the peer did; the log says what and who."""
        if not self.closed:
            logger.warning("closing connection from %s: %s", self.peer, reason)
            self.close()

    def close(self) -> None:
        self._end_of_life()
        self._transport.abort()

    def finish(self) -> None:
        """The peer has left: nothing can be answered any more."""
        self._end_of_life()
        self._transport.close()

    def sweep(self, sweeps_until_idle: int, sweeps_until_stalled: int) -> None:
        """Called at even intervals: ends a connection that is idle, or that holds budget for a frame that does not
        come.
        """
        inbound, outbound = self._inbound, self._outbound
        # A pending request is no silence, nor is an answer that the peer takes slowly.
        awake = inbound.busy or (outbound.blocked and outbound.moved())
        self.quiet_sweeps = 0 if awake else self.quiet_sweeps + 1
        if inbound.is_contended:
            if inbound.is_stalled(sweeps_until_stalled):
                size, received = inbound.receiver.frame_bytes, inbound.receiver.end
                self.fail(f"{received} of {size} bytes of a request came, then next to nothing; others wait for room")
        elif 0 < sweeps_until_idle < self.quiet_sweeps:
            logger.info("closing connection from %s: idle for connections.max.idle.ms", self.peer)
            self.close()

    def _end_of_life(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._outbound.close()
        for pending in self._responses.pending:
            pending.cancel()
        self._inbound.close()
        self._routes.close()
        self._broker.connections.discard(self)
