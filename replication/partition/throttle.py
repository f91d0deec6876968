"""Keeps the moving of replicas below a rate: `leader.replication.throttled.rate` for what a leader sends, and
`follower.replication.throttled.rate` for what a follower takes, of the replicas that the topics' settings
`…replication.throttled.replicas` name. (Kafka's ReplicationQuotaManager, which counts in windows.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gregor.config.definitions import LONG_MAX
from gregor.storage.fs.throttle import Pace

ALL = "*"


class ReplicaThrottle:
    """One direction of one broker. `rate` tells the bytes per second as they are set now, LONG_MAX for no limit."""

    __slots__ = ("_broker_id", "_pace", "_rate")

    def __init__(self, broker_id: int, rate: Callable[[], int], clock_s: Callable[[], float]) -> None:
        self._broker_id = broker_id
        self._rate = rate
        self._pace = Pace(clock_s)

    def names(self, replicas: Sequence[str], index: int) -> bool:
        """Whether a topic's list (partition:broker, or *) is about this broker's replica of a partition."""
        return bool(replicas) and (ALL in replicas or f"{index}:{self._broker_id}" in replicas)

    def charge(self, size_bytes: int) -> None:
        """So much of a throttled replica was sent, or taken."""
        if self._rate() < LONG_MAX:
            self._pace.charge(size_bytes)

    def wait_s(self) -> float:
        """How long no more may be sent, or taken: 0 while there is room."""
        rate = self._rate()
        return 0.0 if rate >= LONG_MAX else self._pace.wait_s(rate)
