"""The downgrade of transaction.version waits for the transactions that are open, on all brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cluster.transaction_downgrade import TransactionDowngrade
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from gregor.replication.channels.peer import PeerError

TRANSACTIONS = "transaction.version"


class Coordinator:
    """A transaction coordinator, here or on another broker; each answer is open ids, an error code or a failure."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[ListTransactionsRequest] = []
        self.closed = False

    async def list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        assert version == 1
        return await self.send(request)

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


def prepare(here: Coordinator, *others: Coordinator, name: str = TRANSACTIONS, timeout_ms: int = 10_000) -> None:
    brokers = {
        broker_id: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="host", port=broker_id)})
        for broker_id in range(len(others) + 1)
    }
    image: Any = SimpleNamespace(brokers=brokers)
    local: Any = here
    gate: Any = None
    new_peer: Any = lambda host, port: others[port - 1]  # noqa: E731
    downgrade = TransactionDowngrade(
        BrokerConfig({"broker.id": "0", "log.dirs": "d"}), image, local, gate, new_peer=new_peer, poll_s=0
    )
    asyncio.run(downgrade.prepare(name, 2, 0, timeout_ms))
    assert all(other.closed for other in others)


def test_no_wait_without_open_transactions() -> None:
    here, other = Coordinator([]), Coordinator([])
    prepare(here, other)
    for coordinator in (here, other):
        (request,) = coordinator.requests
        assert (request.state_filters, request.duration_filter) == (["Ongoing", "PrepareCommit", "PrepareAbort"], 0)


def test_waits_for_every_broker() -> None:
    here, other = Coordinator(["a"], []), Coordinator(["b"], ["b"], [])
    prepare(here, other)
    assert (len(here.requests), len(other.requests)) == (3, 3)
    durations = [request.duration_filter for request in other.requests]
    assert durations == sorted(durations), "later transactions are not waited for"


def test_transactions_that_stay_open_are_named() -> None:
    other = Coordinator([f"id-{number}" for number in range(7)])
    with pytest.raises(KafkaError, match=r"7 transactions are open \(id-0, id-1, .*forceTerminate") as error:
        prepare(Coordinator([]), other, timeout_ms=20)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert "id-5" not in error.value.message and other.closed


def test_broker_that_does_not_answer_is_asked_again() -> None:
    other = Coordinator(PeerError("no"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    prepare(Coordinator([]), other)
    assert len(other.requests) == 3
    with pytest.raises(KafkaError, match="broker 1 are not known: no") as error:
        prepare(Coordinator([]), Coordinator(PeerError("no")), timeout_ms=20)
    assert error.value.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_other_features_do_not_wait() -> None:
    here = Coordinator(["a"])
    prepare(here, name="group.version")
    assert here.requests == []
