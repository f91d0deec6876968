"""The quota of changes at the controller: partitions of topics that are created, widened and deleted (KIP-599).

Versions of a request that know THROTTLING_QUOTA_EXCEEDED get it for each topic once the quota is exhausted; for older
versions the changes are made, and the client is throttled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gregor.broker.quotas.metering import throttled
from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from gregor.broker.quotas.client import MeteredCall
    from gregor.broker.quotas.quotas import Quotas
    from gregor.broker.quotas.rates import TokenBucket

ResponseT = TypeVar("ResponseT")


class ChangeQuota:
    """The quota of one request."""

    __slots__ = ("_bucket", "_is_strict", "_now_ms", "_throttled_until_ms")

    def __init__(self, bucket: TokenBucket, now_ms: Callable[[], int], *, is_strict: bool) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._throttled_until_ms = 0

    def record(self, changes: int) -> None:
        """Count changes before they are made. Raises KafkaError THROTTLING_QUOTA_EXCEEDED: they must not be made."""
        now_ms = self._now_ms()
        if self._is_strict:
            throttle_ms = self._bucket.throttle_ms(now_ms)
            if throttle_ms:
                self._throttled_until_ms = now_ms + throttle_ms
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            self._bucket.record(changes, now_ms)
            return
        self._bucket.record(changes, now_ms)
        if throttle_ms := self._bucket.throttle_ms(now_ms):
            self._throttled_until_ms = now_ms + throttle_ms

    @property
    def throttle_ms(self) -> int:
        """The rest of the throttle time: the request may have waited for the controller."""
        return max(0, self._throttled_until_ms - self._now_ms()) if self._throttled_until_ms else 0


def change_quota(quotas: Quotas | None, call: MeteredCall, strict_from: int) -> ChangeQuota | None:
    """Return the quota of a request, which is refused above it from version `strict_from` on; None without a quota."""
    if quotas is None:
        return None
    bucket = quotas.metering.meters_of(call).changes
    return None if bucket is None else ChangeQuota(bucket, quotas.now_ms, is_strict=call.version >= strict_from)


def throttled_by(quota: ChangeQuota | None, response: ResponseT, call: MeteredCall) -> ResponseT:
    """Throttle the connection of a request above its quota; return the response, with the throttle time in it."""
    if quota is None:
        return response
    changed: ResponseT = throttled(response, call, quota.throttle_ms)
    return changed
