"""The leader's side of replication: fetches of followers, answered from sessions that remember what is idle.

A follower follows hundreds of partitions over one connection, of which few move at a time. Its session watches all of
them, and a fetch looks only at those that the follower spoke of, that moved, or of which it has not been told all: the
others cost nothing. Fetch sessions otherwise as KIP-227 has them; one belongs to a follower's fetcher, by its client
id, and takes no slot from the consumers' (Kafka's "privileged" sessions).

A follower that is not mentioned in its own fetch stands where it stood, level with the leader; when the partition moves
again, it has been so up to the session's last fetch, which is what `replica.lag.time.max.ms` is counted from.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
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
    from replication.partition import Partition
    from replication.replica_throttle import ReplicaThrottle

SESSIONS_FROM = 12
"""Version of Fetch. Followers that speak an older one are served as consumers are."""
TOPIC_IDS_FROM = 13
STATE_FROM = 15
LEADER_FROM = 16
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MOST_PARTITIONS = 500
"""So many are looked at for one answer; the others are in the next, which follows at once."""
MOST_PAUSE_S = 1.0
"""The rate of a throttle may be another by then."""
MOST_FETCHES = 64
"""Who still lacks something after so many looks waits for the disk."""
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Key = tuple[str, Uuid, int]
"""Topic name (below version 13) or topic id, and the index."""
IsrProposal = Callable[["Partition", list[int]], None]


class _Place:
    """Where a follower stands in one partition, and what it was told of it last."""

    __slots__ = (
        "_handle",
        "_session",
        "index",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "partition",
        "told_high_watermark",
        "told_log_start_offset",
    )

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self.key = key
        self.index = key[2]
        self.partition: Partition | None = None
        self.told_high_watermark = self.told_log_start_offset = -1
        self._session = session
        self._handle = 0

    def ask(self, wanted: FetchRequest.FetchPartition) -> None:
        self.leader_epoch = wanted.current_leader_epoch
        self.offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes

    def watch(self, partition: Partition | None) -> None:
        """From now on this is the partition that is meant."""
        if partition is not self.partition:
            self.leave()
            self.partition = partition
            if partition is not None:
                self._handle = partition.watch(self._moved)

    def leave(self) -> None:
        if self.partition is not None:
            self.partition.unwatch(self._handle)
            self.partition = None

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to be done until the partition moves. Who is not in sync may become it at any fetch,
        and so may who is about to be put out: another change of the set was under way when it caught up."""
        partition = self.partition
        return (
            partition is not None
            and partition.log_end_offset == self.offset
            and (partition.stays_in_sync(self._session.replica_id) or not partition.is_leader)
        )

    def _moved(self) -> None:
        session, partition = self._session, self.partition
        assert partition is not None
        if self not in session.busy:
            partition.follower_was_level(session.replica_id, self.offset, session.last_fetch_ms)
            session.busy[self] = None
        # Of a high watermark alone it is told in time: with the next records, or when its wait is over.
        if session.parked is not None and (
            partition.log_end_offset != self.offset
            or not partition.is_leader
            or partition.log_start_offset != self.told_log_start_offset
            or (session.tells_at_once and partition.high_watermark != self.told_high_watermark)
        ):
            session.parked.moved()


class FollowerSession:
    """One fetcher of one follower. `busy` are the places that must be looked at, those longest not served first."""

    def __init__(self, session_id: int, replica_id: int, uses_ids: bool, tells_at_once: bool = False) -> None:
        self.id = session_id
        self.tells_at_once = tells_at_once
        self.epoch = INITIAL_EPOCH
        self.replica_id = replica_id
        self.replica_epoch = -1
        self.uses_ids = uses_ids
        self.last_fetch_ms = 0
        self.places: dict[Key, _Place] = {}
        self.busy: dict[_Place, None] = {}
        self.parked: ParkedFetch | None = None

    def update(self, request: FetchRequest) -> None:
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                place = self.places.pop((gone.topic, gone.topic_id, index), None)
                if place is not None:
                    place.leave()
                    self.busy.pop(place, None)
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.topic, topic.topic_id, wanted.partition
                place = self.places.get(key)
                if place is None:
                    place = self.places[key] = _Place(self, key)
                place.ask(wanted)
                self.busy[place] = None

    def close(self) -> None:
        if self.parked is not None:
            self.parked.give_way()
        for place in self.places.values():
            place.leave()
        self.places.clear()
        self.busy.clear()


