"""gregor.broker.cli.transactions.hanging: transactions that no coordinator is going to end."""

from __future__ import annotations

from gregor.broker.cli.transactions.hanging import (
    confirm_open,
    idle_longer_than,
    query_coordinators,
    without_coordinator,
)
from gregor.broker.cli.transactions.producers import describe_producers, open_transactions
from gregor.protocol.messages import ListTransactionsRequest
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.cli.transactions.a_cluster import NOW_MS, Cluster, producer, state

BROKERS = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}


def found_in(cluster: Cluster) -> list[int]:
    """Return the producers whose transactions hang."""
    client = cluster.client()
    candidates = open_transactions(describe_producers(client, BROKERS)[0])
    suspects = without_coordinator(candidates, query_coordinators(client, candidates))
    return [one.producer.producer_id for one in confirm_open(client, suspects, BROKERS)]


def test_transaction_hangs_without_a_coordinator_that_has_its_partition() -> None:
    cluster = Cluster(
        {"t": [1, 2]},
        {("t", 0): [producer(7, 5), producer(8, 6), producer(9, 7), producer(10)], ("t", 1): [producer(11, 2)]},
        {
            "coordinated": state("coordinated", 7, {"t": [0]}),
            "elsewhere": state("elsewhere", 8, {"t": [1]}),
            "ended": state("ended", 11, {}, transaction_state="CompleteAbort"),
        },
    )
    assert found_in(cluster) == [8, 9, 11]


def test_transaction_that_ends_during_the_search_does_not_hang() -> None:
    cluster = Cluster({"t": [1, 2]}, {("t", 0): [producer(7, 5)], ("t", 1): [producer(8, 2)]})
    cluster.after_describe = lambda: cluster.producers.update({("t", 0): [producer(7, 9)]})
    assert found_in(cluster) == [8]


def test_coordinators_are_not_queried_without_an_open_transaction() -> None:
    client = Cluster({}).client()
    assert query_coordinators(client, []) == ({}, {})
    assert client.requests(ListTransactionsRequest) == []


def test_transactions_with_a_recent_record_are_no_candidates() -> None:
    cluster = Cluster({}, {("t", 0): [producer(7, 5, last_timestamp=NOW_MS - 100), producer(8, 6)]})
    candidates = open_transactions(describe_producers(cluster.client(), BROKERS)[0])
    assert [one.producer.producer_id for one in idle_longer_than(candidates, 99, NOW_MS)] == [7]
    assert idle_longer_than(candidates, 100, NOW_MS) == []
