"""One client connection: the asyncio shell around gregor.protocol.framing.

Whole requests are dispatched at once, on the loop, as they arrive (broker.net.inbound, broker.net.dispatch), and their
responses are sent in order (broker.net.outbound). As in Apache Kafka a connection has one request in progress at a
time, so a client's later request sees the effect of its earlier one; only Produce requests overlap, since the append
decides their order. No connection waits for another one.

Back-pressure, both ways: broker.net.inbound decides when reading stops; besides, no request is dispatched while the
peer does not receive its responses.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, cast

from gregor.broker.authorization.known_client import KnownClient
from gregor.broker.context import UNKNOWN_SOFTWARE, ClientSoftware
from gregor.broker.log import logger
from gregor.broker.net.dispatch import Dispatcher
from gregor.broker.net.inbound import Inbound
from gregor.broker.net.outbound import Outbound
from gregor.broker.net.produce_fast_path import ProduceRoutes
from gregor.broker.net.receive_buffers import SHARED_BYTES
from gregor.broker.security.token_receiver import TokenReceiver, before_authentication
from gregor.config.definitions import ConfigError
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.framing import SIZE_BYTES, FramingError, Receiver
from gregor.protocol.principal import ANONYMOUS

if TYPE_CHECKING:
    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.security.session import SaslSession
    from gregor.protocol.principal import Principal

MS_PER_S = 1000
_PRODUCE = ApiKey.PRODUCE.value
_numbers = count()
"""Numbers of connections, in the order in which they were accepted."""


def held_ms_of(broker: ConnectionContext, host: str) -> int:
    """Count a new connection for connection_creation_rate of its address. Return how long it is held before it is
    closed; 0 if it may stay."""
    quotas = broker.quotas
    return 0 if quotas is None else quotas.connections.throttle_ms(host, quotas.now_ms())


class Connection(asyncio.BufferedProtocol):
    """Created by the server for each accepted socket; lives until `connection_lost`."""

    __slots__ = (
        "_broker",
        "_dispatcher",
        "_inbound",
        "_outbound",
        "_pending",
        "_routes",
        "_shared_view",
        "_throttle",
        "_transport",
        "closed",
        "host",
        "known",
        "listener",
        "number",
        "peer",
        "principal",
        "quiet_sweeps",
        "session",
        "sockname",
        "software",
    )

    OUTBOUND: ClassVar[type[Outbound]] = Outbound
    """The class of the sending side."""

    def __init__(self, broker: ConnectionContext, listener: str) -> None:
        self._broker = broker
        self.listener = listener
        self.number = next(_numbers)
        self._shared_view = broker.buffers.shared_view
        self._throttle: asyncio.TimerHandle | None = None
        self._routes = ProduceRoutes(broker, self)
        self.known = KnownClient()
        self.closed = False
        self.principal = ANONYMOUS
        self.software = UNKNOWN_SOFTWARE
        self.session: SaslSession | None = None
        self.peer = self.host = "?"
        self.sockname: tuple[Any, ...] = ()
        self.quiet_sweeps = 0

    # ---- asyncio's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's own class, with the same methods
        peername = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(peername[0])
        self.peer = f"{self.host}:{peername[1]}"
        self.sockname = transport.get_extra_info("sockname") or ()
        loop, connections = self._broker.loop, self._broker.connections
        self._inbound = Inbound(self._broker, transport)
        self._outbound = self.OUTBOUND(loop, transport, self._broker.background, self.resume)
        self._dispatcher = Dispatcher(self, self._broker, self._routes, self._inbound, self._outbound)
        self._pending = self._dispatcher.responses.pending
        refusal = connections.add(self)
        if refusal is not None:
            self.fail(refusal)
            return
        held_ms = self._held_ms()
        if held_ms:
            self.hold()
            self._throttle = loop.call_later(held_ms / MS_PER_S, self._close_throttled)
            return
        delay_s = self._delay_s(loop.time())
        if delay_s is None:
            self.fail("too many came at the same time (max.connection.creation.rate)")
            return
        if delay_s > 0:
            # Not `pause_reading`: uvloop begins to read when this method returns, even after a pause.
            self.hold()
            loop.call_later(delay_s, self._end_delay)
        else:
            self._begin_session()

    def _end_delay(self) -> None:
        if not self.closed:
            self._begin_session()
        self.end_hold()

    def _held_ms(self) -> int:
        return held_ms_of(self._broker, self.host)

    def _delay_s(self, now_s: float) -> float | None:
        return self._broker.connections.delay_s(self.listener, now_s)

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
        """Dispatch the whole requests in the buffer and keep the rest; with 0 bytes, the requests that had to wait."""
        self.quiet_sweeps = 0
        inbound = self._inbound
        receiver = inbound.receiver
        if inbound.owned is None:
            view, start, end = self._shared_view, 0, nbytes
        elif inbound.received(nbytes):
            view, start, end = inbound.owned.view, receiver.begin, receiver.end
        else:
            return
        if inbound.queued:
            inbound.unqueue()
        outbound, pending, log = self._outbound, self._pending, self._broker.request_log
        answers = b""  # of requests in one read: they are sent in one write, which wakes the peer once
        try:
            while True:
                before = start
                # Another receiver may be there since the last pass: behind the last raw token of SASL comes a request.
                for size, key, version, correlation_id in inbound.receiver.requests(view, start, end):
                    if inbound.busy or outbound.blocked:
                        break
                    begin = start + SIZE_BYTES
                    stop = begin + size
                    inbound.expects_long_frame = size > SHARED_BYTES
                    answer = None
                    if key == _PRODUCE and log is None:
                        answer = self._routes.produce(view, begin, stop, version, correlation_id)
                    if type(answer) is bytes and not pending:
                        answers += answer
                    else:
                        if answers:
                            self._transport.write(answers)
                            answers = b""
                        if self.closed:  # by an earlier answer, which this append has completed
                            return
                        if answer is not None:
                            self._dispatcher.enqueue(answer)
                        elif log is None:
                            self._dispatcher.dispatch(view, begin, stop, key, version, correlation_id)
                        else:
                            self._dispatcher.dispatch_logged(log, view, begin, stop, key, version, correlation_id)
                        if self.closed:
                            return
                    start = stop
                if start == end:
                    break
                if start == before:  # the next one is not whole, or has to wait
                    break
            if start < end:
                inbound.keep(view, start, end)
            elif inbound.owned is not None or not inbound.reading:
                inbound.release()
        except (FramingError, MalformedMessage) as error:
            if answers:
                self._transport.write(answers)
            self.fail(str(error))
            return
        if answers:
            self._transport.write(answers)

    # ---- pauses ---------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Complete a request of a pipelined API before the next one: until `end_hold` none is dispatched, and the
        receive budget counts the memory of the request, even if the connection ends meanwhile.
        """
        self._inbound.hold()

    def end_hold(self) -> None:
        """End a `hold`; this must be called."""
        self._inbound.end_hold()
        self.resume()

    def throttle(self, duration_ms: int) -> None:
        """Read and dispatch no request for this time, because the client exceeded a quota; its responses are sent."""
        if self.closed:
            return
        loop, throttle = self._broker.loop, self._throttle
        end_s = loop.time() + duration_ms / MS_PER_S
        if throttle is not None:
            if throttle.when() >= end_s:
                return
            throttle.cancel()
        self._inbound.mute()
        self._throttle = loop.call_at(end_s, self._end_throttle)

    def _end_throttle(self) -> None:
        self._throttle = None
        self._inbound.unmute()
        self.resume()

    def _close_throttled(self) -> None:
        self._throttle = None
        logger.debug("closing connection from %s: its address exceeds connection_creation_rate", self.peer)
        self.close()

    def resume(self) -> None:
        """Dispatch the requests that are already here, after the end of what delayed them."""
        inbound = self._inbound
        if self.closed or inbound.busy or self._outbound.blocked:
            return
        if inbound.owned is not None and inbound.receiver.end:
            self.buffer_updated(0)
        else:
            inbound.resume_reading()

    # ---- authentication -------------------------------------------------------------------------------------------

    def _begin_session(self) -> None:
        """Begin the authentication; after a delay, so that its limits of time and number are for what the client does.
        No request is dispatched before."""
        security = self._broker.security
        if security is None:
            return
        try:
            self.session = security.authentication.session(self, self._broker.loop)
        except ConfigError as error:
            self.fail(f"no client can authenticate on the listener {self.listener}: {error}")

    def identify(self, software: ClientSoftware) -> None:
        self.software = software

    def restrict(self, max_request_bytes: int) -> None:
        handlers = before_authentication(self._broker.handlers)
        self._forget_client()
        self._dispatcher.serve(handlers, Receiver(max_request_bytes))

    def admit(self, principal: Principal) -> None:
        self.principal = principal
        self._forget_client()
        self._dispatcher.serve(self._broker.handlers, Receiver(self._broker.max_request_bytes))

    def _forget_client(self) -> None:
        """Forget the rights and the rates of the client before a login, which may lead to another principal."""
        self._routes.clear()
        self.known = KnownClient()

    def expect_tokens(self, max_token_bytes: int) -> None:
        self._dispatcher.serve({}, TokenReceiver(max_token_bytes))

    def receive_token(self, token: bytes) -> None:
        if self.session is not None:
            self.session.token(token)

    def send_token(self, token: bytes) -> None:
        self._outbound.send([len(token).to_bytes(SIZE_BYTES) + token])

    # ---- the end --------------------------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """End the connection because of an error of the peer, with a line in the log."""
        if not self.closed:
            logger.warning("closing connection from %s: %s", self.peer, reason)
            self.close()

    def close(self) -> None:
        self._end_of_life()
        self._transport.abort()

    def finish(self) -> None:
        """Close the connection after the peer has left; no response can be sent any more."""
        self._end_of_life()
        self._transport.close()

    def sweep(self, sweeps_until_idle: int, sweeps_until_stuck: int) -> None:
        """End the connection if it is idle, or if it has a share of the receive budget for a frame that does not
        arrive. Called at regular intervals.
        """
        inbound, outbound = self._inbound, self._outbound
        # A connection with a pending request is not idle, nor is one whose peer receives a response slowly. One that is
        # only throttled is: it reads nothing, so it does not notice either that its peer has left.
        awake = inbound.working or (outbound.blocked and outbound.moved())
        self.quiet_sweeps = 0 if awake else self.quiet_sweeps + 1
        if inbound.is_contended:
            if inbound.is_stuck(sweeps_until_stuck):
                size, received = inbound.receiver.frame_bytes, inbound.receiver.end
                self.fail(f"{received} of {size} bytes of a request came, then next to nothing; others wait for room")
        elif 0 < sweeps_until_idle < self.quiet_sweeps:
            logger.info("closing connection from %s: idle for connections.max.idle.ms", self.peer)
            self.close()

    def _end_of_life(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        if self.session is not None:
            self.session.close()
        self._outbound.close()
        self._dispatcher.close()
        del self._dispatcher  # it refers to the connection: a cycle, which would be work for the collector
        self._inbound.close()
        self._routes.close()
        self._broker.connections.discard(self)
