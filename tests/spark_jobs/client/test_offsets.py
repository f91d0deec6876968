"""gregor.spark_jobs.client.offsets: offsets of many partitions, and commits."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, commit_offsets, list_offsets
from gregor.spark_jobs.client.settings import READ_COMMITTED, READ_UNCOMMITTED, ClientSettings
from tests.spark_jobs.client.brokers import KAFKA_0_11, Brokers, Partition
from tests.spark_jobs.topics import Topics

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def two_partitions() -> Brokers:
    brokers = Brokers()
    brokers.add("t", Partition(2, 5, leader=0), Partition(0, 7, leader=1, records={3: 1000, 4: 2000}))
    return brokers


@pytest.mark.parametrize("is_old", [False, True])
def test_each_leader_gets_one_request(is_old: bool) -> None:
    brokers = two_partitions()
    if is_old:
        brokers.versions = {0: KAFKA_0_11, 1: KAFKA_0_11}
    found = list_offsets(brokers.cluster(), {T0: EARLIEST, T1: LATEST}, READ_COMMITTED)
    assert {partition: at.offset for partition, at in found.items()} == {T0: 2, T1: 7}
    assert [(node, name) for node, name, _ in brokers.requests] == [
        (0, "METADATA"),
        (0, "LIST_OFFSETS"),
        (1, "LIST_OFFSETS"),
    ]
    assert {version for _, name, version in brokers.requests if name == "LIST_OFFSETS"} == {2 if is_old else 7}


def test_the_first_record_of_a_time() -> None:
    found = list_offsets(two_partitions().cluster(), {T1: 1500}, READ_UNCOMMITTED)
    assert (found[T1].offset, found[T1].timestamp_ms) == (4, 2000)
    assert list_offsets(two_partitions().cluster(), {T1: 2001}, READ_UNCOMMITTED)[T1].offset == -1


def test_a_moved_leader_is_found_again_and_only_its_partitions_are_asked_for() -> None:
    brokers = two_partitions()
    cluster = brokers.cluster()
    cluster.topics(["t"])
    brokers.topics["t"].partitions[1].leader = 0
    found = list_offsets(cluster, {T0: LATEST, T1: LATEST}, READ_UNCOMMITTED)
    assert {partition: at.offset for partition, at in found.items()} == {T0: 5, T1: 7}
    assert [node for node, name, _ in brokers.requests if name == "LIST_OFFSETS"] == [0, 1, 0]


def test_an_error_that_will_not_pass_has_precedence() -> None:
    brokers = two_partitions()
    brokers.errors[2] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaFailure, match="t-1 are not available .TOPIC_AUTHORIZATION_FAILED"):
        list_offsets(brokers.cluster(), {T0: LATEST, T1: LATEST}, READ_UNCOMMITTED)


@pytest.mark.parametrize("is_old", [False, True])
def test_offsets_are_committed_to_a_group(is_old: bool) -> None:
    brokers = two_partitions()
    if is_old:
        brokers.versions = {0: KAFKA_0_11, 1: KAFKA_0_11}
    brokers.errors[8] = [ErrorCode.NOT_COORDINATOR]
    commit_offsets(brokers.cluster(), "g", {T0: 3, T1: 7})
    assert brokers.committed == {"g": {("t", 0): 3, ("t", 1): 7}}


def test_partitions_that_are_gone_keep_no_others_from_being_committed() -> None:
    brokers = two_partitions()
    brokers.errors[8] = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit_offsets(brokers.cluster(), "g", {T0: 3, TopicPartition("u", 0): 7}) == [("u", 0)]
    assert brokers.committed == {"g": {("t", 0): 3}}
    assert brokers.clock.waits == []


def test_a_group_with_members_is_named() -> None:
    brokers = two_partitions()
    brokers.errors[8] = [ErrorCode.UNKNOWN_MEMBER_ID]
    with pytest.raises(KafkaFailure, match="'g' did not accept the offset of t-0: the group has members"):
        commit_offsets(brokers.cluster(), "g", {T0: 3})


@pytest.mark.slow
def test_a_real_broker(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, ["a", "b", "c"], partition=1, timestamp_ms=1000)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Cluster(ClientSettings.from_options({"kafka.bootstrap.servers": topics.bootstrap})) as cluster:
        ends = list_offsets(cluster, {first: LATEST, second: LATEST}, READ_COMMITTED)
        assert {partition: at.offset for partition, at in ends.items()} == {first: 0, second: 3}
        assert list_offsets(cluster, {first: 500, second: 500}, READ_COMMITTED)[second].offset == 0
        commit_offsets(cluster, f"group-{topic}", {second: 2})
    assert committed(topics.bootstrap, f"group-{topic}", second) == 2


def committed(bootstrap: str, group: str, partition: TopicPartition) -> int:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as At

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        [found] = consumer.committed([At(*partition)], 30)
        return found.offset
    finally:
        consumer.close()
