"""gregor.broker.cli.doctor.replicas: brokers that are down, and brokers that do not keep up."""

from __future__ import annotations

from gregor.broker.cli.doctor.checks import ObservedBroker, ObservedCluster
from gregor.broker.cli.doctor.replicas import check_replicas
from gregor.broker.cli.reassignments import Reassignment
from gregor.protocol.messages import MetadataResponse
from tests.broker.cli.findings import wrong


def seen(isr: list[list[int]], live: list[int], trouble: str = "") -> ObservedCluster:
    """Three replicas of each partition of `t`; `trouble` is that of broker 2."""
    make = MetadataResponse.MetadataResponsePartition
    partitions = [
        make(partition_index=index, leader_id=0, replica_nodes=[0, 1, 2], isr_nodes=in_sync)
        for index, in_sync in enumerate(isr)
    ]
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=partitions)
    brokers = [ObservedBroker(node_id, "localhost", 9092) for node_id in live]
    for broker in brokers:
        broker.trouble = trouble if broker.node_id == 2 else ""
    return ObservedCluster("b", "127.0.0.1", MetadataResponse(topics=[topic]), brokers)


def texts(observed: ObservedCluster) -> list[str]:
    return [finding.text for finding in wrong(check_replicas(observed))]


def test_broker_that_is_down_is_named_with_its_partitions() -> None:
    assert texts(seen([[0, 1], [0, 1]], [0, 1])) == [
        "broker 2 is not in the cluster, and has replicas of 2 partitions (t-0, t-1)"
    ]


def test_follower_that_does_not_keep_up_is_named() -> None:
    assert texts(seen([[0, 1, 2], [0, 2]], [0, 1, 2])) == [
        "broker 1 is up, and its replicas of 1 partition (t-1) do not keep up with the leaders"
    ]


def test_broker_that_does_not_answer_is_reported_by_its_address_alone() -> None:
    assert texts(seen([[0, 1]], [0, 1, 2], trouble="it did not answer")) == []


def test_cluster_in_sync_has_no_finding() -> None:
    assert check_replicas(seen([[0, 1, 2]], [0, 1, 2])) == []


def test_replica_that_a_reassignment_is_adding_does_not_count() -> None:
    observed = seen([[0, 1], [0, 1]], [0, 1, 2])
    observed.reassignments = {("t", 0): Reassignment([0, 1, 2], [2], [])}
    assert texts(observed) == ["broker 2 is up, and its replicas of 1 partition (t-1) do not keep up with the leaders"]
