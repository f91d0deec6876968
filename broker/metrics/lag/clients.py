"""Consumers by their client ids, from the positions in their fetches: the lag also of those that commit nothing.

A position is shown by the broker that the client fetches it from. It is the one of the last fetch that named the
partition, in the last KEPT_MS: a client does not name a partition whose records it still has. Of several consumers with
one client id, the position furthest behind is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.broker.metrics.family import GAUGE, Family, label_text
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.fetch.sessions import FetchedPartition, FetchSessions
    from gregor.broker.metrics.page import Page
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager

KEPT_MS = 300_000
"""Kafka's default of max.poll.interval.ms: the time for which a client may be busy with what it has fetched."""
MAX_POSITIONS = 10_000
"""More are not shown: clients choose their ids."""
_LABELS = ("client_id", "topic", "partition")
_OFFSET, _LAG = "gregor_client_fetch_offset", "gregor_client_fetch_lag"
_SHOWN = "shown by the broker that it fetches from"

FAMILIES = (
    Family(
        _OFFSET, GAUGE, _LABELS, f"Position of the last fetch of a client, also of one that commits none, {_SHOWN}."
    ),
    Family(_LAG, GAUGE, _LABELS, f"Offsets from the position of the last fetch to the high watermark, {_SHOWN}."),
)

_Key = tuple[str, str, int]
"""Client id, topic, partition."""


class ClientPosition(NamedTuple):
    """`offset`: of the last fetch; `lag`: from there to the high watermark."""

    client_id: str
    topic: str
    partition: int
    offset: int
    lag: int


class ClientPositions:
    """Reads the fetch sessions of consumers, and their last fetches outside of sessions."""

    def __init__(
        self, sessions: FetchSessions, replicas: ReplicaManager, image: MetadataImage, clock_ms: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._replicas = replicas
        self._image = image
        self._clock_ms = clock_ms
        self._remembered: dict[_Key, tuple[int, int]] = {}
        """Positions of fetches outside of sessions, each of which names some of the partitions; and when."""

    def read(self) -> Steps[list[ClientPosition]]:
        """Return the positions in the partitions of this broker."""
        found = []
        positions = yield from self._positions()
        for count, (key, offset) in enumerate(positions.items(), 1):
            partition = self._replicas.get(*key[1:])
            if partition is not None and partition.log is not None:
                found.append(ClientPosition(*key, offset, max(0, partition.log.high_watermark - offset)))
            if not count % ITEMS_PER_STEP:
                yield None
        return found

    def described(self) -> Steps[list[dict[str, Any]]]:
        """Return the positions by the names of their fields."""
        found = yield from self.read()
        return [position._asdict() for position in found]

    def _positions(self) -> Steps[dict[_Key, int]]:
        since_ms = self._clock_ms() - KEPT_MS
        found: dict[_Key, int] = {}
        for session in list(self._sessions.cache):
            if session.last_fetch_ms >= since_ms:
                left = [one for one in session.left.values() if one.left_ms >= since_ms]
                for key, offset in self._named(session.client_id, [*session.partitions.values(), *left]):
                    _keep(found, key, offset)
            yield None
        known, self._remembered = self._remembered, {}
        for last in list(self._sessions.without_session.values()):
            if last.at_ms >= since_ms:
                for key, offset in self._named(last.client_id, last.partitions):
                    before = self._remembered.get(key)
                    if before is None or offset < before[0]:
                        self._remembered[key] = offset, last.at_ms
            yield None
        for key, (offset, at_ms) in known.items():
            if at_ms >= since_ms and len(self._remembered) < MAX_POSITIONS:
                self._remembered.setdefault(key, (offset, at_ms))
        yield None
        for key, (offset, _) in self._remembered.items():
            _keep(found, key, offset)
        return found

    def _named(self, client_id: str, partitions: Iterable[FetchedPartition]) -> list[tuple[_Key, int]]:
        named = []
        for one in partitions:
            topic = one.topic or self._image.topic_name(one.topic_id)
            if topic:
                named.append(((client_id, topic, one.index), one.fetch_offset))
        return named


def _keep(found: dict[_Key, int], key: _Key, offset: int) -> None:
    before = found.get(key)
    if before is not None:
        found[key] = min(before, offset)
    elif len(found) < MAX_POSITIONS:
        found[key] = offset


def collect_clients(page: Page, positions: ClientPositions) -> Steps[None]:
    """Add the families of this module."""
    found = yield from positions.read()
    for count, (client_id, topic, partition, offset, lag) in enumerate(found, 1):
        labels = label_text(client_id=client_id, topic=topic, partition=partition)
        page.add(_OFFSET, offset, labels)
        page.add(_LAG, lag, labels)
        if not count % ITEMS_PER_STEP:
            yield None
