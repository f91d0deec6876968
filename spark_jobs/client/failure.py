"""The error of a request to the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.errors import JobError


class KafkaFailure(JobError):
    """A request has failed: `code` is the error of the broker, or NETWORK_EXCEPTION where no broker has responded.

    The text has the cause and the remedy.
    """

    def __init__(self, code: int, text: str) -> None:
        known = code in ErrorCode.__members__.values()
        self.code = ErrorCode(code) if known else ErrorCode.UNKNOWN_SERVER_ERROR
        self.text = text
        super().__init__(f"{text} ({self.code.name if known else f'error code {code}'})")

    def __reduce__(self) -> tuple[type[KafkaFailure], tuple[int, str]]:
        return type(self), (int(self.code), self.text)

    @property
    def retriable(self) -> bool:
        """Return whether the same request may succeed later, or at another broker."""
        return self.code.retriable


class Throttled(KafkaFailure):
    """A broker has answered a fetch without any partition, because the client has exceeded a quota. It reads the next
    request of the client after `throttle_ms`."""

    def __init__(self, throttle_ms: int) -> None:
        text = f"the client has exceeded a quota: the broker reads its next request after {throttle_ms} ms"
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        self.throttle_ms = throttle_ms


def raise_if_throttled(response: Any) -> None:
    """Raise Throttled if a response to a fetch of partitions has none of them, because of a quota."""
    if response.throttle_time_ms and not response.responses:
        raise Throttled(response.throttle_time_ms)


def decisive(failures: Sequence[KafkaFailure]) -> KafkaFailure | None:
    """Return the failure that decides about a request in parts: one that no retry mends, else the first; or None."""
    return next((failure for failure in failures if not failure.retriable), failures[0] if failures else None)
