"""The quotas of one broker: limits by entity, and the measured rates of the clients that they limit.

A connection finds its rates once (`meters_of`) and again when `generation` has grown, which every change of the limits
causes. Rates that measure nothing any more are removed from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gregor.broker.quotas.connections import ConnectionRates
from gregor.broker.quotas.metering import Metering
from gregor.broker.quotas.precedence import Shared, applicable
from gregor.broker.quotas.rates import MS_PER_S, TokenBucket, WindowedRate
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import LONG_MAX
from gregor.replication.entities.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limits,
    QuotaEntity,
)

MIN_RATES_TO_SWEEP = 1024
_NO_GENERATION = -1
PERCENT_PER_NS = 100 / 1_000_000_000


class QuotaSettings(NamedTuple):
    """The settings quota.window.*, controller.quota.window.*, and the defaults of client ids in the broker's file."""

    samples: int = 11
    window_ms: int = 1000
    controller_samples: int = 11
    controller_window_ms: int = 1000
    producer_default: int = LONG_MAX
    consumer_default: int = LONG_MAX


class ClientMeters:
    """The rates of one pair of user and client id; None where it has no limit. Kept by the connections of the pair."""

    __slots__ = ("changes", "fetch", "generation", "max_fetch_bytes", "produce", "time")

    def __init__(
        self,
        generation: int,
        produce: WindowedRate | None,
        fetch: WindowedRate | None,
        time: WindowedRate | None,
        changes: TokenBucket | None,
    ) -> None:
        self.generation = generation
        self.produce = produce
        self.fetch = fetch
        self.max_fetch_bytes = LONG_MAX if fetch is None else int(fetch.max_in_windows)
        """The size of the largest response that does not exceed the quota by itself."""
        self.time = time
        """Percent of this process, which serves requests on one core."""
        self.changes = changes

    def produced(self, size_bytes: int, busy_ns: int, now_ms: int) -> int:
        """Count a Produce request and return the throttle time. `busy_ns`: 0 where only bytes count (acks=0)."""
        produce, time = self.produce, self.time
        throttle_ms = 0 if produce is None else produce.record(size_bytes, now_ms)
        if busy_ns and time is not None:
            of_time_ms = time.record(busy_ns * PERCENT_PER_NS, now_ms)
            return of_time_ms if of_time_ms > throttle_ms else throttle_ms
        return throttle_ms

    def fetched(self, size_bytes: int, busy_ns: int, now_ms: int) -> int:
        """Count the response to a Fetch and return the throttle time. Where there is one, the response must be emptied:
        its bytes are not counted.

        Unlike in Apache Kafka, a response that exceeds the quota by itself, because its first batch is so large, is
        sent where nothing else was within the windows: else the consumer could never get past that batch.
        """
        fetch, time = self.fetch, self.time
        throttle_ms = 0 if fetch is None else fetch.record(size_bytes, now_ms)
        if throttle_ms and fetch is not None and fetch.total == size_bytes:
            throttle_ms = 0
        if busy_ns and time is not None:
            of_time_ms = time.record(busy_ns * PERCENT_PER_NS, now_ms)
            if of_time_ms > throttle_ms:
                throttle_ms = of_time_ms
        if throttle_ms and fetch is not None:
            fetch.unrecord(size_bytes, now_ms)
        return throttle_ms

    def worked(self, busy_ns: int, now_ms: int) -> int:
        """Count the time of another request and return the throttle time."""
        return 0 if self.time is None else self.time.record(busy_ns * PERCENT_PER_NS, now_ms)

    def worked_unchecked(self, busy_ns: int, now_ms: int) -> None:
        """Count time that has no influence on a response any more, only on the next ones."""
        if self.time is not None:
            self.time.record_unchecked(busy_ns * PERCENT_PER_NS, now_ms)


NO_METERS = ClientMeters(_NO_GENERATION, None, None, None, None)
"""Of no client: stands where the rates have not been found yet, and is of no generation of the limits."""


