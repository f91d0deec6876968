"""Transactions over Apache Kafka 3.9.1 and gregor in one cluster: coordinators, leaders and markers of either kind."""

from __future__ import annotations

import pathlib

import pytest

from tests.compat.cluster_load import wait_in_sync
from tests.compat.exactly_once import WAIT_S, Copier, Work
from tests.compat.records import until
from tests.compat.transaction_faults import (
    CLUSTER_SETTINGS,
    FED,
    SINGLE_SETTINGS,
    TRANSACTION_COORDINATOR,
    coordinator_of,
    go_through,
)
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import GREGOR, KAFKA, MixedCluster

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(2, group="mixed clusters")]

SETTINGS = {**CLUSTER_SETTINGS, "zookeeper.session.timeout.ms": "10000", "replica.lag.time.max.ms": "3000"}
TRIED_IDS = 200
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
INTERNAL = ("__transaction_state", "__consumer_offsets")
CRASHES = 2


def id_of_coordinator(bootstrap: str, broker_id: int) -> str:
    """Return a transactional id whose coordinator is this broker."""
    found: list[str] = []

    def known() -> bool:
        ids = (f"of-{broker_id}-{number}" for number in range(TRIED_IDS))
        found[:] = [one for one in ids if coordinator_of(bootstrap, one, TRANSACTION_COORDINATOR) == [broker_id]][:1]
        return bool(found)

    until(known, f"a transactional id of coordinator {broker_id}", WAIT_S)
    return found[0]


def wait_for_replicas(cluster: MixedCluster, work: Work) -> None:
    for topic, partitions in ((work.input, work.inputs), (work.output, work.outputs), *((one, 3) for one in INTERNAL)):
        wait_in_sync(cluster, topic, partitions)


def test_coordinator_of_either_kind(tmp_path: pathlib.Path) -> None:
    """Each of three copiers has another broker as coordinator; each broker stops, is killed, and comes back."""
    with MixedCluster(tmp_path, [KAFKA, GREGOR, GREGOR], SETTINGS) as cluster:
        cluster.start()
        with Work(tmp_path, cluster.bootstrap, "loop", inputs=3, outputs=3, replicas=3) as work:
            copiers = [
                work.copier(kind, [broker_id], id=id_of_coordinator(cluster.bootstrap, broker_id))
                for broker_id, kind in enumerate(("java", "confluent", "java-3.9"))
            ]
            go_through(work, copiers)
            for broker_id in (0, 1):
                assert cluster.brokers[broker_id].stop() == 0
                go_through(work, copiers)
                cluster.start(broker_id)
                wait_for_replicas(cluster, work)
            for broker_id, phase in ((0, "produced"), (1, "ending")):
                copier = copiers[broker_id]
                copier.hold(phase)
                work.feed(FED)
                copier.until_held(phase)
                cluster.brokers[broker_id].kill()
                copier.resume()
                go_through(work, copiers)
                cluster.start(broker_id)
                wait_for_replicas(cluster, work)
            work.finish()


def test_brokers_change_their_kind_under_transactions(tmp_path: pathlib.Path) -> None:
    """Three brokers of Apache Kafka become gregor and go back, one at a time; the third is killed each time."""
    with MixedCluster(tmp_path, [KAFKA, KAFKA, KAFKA], SETTINGS) as cluster:
        cluster.start()
        with Work(tmp_path, cluster.bootstrap, "loop", inputs=2, outputs=3, replicas=3) as work:
            copiers = [work.copier(kind, [partition]) for partition, kind in enumerate(("java", "confluent"))]
            go_through(work, copiers)
            for kind in (GREGOR, KAFKA):
                for broker_id in range(3):
                    held = copiers[broker_id % 2]
                    held.hold("offsets")
                    work.feed(FED)
                    held.until_held("offsets")
                    if broker_id == CRASHES:
                        cluster.brokers[broker_id].kill()
                    else:
                        assert cluster.brokers[broker_id].stop() == 0
                    held.resume()
                    cluster.become(broker_id, kind)
                    cluster.start(broker_id)
                    wait_for_replicas(cluster, work)
                    go_through(work, copiers)
            work.finish()


def test_new_protocol_is_switched_on_and_off_before_the_cluster_is_handed_back(tmp_path: pathlib.Path) -> None:
    """transaction.version becomes 2 and 0 again by kafka-features; then Apache Kafka 3.9.1 continues on the folder."""
    with MixedCluster(tmp_path, [GREGOR], SINGLE_SETTINGS) as cluster, KafkaTools() as tools:
        cluster.start()

        def alter(word: str, level: int) -> None:
            words = ("--bootstrap-server", cluster.bootstrap, word, "--feature", f"transaction.version={level}")
            said = tools.run(FEATURES, *words)
            assert said.code == 0, said
            described = tools.run(FEATURES, "--bootstrap-server", cluster.bootstrap, "describe").out
            assert f"FinalizedVersionLevel: {level}" in described if level else "transaction.version" in described

        with Work(tmp_path, cluster.bootstrap, "loop", inputs=2, outputs=3) as work:
            copiers = [work.copier(kind, [partition]) for partition, kind in enumerate(("java", "confluent"))]
            go_through(work, copiers)
            alter("upgrade", 2)
            copiers[0].kill()
            copiers[0].start()
            go_through(work, copiers)
            copiers[0].hold("produced")
            work.feed(FED)
            copiers[0].until_held("produced")
            alter("downgrade", 0)
            listed = tools.run(TRANSACTIONS, "--bootstrap-server", cluster.bootstrap, "list").out
            assert f"{copiers[0].transactional_id} " in listed and "Ongoing" not in held_line(listed, copiers[0])
            copiers[0].kill()
            copiers[0].start()
            go_through(work, copiers)
            for copier in copiers:
                copier.hold("offsets")
            work.feed(FED)
            for copier in copiers:
                copier.until_held("offsets")
            assert cluster.brokers[0].stop() == 0
            cluster.become(0, KAFKA)
            cluster.start(0)
            for copier in copiers:
                copier.resume()
            go_through(work, copiers)
            work.finish()


def held_line(listed: str, copier: Copier) -> str:
    [line] = [line for line in listed.splitlines() if line.startswith(copier.transactional_id)]
    return line
