"""The downgrade of transaction.version waits for the transactions that are open, on all brokers."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.features.new_transactions import NewTransactionsOfBrokers
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from gregor.replication.store.time_limit import TimeLimit
from tests.broker.features.brokers import EPOCH, OtherBroker, downgrade_on
from tests.replication.fakes import on_loop


class Coordinator:
    """The transaction coordinator of this broker."""

    def __init__(self) -> None:
        self.ended = 0

    async def end_new_protocol(self) -> None:
        self.ended += 1


class Other(OtherBroker):
    """Another broker; each answer is open ids or an error code."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[ListTransactionsRequest] = []

    async def answer(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ErrorCode):
            return ListTransactionsResponse(error_code=answer)
        make = ListTransactionsResponse.TransactionState
        return ListTransactionsResponse(transaction_states=[make(transactional_id=one) for one in answer])


async def end(here: Coordinator, *others: Other, timeout_ms: int = 10_000) -> None:
    await downgrade_on(NewTransactionsOfBrokers(here), *others).end(EPOCH, TimeLimit(timeout_ms))


@on_loop
async def test_no_wait_without_open_transactions() -> None:
    here, other = Coordinator(), Other([])
    await downgrade_on(NewTransactionsOfBrokers(here), other).check(EPOCH, TimeLimit())
    assert (here.ended, other.requests) == (0, [])
    await end(here, other)
    assert here.ended == 1
    (request,) = other.requests
    assert (request.state_filters, request.duration_filter) == (["Ongoing", "PrepareCommit", "PrepareAbort"], 0)


@on_loop
async def test_waits_for_every_other_broker() -> None:
    first, second = Other(["a"], []), Other(["b"], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ["b"], [])
    await end(Coordinator(), first, second)
    assert (len(first.requests), len(second.requests)) == (3, 4)
    durations = [request.duration_filter for request in second.requests]
    assert durations == sorted(durations), "later transactions are not waited for"


@on_loop
async def test_transactions_that_stay_open_are_named() -> None:
    other = Other([f"id-{number}" for number in range(7)])
    with pytest.raises(KafkaError, match=r"7 transactions are open \(id-0, id-1, .*forceTerminate") as error:
        await end(Coordinator(), other, timeout_ms=0)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert "id-5" not in error.value.message and other.closed
