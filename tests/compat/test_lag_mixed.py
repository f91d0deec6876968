"""The lag of a group whose coordinator is gregor, in partitions that Apache Kafka 3.9.1 leads, too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.broker.metrics.scraped import Series, fetched, parsed
from tests.compat.cluster_load import admin, commit, create
from tests.compat.records import until
from tests.support.mixed_cluster import GREGOR, KAFKA, WAIT_S, MixedCluster
from tests.support.ports import free_port

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

LEADERS = {0: 0, 1: 1, 2: 1}
"""Broker 0 is gregor, broker 1 Apache Kafka."""
RECORDS, COMMITTED = 6, 2
STEP_MS = 10_000
DELETED_BEFORE = 4
"""In partition 2, where the group has not read that far."""
ROUNDED_S = 0.001
"""The metrics show milliseconds."""
OVERRIDES = {"default.replication.factor": "1", "min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}


def produce(bootstrap: str, first_ms: int) -> None:
    """One record in each batch, STEP_MS apart."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        for index in LEADERS:
            producer.produce("t", b"v", partition=index, timestamp=first_ms + number * STEP_MS)
        assert producer.flush(WAIT_S) == 0


def test_lag_of_partitions_that_apache_kafka_leads(tmp_path: Path) -> None:
    port = free_port()
    with MixedCluster(tmp_path, [GREGOR, KAFKA], OVERRIDES) as cluster:
        cluster.brokers[0].overrides["gregor.metrics.listener"] = f"127.0.0.1:{port}"
        cluster.start()
        create(cluster, "__consumer_offsets", [[0], [0], [0]])
        create(cluster, "t", [[leader] for leader in LEADERS.values()])
        first_ms = int(time.time() * 1000) - 300_000
        produce(cluster.bootstrap, first_ms)
        for index in LEADERS:
            commit(cluster.bootstrap, "g", "t", COMMITTED, index)
        client = admin(cluster)
        for done in client.delete_records([TopicPartition("t", 2, DELETED_BEFORE)]).values():
            done.result(WAIT_S)

        found: Series = {}
        begin_s = 0.0

        def shown() -> bool:
            """Whether the metrics have everything: a leader on a busy machine may be too slow for one scrape."""
            nonlocal begin_s
            begin_s = time.time()
            status, _, text = fetched(f"http://127.0.0.1:{port}/metrics")
            assert status == 200
            found.clear()
            found.update(parsed(text))
            return all(seconds(index) in found for index in LEADERS)

        until(shown, "the lag of all partitions", WAIT_S)
        end_s = time.time()  # the broker has read its clock between the two, and then may have waited for the leader
        for index, unread in {0: COMMITTED, 1: COMMITTED, 2: DELETED_BEFORE}.items():
            lag = f'kafka_consumergroup_lag{{consumergroup="g",topic="t",partition="{index}"}}'
            assert found[lag] == RECORDS - COMMITTED
            unread_s = (first_ms + unread * STEP_MS) / 1000
            assert begin_s - unread_s - ROUNDED_S <= found[seconds(index)] <= end_s - unread_s + ROUNDED_S, index


def seconds(index: int) -> str:
    return f'kafka_consumergroup_group_lag_seconds{{group="g",topic="t",partition="{index}"}}'
