"""Measured rates and the throttle times of those above their bound, with Apache Kafka's arithmetic.

A rate is the sum over the samples of the last `samples` windows, divided by the time since the oldest of them began,
but by at least `samples - 1` whole windows: a client that begins may send a burst
(org.apache.kafka.common.metrics.stats.Rate, SampledStat). A sample expires when nothing was recorded in it for all
windows together; it then begins anew, empty. One sample more is kept than there are windows.

Pure: the caller passes the time. A record costs one addition and two comparisons while its window lasts and the sum of
all windows is below that which no client exceeds the bound with, however short the time was.
"""

from __future__ import annotations

MS_PER_S = 1000


class WindowedRate:
    """The rate of one client, or of clients that share a quota, in units per second; and its bound."""

    __slots__ = (
        "_before",
        "_check_ms",
        "_current",
        "_expire_ms",
        "_free",
        "_lasts_ms",
        "_min_elapsed_ms",
        "_min_windows",
        "_oldest_ms",
        "_samples",
        "_starts_ms",
        "_values",
        "_window_ms",
        "bound",
        "last_ms",
        "max_throttle_ms",
        "total",
    )

    def __init__(
        self, bound: float, samples: int, window_ms: int, now_ms: int, max_throttle_ms: int | None = None
    ) -> None:
        self.max_throttle_ms = max_throttle_ms
        """Limit of a throttle time; None where Kafka has no limit."""
        self._samples = samples
        self._window_ms = window_ms
        self._min_windows = samples - 1
        self._min_elapsed_ms = (samples - 1) * window_ms
        self._expire_ms = samples * window_ms
        self._values: list[float] = [0]
        """The sums of the samples, that of the present one without what was recorded since `_store`."""
        self._before: float = 0
        """The sum over all samples but the present one."""
        self._starts_ms = [now_ms]
        self._lasts_ms = [now_ms]
        self._current = 0
        self.total: float = 0
        """The sum over all windows."""
        self._oldest_ms = now_ms
        self.last_ms = now_ms
        """The time of the last record."""
        self._check_ms = now_ms + window_ms
        """From here on the present window is over, or a sample expires."""
        self.limit_to(bound)

    def record(self, value: float, now_ms: int) -> int:
        """Record a value and return the throttle time, 0 within the bound."""
        if now_ms < self._check_ms:
            self.last_ms = now_ms
            self.total = total = self.total + value
            if total <= self._free:
                return 0
        else:
            self._advance(now_ms)
            self.total = total = self.total + value
        elapsed_ms = self._elapsed_ms(now_ms)
        if total * MS_PER_S <= self.bound * elapsed_ms:
            return 0
        return self._throttle_ms(total, elapsed_ms)

    def unrecord(self, value: float, now_ms: int) -> None:
        """Subtract a value that was recorded: it will not be sent after all."""
        self.record_unchecked(-value, now_ms)

    def record_unchecked(self, value: float, now_ms: int) -> None:
        """Record a value that counts for the next requests only."""
        if now_ms >= self._check_ms:
            self._advance(now_ms)
        self.last_ms = now_ms
        self.total += value

    def measure(self, now_ms: int) -> float:
        """Return the present rate per second."""
        self._store()
        self._expire(now_ms)
        return self.total / (self._elapsed_ms(now_ms) / MS_PER_S)

    @property
    def max_in_windows(self) -> float:
        """The largest value that does not exceed the bound by itself, if nothing else is recorded."""
        return self.bound * self._min_windows * self._window_ms / MS_PER_S

    def limit_to(self, bound: float) -> None:
        """Throttle above this bound from now on; what was recorded counts."""
        self.bound = bound
        self._free = bound * self._min_elapsed_ms / MS_PER_S
        """Up to this sum over all windows the bound is kept: the elapsed time is at least `_min_elapsed_ms`."""

    def is_idle(self, now_ms: int) -> bool:
        """Return whether nothing is left of what was recorded, so that a new rate would measure the same."""
        return now_ms - self.last_ms >= self._expire_ms

    def _throttle_ms(self, total: float, elapsed_ms: int) -> int:
        """Return how much longer the elapsed time must be, for the rate to be the bound (QuotaUtils.throttleTime)."""
        if self.bound <= 0:
            return 0
        throttle_ms = round_half_up((total / (elapsed_ms / MS_PER_S) - self.bound) / self.bound * elapsed_ms)
        if self.max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, self.max_throttle_ms)
        return max(0, throttle_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self._oldest_ms
        return elapsed_ms + max(0, self._min_windows - elapsed_ms // self._window_ms) * self._window_ms or 1

    def _advance(self, now_ms: int) -> None:
        """Begin the sample of another window if the present one is over, and expire old samples."""
        self._store()
        if now_ms - self._starts_ms[self._current] >= self._window_ms:
            self._current = current = (self._current + 1) % (self._samples + 1)
            if current == len(self._values):
                self._values.append(0)
                self._starts_ms.append(now_ms)
                self._lasts_ms.append(now_ms)
            else:
                self._clear(current, now_ms)
        self._lasts_ms[self._current] = now_ms
        self._expire(now_ms)

    def _store(self) -> None:
        """Note in the present sample what was recorded in it."""
        self._values[self._current] = self.total - self._before
        self._lasts_ms[self._current] = self.last_ms

    def _expire(self, now_ms: int) -> None:
        lasts_ms = self._lasts_ms
        for index, last_ms in enumerate(lasts_ms):
            if now_ms - last_ms >= self._expire_ms:
                self._clear(index, now_ms)
        self.last_ms = lasts_ms[self._current]
        self.total = sum(self._values)
        self._before = self.total - self._values[self._current]
        self._oldest_ms = min(self._starts_ms)
        expires_ms = min(lasts_ms) + self._expire_ms
        self._check_ms = min(self._starts_ms[self._current] + self._window_ms, expires_ms)

    def _clear(self, index: int, now_ms: int) -> None:
        self._values[index] = 0
        self._starts_ms[index] = self._lasts_ms[index] = now_ms


class TokenBucket:
    """Credits of changes at the controller, which grow by `bound` a second up to those of all windows together
    (org.apache.kafka.common.metrics.stats.TokenBucket, KIP-599). The quota is exhausted while they are below zero.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms", "bound")

    def __init__(self, bound: float, samples: int, window_ms: int) -> None:
        self.bound = bound
        self._seconds = samples * window_ms / MS_PER_S
        self._tokens = 0.0
        self._updated_ms = 0
        """The credits begin at the limit, as they have grown since 1970."""

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time until the quota is no longer exhausted, 0 if it is not."""
        self._refill(now_ms)
        if self._tokens >= 0 or self.bound <= 0:
            return 0
        return round_half_up(-self._tokens / self.bound * MS_PER_S)

    def record(self, changes: float, now_ms: int) -> None:
        """Count changes."""
        self._refill(now_ms)
        self._tokens = min(self._seconds * self.bound, self._tokens - changes)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether a new bucket would have as many credits."""
        self._refill(now_ms)
        return self._tokens >= self._seconds * self.bound

    def _refill(self, now_ms: int) -> None:
        grown = self._tokens + self.bound * ((now_ms - self._updated_ms) / MS_PER_S)
        self._tokens = min(self._seconds * self.bound, grown)
        self._updated_ms = now_ms


def round_half_up(value: float) -> int:
    """Round as Java's Math.round."""
    return int((value + 0.5) // 1)
