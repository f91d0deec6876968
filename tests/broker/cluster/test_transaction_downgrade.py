"""The downgrade of transaction.version waits for the transactions that are open, on all brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cluster.transaction_downgrade import TransactionDowngrade, TransactionsOfNewProtocol
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from gregor.replication.admin.features import Downgrade
from gregor.replication.channels.peer import PeerError

TRANSACTIONS = "transaction.version"


class Coordinator:
    """The transaction coordinator of this broker."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.ended = 0
        self._error = error

    async def end_new_protocol(self) -> None:
        self.ended += 1
        if self._error is not None:
            raise self._error


class Other:
    """Another broker; each answer is open ids, an error code or a failure."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[ListTransactionsRequest] = []
        self.closed = False

    async def send(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ErrorCode):
            return ListTransactionsResponse(error_code=answer)
        make = ListTransactionsResponse.TransactionState
        return ListTransactionsResponse(transaction_states=[make(transactional_id=one) for one in answer])

    def close(self) -> None:
        self.closed = True


def prepare(here: Coordinator, *others: Other, **options: Any) -> None:
    asyncio.run(prepared(here, *others, **options))
    assert all(other.closed for other in others)


async def prepared(
    here: Coordinator, *others: Other, name: str = TRANSACTIONS, after: int = 0, timeout_ms: int = 10_000
) -> None:
    brokers = {
        broker_id: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="host", port=broker_id)})
        for broker_id in range(len(others) + 1)
    }
    image: Any = SimpleNamespace(brokers=brokers)
    gate: Any = None
    new_peer: Any = lambda host, port: others[port - 1]  # noqa: E731
    downgrade = TransactionDowngrade(
        BrokerConfig({"broker.id": "0", "log.dirs": "d"}), image, here, gate, new_peer=new_peer, poll_s=0
    )
    await downgrade.prepare(Downgrade(name, 1, after, is_safe=True), timeout_ms)


def test_no_wait_without_open_transactions() -> None:
    here, other = Coordinator(), Other([])
    prepare(here, other)
    assert here.ended == 1
    (request,) = other.requests
    assert (request.state_filters, request.duration_filter) == (["Ongoing", "PrepareCommit", "PrepareAbort"], 0)


def test_waits_for_every_other_broker() -> None:
    first, second = Other(["a"], []), Other(["b"], ["b"], [])
    prepare(Coordinator(), first, second)
    assert (len(first.requests), len(second.requests)) == (3, 3)
    durations = [request.duration_filter for request in second.requests]
    assert durations == sorted(durations), "later transactions are not waited for"


def test_transactions_that_stay_open_are_named() -> None:
    other = Other([f"id-{number}" for number in range(7)])
    with pytest.raises(KafkaError, match=r"7 transactions are open \(id-0, id-1, .*forceTerminate") as error:
        prepare(Coordinator(), other, timeout_ms=20)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert "id-5" not in error.value.message and other.closed


def test_broker_that_does_not_answer_gets_the_request_again() -> None:
    other = Other(PeerError("no"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    prepare(Coordinator(), other)
    assert len(other.requests) == 3
    with pytest.raises(KafkaError, match="broker 1 are not known: no") as error:
        prepare(Coordinator(), Other(PeerError("no")), timeout_ms=20)
    assert error.value.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_own_coordinator_that_fails_ends_the_downgrade() -> None:
    other = Other([])
    with pytest.raises(KafkaError, match="loads"):
        prepare(Coordinator(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")), other)
    assert other.requests == []


def test_own_transactions_that_do_not_end_are_awaited_for_the_timeout_only() -> None:
    class Stuck(Coordinator):
        async def end_new_protocol(self) -> None:
            await asyncio.Event().wait()

    async def limited() -> None:
        async with asyncio.timeout(30):
            await prepared(Stuck(), timeout_ms=20)

    with pytest.raises(KafkaError, match=r"within 20 ms: .* no leader .*; try again when") as error:
        asyncio.run(limited())
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_nothing_waits_for_other_features_and_levels() -> None:
    here = Coordinator()
    prepare(here, name="group.version")
    prepare(here, after=1)
    assert here.ended == 0


def test_level_that_falls_ends_the_transactions_of_this_broker(caplog: pytest.LogCaptureFixture) -> None:
    levels = [2]
    features: Any = SimpleNamespace(transaction_version=lambda: levels[-1], on_changed=[])
    here = Coordinator(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads"))
    TransactionsOfNewProtocol(features, here, asyncio.run)
    for level, ended in ((1, 1), (0, 1), (2, 1), (0, 2)):
        levels.append(level)
        for changed in features.on_changed:
            changed()
        assert here.ended == ended
    assert "the others end with their timeouts" in caplog.text
