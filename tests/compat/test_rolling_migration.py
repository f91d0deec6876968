"""Three brokers of Apache Kafka 3.9.1, or of an earlier gregor, become gregor and return, one at a time, under load.
Each keeps its data folder."""

from __future__ import annotations

import pathlib

import pytest

from tests.compat.cluster_load import NumberedLoad, Reader, check_replicas, commit, committed, create, wait_in_sync
from tests.support.mixed_cluster import EARLIER, GREGOR, KAFKA, MixedCluster

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(2, group="mixed clusters")]

TOPIC = "load"
GROUP = "group"
SETTINGS = {"zookeeper.session.timeout.ms": "10000", "log.segment.bytes": "1048576"}
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"


CRASHES = 2
"""This broker is killed each time; the others stop cleanly."""


def replace(cluster: MixedCluster, broker_id: int, kind: str) -> None:
    """Replace a broker by one of the other kind, which must detect whether the old one stopped cleanly."""
    before, data = cluster.brokers[broker_id], cluster.brokers[broker_id].folder / "data"
    identity = (data / "meta.properties").read_text().splitlines()[-1]
    if broker_id == CRASHES:
        before.kill()
    else:
        assert before.stop() == 0
    assert (data / CLEAN_SHUTDOWN_FILE).exists() == (broker_id != CRASHES)
    cluster.become(broker_id, kind)
    cluster.start(broker_id)
    if kind == KAFKA:
        assert ("Skipping recovery of" in cluster.brokers[broker_id].log()) == (broker_id != CRASHES)
    assert not (data / CLEAN_SHUTDOWN_FILE).exists()
    assert identity.partition("=")[2] in (data / "meta.properties").read_text()


@pytest.mark.parametrize("other", [KAFKA, EARLIER])
def test_there_and_back(tmp_path: pathlib.Path, other: str) -> None:
    with MixedCluster(tmp_path, [other, other, other], SETTINGS) as cluster:
        cluster.start()
        create(cluster, TOPIC, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        commits = 1
        commit(cluster.bootstrap, GROUP, TOPIC, commits)
        with (
            NumberedLoad(cluster.bootstrap, TOPIC, 3) as load,
            Reader(cluster.bootstrap, "readers", load) as reader,
        ):
            load.goes_on()
            for kind in (GREGOR, other):
                for broker_id in range(3):
                    replace(cluster, broker_id, kind)
                    wait_in_sync(cluster, TOPIC, 3)
                    wait_in_sync(cluster, "__consumer_offsets", 3)
                    load.goes_on()
                    assert committed(cluster.bootstrap, GROUP, TOPIC) == commits
                    commits += 1
                    commit(cluster.bootstrap, GROUP, TOPIC, commits)
            load.finish()
            load.check_stored(cluster.bootstrap)
            reader.finish()
        for broker in cluster.brokers:
            assert broker.stop() == 0
        check_replicas(cluster, TOPIC, 3)
