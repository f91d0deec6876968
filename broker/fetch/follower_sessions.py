"""The leader's side of replication: fetches of followers, answered from sessions that remember what is idle.

A follower follows hundreds of partitions over one connection, of which few move at a time. Its session watches all of
them, and a fetch looks only at those that the follower spoke of, that moved, or of which it has not been told all: the
others cost nothing. Fetch sessions otherwise as KIP-227 has them; one belongs to a follower's fetcher, by its client
id, and takes no slot from the consumers' (Kafka's "privileged" sessions).

A follower that is not mentioned in its own fetch stands where it stood, level with the leader; when the partition moves
again, it has been so up to the session's last fetch, which is what `replica.lag.time.max.ms` is counted from.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from gregor.broker.fetch.follower import FollowerRead, ParkedFetch
from gregor.broker.fetch.reads import TOPIC_IDS_FROM
from gregor.broker.fetch.session_cache import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionCache, SessionPartition
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.throttle import ReplicaThrottle

SESSIONS_FROM = 12
"""Version of Fetch. Followers that speak an older one are served as consumers are."""
STATE_FROM = 15
RESTING_SHARE = 4
DEFAULT_SLOTS = 1000
MAX_PLACES = 200_000
"""All sessions together remember so many partitions, each some 500 bytes; it is what a whole cluster should have."""

IsrProposal = Callable[["Partition", list[int]], None]


class Place:
    """Where a follower stands in one partition, and what it was told of it last."""

    __slots__ = (
        "_generation",
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

    def __init__(self, session: FollowerSession, key: SessionPartition) -> None:
        self.key = key
        self.index = key[2]
        self.partition: Partition | None = None
        self.forget_told()
        self.leader_epoch = -1
        self._session = session
        self._handle = 0
        self._generation = -1

    def forget_told(self) -> None:
        self.told_high_watermark = self.told_log_start_offset = -1

    def ask(self, wanted: FetchRequest.FetchPartition) -> None:
        if wanted.current_leader_epoch != self.leader_epoch:
            self.forget_told()  # it has begun anew, and may have been told before it did
        self.leader_epoch = wanted.current_leader_epoch
        self.offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes

    def find(self, broker: DataContext) -> Partition | None:
        """The partition that is meant now."""
        generation = broker.replicas.generation
        if generation != self._generation:
            self._generation = generation
            partition = broker.partition_of(*self.key)
            if partition is not self.partition:
                self.leave()
                self.partition = partition
                if partition is not None:
                    self._handle = partition.delayed.watch(self._moved)
        return self.partition

    def leave(self) -> None:
        if self.partition is not None:
            self.partition.delayed.unwatch(self._handle)
            self.partition = None

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to be done until the partition moves. Who is not in sync may become it at any fetch,
        and so may who is about to be put out: another change of the set was under way when it caught up. Where the
        leadership began while a fetch waited, only the next one tells where the follower stands."""
        partition = self.partition
        return (
            partition is not None
            and partition.log_end_offset == self.offset
            and self.told_high_watermark == partition.high_watermark
            and (partition.in_sync.stays_in_sync(self._session.replica_id, self.offset) or not partition.is_leader)
        )

    def _moved(self) -> None:
        session, partition = self._session, self.partition
        assert partition is not None
        if self not in session.busy:
            if self not in session.resting:
                partition.in_sync.record_caught_up(session.replica_id, self.offset, session.last_fetch_ms)
            session.wake(self)
        # Of a high watermark alone it is told in time: with the next records, or when its wait is over.
        if session.parked is not None and (
            partition.log_end_offset != self.offset
            or not partition.is_leader
            or partition.log_start_offset != self.told_log_start_offset
            or (session.tells_at_once and partition.high_watermark != self.told_high_watermark)
        ):
            session.parked.moved()


