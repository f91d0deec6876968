"""Limits the rate at which replicas move: `leader.replication.throttled.rate` what a leader sends, and
`follower.replication.throttled.rate` what a follower fetches, of the replicas that the topic settings
`…replication.throttled.replicas` name.

As Kafka's ReplicationQuotaManager: all bytes of the named replicas are counted, those of replicas in sync too, which
are never delayed; and what was moved before the last window does not count any more. So in-sync replicas that move
more than the rate delay the others for one window at most after they have slowed down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gregor.config.definitions import LONG_MAX
from gregor.storage.fs.throttle import Pace

ALL = "*"
WINDOW_S = 11.0
"""Kafka's `replication.quota.window.num` times `replication.quota.window.size.seconds`."""
MIN_WAIT_S = 0.001
"""Timers are not more exact; a shorter wait is over before its time, and is begun again."""


class ReplicaThrottle:
    """One direction of one broker. `rate` returns the present limit in bytes per second, LONG_MAX for none."""

    __slots__ = ("_broker_id", "_pace", "_rate")

    def __init__(self, broker_id: int, rate: Callable[[], int], clock_s: Callable[[], float]) -> None:
        self._broker_id = broker_id
        self._rate = rate
        self._pace = Pace(clock_s, WINDOW_S)

    def names(self, replicas: Sequence[str], index: int) -> bool:
        """Whether a topic's list (partition:broker, or *) contains this broker's replica of a partition."""
        return bool(replicas) and (ALL in replicas or f"{index}:{self._broker_id}" in replicas)

    def charge(self, size_bytes: int) -> None:
        """Count bytes of a throttled replica that were sent or fetched."""
        rate = self._rate()
        if rate < LONG_MAX:
            self._pace.charge(size_bytes)
            # Limits the charges to a window at once: idle time before the next fetch must not count against the rest.
            self._pace.wait_s(rate)

    def wait_s(self) -> float:
        """Return the time until another fetch may be sent or answered: 0, or at least MIN_WAIT_S."""
        rate = self._rate()
        if rate >= LONG_MAX:
            return 0.0
        wait_s = self._pace.wait_s(rate)
        return max(wait_s, MIN_WAIT_S) if wait_s else 0.0
