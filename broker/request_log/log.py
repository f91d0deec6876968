"""The lines about requests: all of them at DEBUG, with their contents at TRACE, and the slow ones.

Loggers and the form of a line are Apache Kafka's: `Completed request:` and a JSON object, with the names of its
RequestConvertToJson; `requestSizeBytes`, `responseSizeBytes` and `errors` are gregor's own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from gregor.broker.log import TRACE
from gregor.broker.request_log.contents import contents, error_counts
from gregor.broker.request_log.line_rate import MAX_BYTES, MAX_LINES, LineRate
from gregor.broker.request_log.observed import NS_PER_MS, ObservedRequest
from gregor.config.listeners import address_text
from gregor.protocol.codec.classes import Structure
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.framing import HEAD_BYTES, RESPONSE_HEADS, request_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gregor.broker.context import Call, ClientConnection
    from gregor.broker.registry import Entry, Handler

request_logger = logging.getLogger("kafka.request.logger")
slow_logger = logging.getLogger("gregor.slow.requests")
NO_SLOW_LOG = -1
_MAX_DECODED_BYTES = 64 * 1024
"""A response that was encoded without a message is decoded for its errors up to this size."""


class RequestLog:
    """Observes requests while it is in use (broker.request_log.switch).

    A connection has at most one request whose handler is not called yet, by which the handler finds it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.slow_ms = NO_SLOW_LOG
        """Requests of this time or longer are in the log of slow requests; below 0: none."""
        self._waiting: dict[int, ObservedRequest] = {}
        self._entries: dict[Handler, Entry] = {}
        self._rate = LineRate(loop.time, loop.call_later, partial(_report, request_logger, logging.INFO))
        self._slow_rate = LineRate(loop.time, loop.call_later, partial(_report, slow_logger, logging.WARNING))

    def log_slow(self, slow_ms: int) -> bool:
        """Log requests of this time or longer as slow from now on; return whether there are any such."""
        self.slow_ms = slow_ms
        return slow_ms >= 0

    @property
    def waiting_count(self) -> int:
        """Requests whose handler is not called yet."""
        return len(self._waiting)

    # ---- while a request is served --------------------------------------------------------------------------------

    def observed(self, entry: Entry) -> Entry:
        """Return the entry with a handler that notes its times and its response: each request must reach it."""
        found = self._entries.get(entry.handler)
        if found is None:
            found = self._entries[entry.handler] = replace(entry, handler=self._around(entry.handler), renewal=None)
        return found

    def begin(
        self, connection: ClientConnection, entry: Entry, frame: memoryview, version: int, correlation_id: int
    ) -> ObservedRequest:
        """Observe a request that is dispatched now. Raises FramingError."""
        header_version = entry.header_versions[version][0]
        client_id, _ = request_header(frame, HEAD_BYTES, len(frame), header_version)
        request = ObservedRequest(entry, version, correlation_id, client_id, len(frame))
        self._waiting[connection.number] = request
        return request

    def _around(self, handler: Handler) -> Handler:
        def observed_handler(broker: Any, request: Any, call: Call) -> Any:
            observed = self._waiting.pop(call.connection.number, None)
            if observed is None:  # the connection has ended meanwhile
                return handler(broker, request, call)
            observed.begin(request, keeps_contents=request_logger.isEnabledFor(TRACE))
            result = handler(broker, request, call)
            if isinstance(result, CoroutineType):
                return observed.awaited(result)
            observed.returned()
            if isinstance(result, Deferred):
                result.then(observed.answered)
            else:
                observed.responded(result)
            return result

        return observed_handler

    # ---- its end --------------------------------------------------------------------------------------------------

    def end(self, request: ObservedRequest, connection: ClientConnection, outcome: Deferred[Sequence[Any]]) -> None:
        """Write the lines of a request whose response is encoded, or whose connection has ended before that."""
        request.end()
        if self._waiting.get(connection.number) is request:
            self.forget(connection)
        is_slow = 0 <= self.slow_ms <= request.slow_ms
        is_logged = request_logger.isEnabledFor(logging.DEBUG) and self._rate.admits()
        is_slow = is_slow and self._slow_rate.admits()
        if not (is_slow or is_logged):
            return
        traced = is_logged and request_logger.isEnabledFor(TRACE)
        line = json.dumps(_line(request, connection, outcome.value, traced), separators=(",", ":"))
        if is_logged:
            self._rate.wrote(len(line))
            request_logger.log(TRACE if traced else logging.DEBUG, "Completed request:%s", line)
        if is_slow:
            self._slow_rate.wrote(len(line))
            slow_logger.warning("Slow request (gregor.slow.request.log.ms=%d):%s", self.slow_ms, line)

    def forget(self, connection: ClientConnection) -> None:
        """Remove the request of a connection whose handler is not called any more."""
        self._waiting.pop(connection.number, None)


