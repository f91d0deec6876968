"""Consumers by their client ids, from the positions in their fetches: the lag also of those that commit nothing.

A position is shown by the broker that the client fetches it from. It is the one of the last fetch that named the
partition, in the last KEPT_MS: a client does not name a partition whose records it still has. Where this broker does
not lead, only fetches of the last FETCHES_MS count: the client of a former leader has left for the present one, and
would seem further and further behind here. Of several consumers with one client id, the position furthest behind is
shown. The time of the first unread record is read from the log of this broker, once for each position, and again once
the log was truncated: another record may be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.broker.metrics.family import GAUGE, Family, label_text
from gregor.broker.metrics.kept_lines import KeptLines, batched
from gregor.broker.metrics.lag.first_unread import NO_RECORD, time_in_log
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.fetch.sessions import FetchedPartition, FetchSessions
    from gregor.broker.metrics.page import Page
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager

KEPT_MS = 300_000
"""Kafka's default of max.poll.interval.ms: the time for which a client may be busy with what it has fetched."""
FETCHES_MS = 10_000
"""Well above fetch.max.wait.ms: the longest time between two fetches of a client that waits for records."""
MAX_POSITIONS = 10_000
"""More are not shown: clients choose their ids."""
LAG_READER = "gregor-lag-reader"
"""The client id of commands that read one record for its time: they are not behind, and are not shown."""
_LABELS = ("client_id", "topic", "partition")
_SHOWN = "shown by the broker that it fetches from"

_OFFSETS = (
    Family(
        "gregor_client_fetch_offset",
        GAUGE,
        _LABELS,
        f"Position of the last fetch of a client, also of one that commits none, {_SHOWN}.",
    ),
    Family(
        "gregor_client_fetch_lag",
        GAUGE,
        _LABELS,
        f"Offsets from the position of the last fetch to the high watermark, {_SHOWN}.",
    ),
)
_SECONDS = (
    Family(
        "gregor_client_fetch_lag_seconds",
        GAUGE,
        _LABELS,
        f"Age of the first record from the position of the last fetch on, 0 without one, {_SHOWN}; missing where it is "
        "not known.",
    ),
)
FAMILIES = (*_OFFSETS, *_SECONDS)

_Key = tuple[str, str, int]
"""Client id, topic, partition."""
_Record = tuple[str, int, Uuid, int, int]
"""Topic, partition, id of the topic, generation of the log, offset."""
_Remembered = dict[_Key, tuple[int, int]]
"""Position, and the time of its fetch."""


class ClientPosition(NamedTuple):
    """`offset`: of the last fetch; `lag`: from there to the high watermark; `lag_s`: the age of the first record from
    there on, 0 without one, None where it is not known."""

    client_id: str
    topic: str
    partition: int
    offset: int
    lag: int
    lag_s: float | None

    @property
    def key(self) -> _Key:
        return self.client_id, self.topic, self.partition


