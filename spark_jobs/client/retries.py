"""Retries of requests to a cluster: deadline, backoff, and fresh metadata before each attempt."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from gregor.spark_jobs.client.failure import KafkaFailure, Throttled

T = TypeVar("T")

_BACKOFF_FACTOR = 2
_JITTER = 0.2


class Clock(Protocol):
    """The time, and the way to wait."""

    def now_ms(self) -> float:
        """Return milliseconds that never go backwards."""

    def wait_ms(self, duration_ms: float) -> None:
        """Return after this time."""


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def wait_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)


class Retries:
    """The attempts of one operation, which together have one deadline.

    The wait doubles from `backoff_ms` to `max_backoff_ms` with a jitter of 20 percent (KIP-580).
    """

    def __init__(
        self, refresh: Callable[[], None], timeout_ms: float, backoff_ms: float, max_backoff_ms: float, clock: Clock
    ) -> None:
        self._refresh = refresh
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._max_backoff_ms = max(backoff_ms, max_backoff_ms)
        self._clock = clock
        self._deadline_ms = clock.now_ms() + timeout_ms
        self._attempts = 0

    def after(self, failure: KafkaFailure) -> None:
        """Wait and drop the known metadata, so that the caller tries again; raise the failure if that is of no use.

        The time for which a broker throttles the client does not count against the deadline, and is no failure.
        """
        if isinstance(failure, Throttled):
            self._clock.wait_ms(failure.throttle_ms)
            self._deadline_ms += failure.throttle_ms
            return
        if not failure.retriable:
            raise failure
        pause_ms = min(self._backoff_ms * _BACKOFF_FACTOR**self._attempts, self._max_backoff_ms)
        pause_ms *= random.uniform(1 - _JITTER, 1 + _JITTER)
        self._attempts += 1
        left_ms = self._deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            text = f"{failure.text}; given up after {self._attempts} attempts in {self._timeout_ms / 1000:g} s"
            raise KafkaFailure(failure.code, text) from failure
        self._clock.wait_ms(min(pause_ms, left_ms))
        self._refresh()

    def run(self, operation: Callable[[], T]) -> T:
        """Return the result of the operation, which is repeated while it fails with a retriable KafkaFailure."""
        while True:
            try:
                return operation()
            except KafkaFailure as failure:
                self.after(failure)
