"""A real Prometheus scrapes three brokers under load: every query of known dashboards, and of ours, returns data.

Sums over the brokers are compared with what the clients sent and committed: a series that each replica showed would
count thrice.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat import dashboards
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.ports import free_port
from tests.support.processes import ROOT
from tests.support.prometheus import Prometheus, Target, remarks_of_promtool

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

BROKERS, PARTITIONS, RECORDS, READ = 3, 6, 3000, 1200
SETTINGS = {
    "default.replication.factor": str(BROKERS),
    "offsets.topic.replication.factor": str(BROKERS),
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
CONFIGURATION = re.compile(r"```yaml\n( +metric_relabel_configs:.*?)```", re.DOTALL)
"""In docs/metrics.md: the rules for dashboards that expect one instance, and a label in mixed case."""
RULES = re.compile(r"```yaml\n(groups:\n.*?)```", re.DOTALL)
"""In docs/metrics.md: the recording rules for names of kafka-lag-exporter."""
VARIABLES = {"$__rate_interval": "1m", "$job": ".+", "$topic": ".+", "$group": ".+"}


def documented(configuration: re.Pattern[str]) -> str:
    """Return rules of docs/metrics.md, as they stand there."""
    found = configuration.search(Path(ROOT, "docs/metrics.md").read_text())
    assert found is not None
    return found[1]


class Load:
    """Records to all partitions of `t`, of each of which a group that stays has committed a part; then a trickle to
    `more`, so that rates are not zero."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._trickle)

    def __enter__(self) -> Load:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, BROKERS) for name in ("t", "more")]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(["t"])
        read = 0
        while read < READ:
            read += len(self._consumer.consume(min(100, READ - read), 60))
        offsets = [TopicPartition("t", index, READ // PARTITIONS) for index in range(PARTITIONS)]
        self._consumer.commit(offsets=offsets, asynchronous=False)
        self._thread.start()
        return self

    def _trickle(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        while not self._over.wait(0.1):
            producer.produce("more", b"x" * 100)
            producer.poll(0)
        producer.flush(60)

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()


class Watched:
    """The cluster, its pages and the Prometheus that scrapes them, each second: a broker on a busy machine may be too
    slow for one scrape, and all of its series are absent until the next one."""

    def __init__(self, urls: list[str], prometheus: Prometheus) -> None:
        self.urls = urls
        self.prometheus = prometheus

    def without_data(self, expressions: list[str]) -> list[str]:
        return [one for one in expressions if not self.prometheus.query(one)]

    def until_data(self, expressions: list[str]) -> None:
        """Until each of them has returned data."""
        left = list(expressions)

        def found() -> bool:
            left[:] = self.without_data(left)
            return not left

        until(found, "data of all queries", explanation=lambda: f"\n{left}")

    def until_value(self, expression: str, expected: float) -> None:
        """Until it has one result, which is this value."""
        values: list[float] = []

        def found() -> bool:
            values[:] = [one.value for one in self.prometheus.query(expression)]
            return values == [expected]

        until(found, f"{expression} is {expected}", explanation=lambda: f"\n{values}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("needs Debian's package prometheus")
    folder = tmp_path_factory.mktemp("dashboards")
    cluster = GregorCluster(folder, BROKERS, SETTINGS)
    addresses = []
    for broker in cluster.brokers.values():
        addresses.append(f"127.0.0.1:{free_port()}")
        broker.overrides["gregor.metrics.listener"] = addresses[-1]
    targets = [
        Target(
            address,
            {
                "namespace": "ns",
                "strimzi_io_cluster": "c",
                "cluster_name": "c",
                "kubernetes_pod_name": f"c-kafka-{number}",
                "container": "kafka",
            },
        )
        for number, address in enumerate(addresses)
    ]
    with (
        Prometheus(folder / "prometheus", targets, documented(CONFIGURATION), documented(RULES)) as prometheus,
        cluster,
        Load(cluster.bootstrap),
    ):
        prometheus.until_ready()

        def scraped() -> bool:
            """Several times since the commit, which the load made before."""
            found = prometheus.query('count_over_time(kafka_consumergroup_lag_sum{topic="t"}[1m])')
            ready = prometheus.query("count(count_over_time(kafka_server_replicamanager_leadercount[1m]) > 2)")
            recorded = prometheus.query('count_over_time(kafka_consumergroup_group_offset{topic="t"}[1m])')
            return bool(recorded and found and found[0].value > 2 and ready and ready[0].value == BROKERS)

        cluster.until(scraped, "Prometheus has scraped all brokers")
        yield Watched([f"http://{address}/metrics" for address in addresses], prometheus)


def test_promtool_finds_nothing(watched: Watched) -> None:
    for url in watched.urls:
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert remarks_of_promtool(answer.read().decode()) == ""


def test_every_query_of_known_dashboards_returns_data(watched: Watched) -> None:
    queries = [
        *dashboards.KAFKA_EXPORTER,
        *dashboards.STRIMZI_KAFKA,
        *dashboards.STRIMZI_KAFKA_EXPORTER,
        *dashboards.STRIMZI_ALERTS,
        *dashboards.KAFKA_LAG_EXPORTER,
        *dashboards.OTHERS,
    ]
    watched.until_data(queries)


def test_no_value_is_invented(watched: Watched) -> None:
    absent = list(dashboards.WITHOUT_DATA)
    assert watched.without_data(absent) == absent
    text = Path(ROOT, "docs/metrics.md").read_text()
    assert [name for name in absent if f"`{name}`" not in text] == []


def test_sums_over_brokers_count_once(watched: Watched) -> None:
    until_value = watched.until_value
    until_value("sum(kafka_brokers)", BROKERS)
    until_value("count(kafka_broker_info)", BROKERS)
    until_value('sum(kafka_topic_partitions{topic="t"})', PARTITIONS)
    until_value('count(kafka_topic_partition_replicas{topic="t"})', PARTITIONS)
    until_value('sum(kafka_topic_partition_in_sync_replica{topic="t"})', PARTITIONS * BROKERS)
    until_value('sum(kafka_topic_partition_current_offset{topic="t"})', RECORDS)
    until_value('sum(kafka_server_brokertopicmetrics_messagesin_total{topic="t"})', RECORDS)
    until_value('sum(kafka_consumergroup_current_offset{consumergroup="g"})', READ)
    until_value('sum(kafka_consumergroup_lag{consumergroup="g"})', RECORDS - READ)
    until_value('sum(kafka_consumergroup_group_topic_sum_lag{group="g",topic="t"})', RECORDS - READ)
    until_value('sum(kafka_consumergroup_group_offset{group="g"})', READ)
    until_value('sum(kafka_partition_latest_offset{topic="t"})', RECORDS)
    until_value('sum(kafka_partition_earliest_offset{topic="t"})', 0)
    until_value('sum(kafka_consumergroup_members{consumergroup="g"})', 1)


def our_queries() -> list[str]:
    dashboard = json.loads(Path(ROOT, "docs/grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for name, value in VARIABLES.items():
        queries = [query.replace(name, value) for query in queries]
    return queries


def test_every_query_of_our_dashboard_returns_data(watched: Watched) -> None:
    queries = our_queries()
    assert len(queries) > 20 and not any("$" in query for query in queries)
    watched.until_data(queries)
