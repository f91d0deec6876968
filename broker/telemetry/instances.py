"""The client instances that request subscriptions and push metrics: their times, and the checks of their requests.

Apache Kafka: ClientMetricsManager and ClientMetricsInstance, with its errors and its bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.telemetry.series import ClientSeries
from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gregor.broker.telemetry.otlp import Point
    from gregor.broker.telemetry.subscriptions import Attributes, Selection, Subscriptions
    from gregor.protocol.ids import Uuid

MAX_INSTANCES = 16_384
"""Of one broker; the one that has been silent for longest makes room for a new one."""
MIN_EXPIRY_MS = 60_000
INTERVALS_UNTIL_EXPIRY = 3
SWEEP_MS = 10_000
MAX_SERIES = 20_000
"""Of all client instances of a broker."""
MAX_SERIES_OF_INSTANCE = 1_000
CODECS = range(5)
"""None, gzip, snappy, lz4, zstd."""


class ClientInstance:
    """One client instance."""

    __slots__ = (
        "_last_get_ms",
        "_last_push_ms",
        "attributes",
        "expires_ms",
        "id",
        "selection",
        "series",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(
        self,
        client_instance_id: Uuid,
        attributes: Attributes,
        selection: Selection,
        version: int,
        series: ClientSeries | None = None,
    ) -> None:
        """`series`: those that the instance has pushed before."""
        self.id = client_instance_id
        self.attributes = attributes
        self.selection = selection
        self.version = version
        """That of the subscriptions from which the selection was made."""
        self.subscription_id = selection.subscription_id(client_instance_id)
        self.terminating = False
        self.expires_ms = 0
        self.series = ClientSeries() if series is None else series
        self._last_get_ms = self._last_push_ms = 0

    def renew(self, now_ms: int) -> None:
        """Begin the time anew after which the instance is forgotten: three intervals, at least a minute."""
        self.expires_ms = now_ms + max(MIN_EXPIRY_MS, INTERVALS_UNTIL_EXPIRY * self.selection.interval_ms)

    def begin_push(self, *, is_last: bool) -> None:
        """Note whether a push is the last one. Raises KafkaError INVALID_REQUEST if the one before it was."""
        has_ended, self.terminating = self.terminating, is_last
        if has_ended:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def admits_get(self, now_ms: int) -> bool:
        """Return whether a request for subscriptions does not come too early; note its time then."""
        if now_ms - max(self._last_get_ms, self._last_push_ms) < self.selection.interval_ms:
            return False
        self._last_get_ms = now_ms
        return True

    def admits_push(self, now_ms: int) -> bool:
        """Return whether a push does not come too early; note its time then. The first one after a request for
        subscriptions may come at any time, as clients vary the interval."""
        is_first = self._last_get_ms > self._last_push_ms
        if not is_first and now_ms - self._last_push_ms < self.selection.interval_ms:
            return False
        self._last_push_ms = now_ms
        return True


class ClientInstances:
    """All client instances of a broker, in the order of their last requests."""

    def __init__(self, subscriptions: Subscriptions, max_instances: int = MAX_INSTANCES) -> None:
        self._subscriptions = subscriptions
        self._max_instances = max_instances
        self._by_id: dict[Uuid, ClientInstance] = {}
        self._next_sweep_ms = 0
        self.series_count = 0
        self.throttled = 0
        """Requests that came too early."""
        self.unknown_subscriptions = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(self._by_id.values())

    def __contains__(self, client_instance_id: Uuid) -> bool:
        return client_instance_id in self._by_id

    def instance(self, client_instance_id: Uuid, attributes: Attributes, now_ms: int) -> ClientInstance:
        """Return the instance of a request, a new one if it is unknown. After a change of the subscriptions it begins
        anew, but keeps its series."""
        self.expire(now_ms)
        found = self._by_id.pop(client_instance_id, None)
        version = self._subscriptions.version
        if found is None or found.version != version:
            known = attributes if found is None else found.attributes
            series = None if found is None else found.series
            found = ClientInstance(client_instance_id, known, self._subscriptions.selected_by(known), version, series)
        while len(self._by_id) >= self._max_instances:
            self._remove(next(iter(self._by_id.values())))
        self._by_id[client_instance_id] = found
        found.renew(now_ms)
        return found

    def expire(self, now_ms: int) -> None:
        """Remove the instances that have been silent for three intervals, at least a minute; every ten seconds."""
        if now_ms < self._next_sweep_ms:
            return
        self._next_sweep_ms = now_ms + SWEEP_MS
        for one in [one for one in self._by_id.values() if one.expires_ms <= now_ms]:
            self._remove(one)

    def _remove(self, instance: ClientInstance) -> None:
        del self._by_id[instance.id]
        self.series_count -= len(instance.series)

    def keep(self, instance: ClientInstance, points: Sequence[Point]) -> int:
        """Apply a push; return how many of its series had no room."""
        present = self._by_id.get(instance.id)
        series = instance.series
        if present is None or present.series is not series:
            return len(points)  # it was removed meanwhile
        before = len(series)
        room = min(MAX_SERIES_OF_INSTANCE, MAX_SERIES - self.series_count + before)
        refused = series.push(points, max(0, room))
        self.series_count += len(series) - before
        return refused

    def check_get(self, instance: ClientInstance, now_ms: int) -> None:
        """Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        if not instance.admits_get(now_ms):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def check_push(
        self,
        instance: ClientInstance,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        codec: int,
        size_bytes: int,
        max_bytes: int,
    ) -> None:
        """Raises KafkaError INVALID_REQUEST (after the last push), THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, in this order."""
        instance.begin_push(is_last=terminating)
        if not instance.admits_push(now_ms) and not terminating:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec not in CODECS:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if size_bytes > max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