class FollowerSessions:
    """The sessions of all followers of this broker."""

    def __init__(self) -> None:
        self.propose_isr: IsrProposal | None = None
        """Asked when a follower has caught up that is not in sync by the controller's word."""
        self.throttle: ReplicaThrottle | None = None
        self.tells_at_once = False
        """Whether a follower is told at once how far records are committed: consumers may read from it."""
        self._sessions: dict[int, FollowerSession] = {}
        self._by_fetcher: dict[tuple[int, str | None], int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, broker: Broker, request: FetchRequest, call: Call) -> FetchResponse | ParkedFetch:
        """The answer of a fetch by a follower, in SESSIONS_FROM or later."""
        now_ms = broker.now_ms()
        incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        try:
            session = self._known(request, call) if incremental else self._opened(request, call)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        if session.parked is not None:
            session.parked.give_way()
        session.update(request)
        session.replica_epoch = request.replica_state.replica_epoch if call.version >= STATE_FROM else -1
        read = _Read(broker, self, session, request, call, incremental)
        read.arrived(now_ms)
        session.last_fetch_ms = now_ms
        read.collect()
        if not read.missing and (read.satisfied or request.max_wait_ms <= 0):
            response = read.response()
            if not session.id:
                session.close()
            return response
        return ParkedFetch(broker.loop, read, max(0, request.max_wait_ms) / 1000)

    def look_in_sync(self, partition: Partition, replica_id: int) -> None:
        """A follower has fetched: it may have caught up."""
        if self.propose_isr is not None and (isr := partition.isr_to_expand(replica_id)) is not None:
            self.propose_isr(partition, isr)

    def _known(self, request: FetchRequest, call: Call) -> FollowerSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != (call.version >= TOPIC_IDS_FROM):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch % 0x7FFF_FFFF + 1
        return session

    def _opened(self, request: FetchRequest, call: Call) -> FollowerSession:
        """A new one, in place of what its fetcher had; without an id if none is wanted, or there is nothing to it."""
        replica_id = replica_of(request, call.version)
        fetcher = replica_id, call.client_id
        for known in {request.session_id, self._by_fetcher.pop(fetcher, 0)}:
            self._end(known)
        session = FollowerSession(0, replica_id, call.version >= TOPIC_IDS_FROM, self.tells_at_once)
        if request.session_epoch == INITIAL_EPOCH and request.topics:
            session.id = self._new_id()
            session.epoch = 1
            self._sessions[session.id] = session
            self._by_fetcher[fetcher] = session.id
        return session

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def forget(self, is_alive: Callable[[int], bool]) -> None:
        """End the sessions of brokers that are gone."""
        for fetcher, session_id in list(self._by_fetcher.items()):
            if not is_alive(fetcher[0]):
                del self._by_fetcher[fetcher]
                self._end(session_id)

    def _new_id(self) -> int:
        while True:
            session_id = random.randint(1, 0x7FFF_FFFF)
            if session_id not in self._sessions:
                return session_id


def replica_of(request: FetchRequest, version: int) -> int:
    """The follower's broker id, negative for a consumer."""
    replica_id: int = request.replica_id if version < STATE_FROM else request.replica_state.replica_id
    return replica_id


class _Read:
    """One fetch: what is found for its answer. It can be looked for again and again."""

    __slots__ = (
        "_broker",
        "_call",
        "_fetches",
        "_found",
        "_incremental",
        "_max_bytes",
        "_min_bytes",
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
        self._found: list[tuple[_Place, FetchResponse.PartitionData]] = []
        self._fetches = 0

    def arrived(self, now_ms: int) -> None:
        """Take note of where the follower stands now."""
        session = self.session
        replica_id = session.replica_id
        for place in session.busy:
            partition = self._broker.partition_of(*place.key)
            place.watch(partition)
            if (
                partition is None
                or not partition.is_leader
                or place.leader_epoch not in (-1, partition.leader_epoch)
                or not partition.log_start_offset <= place.offset <= partition.log_end_offset
            ):
                continue
            # Where a diverging follower stands says nothing about what it has of this log.
            with suppress(KafkaError):
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

    def collect(self) -> None:
        """Look at every busy place; sets `satisfied` when the answer need not wait. With something in `missing` there
        is no answer yet."""
        session = self.session
        self.missing = []
        self.throttled_s = 0.0
        left, total = self._max_bytes, 0
        self.satisfied = not session.places
        for count, place in enumerate(tuple(session.busy)):
            if count == MOST_PARTITIONS:
                self.satisfied = True
                break
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

    def _read(self, place: _Place, data: FetchResponse.PartitionData, left: int, first: bool) -> int:
        partition = self._broker.partition_of(*place.key)
        place.watch(partition)
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

    def _must_wait(self, place: _Place, partition: Partition) -> bool:
        """A replica that is throttled, and not in sync: else the set would grow and shrink all the time."""
        throttle = self._sessions.throttle
        if throttle is None or self.session.replica_id in partition.isr or not self._is_throttled(place, throttle):
            return False
        wait_s = throttle.wait_s()
        self.throttled_s = max(self.throttled_s, wait_s)
        return wait_s > 0

    def _is_throttled(self, place: _Place, throttle: ReplicaThrottle) -> bool:
        log = None if place.partition is None else place.partition.log
        return log is not None and throttle.names(log.config.leader_replication_throttled_replicas, place.index)

    def _is_news(self, place: _Place, data: FetchResponse.PartitionData) -> bool:
        return bool(
            not self._incremental
            or data.records
            or data.high_watermark != place.told_high_watermark
            or data.log_start_offset != place.told_log_start_offset
            or data.diverging_epoch.epoch >= 0
        )

    def _unknown(self, place: _Place) -> KafkaError:
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

    def response(self) -> FetchResponse:
        """The answer from what `collect` found last. The file pieces in it are released when sent."""
        session, throttle = self.session, self._sessions.throttle
        topics: dict[tuple[str, Uuid], FetchResponse.FetchableTopicResponse] = {}
        leaders: list[int] = []
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
        response = FetchResponse(session_id=session.id, responses=list(topics.values()))
        if leaders:
            response.node_endpoints = node_endpoints(self._broker, self._call, leaders, FetchResponse.NodeEndpoint)
        return response

    def _add_leader(self, place: _Place, data: FetchResponse.PartitionData, leaders: list[int]) -> None:
        name = place.key[0] or self._broker.metadata.topic_name(place.key[1]) or ""
        data.current_leader = current_leader(self._broker, name, place.index, FetchResponse.LeaderIdAndEpoch)
        leaders.append(data.current_leader.leader_id)


class ParkedFetch(Later):
    """A follower's fetch that waits for records: answered when its session moves, or the time is over."""

    __slots__ = ("_answered", "_fetch", "_loop", "_over", "_overdue", "_read", "_room", "_timer", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, read: _Read, max_wait_s: float) -> None:
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