class FollowerSession:
    """One fetcher of one follower. `busy` are the places that must be looked at, those longest not served first;
    `resting` those without news that may not be left alone either: not in sync, or throttled. Where they are many, some
    have their turn with each fetch."""

    def __init__(self, replica_id: int, uses_ids: bool, tells_at_once: bool = False) -> None:
        self.id = NO_SESSION
        self.tells_at_once = tells_at_once
        self.epoch = INITIAL_EPOCH
        self.replica_id = replica_id
        self.replica_epoch = -1
        self.uses_ids = uses_ids
        self.fetcher: tuple[int, str | None] = replica_id, None
        self.last_fetch_ms = 0
        self.places: dict[SessionPartition, Place] = {}
        self.busy: dict[Place, None] = {}
        self.resting: dict[Place, None] = {}
        self.parked: ParkedFetch | None = None

    def update(self, request: FetchRequest) -> None:
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                place = self.places.pop((gone.topic, gone.topic_id, index), None)
                if place is not None:
                    self._drop(place)
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.topic, topic.topic_id, wanted.partition
                place = self.places.get(key)
                if place is None:
                    place = self.places[key] = Place(self, key)
                place.ask(wanted)
                self.wake(place)

    def wake(self, place: Place) -> None:
        """It is to be looked at."""
        self.resting.pop(place, None)
        self.busy[place] = None

    def rest(self, place: Place) -> None:
        """There is nothing to tell of it for now; behind the others that rest."""
        self.settle(place)
        self.resting[place] = None

    def settle(self, place: Place) -> None:
        """It need not be looked at until it moves."""
        self.busy.pop(place, None)
        self.resting.pop(place, None)

    def row(self, most: int) -> list[Place]:
        """Those whose turn it is: at most so many busy ones, and of those that rest some in any case."""
        row = list(islice(self.busy, most))
        row += islice(self.resting, max(most - len(row), most // RESTING_SHARE, 1))
        return row

    def close(self) -> None:
        if self.parked is not None:
            self.parked.give_way()
        for place in self.places.values():
            self._drop(place)
        self.places.clear()

    def _drop(self, place: Place) -> None:
        if place.partition is not None and place not in self.busy and place not in self.resting:
            place.partition.in_sync.record_caught_up(self.replica_id, place.offset, self.last_fetch_ms)
        place.leave()
        self.settle(place)


class FollowerSessions:
    """The sessions of all followers of this broker. Who poses as many of them gets no more than `slots`: the others are
    answered without a session, as Kafka does when its cache is full."""

    def __init__(
        self,
        slots: int = DEFAULT_SLOTS,
        *,
        propose_isr: IsrProposal | None = None,
        throttle: ReplicaThrottle | None = None,
        tells_at_once: bool = False,
    ) -> None:
        """`propose_isr` is called when a follower has caught up that the controller does not count as in sync.
        `tells_at_once`: a follower is told at once how far records are committed, as consumers may read from it."""
        self.cache: SessionCache[FollowerSession] = SessionCache(slots, self._ended)
        self._places = 0
        self.propose_isr = propose_isr
        self.throttle = throttle
        self.tells_at_once = tells_at_once
        self._by_fetcher: dict[tuple[int, str | None], int] = {}

    def __len__(self) -> int:
        return len(self.cache)

    def fetch(self, broker: DataContext, request: FetchRequest, call: Call) -> FetchResponse | ParkedFetch:
        """The answer of a fetch by a follower, in SESSIONS_FROM or later."""
        now_ms = broker.now_ms()
        incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        try:
            if incremental:
                session = self.cache.resume(request, call.version >= TOPIC_IDS_FROM)
            else:
                session = self._opened(broker, request, call, now_ms)
            if session.parked is not None:
                session.parked.give_way()
            self._update(session, request)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        session.replica_epoch = request.replica_state.replica_epoch if call.version >= STATE_FROM else -1
        read = FollowerRead(broker, self, session, request, call, incremental)
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
        if self.propose_isr is not None:
            isr = partition.in_sync.isr_to_expand(replica_id, partition.high_watermark)
            if isr is not None:
                self.propose_isr(partition, isr)

    def _update(self, session: FollowerSession, request: FetchRequest) -> None:
        before = len(session.places)
        session.update(request)
        if session.id:
            added = len(session.places) - before
            self._places += added
            if added > 0 and self._places > MAX_PLACES:
                self.cache.end(session.id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _opened(self, broker: DataContext, request: FetchRequest, call: Call, now_ms: int) -> FollowerSession:
        """A new one, in place of what its fetcher had; without an id if none is wanted, there is nothing to it, or no
        room for it."""
        replica_id = replica_of(request, call.version)
        fetcher = replica_id, call.client_id
        for known in {request.session_id, self._by_fetcher.get(fetcher, 0)}:
            self.cache.end(known)
        session = FollowerSession(replica_id, call.version >= TOPIC_IDS_FROM, self.tells_at_once)
        places = sum(len(topic.partitions) for topic in request.topics)
        if (
            request.session_epoch == INITIAL_EPOCH
            and 0 < places <= MAX_PLACES - self._places
            and self._make_room(replica_id, broker.metadata.is_alive, now_ms)
        ):
            session.fetcher = fetcher
            self.cache.add(session)
            self._by_fetcher[fetcher] = session.id
        return session

    def _ended(self, session: FollowerSession) -> None:
        del self._by_fetcher[session.fetcher]
        self._places -= len(session.places)
        session.close()

    def _make_room(self, replica_id: int, is_alive: Callable[[int], bool], now_ms: int) -> bool:
        """Whether there is a slot for a session of this broker. Sessions of brokers that are not in the cluster give
        way to those of one that is."""
        if not is_alive(replica_id):
            return self.cache.make_room(now_ms)
        return self.cache.make_room(now_ms, lambda session: not is_alive(session.replica_id))

    def forget(self, is_alive: Callable[[int], bool]) -> None:
        """End the sessions of brokers that are gone."""
        for fetcher, session_id in list(self._by_fetcher.items()):
            if not is_alive(fetcher[0]):
                self.cache.end(session_id)


def replica_of(request: FetchRequest, version: int) -> int:
    """The follower's broker id, negative for a consumer."""
    replica_id: int = request.replica_id if version < STATE_FROM else request.replica_state.replica_id
    return replica_id
