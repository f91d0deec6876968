"""The requests of one connection: each is passed to its handler, and the responses, in order, to the outbound side.

A handler returns a response, a Deferred of it or a coroutine. For the latter two a PendingResponse keeps the position
in the order of the responses; it is completed with the encoded response. So it is for a request that cannot be served
in the turn of the loop in which it arrived, because too many others were, or because the broker does not know its
cluster yet (net.request_turns).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.context import Call, ClientConnection
from gregor.broker.log import logger
from gregor.broker.net.repeats.eager_requests import EagerRequests
from gregor.broker.net.request_turns import LARGE_REQUEST_BYTES, serve_large
from gregor.broker.net.responses import (
    EncodedResponse,
    PendingResponse,
    deferred_task,
    encode_in_steps,
    encode_response,
)
from gregor.broker.registry import entry_of
from gregor.broker.security.session import refusal_of
from gregor.broker.security.token_receiver import RAW_TOKEN
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.framing import HEAD_BYTES, FramingError, Receiver, ResponseQueue, request_header
from gregor.protocol.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.net.inbound import Inbound
    from gregor.broker.net.outbound import Chunk, Outbound
    from gregor.broker.net.produce_fast_path import ProduceRoutes
    from gregor.broker.registry import Entry
    from gregor.broker.request_log.log import RequestLog
    from gregor.broker.security.session import SaslSession

_Postpone = Callable[[Callable[[], None]], None]

_FETCH = ApiKey.FETCH.value
_PRODUCE = ApiKey.PRODUCE.value


class Client(ClientConnection, Protocol):
    """The connection, whose state decides whether a response is sent."""

    @property
    def closed(self) -> bool: ...
    @property
    def peer(self) -> str: ...
    @property
    def session(self) -> SaslSession | None: ...
    def receive_token(self, token: bytes) -> None:
        """Evaluate a frame that is a token of SASL and no request."""

    def resume(self) -> None:
        """Dispatch the requests that are already here, after the response to the request before them."""


class Dispatcher:
    """Dispatches the requests of one connection, from its beginning to its end."""

    __slots__ = (
        "_broker",
        "_client",
        "_eager",
        "_early",
        "_inbound",
        "_outbound",
        "_routes",
        "_served",
        "handlers",
        "responses",
    )

    def __init__(
        self, client: Client, broker: ConnectionContext, routes: ProduceRoutes, inbound: Inbound, outbound: Outbound
    ) -> None:
        self._client = client
        self._broker = broker
        self._routes = routes
        self._inbound = inbound
        self._outbound = outbound
        self._eager = EagerRequests(client, broker)
        self._early = broker.early_requests
        self._served: Mapping[int, Entry] = broker.handlers
        """The served APIs: before authentication only those that lead to it."""
        self.handlers = self._early.served_at_once(self._served)
        """Less than these as long as requests of the others are held."""
        self.responses: ResponseQueue[Chunk] = ResponseQueue()

    def serve(self, handlers: Mapping[int, Entry], receiver: Receiver) -> None:
        """Serve these APIs from now on, whose requests this receiver finds among the bytes that arrive."""
        self._served = handlers
        self.handlers = self._early.served_at_once(handlers)
        self._inbound.serve(handlers, receiver)

    def dispatch(self, view: memoryview, start: int, stop: int, key: int, version: int, correlation_id: int) -> None:
        broker = self._broker
        entry = self.handlers.get(key)
        if entry is None or not entry.min_version <= version <= entry.max_version:
            if key == RAW_TOKEN:
                self._client.receive_token(bytes(view[start:stop]))
            elif entry is None and self.handlers is not self._served and key in self._served:
                self._dispatch_early(view, start, stop, key, version, correlation_id)
            else:
                self._refuse_version(key, version, correlation_id)
            return
        quotas = broker.quotas
        metering = None if quotas is None or not quotas.measures_time else quotas.metering
        if metering is not None:
            metering.begin()
        try:
            if not entry.eager or stop - start > LARGE_REQUEST_BYTES:
                client_id, position = request_header(view, start + HEAD_BYTES, stop, entry.header_versions[version][0])
                call = Call(self._client, key, version, correlation_id, client_id)
                if key == _PRODUCE:
                    request = entry.decoders[version](view[:stop], position)[0]
                    self._routes.learn(request, view, start, stop, version, client_id)
                    if quotas is None:
                        result = entry.handler(broker, request, call)
                    else:
                        result = quotas.metering.produce(entry.handler, broker, request, call, stop - start)
                elif stop - start > LARGE_REQUEST_BYTES:
                    result = self._serve_large(entry, view, position, stop, call)
                else:
                    handler = entry.handler
                    if metering is not None and key != _FETCH:
                        handler = metering.handler_of(entry.key, handler)
                    result = handler(broker, entry.decoders[version](view[:stop], position)[0], call)
            elif broker.request_turns.admits(stop - start):
                result = self._eager.begin(entry, view, start, stop, version, correlation_id)
            else:
                if metering is not None:
                    metering.end()
                self._postpone(broker.request_turns.postpone, entry, view[start:stop], version, correlation_id)
                return
        except Exception as error:
            if metering is not None:
                metering.end()
            if isinstance(error, (FramingError, MalformedMessage)):
                raise
            self._failed(entry, version, error)  # a bug: it must not end the loop or other connections
            return
        if isinstance(result, Deferred):
            self._defer(entry, version, correlation_id, result)
        elif hasattr(result, "__await__"):
            self._defer(entry, version, correlation_id, self._as_task(entry, result))
        else:
            self._answer(entry, version, correlation_id, result)
        if metering is not None:
            metering.end()

    def dispatch_logged(
        self, log: RequestLog, view: memoryview, start: int, stop: int, key: int, version: int, correlation_id: int
    ) -> None:
        """Dispatch a request whose times and whose response are logged. A Deferred before its response delays it until
        the dispatch has returned: so it is always in the queue of responses, where it can be observed."""
        handlers = self.handlers
        entry = handlers.get(key)
        if entry is None or not entry.min_version <= version <= entry.max_version:
            self.dispatch(view, start, stop, key, version, correlation_id)  # a token of a login, or refused
            return
        request = log.begin(self._client, entry, view[start:stop], version, correlation_id)
        before: Deferred[Any] = Deferred()
        self.enqueue(before)
        answer = self._routes.produce(view, start, stop, version, correlation_id) if key == _PRODUCE else None
        if answer is not None:
            request.returned()
            self.enqueue(answer)
        else:
            observing = self.handlers = {key: log.observed(entry)}
            try:
                self.dispatch(view, start, stop, key, version, correlation_id)
            except (FramingError, MalformedMessage):
                log.forget(self._client)
                raise
            finally:
                if self.handlers is observing:  # a login may have replaced them
                    self.handlers = handlers
        self.responses.pending[-1].then(partial(log.end, request, self._client))
        before.complete([])

    def _as_task(self, entry: Entry, result: Awaitable[Any]) -> Deferred[Any]:
        task = asyncio.ensure_future(result, loop=self._broker.loop)
        if entry.changes:
            self._broker.background.keep(task)
        return deferred_task(task)

    # ---- requests that wait for their turn ---------------------------------------------------------------------------

    def _dispatch_early(
        self, view: memoryview, start: int, stop: int, key: int, version: int, correlation_id: int
    ) -> None:
        """Hold a request until the broker knows its cluster. Raises FramingError for a version that is not served."""
        if not self._early.are_held:
            self.handlers = self._served
            self.dispatch(view, start, stop, key, version, correlation_id)
            return
        entry = entry_of(self._served, key, version)
        self._postpone(self._early.hold, entry, view[start:stop], version, correlation_id)

    def _postpone(
        self, until_turn: _Postpone, entry: Entry, view: memoryview, version: int, correlation_id: int
    ) -> None:
        """Serve a copy of a request when `until_turn` calls it. No later one of this connection is dispatched before
        it; so it needs a position in the order of the responses only behind earlier ones."""
        pending: PendingResponse | None = None
        if self.responses.pending:
            pending = PendingResponse(entry, version, correlation_id, Deferred())
            self.enqueue(pending)
        self._inbound.work()
        data = memoryview(bytes(view))
        until_turn(partial(self._serve_postponed, entry, data, version, correlation_id, pending))

    def _serve_postponed(
        self, entry: Entry, data: memoryview, version: int, correlation_id: int, pending: PendingResponse | None
    ) -> None:
        # After the end of the connection a change is made all the same, as if it had been served on arrival.
        has_ended = self._client.closed
        if has_ended and not entry.changes:
            return
        quotas = self._broker.quotas
        metering = None if quotas is None or not quotas.measures_time else quotas.metering
        if metering is not None:
            metering.begin()
        self._inbound.end_work()
        try:
            result = self._eager.begin(entry, data, 0, len(data), version, correlation_id)
        except Exception as error:
            if metering is not None:
                metering.end()
            self._ended_with(entry, version, error)
            return
        if hasattr(result, "__await__") and not isinstance(result, Deferred):
            result = self._as_task(entry, result)
        if not has_ended:
            proceed = self._defer if isinstance(result, Deferred) else self._answer
            proceed(entry, version, correlation_id, result, pending)
        if metering is not None:
            metering.end()
        self._client.resume()

    # ---- large requests -------------------------------------------------------------------------------------------

    def _serve_large(self, entry: Entry, view: memoryview, position: int, stop: int, call: Call) -> Any:
        """Decode a request in steps and return the handler's result. While a long decoding continues, the received
        bytes must not change: the owned buffer stays with a request that is alone in it, else the bytes are copied."""
        broker, inbound = self._broker, self._inbound
        handler = (
            entry.handler if broker.quotas is None else broker.quotas.metering.handler_of(entry.key, entry.handler)
        )
        owned = inbound.detach_buffer(stop)
        if owned is not None:
            data = view[:stop]
        else:
            data, position = memoryview(bytes(view[position:stop])), 0
        decoded = broker.gate.start(entry.decode_in_steps(data, call.version, position))
        if isinstance(decoded, tuple):
            if owned is not None:
                inbound.reattach_buffer(owned)
            return handler(broker, decoded[0], call)
        task = asyncio.ensure_future(
            serve_large(lambda request: handler(broker, request, call), decoded, data, owned, broker.buffers),
            loop=broker.loop,
        )
        # The receive budget counts the request until it is answered.
        admission = inbound.detach_admission()
        if admission is not None:
            task.add_done_callback(lambda _: admission.release())
        return task

    def _refuse_version(self, key: int, version: int, correlation_id: int) -> None:
        """Respond to an unknown version of ApiVersions in the form of version 0 (KIP-511). Raises FramingError for
        other APIs."""
        handlers = self.handlers
        if key not in handlers and key in self._broker.handlers and (session := self._client.session) is not None:
            raise FramingError(refusal_of(session.state, ApiKey(key).name))
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

    def _defer(
        self,
        entry: Entry,
        version: int,
        correlation_id: int,
        source: Deferred[Any],
        pending: PendingResponse | None = None,
    ) -> None:
        """Keep the position of a response that comes later, unless it has one; send one that is complete already."""
        if source.done and source.error is None:
            self._answer(entry, version, correlation_id, source.value, pending)
            return
        if pending is None:
            pending = PendingResponse(entry, version, correlation_id, source)
            self.enqueue(pending)
        self._wait_for(source, pending)

    def enqueue(self, answer: Deferred[Any] | bytes) -> None:
        """Give a response the next position in the order."""
        if isinstance(answer, bytes):
            pending: Deferred[Any] = Deferred()
            pending.complete([answer])
        else:
            pending = answer
            pending.then(self._send_ready)
        self.responses.pending.append(pending)

    def _wait_for(self, source: Deferred[Any], pending: PendingResponse) -> None:
        pending.wait_for(source)
        if not pending.entry.pipelined:
            self._inbound.work()
        source.then(partial(self._finished, pending))

    def _finished(self, pending: PendingResponse, source: Deferred[Any]) -> None:
        error, entry = source.error, pending.entry
        if source.cancelled:
            return
        if error is not None:
            self._ended_with(entry, pending.version, error)
        elif not self._client.closed:
            if not entry.pipelined:
                self._inbound.end_work()
            self._answer(entry, pending.version, pending.correlation_id, source.value, pending)
            if not entry.pipelined:
                self._client.resume()

    def _answer(
        self, entry: Entry, version: int, correlation_id: int, response: Any, pending: PendingResponse | None = None
    ) -> None:
        """Encode a response and send it, or complete its pending response. A long one is encoded in steps first."""
        chunks: list[Chunk] = []
        try:
            if type(response) is bytearray:
                chunks = [response]
            elif response is None:
                pass
            elif (
                entry.carries_records
                or (pending is None and entry.pipelined)  # it was made in this turn of the loop: it is short
                or isinstance(response, EncodedResponse)
                or not response.HAS_ARRAYS
                or entry.is_short(response)
            ):
                chunks = encode_response(entry, version, correlation_id, response)
            else:
                frame = self._broker.gate.start(encode_in_steps(entry, version, correlation_id, response))
                if not isinstance(frame, bytearray):
                    rest = deferred_task(asyncio.ensure_future(frame, loop=self._broker.loop))
                    self._defer(entry, version, correlation_id, rest, pending)
                    return
                chunks = [frame]
        except Exception as error:  # a bug: the handler's response does not fit its version
            self._failed(entry, version, error)
            return
        if pending is not None:
            pending.complete(chunks)
        elif self.responses.pending:
            completed: Deferred[Any] = Deferred()
            completed.complete(chunks)
            self.responses.pending.append(completed)
        elif chunks:
            self._outbound.send(chunks)

    def _send_ready(self, _completed: Deferred[Any]) -> None:
        if not self._client.closed and (chunks := self.responses.ready()):
            self._outbound.send(chunks)

    def _ended_with(self, entry: Entry, version: int, error: BaseException) -> None:
        """End the connection, whose request was malformed, or has failed by a bug."""
        if isinstance(error, (FramingError, MalformedMessage)):
            self._client.fail(str(error))
        else:
            self._failed(entry, version, error)

    def _failed(self, entry: Entry, version: int, error: BaseException) -> None:
        logger.error("%s version %d from %s failed", entry.key.name, version, self._client.peer, exc_info=error)
        self._client.fail(f"{entry.key.name} could not be answered")

    def close(self) -> None:
        """Cancel the pending responses: the connection has ended."""
        for pending in self.responses.pending:
            pending.cancel()
