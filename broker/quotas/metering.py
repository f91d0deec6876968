"""Requests whose cost counts for a quota: their bytes or their time on the event loop.

A response carries the throttle time, and its connection dispatches no request until that is over (KIP-219). The time of
a request is that of its handler, of all steps of a coroutine, and of the encoding of a response that is made at once.
100 % are one process, which uses one core. Requests among brokers do not count, and Fetch counts itself, because a
throttled response must be empty (broker.fetch.consumer).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from struct import Struct
from time import perf_counter_ns
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from gregor.broker.quotas.client import Handler, MeteredCall
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred, transformed

if TYPE_CHECKING:
    from gregor.broker.quotas.quotas import ClientMeters, Quotas

NOT_METERED = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""Requests among brokers, and those of logins, of which Apache Kafka counts no time either; the first two are counted
elsewhere."""
_METADATA_THROTTLE_FROM = 3
_INT32 = Struct(">i")


class Metering:
    """Counts requests. The loop serves one at a time, so the beginning of the present one is kept here."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._handlers: dict[Handler, Handler] = {}
        self.began_ns = 0
        """When the present request has arrived, as its decoding counts, too: from `begin` to `end`. 0 while none is
        served, and where time does not count."""
        self._charged: ClientMeters | None = None
        self._charged_ns = 0

    # -- the time of the present request ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Note that a request has arrived."""
        self.began_ns = perf_counter_ns()

    def present_begin_ns(self) -> int:
        """Return the beginning of the present request, or the present time if its handler is called later; 0 where time
        does not count."""
        if not self._quotas.measures_time:
            return 0
        return self.began_ns or perf_counter_ns()

    def end(self) -> None:
        """Note that the present request is served, or waits; count the time since its response was made, for the next
        requests."""
        self.began_ns = 0
        charged, self._charged = self._charged, None
        if charged is not None:
            charged.worked_unchecked(perf_counter_ns() - self._charged_ns, self._quotas.now_ms())

    def meters_of(self, call: MeteredCall) -> ClientMeters:
        return self._quotas.meters_of(call.connection.principal.name, call.client_id)

    # -- handlers --------------------------------------------------------------------------------------------------

    def handler_of(self, key: ApiKey, handler: Handler) -> Handler:
        """Return the handler of an API, in a form that counts its time where time counts."""
        if not self._quotas.measures_time:
            return handler
        metered = self._handlers.get(handler)
        if metered is None:
            metered = self._handlers[handler] = handler if key in NOT_METERED else self._metered(handler)
        return metered

    def _metered(self, handler: Handler) -> Handler:
        def serve(broker: Any, request: Any, call: MeteredCall) -> Any:
            began_ns = self.present_begin_ns()
            result = handler(broker, request, call)
            if isinstance(result, CoroutineType):
                return self._timed(result, call, began_ns)
            busy_ns = perf_counter_ns() - began_ns
            if isinstance(result, Deferred):
                return transformed(result, lambda response: self._charge(response, call, busy_ns))
            if hasattr(result, "__await__"):
                return self._awaited(result, call, busy_ns)
            return self._charge(result, call, busy_ns)

        return serve

    async def _timed(self, coroutine: Coroutine[Any, Any, Any], call: MeteredCall, began_ns: int) -> Any:
        timed = TimedCoroutine(coroutine, perf_counter_ns() - began_ns)
        response = await timed
        return self._charge(response, call, timed.busy_ns)

    async def _awaited(self, result: Any, call: MeteredCall, busy_ns: int) -> Any:
        return self._charge(await result, call, busy_ns)

    def _charge(self, response: Any, call: MeteredCall, busy_ns: int) -> Any:
        meters = self.meters_of(call)
        if meters.time is None:
            return response
        throttle_ms = meters.worked(busy_ns, self._quotas.now_ms())
        if self.began_ns:
            self._charged, self._charged_ns = meters, perf_counter_ns()
        return throttled(response, call, throttle_ms)

    # -- Produce ---------------------------------------------------------------------------------------------------

    def produce(self, handler: Handler, broker: Any, request: Any, call: MeteredCall, size_bytes: int) -> Any:
        """Serve a Produce request and count it. Its connection is throttled from now on, and the response has the
        throttle time, whenever it comes."""
        began_ns = self.present_begin_ns()
        result = handler(broker, request, call)
        busy_ns = perf_counter_ns() - began_ns if began_ns and request.acks else 0
        throttle_ms = self.meters_of(call).produced(size_bytes, busy_ns, self._quotas.now_ms())
        if not throttle_ms:
            return result
        call.connection.throttle(throttle_ms)
        if isinstance(result, Deferred):
            return transformed(result, lambda response: with_throttle_time(response, call, throttle_ms))
        return with_throttle_time(result, call, throttle_ms)


class TimedCoroutine:
    """A coroutine whose steps are timed: `busy_ns` is their sum, and the time before that it is given."""

    __slots__ = ("_coroutine", "busy_ns")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], busy_ns: int) -> None:
        self._coroutine = coroutine
        self.busy_ns = busy_ns

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = self._next
        while True:
            began_ns = perf_counter_ns()
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            finally:
                self.busy_ns += perf_counter_ns() - began_ns
            try:
                yield awaited
                step = self._next
            except BaseException as error:
                step = _Throw(self._coroutine, error)

    def _next(self) -> Any:
        return self._coroutine.send(None)


class _Throw:
    """The step of a coroutine in which an error is raised, such as its cancellation."""

    __slots__ = ("_coroutine", "_error")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], error: BaseException) -> None:
        self._coroutine = coroutine
        self._error = error

    def __call__(self) -> Any:
        return self._coroutine.throw(self._error)


def throttled(response: Any, call: MeteredCall, throttle_ms: int) -> Any:
    """Throttle the connection of a request, and return the response with the throttle time in it."""
    if throttle_ms:
        call.connection.throttle(throttle_ms)
        return with_throttle_time(response, call, throttle_ms)
    return response


def with_throttle_time(response: Any, call: MeteredCall, throttle_ms: int) -> Any:
    """Return the response with the throttle time, where its version has one and it is longer than the one in it."""
    parts = getattr(response, "parts", None)
    if parts is not None:  # encoded already
        if call.api_key == ApiKey.METADATA and call.version >= _METADATA_THROTTLE_FROM:
            parts[0] = _INT32.pack(throttle_ms) + parts[0][_INT32.size :]
    elif throttle_ms > getattr(response, "throttle_time_ms", throttle_ms):
        return response.replaced(throttle_time_ms=throttle_ms)
    return response
