"""Finalised features in a cluster of ZooKeeper: Apache Kafka 3.9.1 cannot join while there are any, and can again after
a downgrade."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    UpdateFeaturesRequest,
)
from gregor.protocol.records.batch import build_batch
from tests.compat.cluster_load import create
from tests.compat.records import until
from tests.support.mixed_cluster import GREGOR, KAFKA, WAIT_S, MixedCluster
from tests.support.wire import ask

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
TOPIC = "orders"
ADDS_PARTITIONS_FROM = 12
"""Version of Produce: the newer protocol."""


def update(cluster: MixedCluster, broker_id: int, level: int, kind: int = UPGRADE, version: int = 1) -> Any:
    """Return the response of the broker, which is made the controller first."""
    cluster.force_controller(broker_id)
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[wanted])
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(ask(cluster.brokers[broker_id].port, request, version, WAIT_S))
        return bool(answers[-1].error_code != ErrorCode.NOT_CONTROLLER)

    until(answered, "the answer of the controller", WAIT_S)
    return answers[-1]


def shown(cluster: MixedCluster, broker_id: int) -> tuple[int, dict[str, int]]:
    """Return the epoch and the levels that a broker shows to clients."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response: ApiVersionsResponse = ask(cluster.brokers[broker_id].port, request, 3, WAIT_S)
    return response.finalized_features_epoch, {one.name: one.max_version_level for one in response.finalized_features}


def in_zookeeper(cluster: MixedCluster) -> tuple[int, dict[str, int]]:
    node = cluster.node("/feature")
    assert node.keys() == {"features", "version", "status"} and (node["version"], node["status"]) == (2, 1)
    levels = {name: feature["max_version_level"] for name, feature in node["features"].items()}
    return cluster.store.get("/feature")[1].version, levels


def answer_of(cluster: MixedCluster, broker_id: int, request: Any, version: int) -> Any:
    """Return the first response without an error: a coordinator may be elected, or load, meanwhile."""
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(ask(cluster.brokers[broker_id].port, request, version, WAIT_S))
        return not answers[-1].error_code

    until(answered, f"an answer to {type(request).__name__}", WAIT_S)
    return answers[-1]


def open_transactions(cluster: MixedCluster) -> dict[str, int]:
    """Begin transactions of the newer protocol; return their coordinators by transactional id."""
    create(cluster, TOPIC, [[0]])
    coordinators = {}
    for name in ("a", "b", "c", "d"):
        find = FindCoordinatorRequest(key=name, key_type=1)
        coordinators[name] = answer_of(cluster, 0, find, 3).node_id
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
        made = answer_of(cluster, coordinators[name], init, 5)
        records = build_batch(
            [(None, b"x")],
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(records))
        wanted = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[wanted])
        answer = ask(cluster.brokers[0].port, request, ADDS_PARTITIONS_FROM, WAIT_S)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return coordinators


def state_of(cluster: MixedCluster, name: str, coordinator: int) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    (found,) = ask(cluster.brokers[coordinator].port, request, 0, WAIT_S).transaction_states
    state: str = found.transaction_state
    return state


def test_apache_kafka_joins_again_after_a_downgrade(tmp_path: pathlib.Path) -> None:
    with MixedCluster(tmp_path, [GREGOR, KAFKA], SETTINGS) as cluster:
        cluster.start()
        refused = update(cluster, 0, 2, version=2)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Broker 1 does not serve it" in refused.error_message
        (result,) = update(cluster, 1, 2).results
        assert result.error_code != 0, "its own controller does not know the feature either"
        assert in_zookeeper(cluster)[1] == shown(cluster, 0)[1] == shown(cluster, 1)[1] == {}

        kafka = cluster.brokers[1]
        assert kafka.stop() == 0
        until(lambda: cluster.registered() == {0}, "the registration has ended", WAIT_S)
        assert update(cluster, 0, 2).error_code == 0
        finalized = in_zookeeper(cluster)
        assert finalized[1] == {FEATURE: 2}
        assert shown(cluster, 0) == finalized
        kafka.start(wait_until_ready=False)
        assert kafka.process is not None and kafka.process.wait(2 * WAIT_S) != 0
        assert FEATURE in kafka.log()

        cluster.become(1, GREGOR)
        cluster.start(1)
        assert shown(cluster, 1) == finalized
        open_ids = open_transactions(cluster)
        assert set(open_ids.values()) == {0, 1}, "both brokers coordinate some"
        assert {state_of(cluster, *one) for one in open_ids.items()} == {"Ongoing"}
        assert update(cluster, 0, 0, SAFE_DOWNGRADE).error_code == 0
        assert {state_of(cluster, *one) for one in open_ids.items()} == {"CompleteAbort"}
        ended = in_zookeeper(cluster)
        assert ended[1] == {} and ended[0] > finalized[0]
        for broker_id in (0, 1):
            until(lambda id_=broker_id: shown(cluster, id_) == ended, "the levels that ended", WAIT_S)  # type: ignore[misc]

        assert cluster.brokers[1].stop() == 0
        cluster.become(1, KAFKA)
        cluster.start(1)
        cluster.force_controller(1)
        until(lambda: shown(cluster, 1) == ended == in_zookeeper(cluster), "the levels at Apache Kafka", WAIT_S)
        assert cluster.brokers[0].stop() == 0
        assert cluster.brokers[1].stop() == 0