def _report(logger: logging.Logger, level: int, left_out: int) -> None:
    logger.log(
        level,
        "%d more requests of this second are left out: the limit is %d lines and %d KB per second",
        *(left_out, MAX_LINES, MAX_BYTES // 1024),
    )


def _line(
    request: ObservedRequest, connection: ClientConnection, chunks: Sequence[Any] | None, traced: bool
) -> dict[str, Any]:
    response = request.response
    if not isinstance(response, Structure):
        response = _decoded(request, chunks)
    throttle_ms = getattr(response, "throttle_time_ms", 0)
    remote_ns = max(0, request.total_ns - request.queue_ns - request.local_ns)
    line: dict[str, Any] = {
        "requestHeader": {
            "requestApiKey": request.entry.key.value,
            "requestApiVersion": request.version,
            "correlationId": request.correlation_id,
            "clientId": request.client_id,
            "requestApiKeyName": request.entry.key.name,
        },
        "connection": _connection_text(connection),
        "totalTimeMs": _ms(request.total_ns),
        "requestQueueTimeMs": _ms(request.queue_ns),
        "localTimeMs": _ms(request.local_ns),
        "remoteTimeMs": _ms(remote_ns),
        "throttleTimeMs": throttle_ms,
        "requestSizeBytes": request.size_bytes,
        "responseSizeBytes": None if chunks is None else sum(map(_chunk_bytes, chunks)),
        "errors": None if response is None else error_counts(response),
        "principal": str(connection.principal),
        "listener": connection.listener,
    }
    if traced:
        line["request"] = request.contents
        line["response"] = None if response is None else contents(request.entry.key, response)
    return line


def _decoded(request: ObservedRequest, chunks: Sequence[Any] | None) -> Structure | None:
    """Return the response that is in its chunks, if it is short; None for another one, and where there is none."""
    if not chunks or not all(isinstance(chunk, (bytes, bytearray)) for chunk in chunks):
        return None
    frame = b"".join(chunks)
    response_class = request.entry.response_class
    head_bytes = len(RESPONSE_HEADS[request.entry.header_versions[request.version][1]])
    if response_class is None or not head_bytes <= len(frame) <= _MAX_DECODED_BYTES:
        return None
    try:
        response: Structure = response_class.decode(frame, request.version, head_bytes)[0]
    except MalformedMessage:  # a refusal in the form of another version
        return None
    return response


def _connection_text(connection: ClientConnection) -> str:
    """Return the two addresses and the number of a connection, as Apache Kafka's connection ids have them."""
    own = address_text(str(connection.sockname[0]), connection.sockname[1]) if connection.sockname else "?"
    return f"{own}-{connection.peer}-{connection.number}"


def _chunk_bytes(chunk: Any) -> int:
    return len(chunk) if isinstance(chunk, (bytes, bytearray)) else int(chunk.size_bytes)


def _ms(duration_ns: int) -> float:
    return round(duration_ns / NS_PER_MS, 3)
