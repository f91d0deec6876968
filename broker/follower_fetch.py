"""One fetch of a follower: what is found for its answer, and the wait for it.

Looked at are the busy places of its session (broker.follower_sessions), each within its limits; what has nothing to
tell but how far it is committed goes along with an answer, and brings about none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from broker.handlers.leaders import current_leader, node_endpoints, why_absent
from broker.log import logger
from broker.registry import Later
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import Uuid
from protocol.messages import FetchRequest, FetchResponse
from storage.cached_reads import NotCached
from storage.log import LogSlice

if TYPE_CHECKING:
    from broker.context import Broker, Call
    from broker.follower_sessions import FollowerSession, FollowerSessions, Place
    from replication.partition import Partition
    from replication.replica_throttle import ReplicaThrottle

LEADER_FROM = 16
MOST_PARTITIONS = 500
"""So many are looked at for one answer; the others are in the next, which follows at once."""
MOST_PAUSE_S = 1.0
"""The rate of a throttle may be another by then."""
MOST_FETCHES = 64
"""Who still lacks something after so many looks waits for the disk."""
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FollowerRead:
    """One fetch: what is found for its answer. It can be looked for again and again."""

    __slots__ = (
        "_broker",
        "_call",
        "_fetches",
        "_found",
        "_incremental",
        "_max_bytes",
        "_min_bytes",
        "_quiet",
        "_sessions",
        "missing",
        "satisfied",
        "session",
        "throttled_s",
    )

    def __init__(
        self,
        broker: Broker,
        sessions: FollowerSessions,
        session: FollowerSession,
        request: FetchRequest,
        call: Call,
        incremental: bool,
    ) -> None:
        self.session = session
        self.satisfied = False
        self.missing: list[NotCached] = []
        self.throttled_s = 0.0
        """How long until a throttled replica may be sent something; 0 if none has to wait."""
        self._broker = broker
        self._sessions = sessions
        self._call = call
        self._incremental = incremental
        self._max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._found: list[tuple[Place, FetchResponse.PartitionData]] = []
        self._quiet: list[Place] = []
        """Of which there is nothing to tell but how far they are committed, if there is an answer anyway."""
        self._fetches = 0

    def _row(self) -> list[Place]:
        """Those to look at now; the others have their turn at once, with the follower's next fetch in its session."""
        session = self.session
        if len(session.busy) > MOST_PARTITIONS and session.id:
            self.satisfied = True
            return list(islice(session.busy, MOST_PARTITIONS))
        return list(session.busy)

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
                if replica_id not in partition.isr:
                    self._sessions.look_in_sync(partition, replica_id)
            except KafkaError:
                continue  # said in the answer

    def collect(self) -> None:
        """Look at the busy places; sets `satisfied` when the answer need not wait. With something in `missing` there
        is no answer yet."""
        session = self.session
        self.missing = []
        self.throttled_s = 0.0
        left, total = self._max_bytes, 0
        self.satisfied = not session.places
        for place in self._row():
            if self._incremental and self._is_quiet(place):
                if place.is_settled:
                    del session.busy[place]
                else:
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
                if not size and place.is_settled:
                    del session.busy[place]
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
            raise self._unknown(place)
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
                waits_for_disk=self._fetches >= MOST_FETCHES,
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
        log = partition.log
        return (
            place.offset == log.log_end_offset
            and place.leader_epoch in (-1, partition.leader_epoch)
            and place.last_fetched_epoch in (-1, log.latest_epoch())
            and place.told_log_start_offset == log.log_start_offset
            and (place.told_high_watermark == log.high_watermark or not self.session.tells_at_once)
        )

    def _must_wait(self, place: Place, partition: Partition) -> bool:
        """A replica that is throttled, and not in sync: else the set would grow and shrink all the time."""
        throttle = self._sessions.throttle
        if throttle is None or self.session.replica_id in partition.isr or not self._is_throttled(place, throttle):
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

    def _unknown(self, place: Place) -> KafkaError:
        name: str | None = place.key[0]
        if self.session.uses_ids:
            name = self._broker.metadata.topic_name(place.key[1])
            if name is None:
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return KafkaError(why_absent(self._broker, name or "", place.index))

    async def fetch_missing(self) -> None:
        """Bring into memory what `collect` lacked, on threads."""
        self._fetches += 1
        calls = []
        for missing in self.missing:
            with suppress(OSError):  # the next look finds it, too, and words it
                calls.append(missing.fetcher())
        await asyncio.gather(*map(self._broker.background.read, calls))

    def release(self) -> None:
        for _, data in self._found:
            release_records(data)
        self._found.clear()
        self._quiet.clear()

    def response(self) -> FetchResponse:
        """The answer from what `collect` found last. The file pieces in it are released when sent."""
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
            place.told_high_watermark, place.told_log_start_offset = data.high_watermark, data.log_start_offset
            if data.error_code:
                if self._call.version >= LEADER_FROM and data.error_code in _LED_ELSEWHERE:
                    self._add_leader(place, data, leaders)
            elif place in session.busy:
                # What was sent is at the end of the row; who has nothing to be sent is idle until it moves.
                del session.busy[place]
                if not place.is_settled:
                    session.busy[place] = None
        self._found = []
        self._quiet = []
        response = FetchResponse(session_id=session.id, responses=list(topics.values()))
        if leaders:
            response.node_endpoints = node_endpoints(self._broker, self._call, leaders, FetchResponse.NodeEndpoint)
        return response

    def _add_leader(self, place: Place, data: FetchResponse.PartitionData, leaders: list[int]) -> None:
        name = place.key[0] or self._broker.metadata.topic_name(place.key[1]) or ""
        data.current_leader = current_leader(self._broker, name, place.index, FetchResponse.LeaderIdAndEpoch)
        leaders.append(data.current_leader.leader_id)