class Quotas:
    """The limits and the rates. Belongs to the thread of the event loop."""

    def __init__(self, settings: QuotaSettings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self.now_ms = now_ms
        self.generation = 0
        """Grows at each change of the limits, and whenever rates are removed."""
        self.measures_time = False
        """Whether the time of requests counts for some client."""
        self._by_key: dict[str, dict[QuotaEntity, float]] = {}
        self._meters: dict[tuple[str, str], ClientMeters] = {}
        self._rates: dict[tuple[str, Shared], WindowedRate | TokenBucket] = {}
        self._sweep_at = MIN_RATES_TO_SWEEP
        self.connections = ConnectionRates(settings.samples, settings.window_ms)
        self.metering = Metering(self)
        self.update({})

    # -- limits ----------------------------------------------------------------------------------------------------

    def update(self, limits: Mapping[QuotaEntity, Limits]) -> None:
        """Replace all limits. The measured rates stay, for clients that still have a limit."""
        by_key: dict[str, dict[QuotaEntity, float]] = {}
        for entity, found in limits.items():
            for key, limit in found.items():
                by_key.setdefault(key, {})[entity] = limit
        for key, default in (
            (PRODUCER_BYTE_RATE, self._settings.producer_default),
            (CONSUMER_BYTE_RATE, self._settings.consumer_default),
        ):
            if default != LONG_MAX:
                by_key.setdefault(key, {}).setdefault(QuotaEntity(client_id=DEFAULT), default)
        self._by_key = by_key
        self.measures_time = REQUEST_PERCENTAGE in by_key
        self._rates = {key: rate for key, rate in self._rates.items() if key[0] in by_key}
        of_addresses = by_key.get(CONNECTION_CREATION_RATE, {})
        self.connections.update({entity.ip: int(limit) for entity, limit in of_addresses.items()})
        self._begin_generation()

    @property
    def is_empty(self) -> bool:
        """Whether no client has a limit, so that nothing needs to be measured."""
        return not self._by_key

    @property
    def rates_count(self) -> int:
        """The number of rates that are measured."""
        return len(self._rates)

    # -- rates -----------------------------------------------------------------------------------------------------

    def meters_of(self, user: str, client_id: str | None) -> ClientMeters:
        """Return the rates of a user and client id."""
        pair = user, client_id or ""
        meters = self._meters.get(pair)
        if meters is None:
            if len(self._rates) >= self._sweep_at or len(self._meters) >= self._sweep_at:
                self._sweep()
            meters = self._meters[pair] = ClientMeters(
                self.generation,
                self._rate(PRODUCER_BYTE_RATE, pair),
                self._rate(CONSUMER_BYTE_RATE, pair),
                self._rate(REQUEST_PERCENTAGE, pair),
                self._bucket(pair),
            )
        return meters

    def _rate(self, key: str, pair: tuple[str, str]) -> WindowedRate | None:
        found = applicable(self._by_key.get(key, {}), *pair)
        if found is None:
            return None
        rate = self._rates.get((key, found.shared))
        if not isinstance(rate, WindowedRate):
            samples, window_ms = self._settings.samples, self._settings.window_ms
            # Only the time of requests has a longest throttle time (ClientRequestQuotaManager).
            limit_ms = window_ms if key == REQUEST_PERCENTAGE else None
            rate = WindowedRate(found.limit, samples, window_ms, self.now_ms(), limit_ms)
            self._rates[key, found.shared] = rate
        rate.limit_to(found.limit)
        return rate

    def _bucket(self, pair: tuple[str, str]) -> TokenBucket | None:
        found = applicable(self._by_key.get(CONTROLLER_MUTATION_RATE, {}), *pair)
        if found is None:
            return None
        bucket = self._rates.get((CONTROLLER_MUTATION_RATE, found.shared))
        if not isinstance(bucket, TokenBucket):
            bucket = TokenBucket(found.limit, self._settings.controller_samples, self._settings.controller_window_ms)
            self._rates[CONTROLLER_MUTATION_RATE, found.shared] = bucket
        bucket.bound = found.limit
        return bucket

    def _sweep(self) -> None:
        now_ms = self.now_ms()
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle(now_ms)}
        self._sweep_at = max(MIN_RATES_TO_SWEEP, 2 * len(self._rates))
        self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self._meters.clear()


def settings_of(config: BrokerConfig) -> QuotaSettings:
    """Return the settings of a broker."""
    return QuotaSettings(
        config["quota.window.num"],
        config["quota.window.size.seconds"] * MS_PER_S,
        config["controller.quota.window.num"],
        config["controller.quota.window.size.seconds"] * MS_PER_S,
        config["quota.producer.default"],
        config["quota.consumer.default"],
    )
