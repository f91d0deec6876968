"""gregor.replication.repeated_batches: counts by client, since the start and recently."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.replication import repeated_batches
from gregor.replication.repeated_batches import OTHERS, WINDOW_S, ClientRepeats


def test_batches_count_by_client_and_error() -> None:
    repeats = ClientRepeats(lambda: 0.0)
    repeats.duplicate("a")
    repeats.refused("a", ErrorCode.NOT_ENOUGH_REPLICAS)
    repeats.refused("a", ErrorCode.NOT_ENOUGH_REPLICAS)
    repeats.refused(None, ErrorCode.CORRUPT_MESSAGE)
    assert sorted(repeats.read()) == [
        ("", "CORRUPT_MESSAGE", 1, 1),
        ("a", "DUPLICATE_SEQUENCE_NUMBER", 1, 1),
        ("a", "NOT_ENOUGH_REPLICAS", 2, 2),
    ]


def test_recent_ones_are_those_of_this_window_and_the_one_before() -> None:
    now_s = [0.0]
    repeats = ClientRepeats(lambda: now_s[0])

    def recent() -> tuple[int, int]:
        (one,) = repeats.read()
        return one.total, one.recent

    repeats.duplicate("a")
    now_s[0] = WINDOW_S
    assert recent() == (1, 1)
    repeats.duplicate("a")
    assert recent() == (2, 2)
    now_s[0] = 2 * WINDOW_S
    assert recent() == (2, 1)
    now_s[0] = 4 * WINDOW_S
    assert recent() == (2, 0)


def test_further_clients_share_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_batches, "MAX_CLIENTS", 2)
    repeats = ClientRepeats(lambda: 0.0)
    for client_id in ("a", "b", "c", "d", "a"):
        repeats.duplicate(client_id)
    assert {one.client_id: one.total for one in repeats.read()} == {"a": 2, "b": 1, OTHERS: 2}


def test_clients_that_no_longer_retry_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_batches, "MAX_CLIENTS", 2)
    now_s = [0.0]
    repeats = ClientRepeats(lambda: now_s[0])
    for client_id in ("a", "b"):
        repeats.duplicate(client_id)
    now_s[0] = WINDOW_S
    repeats.duplicate("b")
    now_s[0] = 2 * WINDOW_S
    for client_id in ("c", "d"):
        repeats.duplicate(client_id)
    assert {one.client_id: one.total for one in repeats.read()} == {"b": 2, OTHERS: 3}
    now_s[0] = 4 * WINDOW_S
    repeats.duplicate("d")
    assert {(one.client_id, one.total, one.recent) for one in repeats.read()} == {("d", 1, 1), (OTHERS, 5, 0)}
