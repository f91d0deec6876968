"""Incremental fetch sessions (KIP-227): the broker remembers a consumer's partitions, the consumer sends changes.

A session's `epoch` counts its requests, so that a lost or repeated one is noticed. Epoch 0 asks for a new session, -1
ends one or says that none is wanted. Pure: no IO, time comes in.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid

if TYPE_CHECKING:
    from gregor.protocol.messages import FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EVICT_AFTER_MS = 120_000
"""A session unused this long may give its slot to a new one (Kafka's min.incremental.fetch.session.eviction.ms)."""

PartitionKey = tuple[str, Uuid, int]  # topic name (below version 13) or topic id, and the index


class FetchedPartition:
    """What a consumer wants of a partition, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.told_high_watermark = self.told_log_start_offset = -1

    def update(self, wanted: FetchRequest.FetchPartition) -> None:
        self.current_leader_epoch = wanted.current_leader_epoch
        self.fetch_offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes


class FetchSession:
    """`partitions` in the order in which they are served; those that gave records go to the end, so none starves."""

    __slots__ = ("epoch", "id", "partitions", "used_ms", "uses_ids")

    def __init__(self, session_id: int, uses_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = INITIAL_EPOCH
        self.uses_ids = uses_ids
        self.used_ms = now_ms
        self.partitions: dict[PartitionKey, FetchedPartition] = {}

    def update(self, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, index), None)
        for key, wanted in _wanted(request):
            partition = self.partitions.get(key)
            if partition is None:
                self.partitions[key] = partition = FetchedPartition(*key)
            partition.update(wanted)

    def served(self, partition: FetchedPartition) -> None:
        key = (partition.topic, partition.topic_id, partition.index)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition


class FetchContext:
    """One request's view: which partitions to read, and whether the answer may leave unchanged ones out."""

    __slots__ = ("incremental", "partitions", "session")

    def __init__(self, partitions: Iterable[FetchedPartition], session: FetchSession | None, incremental: bool) -> None:
        self.partitions = list(partitions)
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """The sessions of a broker, at most `slots` (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # in order of last use

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, uses_ids: bool, now_ms: int) -> FetchContext:
        """Find or make the session of a request.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: the
        client answers each with a full request.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            partitions: dict[PartitionKey, FetchedPartition] = {}
            for key, wanted in _wanted(request):
                partitions[key] = partition = FetchedPartition(*key)
                partition.update(wanted)
            session = None
            if request.session_epoch == INITIAL_EPOCH and partitions and self._make_room(now_ms):
                session = FetchSession(self._new_id(), uses_ids, now_ms)
                session.partitions = partitions
                session.epoch = 1
                self._sessions[session.id] = session
            return FetchContext(partitions.values(), session, incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        session.epoch = session.epoch % 0x7FFF_FFFF + 1
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(session.partitions.values(), session, incremental=True)

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms < EVICT_AFTER_MS:
            return False
        del self._sessions[oldest.id]
        return True

    def _new_id(self) -> int:
        while True:
            session_id = random.randint(1, 0x7FFF_FFFF)
            if session_id not in self._sessions:
                return session_id


def _wanted(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchRequest.FetchPartition]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield (topic.topic, topic.topic_id, wanted.partition), wanted
