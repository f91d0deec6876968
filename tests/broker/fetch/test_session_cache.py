"""gregor.broker.fetch.session_cache: which sessions have a slot, and which lose theirs."""

from __future__ import annotations

import pytest

from gregor.broker.fetch.session_cache import EVICT_AFTER_MS, MAX_EPOCH, NO_SESSION, SessionCache
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest


class Session:
    def __init__(self, name: str, last_fetch_ms: int = 0) -> None:
        self.name = name
        self.id = NO_SESSION
        self.epoch = 0
        self.uses_ids = True
        self.last_fetch_ms = last_fetch_ms
        self.positions: list[object] = []

    @property
    def position_count(self) -> int:
        return len(self.positions)

    def update(self, request: FetchRequest) -> None:
        self.positions += request.topics

    def open(self, session_id: int) -> None:
        self.id, self.epoch = session_id, 1


class Cache:
    """A cache, and the names of the sessions that were removed from it."""

    def __init__(self, slots: int, *names: str) -> None:
        self.ended: list[str] = []
        self.sessions = {name: Session(name) for name in names}
        self.cache: SessionCache[Session] = SessionCache(slots, lambda session: self.ended.append(session.name))
        for session in self.sessions.values():
            self.cache.add(session)

    def resume(self, name: str, epoch: int, uses_ids: bool = True) -> Session:
        request = FetchRequest(session_id=self.sessions[name].id, session_epoch=epoch)
        return self.cache.resume(request, uses_ids)

    def names(self) -> list[str]:
        return [session.name for session in self.cache]


def test_each_session_has_an_id_of_its_own_and_begins_at_epoch_1() -> None:
    it = Cache(50, *map(str, range(50)))
    assert len({session.id for session in it.cache} - {NO_SESSION}) == len(it.cache) == 50
    assert {session.epoch for session in it.cache} == {1}


def test_a_request_is_counted_and_the_session_is_the_last_used() -> None:
    it = Cache(3, "a", "b", "c")
    assert it.resume("a", 1) is it.sessions["a"]
    assert it.sessions["a"].epoch == 2
    assert it.names() == ["b", "c", "a"]
    it.sessions["b"].epoch = MAX_EPOCH
    it.resume("b", MAX_EPOCH)
    assert it.sessions["b"].epoch == 1


@pytest.mark.parametrize(
    ("name", "epoch", "uses_ids", "error"),
    [
        ("gone", 1, True, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ("a", 2, True, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ("a", 1, False, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_refused_request_leaves_the_session_as_it_was(
    name: str, epoch: int, uses_ids: bool, error: ErrorCode
) -> None:
    it = Cache(3, "a", "b", "gone")
    it.cache.end(it.sessions["gone"].id)
    with pytest.raises(KafkaError) as refused:
        it.resume(name, epoch, uses_ids)
    assert refused.value.code is error
    assert (it.names(), it.sessions["a"].epoch) == (["a", "b"], 1)


def test_a_slot_is_given_up_only_after_a_long_time() -> None:
    it = Cache(2, "a", "b")
    it.sessions["b"].last_fetch_ms = 1
    assert not it.cache.make_room(1, EVICT_AFTER_MS - 1)
    assert it.cache.make_room(1, EVICT_AFTER_MS)
    assert (it.names(), it.ended) == (["b"], ["a"])
    assert it.cache.make_room(1, 0)
    assert it.names() == ["b"]


def test_sessions_that_give_way_lose_their_slot_at_once_the_longest_unused_first() -> None:
    it = Cache(4, "a", "b", "c", "d")
    it.resume("b", 1)
    assert it.cache.make_room(1, 0, lambda session: session.name in "bd")
    assert (it.names(), it.ended) == (["a", "c", "b"], ["d"])
    it.cache.slots = 3
    assert not it.cache.make_room(1, 0, lambda session: session.name == "d")
    assert it.cache.make_room(1, EVICT_AFTER_MS, lambda session: session.name == "d")
    assert it.ended == ["d", "a"]


def test_the_end_of_a_session_is_told_once() -> None:
    it = Cache(2, "a", "b")
    for _ in range(2):
        it.cache.end(it.sessions["a"].id)
    assert (it.names(), it.ended) == (["b"], ["a"])
    empty = Cache(0)
    assert not empty.cache.make_room(1, EVICT_AFTER_MS)
