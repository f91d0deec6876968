"""One fetch of a follower: what is found for its answer, and the wait for it.

Looked at are the busy places of its session (fetch.follower_sessions), each within its limits; what has nothing to
tell but how far it is committed goes along with an answer, and brings about none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gregor.broker.fetch.delayed import WaitingFetch
from gregor.broker.fetch.reads import MAX_FETCHES, RepeatedRead, release_records
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.log.log import LogSlice

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.broker.fetch.follower_sessions import FollowerSession, FollowerSessions, Place
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.throttle import ReplicaThrottle

MAX_PARTITIONS = 500
"""So many are looked at for one answer; the others are in the next, which follows at once."""
MAX_PAUSE_S = 1.0
"""The rate of a throttle may be another by then."""


class FollowerRead(RepeatedRead):
    """One fetch: what is found for its answer."""

    __slots__ = (
        "_incremental",
        "_max_bytes",
        "_min_bytes",
        "_quiet",
        "_sessions",
        "session",
        "throttled_s",
    )

    def __init__(
        self,
        broker: DataContext,
        sessions: FollowerSessions,
        session: FollowerSession,
        request: FetchRequest,
        call: Call,
        incremental: bool,
    ) -> None:
        super().__init__(broker, call)
        self.session = session
        self.throttled_s = 0.0
        """How long until a throttled replica may be sent something; 0 if none has to wait."""
        self._sessions = sessions
        self._incremental = incremental
        self._max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._quiet: list[Place] = []
        """Of which there is nothing to tell but how far they are committed, if there is an answer anyway."""

    def _row(self) -> list[Place]:
        """Those to look at now; of the others the next fetch in the session tells."""
        session = self.session
        return session.row(MAX_PARTITIONS if session.id else len(session.places))

    def arrived(self, now_ms: int) -> None:
        """Take note of where the follower stands now."""
        session = self.session
        replica_id = session.replica_id
        for place in self._row():
            partition = place.find(self._broker)
            if (
                partition is None
                or not partition.is_leader
                or place.leader_epoch not in (-1, partition.leader_epoch)
                or not partition.log_start_offset <= place.offset <= partition.log_end_offset
            ):
                continue
            # Where a diverging follower stands says nothing about what it has of this log.
            try:
                if partition.diverging_epoch(place.last_fetched_epoch, place.offset) is not None:
                    continue
                partition.update_follower(
                    replica_id,
                    place.offset,
                    now_ms,
                    log_start_offset=place.log_start_offset,
                    broker_epoch=session.replica_epoch,
                )
                if replica_id not in partition.in_sync.isr:
                    self._sessions.look_in_sync(partition, replica_id)
            except KafkaError:
                continue  # said in the answer

    def collect(self) -> None:
        session = self.session
        self.missing = []
        self.throttled_s = 0.0
        left, total = self._max_bytes, 0
        # Of those that are left over the follower's next fetch tells, which is to follow at once.
        self.satisfied = not session.places or (len(session.busy) > MAX_PARTITIONS and session.id != 0)
        for place in self._row():
            if self._incremental and self._is_quiet(place):
                if place.is_settled:
                    session.settle(place)
                else:
                    session.rest(place)
                    self._quiet.append(place)
                continue
            data = FetchResponse.PartitionData(partition_index=place.index, records=b"")
            try:
                size = self._read(place, data, left, total == 0)
            except NotCached as missing:
                self.missing.append(missing)
                continue
            except KafkaError as error:
                release_records(data)
                data.records, data.error_code = b"", error.code
                data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
                self.satisfied = True
                self._found.append((place, data))
                continue
            total += size
            left -= size
            if not self._is_news(place, data):
                if place.is_settled:
                    session.settle(place)
                elif not total or place in session.resting:  # else it may lack nothing but room in this answer
                    session.rest(place)
                continue
            if (
                data.diverging_epoch.epoch >= 0
                or place.log_start_offset < data.log_start_offset != place.told_log_start_offset
                or (session.tells_at_once and data.high_watermark != place.told_high_watermark)
            ):
                self.satisfied = True
            self._found.append((place, data))
        if total >= self._min_bytes:
            self.satisfied = True

    def _read(self, place: Place, data: FetchResponse.PartitionData, left: int, first: bool) -> int:
        partition = place.find(self._broker)
        if partition is None:
            raise self._unknown(*place.key)
        if place.leader_epoch >= 0 and place.leader_epoch != partition.leader_epoch:
            partition.check_epoch(place.leader_epoch)
        partition.check_follows(self.session.replica_id)
        size = 0
        diverging = partition.diverging_epoch(place.last_fetched_epoch, place.offset)
        if diverging is not None:
            data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        elif not self._must_wait(place, partition):
            # The first batch goes out whole even if it is above every limit: a follower must not get stuck on it.
            piece = partition.read(
                place.offset,
                min(place.max_bytes, left) if left > 0 or first else 0,
                replica_id=self.session.replica_id,
                min_one_batch=first,
                waits_for_disk=self._fetches >= MAX_FETCHES,
            )
            size = piece.size_bytes
            if size:
                data.records = piece
                if not piece.active:
                    self.satisfied = True  # there is more behind the segment's end, of which no later append would tell
            else:
                piece.release()
        data.high_watermark = data.last_stable_offset = partition.high_watermark
        data.log_start_offset = partition.log_start_offset
        return size

    def _is_quiet(self, place: Place) -> bool:
        """Whether the follower has all there is, and agrees about it."""
        partition = place.find(self._broker)
        if partition is None or not partition.is_leader or partition.log is None:
            return False
        log, offsets = partition.log, partition.log.offsets
        return (
            place.offset == offsets.log_end_offset
            and place.leader_epoch in (-1, partition.leader_epoch)
            and place.last_fetched_epoch in (-1, log.latest_epoch())
            and place.told_log_start_offset == offsets.log_start_offset
            and (place.told_high_watermark == offsets.high_watermark or not self.session.tells_at_once)
        )

    def _must_wait(self, place: Place, partition: Partition) -> bool:
        """A replica that is throttled, and not in sync: else the set would grow and shrink all the time."""
        throttle = self._sessions.throttle
        if (
            throttle is None
            or self.session.replica_id in partition.in_sync.isr
            or not self._is_throttled(place, throttle)
        ):
            return False
        wait_s = throttle.wait_s()
        self.throttled_s = max(self.throttled_s, wait_s)
        return wait_s > 0

    def _is_throttled(self, place: Place, throttle: ReplicaThrottle) -> bool:
        log = None if place.partition is None else place.partition.log
        return log is not None and throttle.names(log.config.leader_replication_throttled_replicas, place.index)

    def _is_news(self, place: Place, data: FetchResponse.PartitionData) -> bool:
        return bool(
            not self._incremental
            or data.records
            or data.high_watermark != place.told_high_watermark
            or data.log_start_offset != place.told_log_start_offset
            or data.diverging_epoch.epoch >= 0
        )

    def release(self) -> None:
        super().release()
        self._quiet.clear()

    def response(self) -> FetchResponse:
        session, throttle = self.session, self._sessions.throttle
        topics: dict[tuple[str, Uuid], FetchResponse.FetchableTopicResponse] = {}
        leaders: list[int] = []
        for place in self._quiet:
            if (partition := place.partition) is not None and partition.high_watermark != place.told_high_watermark:
                high_watermark = partition.high_watermark
                data = FetchResponse.PartitionData(
                    partition_index=place.index,
                    high_watermark=high_watermark,
                    last_stable_offset=high_watermark,
                    log_start_offset=partition.log_start_offset,
                    records=b"",
                )
                self._found.append((place, data))
        for place, data in self._found:
            name, topic_id, _ = place.key
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[name, topic_id] = FetchResponse.FetchableTopicResponse(
                    topic=name, topic_id=topic_id, partitions=[]
                )
            topic.partitions.append(data)
            if throttle is not None and isinstance(data.records, LogSlice) and self._is_throttled(place, throttle):
                throttle.charge(data.records.size_bytes)
            if data.diverging_epoch.epoch >= 0:
                place.forget_told()  # who has to truncate takes nothing else from the answer
            else:
                place.told_high_watermark, place.told_log_start_offset = data.high_watermark, data.log_start_offset
            if data.error_code:
                self._name_leader(name, topic_id, data, leaders)
                session.rest(place)
            elif place in session.busy or place in session.resting:
                # Where something was sent there is more to come, at the end of the row.
                session.settle(place)
                if data.records:
                    session.wake(place)
                elif not place.is_settled:
                    session.rest(place)
        self._found = []
        self._quiet = []
        return self._answer(session.id, list(topics.values()), leaders)


class ParkedFetch(WaitingFetch):
    """A follower's fetch that waits for records: answered when its session moves, or the time is over."""

    __slots__ = ("_room", "whose")

    _read: FollowerRead

    def __init__(self, loop: asyncio.AbstractEventLoop, read: FollowerRead, max_wait_s: float) -> None:
        self._room: asyncio.Handle | None = None
        super().__init__(loop, read, max_wait_s)
        read.session.parked = self
        self.whose = f" of broker {read.session.replica_id}"
        if not read.missing:
            self._wait_on()

    def _let_go(self) -> None:
        session = self._read.session
        if session.parked is self:
            session.parked = None
        if self._room is not None:
            self._room.cancel()
        self._read.release()
        if not session.id:
            session.close()

    def give_way(self) -> None:
        """The follower has asked anew, by another connection, or its session is over."""
        self.complete(FetchResponse(session_id=self._read.session.id))

    def _wait_on(self) -> None:
        # Of a throttled replica no append tells that it may go on.
        if self._read.throttled_s and self._room is None:
            self._room = self._loop.call_later(min(self._read.throttled_s, MAX_PAUSE_S), self._there_is_room)

    def _there_is_room(self) -> None:
        self._room = None
        self.moved()