class ClientPositions:
    """Reads the fetch sessions of consumers, and their last fetches outside of sessions."""

    def __init__(
        self, sessions: FetchSessions, replicas: ReplicaManager, image: MetadataImage, clock_ms: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._replicas = replicas
        self._image = image
        self._clock_ms = clock_ms
        self._remembered: _Remembered = {}
        """Of fetches outside of sessions, each of which names some of the partitions."""
        self._times_ms: dict[_Record, int | None] = {}
        """Those of the first unread records at the positions that were read last, None where one is not known."""

    def read(self) -> Steps[list[ClientPosition]]:
        """Return the positions in the partitions of this broker."""
        found = []
        positions = yield from self._positions()
        known = self._times_ms
        times_ms: dict[_Record, int | None] = {}
        for count, (key, offset) in enumerate(positions.items(), 1):
            partition = self._replicas.get(*key[1:])
            if partition is not None and (log := partition.log) is not None:
                lag = max(0, log.high_watermark - offset)
                time_ms: int | None = NO_RECORD
                if lag:
                    first_offset = max(offset, log.log_start_offset)
                    record = *key[1:], partition.topic_id, log.generation, first_offset
                    if record in known:
                        time_ms = known[record]
                    else:
                        time_ms = yield from time_in_log(partition, first_offset, leader_only=False)
                    if time_ms != NO_RECORD:
                        times_ms[record] = time_ms
                found.append(ClientPosition(*key, offset, lag, self._age_s(time_ms)))
            if not count % ITEMS_PER_STEP:
                yield None
        self._times_ms = times_ms
        return found

    def _age_s(self, time_ms: int | None) -> float | None:
        """Return the age of a first unread record; 0 for a time ahead of this clock."""
        if time_ms is None:
            return None
        return 0.0 if time_ms == NO_RECORD else max(0, self._clock_ms() - time_ms) / 1000

    def described(self) -> Steps[list[dict[str, Any]]]:
        """Return the positions by the names of their fields."""
        found = yield from self.read()
        return [position._asdict() for position in found]

    def _positions(self) -> Steps[dict[_Key, int]]:
        now_ms = self._clock_ms()
        since_ms, fetches_since_ms = now_ms - KEPT_MS, now_ms - FETCHES_MS
        found: dict[_Key, int] = {}
        keep = partial(_keep, found)
        for session in list(self._sessions.cache):
            if session.last_fetch_ms >= since_ms:
                left = [one for one in session.left.values() if one.left_ms >= since_ms]
                is_quiet = session.last_fetch_ms < fetches_since_ms
                yield from self._for_each(session.client_id, session.partitions.values(), is_quiet, keep)
                yield from self._for_each(session.client_id, left, True, keep)
            yield None
        self._remembered = yield from self._outside_of_sessions(since_ms, fetches_since_ms)
        for block in batched(list(self._remembered.items()), ITEMS_PER_STEP):
            for key, (offset, _) in block:
                keep(key, offset)
            yield None
        return found

    def _outside_of_sessions(self, since_ms: int, fetches_since_ms: int) -> Steps[_Remembered]:
        """Return the positions of the last fetches without a session, and those of earlier ones which they lack."""
        remembered: _Remembered = {}
        for client_id, partitions, at_ms in list(self._sessions.without_session.values()):
            if at_ms >= since_ms:
                remember = partial(_remember, remembered, at_ms)
                yield from self._for_each(client_id, partitions, at_ms < fetches_since_ms, remember)
            yield None
        for block in batched(list(self._remembered.items()), ITEMS_PER_STEP):
            for key, (offset, at_ms) in block:
                if at_ms >= since_ms and len(remembered) < MAX_POSITIONS and self._leads(key):
                    remembered.setdefault(key, (offset, at_ms))
            yield None
        return remembered

    def _for_each(
        self, client_id: str, partitions: Iterable[FetchedPartition], led_only: bool, note: Callable[[_Key, int], None]
    ) -> Steps[None]:
        """Call `note` with each position, by its key; with `led_only` those in partitions that this broker leads."""
        if client_id == LAG_READER:
            return
        for block in batched(list(partitions), ITEMS_PER_STEP):
            for one in block:
                topic = one.topic or self._image.topic_name(one.topic_id)
                key = client_id, topic or "", one.index
                if topic and (not led_only or self._leads(key)):
                    note(key, one.fetch_offset)
            yield None

    def _leads(self, key: _Key) -> bool:
        partition = self._replicas.get(*key[1:])
        return partition is not None and partition.is_leader


def _remember(remembered: _Remembered, at_ms: int, key: _Key, offset: int) -> None:
    before = remembered.get(key)
    is_kept = len(remembered) < MAX_POSITIONS if before is None else offset < before[0]
    if is_kept:
        remembered[key] = offset, at_ms


def _keep(found: dict[_Key, int], key: _Key, offset: int) -> None:
    before = found.get(key)
    if before is not None:
        found[key] = min(before, offset)
    elif len(found) < MAX_POSITIONS:
        found[key] = offset


class ClientLagLines:
    """The lines of the families of this module, those without a change kept from scrape to scrape."""

    def __init__(self, positions: ClientPositions) -> None:
        self._positions = positions
        self._offsets = KeptLines(_OFFSETS, _labels)
        self._seconds = KeptLines(_SECONDS, _labels)

    def collect(self, page: Page) -> Steps[None]:
        """Add the families of this module."""
        found = yield from self._positions.read()
        for block in batched(found, ITEMS_PER_STEP):
            self._offsets.put([one.key for one in block], [(one.offset, one.lag) for one in block])
            aged = [(one.key, one.lag_s) for one in block if one.lag_s is not None]
            self._seconds.put([key for key, _ in aged], [(lag_s,) for _, lag_s in aged])
            yield None
        yield from self._offsets.end(page)
        yield from self._seconds.end(page)


def _labels(key: _Key) -> str:
    client_id, topic, partition = key
    return label_text(client_id=client_id, topic=topic, partition=partition)
