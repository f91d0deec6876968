"""Client telemetry (KIP-714): kafka-client-metrics of Apache Kafka 4.3.1 subscribes, its Java producer and librdkafka
push, and the scrape shows what they count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker.metrics.scraped import Series, fetched, parsed
from tests.compat.records import until
from tests.support.kafka_tools import KafkaTools
from tests.support.ports import free_port
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOOLS = "org.apache.kafka.tools"
RECORDS = 300
INTERVAL_MS = "200"


class Observed:
    """A broker with a listener for metrics."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self.broker = BrokerProcess(folder, {"gregor.metrics.listener": f"127.0.0.1:{self._port}"})

    def metrics_of(self, client_id: str) -> Series:
        """Return the sums of the series of a client, by family."""
        status, _, text = fetched(f"http://127.0.0.1:{self._port}/metrics")
        assert status == 200
        found: Series = {}
        for name, value in parsed(text).items():
            if f'client_id="{client_id}"' in name:
                family = name.partition("{")[0]
                found[family] = found.get(family, 0) + value
        return found


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    found = Observed(tmp_path_factory.mktemp("telemetry"))
    with found.broker:
        yield found


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


def subscribe(observed: Observed, tools: KafkaTools, name: str, metrics: str, match: str) -> None:
    address = ("--bootstrap-server", observed.broker.bootstrap)
    settings = ("--metrics", metrics, "--interval", INTERVAL_MS, "--match", match)
    altered = tools.run(f"{TOOLS}.ClientMetricsCommand", *address, "--alter", "--name", name, *settings)
    assert altered.code == 0, altered
    described = tools.run(f"{TOOLS}.ClientMetricsCommand", *address, "--describe", "--name", name)
    assert f"interval.ms={INTERVAL_MS}" in described.out, described


def test_java_producer_pushes_what_is_subscribed(observed: Observed, tools: KafkaTools) -> None:
    subscribe(observed, tools, "java", "org.apache.kafka.producer.", "client_software_name=apache-kafka-java")
    settings = (f"bootstrap.servers={observed.broker.bootstrap}", "client.id=java")
    size = ("--num-records", str(RECORDS), "--record-size", "10", "--throughput", str(RECORDS))
    sent = tools.run(f"{TOOLS}.ProducerPerformance", "--topic", "java", *size, "--producer-props", *settings)
    assert sent.code == 0, sent
    # The last push is made when the producer begins to close; its last records may be counted after that.
    found = observed.metrics_of("java")
    assert 0 < found["kafka_client_producer_record_send_total"] <= RECORDS
    assert found["kafka_client_producer_topic_record_send_total"] == found["kafka_client_producer_record_send_total"]
    assert found["kafka_client_producer_request_latency_avg"] >= 0
    assert all(name.startswith("kafka_client_producer_") for name in found)


def test_librdkafka_pushes_what_is_subscribed(observed: Observed, tools: KafkaTools) -> None:
    subscribe(observed, tools, "rd", "*", "client_software_name=confluent-kafka-python,client_id=rd")
    producers = {
        name: Producer({"bootstrap.servers": observed.broker.bootstrap, "client.id": name}) for name in ("rd", "other")
    }
    found: Series = {}

    def pushed() -> bool:
        for producer in producers.values():
            producer.produce("rd", b"x")
            producer.poll(0.05)
        found.update(observed.metrics_of("rd"))
        return found.get("kafka_client_producer_connection_creation_total", 0) >= 1

    until(pushed, "librdkafka pushes its metrics")
    assert "kafka_client_producer_node_request_latency_max" in found
    assert not observed.metrics_of("other")
    for producer in producers.values():
        producer.flush()
