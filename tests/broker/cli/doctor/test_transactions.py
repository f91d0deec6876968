"""gregor.broker.cli.doctor.transactions: transactions that committed records wait for."""

from __future__ import annotations

from typing import Any

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.broker.cli.doctor.transactions import OVERDUE_MS, READ_COMMITTED, examine_transactions
from gregor.protocol.messages import (
    DescribeProducersRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.cli.doctor.test_checks import not_ok
from tests.broker.cli.transactions.a_cluster import COORDINATOR, NOW_MS, Cluster, producer, state

STABLE = {("t", 0): 90, ("t", 1): 60, ("t", 2): 100}
HIGH_WATERMARK = 100


def offsets(request: Any, node_id: int | None) -> ListOffsetsResponse:
    assert request.replica_id == -1, "a client"
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            stable = STABLE[topic.name, part.partition_index]
            offset = stable if request.isolation_level == READ_COMMITTED else HIGH_WATERMARK
            parts.append(
                ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=offset)
            )
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
    return ListOffsetsResponse(topics=topics)


def examine(cluster: Cluster, **versions: Any) -> list[Finding]:
    client = cluster.client({ListOffsetsRequest: offsets}, **versions)
    found: MetadataResponse = client.send(MetadataRequest(topics=None))
    findings = examine_transactions(client, found, set(), NOW_MS)
    described = {
        TopicPartition(topic.name, index)
        for request in client.requests(DescribeProducersRequest)
        for topic in request.topics
        for index in topic.partition_indexes
    }
    assert described <= {("t", 0), ("t", 1)}, "only partitions with records that wait"
    return findings


def test_transactions_within_their_timeout_are_in_order() -> None:
    open_now = state("billing", 7, {"t": [0]}, transaction_start_time_ms=NOW_MS - 60_000 - OVERDUE_MS)
    findings = examine(Cluster({"t": [1, 2, 1]}, {("t", 0): [producer(7, 90)]}, {"billing": open_now}))
    assert findings == [Finding(Level.OK, "no transaction hangs (1 open)")]
    assert examine(Cluster({})) == [Finding(Level.OK, "no transaction hangs (0 open)")]


def test_transaction_without_a_coordinator() -> None:
    old = producer(7, 90, last_timestamp=NOW_MS - 25 * 60_000)
    [finding] = examine(Cluster({"t": [1, 2, 1]}, {("t", 0): [old, producer(8)], ("t", 1): [producer(7, 60)]}))
    assert finding.level is Level.WRONG
    assert finding.text == (
        "the transaction of producer 7, epoch 3 hangs: no coordinator is going to end it. Its last record is 0 s old. "
        "Consumers with isolation.level=read_committed wait for 50 offsets of 2 partitions (t-0, t-1)"
    )
    assert "`gregor transactions abort --topic t --partition 0 --start-offset 90`" in finding.remedy
    assert "describe-producers" in finding.remedy


def test_transaction_that_its_coordinator_has_elsewhere_hangs() -> None:
    transactions = {"billing": state("billing", 7, {"t": [1]})}
    [finding] = examine(Cluster({"t": [1, 2, 1]}, {("t", 0): [producer(7, 90)]}, transactions))
    assert finding.text.startswith("the transaction of transactional id 'billing' (producer 7, epoch 3) hangs: ")
    assert finding.text.endswith("wait for 10 offsets of 1 partition (t-0)")


def test_client_of_a_producer_is_named_where_the_broker_knows_it() -> None:
    cluster = Cluster(
        {"t": [1, 2, 1]}, {("t", 0): [producer(7, 90)]}, details='{"clients": {"7": "billing at 192.0.2.7"}}'
    )
    [finding] = examine(cluster)
    assert finding.text.startswith("the transaction of producer 7, epoch 3, client billing at 192.0.2.7 hangs: ")


def test_transaction_that_exceeds_its_timeout() -> None:
    stuck = state(
        *("billing", 7, {"t": [0]}),
        transaction_state="PrepareAbort",
        transaction_start_time_ms=NOW_MS - 60_001 - OVERDUE_MS,
    )
    [finding] = examine(Cluster({"t": [1, 2, 1]}, {("t", 0): [producer(7, 90)]}, {"billing": stuck}))
    assert finding.level is Level.WRONG
    assert "'billing' (producer 7, epoch 3) has been PrepareAbort for 90 s, its timeout is 60 s" in finding.text
    assert f"broker {COORDINATOR}" in finding.remedy and "--transactionalId billing" in finding.remedy


def test_brokers_that_do_not_offer_the_requests() -> None:
    assert examine(Cluster({"t": [1, 2, 1]}), versions={ListOffsetsRequest: 1})[0].level is Level.OK
    client = Cluster({"t": [1, 2, 1]}).client({ListOffsetsRequest: offsets})
    found: MetadataResponse = client.send(MetadataRequest(topics=None))
    silent = Cluster({"t": [1, 2, 1]}).client()
    assert not_ok(examine_transactions(silent, found, set(), NOW_MS)) == []
    assert not_ok(examine_transactions(client, found, {1, 2}, NOW_MS)) == []
