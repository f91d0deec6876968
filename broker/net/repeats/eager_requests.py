"""Requests of one connection whose handlers run up to their first wait at once, and those that come again and again."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from gregor.broker.context import Call, ClientConnection
from gregor.broker.net.repeats.requests import NumberedRequest, RepeatedRequest
from gregor.broker.net.responses import encode_frame, run_to_first_wait
from gregor.protocol.deferred import Deferred
from gregor.protocol.framing import HEAD_BYTES, SIZE_BYTES, request_header

if TYPE_CHECKING:
    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.registry import Entry

_INT32 = Struct(">i")


class EagerRequests:
    """Serves them, and keeps the last one of each kind that is repeated (repeats.requests)."""

    __slots__ = ("_broker", "_client", "_numbered", "_repeated")

    def __init__(self, client: ClientConnection, broker: ConnectionContext) -> None:
        self._client = client
        self._broker = broker
        self._repeated: RepeatedRequest | None = None
        self._numbered: NumberedRequest | None = None

    def begin(self, entry: Entry, view: memoryview, start: int, stop: int, version: int, correlation_id: int) -> Any:
        """Return what the handler returns for a request, or what remains after its first wait. Where clients repeat the
        same bytes, the decoded request is kept, and the frame of the response if it can be renewed: then no guard and
        no quota has to see the request."""
        begin = start + HEAD_BYTES
        if entry.numbers is not None:
            return self._begin_numbered(entry, view, begin, stop, version, correlation_id)
        repeated = self._repeated
        data = bytes(view[begin:stop]) if entry.repeats else b""
        if repeated is not None and repeated.data == data and repeated.entry is entry and repeated.version == version:
            if (renew := repeated.renew) is not None:
                if self._may_renew(repeated.generation) and renew():
                    frame = repeated.frame
                    _INT32.pack_into(frame, SIZE_BYTES, correlation_id)
                    return bytearray(frame)
                repeated.forget_renewal()
            client_id, request = repeated.client_id, repeated.request
        else:
            client_id, request = _decoded(entry, view, begin, stop, version)
            if entry.repeats:
                repeated = self._repeated = RepeatedRequest(entry, version, data, client_id, request)
        call = Call(self._client, entry.key.value, version, correlation_id, client_id)
        result = self._handle(entry, request, call)
        if entry.renewal is not None and repeated is not None and type(result) is entry.response_class:
            self._learn_renewal(repeated, call, result)
        return result

    def _begin_numbered(
        self, entry: Entry, view: memoryview, begin: int, stop: int, version: int, correlation_id: int
    ) -> Any:
        """As `begin`, for a request that clients repeat with other numbers."""
        data = bytes(view[begin:stop])
        before = self._numbered
        if (
            before is not None
            and before.entry is entry
            and before.version == version
            and self._may_renew(before.generation)
            and (frame := before.serve(data, correlation_id)) is not None
        ):
            return frame
        client_id, request = _decoded(entry, view, begin, stop, version)
        call = Call(self._client, entry.key.value, version, correlation_id, client_id)
        result = self._handle(entry, request, call)
        self._numbered = None
        if type(result) is Deferred and result.done and type(result.value) is entry.response_class:
            numbered = NumberedRequest(entry, version, client_id, request)
            if numbered.is_short:
                self._numbered = numbered
                if before is not None and before.is_repeated_by(numbered):
                    self._learn_numbers(numbered, call, result.value, data)
        return result

    def _handle(self, entry: Entry, request: Any, call: Call) -> Any:
        quotas = self._broker.quotas
        handler = entry.handler if quotas is None else quotas.metering.handler_of(entry.key, entry.handler)
        return run_to_first_wait(handler(self._broker, request, call))

    def _may_renew(self, generation: int) -> bool:
        """Return whether the rules of the authorizer are those of this generation, and no time is measured."""
        authorizer, quotas = self._broker.authorizer, self._broker.quotas
        return (authorizer is None or authorizer.generation == generation) and (
            quotas is None or not quotas.measures_time
        )

    def _generation(self) -> int:
        """Return the generation of the authorizer's rules; 0 without an authorizer."""
        authorizer = self._broker.authorizer
        return 0 if authorizer is None else authorizer.generation

    def _learn_numbers(self, numbered: NumberedRequest, call: Call, response: Any, data: bytes) -> None:
        """Keep what serves a request that has come twice, with other numbers."""
        numbers, generation = numbered.entry.numbers, self._generation()
        if numbers is not None and self._may_renew(generation):
            renew = numbers.renewal(self._broker, numbered.request, call, response)
            if renew is not None:
                numbered.learn(response, renew, data, generation)

    def _learn_renewal(self, repeated: RepeatedRequest, call: Call, response: Any) -> None:
        """Keep what serves a request when it comes again, and the response, if that is the same the next time. Not
        only from the second time on: of the requests with a renewal nearly all are repeated."""
        entry, generation = repeated.entry, self._generation()
        if entry.renewal is not None and self._may_renew(generation):
            renew = entry.renewal(self._broker, repeated.request, call, response)
            if renew is not None:
                repeated.learn(renew, encode_frame(entry, call.version, response), generation)


def _decoded(entry: Entry, view: memoryview, begin: int, stop: int, version: int) -> tuple[str | None, Any]:
    """Return the client id and the request of these bytes."""
    client_id, position = request_header(view, begin, stop, entry.header_versions[version][0])
    return client_id, entry.decoders[version](view[:stop], position)[0]
