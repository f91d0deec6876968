"""Exporters that run beside a gregor cluster agree with it on the lag of each group in each partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cli.tool import Tool
from tests.broker.metrics.scraped import fetched
from tests.compat.exporters import METHODS, RunningExporter, given_exporters, lags_by, lags_of_page
from tests.compat.lag_load import TOPIC, LaggingGroups, Lags, expected
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.ports import free_port

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

BROKERS = 3
SETTINGS = {
    "default.replication.factor": str(BROKERS),
    "offsets.topic.replication.factor": str(BROKERS),
    "transaction.state.log.replication.factor": str(BROKERS),
    "group.initial.rebalance.delay.ms": "0",
}


class Lagging:
    """The cluster, and the addresses of its metrics."""

    def __init__(self, cluster: GregorCluster, urls: list[str]) -> None:
        self.cluster = cluster
        self.urls = urls


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lagging]:
    cluster = GregorCluster(tmp_path_factory.mktemp("lagging"), BROKERS, SETTINGS)
    urls = []
    for broker in cluster.brokers.values():
        address = f"127.0.0.1:{free_port()}"
        broker.overrides["gregor.metrics.listener"] = address
        urls.append(f"http://{address}/metrics")
    with cluster:
        Tool(cluster.bootstrap).run("features", "upgrade", "--feature", "group.version=1")
        with LaggingGroups(cluster.bootstrap, BROKERS):
            yield Lagging(cluster, urls)


def of_topic(lags: Lags) -> Lags:
    return {key: lag for key, lag in lags.items() if key[1] == TOPIC}


def test_metrics_show_the_lag(lagging: Lagging) -> None:
    labels = ("consumergroup", "topic", "partition")

    def shown() -> bool:
        """Whether they show it now: a leader on a busy machine may be too slow for one scrape."""
        pages = [fetched(url)[2] for url in lagging.urls]
        found = [lags_of_page(page, "kafka_consumergroup_lag", *labels) for page in pages]
        merged = {key: lag for one in found for key, lag in one.items()}
        assert len(merged) == sum(map(len, found)), "two brokers show one group"
        return merged == expected()

    until(shown, f"the metrics show {expected()}")


def test_groups_command_shows_the_lag(lagging: Lagging) -> None:
    said = Tool(lagging.cluster.bootstrap).run("groups", "--describe", "--all-groups")
    rows = [line.split() for line in said.splitlines() if f" {TOPIC} " in line]
    found = {(row[0], row[1], int(row[2])): int(row[5]) for row in rows if row[5] != "-"}
    assert found == expected()


@pytest.mark.parametrize("name", [*METHODS, *given_exporters()])
def test_exporter_agrees_on_the_lag(lagging: Lagging, name: str, tmp_path: Path) -> None:
    cluster = lagging.cluster
    if name in METHODS:
        assert of_topic(lags_by(name, cluster.bootstrap)) == expected()
        return
    with RunningExporter(name, tmp_path, cluster.bootstrap, cluster.zookeeper.connect) as exporter:
        found: Lags = {}

        def shown() -> bool:
            """Whether it shows it now: some poll, and read what others have written."""
            found.clear()
            found.update(of_topic(exporter.lags()))
            return found == expected()

        until(shown, f"{name} shows {expected()}", explanation=lambda: f"\n{found}\n{exporter.log()}")
