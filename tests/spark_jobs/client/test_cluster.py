"""gregor.spark_jobs.client.cluster and retries: brokers, leaders, coordinators, and what happens when they fail."""

from __future__ import annotations

import random
import socket

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListOffsetsRequest
from gregor.spark_jobs.client.cluster import Cluster, CoordinatorKind
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from tests.spark_jobs.client.brokers import KAFKA_0_11, Brokers, Partition
from tests.spark_jobs.topics import Topics

TOPIC_ID = bytes(range(16))


def two_partitions() -> Brokers:
    brokers = Brokers()
    brokers.add("t", Partition(leader=0, latest=5), Partition(leader=1, latest=7), topic_id=TOPIC_ID)
    return brokers


def test_topics_are_described_once_until_a_refresh() -> None:
    brokers = two_partitions()
    cluster = brokers.cluster()
    assert cluster.leader("t", 1) == 1
    assert cluster.topics(["t"])["t"].topic_id == TOPIC_ID
    brokers.topics["t"].partitions[1].leader = 0
    assert cluster.leader("t", 1) == 1
    cluster.refresh()
    assert cluster.leader("t", 1) == 0
    assert [name for _, name, _ in brokers.requests] == ["METADATA", "METADATA"]
    assert cluster.cluster_id() == "in-memory"
    assert cluster.controller() == 0
    assert cluster.transaction_version() == 2


def test_all_topics_are_described_with_one_request() -> None:
    brokers = two_partitions()
    brokers.add("__consumer_offsets", Partition(), is_internal=True)
    cluster = brokers.cluster()
    assert {name: topic.is_internal for name, topic in cluster.topics().items()} == {
        "t": False,
        "__consumer_offsets": True,
    }
    assert cluster.topics().keys() == {"t", "__consumer_offsets"}
    assert len(brokers.requests) == 1


def test_a_missing_topic_and_a_missing_partition_are_named() -> None:
    cluster = two_partitions().cluster()
    for topic, partition in (("none", 0), ("t", 2)):
        with pytest.raises(KafkaFailure, match=f"{topic}-{partition}") as failed:
            cluster.leader(topic, partition)
        assert failed.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert failed.value.retriable


def test_requests_have_the_versions_of_each_broker() -> None:
    brokers = two_partitions()
    brokers.versions[1] = KAFKA_0_11
    cluster = brokers.cluster()
    assert cluster.version(0, ListOffsetsRequest, 7) == 7
    assert cluster.version(1, ListOffsetsRequest, 7) == 2


def test_the_next_bootstrap_server_replaces_one_that_is_down() -> None:
    brokers = two_partitions()
    brokers.down = {0}
    assert brokers.cluster().leader("t", 1) == 1
    brokers.down = {0, 1}
    with pytest.raises(KafkaFailure, match="no broker accepts connections.*b0:9092.*b1:9092") as failed:
        brokers.cluster().leader("t", 1)
    assert failed.value.retriable


def test_a_leader_that_has_left_is_no_leader() -> None:
    brokers = two_partitions()
    brokers.down = {1}
    with pytest.raises(KafkaFailure, match="t-1 has no leader") as failed:
        brokers.cluster().leader("t", 1)
    assert failed.value.code == ErrorCode.LEADER_NOT_AVAILABLE


def test_an_advertised_address_without_a_connection_is_named_with_the_remedy() -> None:
    brokers = two_partitions()
    cluster = brokers.cluster()
    assert cluster.leader("t", 1) == 1
    brokers.down = {1}
    with pytest.raises(KafkaFailure) as failed:
        cluster.version(1, ListOffsetsRequest, 7)
    assert failed.value.code == ErrorCode.NETWORK_EXCEPTION
    assert failed.value.text == (
        "no connection to b1. Broker 1 advertises this address: if it runs, set its advertised.listeners to one that "
        f"{socket.gethostname()} reaches; `gregor doctor` checks them"
    )


def test_a_lost_connection_is_made_again_by_a_retry() -> None:
    brokers = two_partitions()
    cluster = brokers.cluster()
    assert cluster.leader("t", 0) == 0
    brokers.lost_connections = {0}
    cluster.refresh()
    assert cluster.retrying().run(lambda: cluster.leader("t", 0)) == 0
    assert len(brokers.clock.waits) == 1


@pytest.mark.parametrize("versions", [KAFKA_0_11, None])
def test_a_coordinator_is_found_once_until_a_refresh(versions: dict[int, tuple[int, int]] | None) -> None:
    brokers = two_partitions()
    if versions is not None:
        brokers.versions = {0: versions, 1: versions}
    brokers.errors[10] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    cluster = brokers.cluster()
    found = cluster.retrying().run(lambda: cluster.coordinator("g", CoordinatorKind.GROUP))
    assert found == cluster.coordinator("g", CoordinatorKind.GROUP) == 1
    assert [name for _, name, _ in brokers.requests].count("FIND_COORDINATOR") == 2


@pytest.mark.parametrize("seed", range(10))
def test_waits_double_up_to_their_limit_and_end_at_the_deadline(seed: int) -> None:
    random.seed(seed)  # the jitter: at 20 percent of each wait, 5 s hold 8 to 10 attempts
    brokers = Brokers()
    cluster = brokers.cluster({"kafka.default.api.timeout.ms": "5000"})
    with pytest.raises(KafkaFailure) as failed:
        cluster.retrying().run(lambda: cluster.leader("none", 0))
    assert failed.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    waits = brokers.clock.waits
    assert f"given up after {len(waits) + 1} attempts in 5 s" in str(failed.value)
    assert 8 <= len(waits) + 1 <= 10
    assert sum(waits) == pytest.approx(5000)
    for wait, nominal in zip(waits[:5], (100, 200, 400, 800, 1000), strict=True):
        assert 0.8 * nominal <= wait <= 1.2 * nominal


def test_a_failure_that_will_not_pass_is_raised_at_once() -> None:
    brokers = two_partitions()
    brokers.errors[3] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    cluster = brokers.cluster()
    with pytest.raises(KafkaFailure, match="TOPIC_AUTHORIZATION_FAILED"):
        cluster.retrying().run(lambda: cluster.leader("t", 0))
    assert brokers.clock.waits == []


@pytest.mark.slow
def test_a_real_broker(topics: Topics) -> None:
    topic = topics.create()
    settings = ClientSettings.from_options({"kafka.bootstrap.servers": topics.bootstrap})
    with Cluster(settings) as cluster:
        described = cluster.retrying().run(lambda: cluster.topics([topic])[topic])
        assert described.partitions.keys() == {0, 1}
        assert cluster.exchange(cluster.leader(topic, 0), ListOffsetsRequest(replica_id=-1), 5).topics == []
        assert cluster.coordinator("g", CoordinatorKind.TRANSACTION) == cluster.controller()


def test_nobody_listens(unused_port: int) -> None:
    settings = ClientSettings.from_options({"kafka.bootstrap.servers": f"127.0.0.1:{unused_port}"})
    with Cluster(settings) as cluster, pytest.raises(KafkaFailure, match="connection refused"):
        cluster.cluster_id()


@pytest.fixture
def unused_port() -> int:
    from tests.support.processes import free_port

    return free_port()
