"""gregor.broker.cli.transactions.transactional_ids: lists and descriptions of transactional ids, and their fencing."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.cli import coordinators
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.transactions.transactional_ids import (
    Listing,
    describe_known,
    describe_transaction,
    force_terminate,
    list_transactions,
)
from gregor.broker.cli.wire import BrokerRefusal
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.broker.cli.fake_client import coordinator
from tests.broker.cli.transactions.a_cluster import COORDINATOR, NOW_MS, Cluster, state


@pytest.fixture
def cluster() -> Cluster:
    return Cluster({}, transactions={"a": state("a", 7, {"t": [1, 0]}), "b": state("b", 8, {})})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "PAUSE_S", 0)


def test_lists_of_all_brokers(cluster: Cluster) -> None:
    client = cluster.client()
    assert list_transactions(client) == [
        Listing("a", COORDINATOR, 7, "Ongoing"),
        Listing("b", COORDINATOR, 8, "Ongoing"),
    ]
    assert [node_id for _, node_id in client.sent] == [1, 2]
    assert [one.transactional_id for one in list_transactions(client, producer_ids={8})] == ["b"]
    list_transactions(client, duration_ms=5, pattern="b.*")
    last = client.requests(ListTransactionsRequest)[-1]
    assert (last.duration_filter, last.transactional_id_pattern) == (5, "b.*")


@pytest.mark.parametrize(
    ("version", "filters", "flag"),
    [(0, {"duration_ms": 0}, "--duration-filter"), (1, {"pattern": "x"}, "--transactional-id-pattern")],
)
def test_filters_that_a_broker_does_not_know(
    cluster: Cluster, version: int, filters: dict[str, Any], flag: str
) -> None:
    client = cluster.client(versions={ListTransactionsRequest: version})
    with pytest.raises(CommandError, match=f"broker 1 offers ListTransactions up to version {version}.*{flag}"):
        list_transactions(client, **filters)


def test_list_is_repeated_while_a_coordinator_loads(cluster: Cluster) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.NONE]
    answers = {ListTransactionsRequest: lambda request, node_id: ListTransactionsResponse(error_code=codes.pop(0))}
    assert list_transactions(cluster.client(answers)) == []
    answers = {
        ListTransactionsRequest: lambda request, node_id: ListTransactionsResponse(
            error_code=ErrorCode.INVALID_REGULAR_EXPRESSION
        )
    }
    with pytest.raises(BrokerRefusal, match="INVALID_REGULAR_EXPRESSION"):
        list_transactions(cluster.client(answers), pattern="(")


def test_description(cluster: Cluster) -> None:
    found = describe_transaction(cluster.client(), "a")
    assert (found.coordinator_id, found.producer_id, found.start_ms) == (COORDINATOR, 7, NOW_MS)
    assert found.partitions == (("t", 0), ("t", 1))
    with pytest.raises(BrokerRefusal, match="no transactional id 'absent' .TRANSACTIONAL_ID_NOT_FOUND"):
        describe_transaction(cluster.client(), "absent")
    assert describe_known(cluster.client(), ["b", "absent", "b"]).keys() == {"b"}


def test_coordinator_is_found_again_while_it_moves(cluster: Cluster) -> None:
    codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    client = cluster.client({FindCoordinatorRequest: lambda request, node_id: coordinator(COORDINATOR, codes.pop(0))})
    assert describe_transaction(client, "a").transactional_id == "a"
    assert [(one.key_type, one.coordinator_keys) for one in client.requests(FindCoordinatorRequest)] == [(1, ["a"])] * 2


def test_producer_is_fenced_once_its_transaction_has_ended(cluster: Cluster) -> None:
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    answers = {InitProducerIdRequest: lambda request, node_id: InitProducerIdResponse(error_code=codes.pop(0))}
    client = cluster.client(answers)
    force_terminate(client, "a")
    sent = client.requests(InitProducerIdRequest)
    assert [(one.transactional_id, one.producer_id, one.producer_epoch) for one in sent] == [("a", -1, -1)] * 3


def test_refusal_to_fence_is_an_error(cluster: Cluster) -> None:
    refused = InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerRefusal, match="'a' cannot be fenced .TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        force_terminate(cluster.client({InitProducerIdRequest: lambda request, node_id: refused}), "a")
