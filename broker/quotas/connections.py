"""The rate of new connections by address (connection_creation_rate, KIP-612).

A connection above the limit of its address is accepted, held, and closed when its throttle time is over; it does not
count. An address without a limit of its own has that of <default>.
"""

from __future__ import annotations

from collections.abc import Mapping

from gregor.broker.quotas.rates import WindowedRate
from gregor.replication.entities.quotas import DEFAULT, Name

MIN_RATES_TO_SWEEP = 1024


class ConnectionRates:
    """The limits and rates by address. Pure: the caller passes the time."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._limits: dict[Name, int] = {}
        self._rates: dict[str, WindowedRate] = {}
        self._sweep_at = MIN_RATES_TO_SWEEP

    def update(self, limits: Mapping[Name, int]) -> None:
        """Replace the limits, by address or DEFAULT. Names of hosts must be resolved before."""
        self._limits = dict(limits)
        for address in list(self._rates):
            if (limit := self._limit_of(address)) is None:
                del self._rates[address]
            else:
                self._rates[address].limit_to(limit)

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection; return how long it is held before it is closed, 0 if it may stay."""
        limit = self._limit_of(address)
        if limit is None:
            return 0
        rate = self._rates.get(address)
        if rate is None:
            if len(self._rates) >= self._sweep_at:
                self._rates = {one: rate for one, rate in self._rates.items() if not rate.is_idle(now_ms)}
                self._sweep_at = max(MIN_RATES_TO_SWEEP, 2 * len(self._rates))
            rate = WindowedRate(limit, self._samples, self._window_ms, now_ms, max_throttle_ms=self._window_ms)
            self._rates[address] = rate
        throttle_ms = rate.record(1, now_ms)
        if throttle_ms:
            rate.unrecord(1, now_ms)
        return throttle_ms

    def _limit_of(self, address: str) -> int | None:
        limit = self._limits.get(address)
        return self._limits.get(DEFAULT) if limit is None else limit
