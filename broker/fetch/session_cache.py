"""The common part of consumers' and followers' fetch sessions (KIP-227): ids, epochs, slots, and their end.

A session's `epoch` counts its requests, so that a lost or repeated one is noticed. Epoch 0 requests a new session, -1
ends one or requests none. Pure: no IO, time comes in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid

if TYPE_CHECKING:
    from gregor.protocol.messages import FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
MAX_ID = MAX_EPOCH = 0x7FFF_FFFF
EVICT_AFTER_MS = 120_000
"""A session unused this long may give its slot to a new one (Kafka's min.incremental.fetch.session.eviction.ms)."""
MAX_POSITIONS = 200_000
"""Limit of the fetch positions of all sessions, each some 500 bytes; it is what a whole cluster should have. Kafka has
none."""

SessionPartition = tuple[str, Uuid, int]
"""Topic name (below version 13) or topic id, and the index."""


class Session(Protocol):
    id: int
    epoch: int
    uses_ids: bool
    last_fetch_ms: int

    @property
    def position_count(self) -> int: ...
    def open(self, session_id: int) -> None: ...
    def update(self, request: FetchRequest) -> None: ...


SessionT = TypeVar("SessionT", bound=Session)


class SessionCache(Generic[SessionT]):
    """At most `slots` sessions (max.incremental.fetch.session.cache.slots) with MAX_POSITIONS fetch positions; iterates
    in the order of their last use."""

    def __init__(self, slots: int, ended: Callable[[SessionT], None] | None = None) -> None:
        """`ended` is called with each session that is removed."""
        self.slots = slots
        self.position_count = 0
        """Fetch positions in all sessions that have an id."""
        self._ended = ended
        self._sessions: dict[int, SessionT] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[SessionT]:
        return iter(self._sessions.values())

    def resume(self, request: FetchRequest, uses_ids: bool) -> SessionT:
        """Return the session of an incremental request, and count the request.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: the
        client answers each with a full request.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch % MAX_EPOCH + 1
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session

    def update(self, session: SessionT, request: FetchRequest) -> None:
        """Store the changes that a request makes to the session's positions.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND if there is no room for them: the session ends.
        """
        before = session.position_count
        session.update(request)
        if session.id != NO_SESSION:
            added = session.position_count - before
            self.position_count += added
            if added > 0 and self.position_count > MAX_POSITIONS:
                self.end(session.id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def make_room(self, position_count: int, now_ms: int, gives_way: Callable[[SessionT], bool] | None = None) -> bool:
        """Return whether there is room for a new session with so many positions. Where there is none, the sessions for
        which `gives_way` holds end at once, as far as necessary; after them those that were unused for the longest
        time, if that is EVICT_AFTER_MS at least."""
        if position_count > MAX_POSITIONS:
            return False
        while len(self._sessions) >= self.slots or self.position_count + position_count > MAX_POSITIONS:
            evicted = None if gives_way is None else next(filter(gives_way, self), None)
            if evicted is None:
                evicted = next(iter(self), None)
                if evicted is None or now_ms - evicted.last_fetch_ms < EVICT_AFTER_MS:
                    return False
            self.end(evicted.id)
        return True

    def add(self, session: SessionT) -> None:
        """Give a new session its id; its first request counts."""
        while (session_id := random.randint(1, MAX_ID)) in self._sessions:
            pass
        session.open(session_id)
        self._sessions[session_id] = session
        self.position_count += session.position_count

    def end(self, session_id: int) -> None:
        """Remove the session of this id, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.position_count -= session.position_count
            if self._ended is not None:
                self._ended(session)