class ParkedFetch(Later):
    """A follower's fetch that waits for records: answered when its session moves, or the time is over."""

    __slots__ = ("_answered", "_fetch", "_loop", "_over", "_overdue", "_read", "_room", "_timer", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, read: FollowerRead, max_wait_s: float) -> None:
        self._loop = loop
        self._read = read
        self._over = self._overdue = False
        self._fetch: asyncio.Task[None] | None = None
        self._answered: Callable[[FetchResponse], None] | None = None
        self._turn: asyncio.Handle | None = None
        self._room: asyncio.Handle | None = None
        self._timer = loop.call_later(max_wait_s, self._look, True)
        read.release()
        read.session.parked = self
        if read.missing:
            self._fetch_missing()
        else:
            self._look_when_there_is_room()

    def then(self, answered: Callable[[FetchResponse], None]) -> None:
        self._answered = answered

    def cancel(self) -> None:
        if self._over:
            return
        self._over = True
        session = self._read.session
        if session.parked is self:
            session.parked = None
        self._timer.cancel()
        for due in (self._turn, self._room):
            if due is not None:
                due.cancel()
        if self._fetch is not None:
            self._fetch.cancel()
        self._read.release()
        if not session.id:
            session.close()

    def give_way(self) -> None:
        """The follower has asked anew, by another connection, or its session is over."""
        self._answer(FetchResponse(session_id=self._read.session.id))

    def moved(self) -> None:
        """Look again in the loop's next turn: several appends of one turn cost one look, and wait for none."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._look, False)

    def _look(self, in_any_case: bool) -> None:
        self._turn = None
        self._overdue |= in_any_case
        if self._over or self._fetch is not None:
            return
        read = self._read
        try:
            read.collect()
            if read.missing:
                read.release()
                self._fetch_missing()
                return
            if not read.satisfied and not self._overdue:
                read.release()
                self._look_when_there_is_room()
                return
            response = read.response()
        except Exception:  # a bug: its connection must not wait for ever
            logger.exception("a waiting Fetch of broker %d failed", read.session.replica_id)
            read.release()
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        self._answer(response)

    def _look_when_there_is_room(self) -> None:
        """Of a throttled replica no append tells that it may go on."""
        if self._read.throttled_s and self._room is None:
            self._room = self._loop.call_later(min(self._read.throttled_s, MOST_PAUSE_S), self._there_is_room)

    def _there_is_room(self) -> None:
        self._room = None
        self.moved()

    def _answer(self, response: FetchResponse) -> None:
        if not self._over:
            self.cancel()
            if self._answered is not None:
                self._answered(response)

    def _fetch_missing(self) -> None:
        self._fetch = self._loop.create_task(self._read.fetch_missing())
        self._fetch.add_done_callback(self._fetched)

    def _fetched(self, fetch: asyncio.Task[None]) -> None:
        self._fetch = None
        if not fetch.cancelled() and (error := fetch.exception()) is not None:
            logger.error("what a waiting Fetch lacks cannot be fetched", exc_info=error)
        self._look(False)


def release_records(data: FetchResponse.PartitionData) -> None:
    if isinstance(data.records, LogSlice):
        data.records.release()
