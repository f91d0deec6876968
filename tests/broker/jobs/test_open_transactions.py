"""jobs.open_transactions: warnings of transactions that are open for longer than any producer may request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.jobs.open_transactions import GRACE_MS, OWN_GRACE_MS, OpenTransactions
from gregor.storage.producers.transactions import Transactions

MAX_TIMEOUT_MS = 900_000
LIMIT_MS = MAX_TIMEOUT_MS + GRACE_MS


def log_with(*transactions: tuple[int, int], partition: int = 0) -> Any:
    """Return the part of a log that is read: producers, each with the first offset of its transaction or -1."""
    entries = {producer_id: SimpleNamespace(epoch=3) for producer_id, _ in transactions}
    opened = Transactions()
    for producer_id, offset in transactions:
        if offset >= 0:
            opened.begin(producer_id, offset)
    producers = SimpleNamespace(transactions=opened if transactions else None, entries=entries)
    return SimpleNamespace(topic="t", partition=partition, producers=producers)


class Rounds:
    """The rounds over the logs, with the warnings of each."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._open = OpenTransactions(MAX_TIMEOUT_MS, {7: "billing at 192.0.2.7"}.get)
        self._caplog = caplog
        self.known: dict[int, int] = {}
        """Timeouts that the coordinators know."""
        self.requested: list[set[int]] = []

    def warnings(self, now_ms: int, *logs: Any) -> list[str]:
        self._caplog.clear()
        for log in logs:
            self._open.observe(log, now_ms)
        self.requested.append(set(self._open.producers_without_timeout()))
        self._open.set_timeouts({one: self.known[one] for one in self.requested[-1] if one in self.known})
        self._open.end_round()
        return self._caplog.messages


@pytest.fixture
def rounds(caplog: pytest.LogCaptureFixture) -> Rounds:
    return Rounds(caplog)


def test_an_old_transaction_is_reported_once(rounds: Rounds) -> None:
    log = log_with((7, 120), (8, -1))
    assert rounds.warnings(0, log) == []
    assert rounds.warnings(LIMIT_MS, log) == []
    [warning] = rounds.warnings(LIMIT_MS + 1, log)
    assert warning.startswith(
        "t-0: the transaction of producer 7, epoch 3 (client: billing at 192.0.2.7), has been open from offset 120 on "
        "for more than 20 min"
    )
    assert warning.endswith("`gregor transactions abort --topic t --partition 0 --start-offset 120` aborts it")
    assert rounds.warnings(2 * LIMIT_MS, log) == []


def test_each_transaction_has_its_own_age(rounds: Rounds) -> None:
    assert rounds.warnings(0, log_with((7, 120)), log_with((7, 5), partition=1)) == []
    assert rounds.warnings(LIMIT_MS, log_with((7, 130)), log_with(partition=1)) == []
    assert rounds.warnings(LIMIT_MS + 1, log_with((7, 130)), log_with((7, 5), partition=1)) == []
    assert len(rounds.warnings(2 * LIMIT_MS + 1, log_with((7, 130)))) == 1


def test_each_transaction_has_its_own_timeout(rounds: Rounds) -> None:
    """It is requested once, when a transaction is seen for the second time."""
    rounds.known = {7: 60_000, 9: 600_000}
    log = log_with((7, 120), (8, 121), (9, 122))
    limit_ms = 60_000 + OWN_GRACE_MS
    assert rounds.warnings(0, log) == []
    assert rounds.warnings(1, log) == []
    assert rounds.warnings(limit_ms, log) == []
    [warning] = rounds.warnings(limit_ms + 1, log)
    assert "has been open from offset 120 on for more than 1 min, longer than its timeout of 60000 ms;" in warning
    assert rounds.requested == [set(), {7, 8, 9}, {8}, {8}]
    [later] = rounds.warnings(600_000 + OWN_GRACE_MS + 1, log)
    assert later.startswith("t-0: the transaction of producer 9,")
    [last] = rounds.warnings(LIMIT_MS + 1, log)
    assert last.startswith("t-0: the transaction of producer 8,")
    assert "longer than transaction.max.timeout.ms allows;" in last


def test_timeout_is_requested_again_for_a_later_transaction(rounds: Rounds) -> None:
    """A producer may have got another timeout since."""
    rounds.known = {7: 60_000}
    for now_ms, offset in ((0, 120), (1, 120), (2, 130), (3, 130)):
        assert rounds.warnings(now_ms, log_with((7, offset))) == []
    assert rounds.requested == [set(), {7}, set(), set()]
    assert rounds.warnings(4, log_with((7, -1))) == []
    rounds.known = {7: 120_000}
    for now_ms in (5, 6, 60_000 + OWN_GRACE_MS + 6):
        assert rounds.warnings(now_ms, log_with((7, 140))) == []
    assert rounds.requested[-3:] == [set(), {7}, set()]
