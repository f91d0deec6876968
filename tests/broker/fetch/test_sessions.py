"""gregor.broker.fetch.sessions: KIP-227's rules for sessions, epochs and slots."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.fetch import session_cache
from gregor.broker.fetch import sessions as sessions_module
from gregor.broker.fetch.session_cache import EVICT_AFTER_MS, FINAL_EPOCH, INITIAL_EPOCH
from gregor.broker.fetch.sessions import FetchContext, FetchSessions
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest


def request(session_id: int, epoch: int, *wanted: tuple[str, int, int], forget: tuple[str, int] | None = None) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, index, offset in wanted:
        topics.setdefault(topic, []).append(
            FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        )
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
        forgotten_topics_data=(
            [FetchRequest.ForgottenTopic(topic=forget[0], partitions=[forget[1]])] if forget is not None else []
        ),
    )


def wants(context: FetchContext) -> list[tuple[str, int, int]]:
    return [(part.topic, part.index, part.fetch_offset) for part in context.partitions]


def begin(sessions: FetchSessions, *wanted: tuple[str, int, int], now_ms: int = 0) -> int:
    return sessions.context(request(0, INITIAL_EPOCH, *wanted), False, now_ms).session_id


def test_a_sessionless_request_makes_no_session() -> None:
    sessions = FetchSessions(10)
    context = sessions.context(request(0, FINAL_EPOCH, ("t", 0, 5)), False, 0)
    assert (context.session_id, context.incremental, len(sessions)) == (0, False, 0)
    assert wants(context) == [("t", 0, 5)]


def test_a_session_remembers_updates_adds_and_forgets() -> None:
    sessions = FetchSessions(10)
    session_id = begin(sessions, ("t", 0, 5), ("t", 1, 6))
    assert session_id > 0
    context = sessions.context(request(session_id, 1), False, 0)
    assert context.incremental
    assert wants(context) == [("t", 0, 5), ("t", 1, 6)]
    context = sessions.context(request(session_id, 2, ("t", 1, 60), ("u", 0, 7), forget=("t", 0)), False, 0)
    assert wants(context) == [("t", 1, 60), ("u", 0, 7)]


def test_a_session_forgets_the_partitions_that_it_left_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_LEFT", 2)
    sessions = FetchSessions(10)
    session_id = begin(sessions, *(("t", index, 0) for index in range(4)))
    for index in range(3):
        context = sessions.context(request(session_id, index + 1, forget=("t", index)), False, index)
    assert context.session is not None
    assert [key[2] for key in context.session.left] == [1, 2]


@pytest.mark.parametrize("epoch", [2, 3, 77])
def test_a_lost_or_repeated_request_is_noticed(epoch: int) -> None:
    sessions = FetchSessions(10)
    session_id = begin(sessions, ("t", 0, 5))
    with pytest.raises(KafkaError) as caught:
        sessions.context(request(session_id, epoch), False, 0)
    assert caught.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert wants(sessions.context(request(session_id, 1), False, 0)) == [("t", 0, 5)]


def test_unknown_sessions_and_mixed_naming_are_refused() -> None:
    sessions = FetchSessions(10)
    with pytest.raises(KafkaError) as caught:
        sessions.context(request(99, 1), False, 0)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = begin(sessions, ("t", 0, 5))
    with pytest.raises(KafkaError) as caught:
        sessions.context(request(session_id, 1), True, 0)
    assert caught.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epochs_wrap_to_1() -> None:
    sessions = FetchSessions(10)
    session_id = begin(sessions, ("t", 0, 5))
    session = sessions.context(request(session_id, 1), False, 0).session
    assert session is not None
    session.epoch = 2**31 - 1
    sessions.context(request(session_id, 2**31 - 1), False, 0)
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_beginning_anew_or_ending_drops_the_old_session(epoch: int) -> None:
    sessions = FetchSessions(10)
    old = begin(sessions, ("t", 0, 5))
    context = sessions.context(request(old, epoch, ("t", 0, 9)), False, 0)
    assert wants(context) == [("t", 0, 9)]
    assert (context.session_id != 0) is (epoch == INITIAL_EPOCH)
    with pytest.raises(KafkaError):
        sessions.context(request(old, 1), False, 0)


def test_only_sessions_long_unused_give_their_slot_away() -> None:
    sessions = FetchSessions(2)
    first, second = begin(sessions, ("t", 0, 1)), begin(sessions, ("t", 0, 2))
    assert begin(sessions, ("t", 0, 3), now_ms=EVICT_AFTER_MS - 1) == 0
    sessions.context(request(first, 1), False, EVICT_AFTER_MS - 1)
    third = begin(sessions, ("t", 0, 3), now_ms=EVICT_AFTER_MS)
    assert third > 0
    sessions.context(request(first, 2), False, EVICT_AFTER_MS)
    with pytest.raises(KafkaError):
        sessions.context(request(second, 1), False, EVICT_AFTER_MS)


def test_partitions_that_gave_records_go_to_the_end() -> None:
    sessions = FetchSessions(2)
    session_id = begin(sessions, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
    context = sessions.context(request(session_id, 1), False, 0)
    assert context.session is not None
    context.session.served(context.partitions[0])
    assert [part.index for part in sessions.context(request(session_id, 2), False, 0).partitions] == [1, 2, 0]


def test_sessions_remember_only_so_many_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_cache, "MAX_POSITIONS", 4)
    sessions = FetchSessions(10)
    first, second = begin(sessions, ("t", 0, 0), ("t", 1, 0)), begin(sessions, ("t", 0, 0))
    assert sessions.cache.position_count == 3
    sessions.context(request(first, 1, ("t", 2, 0), forget=("t", 0)), False, 0)  # it remembers the one that it left
    assert (sessions.cache.position_count, begin(sessions, ("u", 0, 0))) == (4, 0)
    sessions.context(request(first, 2, ("t", 0, 9)), False, 0)  # and enters again
    with pytest.raises(KafkaError) as refused:
        sessions.context(request(first, 3, ("t", 3, 0)), False, 0)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (sessions.cache.position_count, len(sessions)) == (1, 1)
    many = [("t", index, 0) for index in range(4)]
    context = sessions.context(request(0, INITIAL_EPOCH, *many), False, 0)
    assert (context.session_id, wants(context)) == (0, many)
    # A session that is not used any more gives way, but to none that has no room in any case.
    assert begin(sessions, *many, ("t", 4, 0), now_ms=EVICT_AFTER_MS) == 0
    assert sessions.cache.position_count == 1
    assert begin(sessions, *many, now_ms=EVICT_AFTER_MS) not in (0, second)
    assert (sessions.cache.position_count, len(sessions)) == (4, 1)


def test_fetches_without_a_session_are_remembered_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_POSITIONS_OF_FETCH", 3)
    monkeypatch.setattr(sessions_module, "MAX_POSITIONS_WITHOUT_SESSION", 7)
    sessions, connections = FetchSessions(10), [object() for _ in range(4)]

    def fetch(number: int, count: int) -> list[int]:
        """Fetch from some partitions; return how many positions of each connection are remembered."""
        wanted = [("t", index, 0) for index in range(count)]
        context = sessions.context(request(0, FINAL_EPOCH, *wanted), False, 0)
        sessions.note_client("c", connections[number], context, 0)
        assert wants(context) == wanted
        known = sessions.without_session
        return [len(known[key][1]) if (key := id(connection)) in known else 0 for connection in connections]

    assert fetch(0, 2) == [2, 0, 0, 0]
    assert fetch(1, 5) == [2, 3, 0, 0]
    assert fetch(2, 2) == [2, 3, 2, 0]
    assert fetch(0, 2) == [2, 3, 2, 0]
    assert fetch(0, 1) == [1, 3, 2, 0]
    assert fetch(3, 3) == [1, 0, 2, 3]
    assert fetch(2, 3) == [1, 0, 3, 3]
