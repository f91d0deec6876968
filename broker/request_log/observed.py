"""One request that is observed: its times, and what its line shows of it."""

from __future__ import annotations

from collections.abc import Coroutine
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from gregor.broker.quotas.metering import TimedCoroutine
from gregor.broker.request_log.contents import contents
from gregor.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from gregor.broker.registry import Entry
    from gregor.protocol.codec.classes import Structure
    from gregor.protocol.deferred import Deferred

NS_PER_MS = 1_000_000
_FOR_OTHER_MEMBERS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Their response comes when other members have sent theirs."""


class ObservedRequest:
    """A request from its dispatch to its response.

    `queue`: from the dispatch to the handler, with the decoding. `local`: the handler's own work, in all steps of a
    coroutine. `total`: to the encoded response.
    """

    __slots__ = (
        "_began_ns",
        "_handled_ns",
        "_wait_ms",
        "client_id",
        "contents",
        "correlation_id",
        "entry",
        "local_ns",
        "response",
        "size_bytes",
        "total_ns",
        "version",
    )

    def __init__(self, entry: Entry, version: int, correlation_id: int, client_id: str | None, size_bytes: int) -> None:
        self.entry = entry
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.size_bytes = size_bytes
        """With the header, without the size field."""
        self.contents: dict[str, Any] | None = None
        self.response: Any = None
        """The message, where a handler made one."""
        self.local_ns = self.total_ns = 0
        self._began_ns = self._handled_ns = perf_counter_ns()
        self._wait_ms = 0

    def begin(self, request: Structure, *, keeps_contents: bool) -> None:
        """Note that the handler is called; `keeps_contents`: with the contents, whose records may be overwritten."""
        self._handled_ns = perf_counter_ns()
        if self.entry.key is ApiKey.FETCH:
            self._wait_ms = max(0, getattr(request, "max_wait_ms", 0))
        if keeps_contents:
            self.contents = contents(self.entry.key, request)

    def returned(self) -> None:
        """Note that the handler, or the fast path, has returned."""
        self.local_ns = perf_counter_ns() - self._handled_ns

    def responded(self, response: Any) -> None:
        """Keep the response that the handler has returned."""
        self.response = response

    async def awaited(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the response of the handler's coroutine."""
        timed = TimedCoroutine(coroutine, perf_counter_ns() - self._handled_ns)
        try:
            self.response = await timed
        finally:
            self.local_ns = timed.busy_ns
        return self.response

    def answered(self, outcome: Deferred[Any]) -> None:
        """Keep the response of a handler that has made it later."""
        if outcome.error is None:
            self.response = outcome.value

    def end(self) -> None:
        """Note that the response is encoded, or will not be."""
        self.total_ns = perf_counter_ns() - self._began_ns

    @property
    def queue_ns(self) -> int:
        return self._handled_ns - self._began_ns

    @property
    def slow_ms(self) -> float:
        """The time that counts as slow: without the time for which the request wanted to wait."""
        if self.entry.key in _FOR_OTHER_MEMBERS:
            return (self.queue_ns + self.local_ns) / NS_PER_MS
        return self.total_ns / NS_PER_MS - self._wait_ms
