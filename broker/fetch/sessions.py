"""Incremental fetch sessions (KIP-227) of consumers: the broker stores the partitions, the consumer sends changes.

Pure: no IO, time comes in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gregor.broker.fetch.session_cache import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionCache, SessionPartition
from gregor.protocol.ids import Uuid

if TYPE_CHECKING:
    from gregor.protocol.messages import FetchRequest


MAX_WITHOUT_SESSION = 1000
"""Connections of clients without sessions whose last fetches are remembered; the first ones are forgotten."""
MAX_POSITIONS_OF_FETCH = 1000
MAX_POSITIONS_WITHOUT_SESSION = 50_000
"""Limits of the positions in one of these fetches, and in all of them; each has some 500 bytes."""
MAX_CLIENT_ID = 255
"""Characters of a client id that are remembered: it may have 32 KB."""
MAX_LEFT = 4096
"""Partitions that one session has left and that are remembered; the first ones are forgotten."""


class FetchedPartition:
    """The fetch position of a consumer in a partition, its limits, and the offsets in the last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "last_sent_high_watermark",
        "last_sent_log_start_offset",
        "left_ms",
        "log_start_offset",
        "max_bytes",
        "rights",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.last_sent_high_watermark = self.last_sent_log_start_offset = -1
        self.left_ms = 0
        """When the session was last without it: a client does not fetch a partition while it has records of it."""
        self.rights: object = None
        """The rights of a connection under which READ on the topic was allowed (broker.authorization.read_rights)."""

    def update(self, wanted: FetchRequest.FetchPartition) -> None:
        """Store the position and the limits from a request."""
        self.current_leader_epoch = wanted.current_leader_epoch
        self.fetch_offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes

    def limit_bytes(self, max_bytes: int) -> None:
        """Read at most this much at once, if the client wants more."""
        self.max_bytes = min(self.max_bytes, max_bytes)

    def skip_to(self, offset: int) -> None:
        """Begin the next read here: the batches before it have nothing for the client."""
        self.fetch_offset = offset

    def allow(self, rights: object) -> None:
        """Note that the connection with these rights may read the topic. Another connection, or another principal or
        other rules on the same one, have another object of rights."""
        self.rights = rights


class FetchSession:
    """One session. `partitions` are in the order in which they are read; a partition of which records were sent moves
    to the end, so that none starves. `left` are those that the client has removed from it."""

    __slots__ = ("client_id", "epoch", "id", "last_fetch_ms", "left", "partitions", "uses_ids")

    def __init__(self, uses_ids: bool, now_ms: int) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.uses_ids = uses_ids
        self.last_fetch_ms = now_ms
        self.client_id = ""
        self.partitions: dict[SessionPartition, FetchedPartition] = {}
        self.left: dict[SessionPartition, FetchedPartition] = {}

    @property
    def position_count(self) -> int:
        """The number of positions that it remembers."""
        return len(self.partitions) + len(self.left)

    def open(self, session_id: int) -> None:
        """Become a session of this id; the request that has opened it counts."""
        self.id = session_id
        self.epoch = INITIAL_EPOCH + 1

    def update(self, request: FetchRequest) -> None:
        """Store the changes that a request makes to the session's partitions."""
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                key = gone.topic, gone.topic_id, index
                partition = self.partitions.pop(key, None)
                if partition is not None:
                    partition.left_ms = self.last_fetch_ms
                    self.left[key] = partition
                    if len(self.left) > MAX_LEFT:
                        del self.left[next(iter(self.left))]
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.topic, topic.topic_id, wanted.partition
                partition = self.partitions.get(key)
                if partition is None:
                    self.partitions[key] = partition = FetchedPartition(*key)
                    self.left.pop(key, None)
                partition.update(wanted)

    def note_client(self, client_id: str) -> None:
        """Note the client that has opened the session."""
        self.client_id = client_id

    def served(self, partition: FetchedPartition) -> None:
        """Move a partition of which records are sent to the end."""
        key = (partition.topic, partition.topic_id, partition.index)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition


class FetchContext:
    """The partitions to read for one request, and whether the response may omit those without a change."""

    __slots__ = ("incremental", "partitions", "session")

    def __init__(self, partitions: Iterable[FetchedPartition], session: FetchSession | None, incremental: bool) -> None:
        self.partitions = list(partitions)
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


LastFetch = tuple[str, list[FetchedPartition], int]
"""A fetch outside of a session: the client id, its partitions, and when it came, in ms. It is made for each fetch of a
client without sessions, as all of librdkafka are: a named tuple costs several times as much."""


class FetchSessions:
    """The sessions of all consumers of a broker."""

    def __init__(self, slots: int) -> None:
        self.cache: SessionCache[FetchSession] = SessionCache(slots)
        self.without_session: dict[int, LastFetch] = {}
        """The last fetches of clients that use no sessions, by connection; at most MAX_WITHOUT_SESSION, with
        MAX_POSITIONS_WITHOUT_SESSION positions."""
        self._positions_without_session = 0

    def __len__(self) -> int:
        return len(self.cache)

    def note_client(self, client_id: str | None, connection: object, context: FetchContext, now_ms: int) -> None:
        """Keep who fetches from which positions: for a new session, and for each fetch without one."""
        client_id = client_id[:MAX_CLIENT_ID] if client_id else ""
        if context.session is not None:
            context.session.note_client(client_id)
            return
        known, key, partitions = self.without_session, id(connection), context.partitions
        last = known.get(key)
        if last is None or len(last[1]) != len(partitions):
            partitions = partitions[:MAX_POSITIONS_OF_FETCH]
            self._make_room(key, len(partitions))
        known[key] = (client_id, partitions, now_ms)

    def _make_room(self, key: int, position_count: int) -> None:
        """Forget the last fetch of a connection, and the first ones of others until there is room for a new one."""
        known = self.without_session
        last = known.pop(key, None)
        left = self._positions_without_session + position_count - (0 if last is None else len(last[1]))
        while known and (len(known) >= MAX_WITHOUT_SESSION or left > MAX_POSITIONS_WITHOUT_SESSION):
            left -= len(known.pop(next(iter(known)))[1])
        self._positions_without_session = left

    def context(self, request: FetchRequest, uses_ids: bool, now_ms: int) -> FetchContext:
        """Find or make the session of a request. Raises KafkaError as `SessionCache.resume` does."""
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self.cache.resume(request, uses_ids)
            session.last_fetch_ms = now_ms
            self.cache.update(session, request)
            return FetchContext(session.partitions.values(), session, incremental=True)
        self.cache.end(request.session_id)
        session = FetchSession(uses_ids, now_ms)
        session.update(request)
        partitions = session.partitions
        if request.session_epoch == INITIAL_EPOCH and partitions and self.cache.make_room(len(partitions), now_ms):
            self.cache.add(session)
            return FetchContext(partitions.values(), session, incremental=False)
        return FetchContext(partitions.values(), None, incremental=False)
