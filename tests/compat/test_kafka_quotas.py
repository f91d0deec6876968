"""Apache Kafka 4.3.1's tools and quotas: kafka-configs sets and describes them, and the perf tools are held to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

CONFIGS = "kafka.admin.ConfigCommand"
TOOLS = "org.apache.kafka.tools"
RECORDS, RECORD_BYTES = 5_000, 1_000
BYTES_PER_S = 1_000_000
BURST_S = 2
"""The windows, within which a client may send the bytes of the time before it began."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: quotas apply to all its clients."""
    with BrokerProcess(tmp_path_factory.mktemp("quotas"), {"quota.window.num": str(BURST_S)}) as server:
        yield server


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


def test_quotas_of_users_client_ids_and_addresses(broker: BrokerProcess, tools: KafkaTools) -> None:
    def configs(*arguments: str) -> str:
        done = tools.run(CONFIGS, "--bootstrap-server", broker.bootstrap, *arguments)
        assert done.code == 0, done
        return done.out

    configs(
        "--alter", "--user", "Ann B", "--client-defaults", "--add-config", "producer_byte_rate=7,request_percentage=2.5"
    )
    configs("--alter", "--ip", "127.0.0.9", "--add-config", "connection_creation_rate=3")
    assert configs("--describe", "--entity-type", "users", "--entity-type", "clients").strip() == (
        "Quota configs for user-principal 'Ann B', the default client-id are producer_byte_rate=7.0, request_percentage=2.5"
    )
    assert "Quota configs for ip '127.0.0.9' are connection_creation_rate=3.0" in configs(
        "--describe", "--entity-type", "ips"
    )
    configs(
        "--alter", "--user", "Ann B", "--client-defaults", "--delete-config", "producer_byte_rate,request_percentage"
    )
    assert configs("--describe", "--entity-type", "users", "--entity-type", "clients").strip() == ""


def test_the_perf_tools_do_not_exceed_their_quotas(broker: BrokerProcess, tools: KafkaTools) -> None:
    servers = ("--bootstrap-server", broker.bootstrap)
    limits = f"producer_byte_rate={BYTES_PER_S},consumer_byte_rate={BYTES_PER_S}"
    assert tools.run(CONFIGS, *servers, "--alter", "--client-defaults", "--add-config", limits).code == 0
    assert tools.run(f"{TOOLS}.TopicCommand", *servers, "--create", "--topic", "t").code == 0
    amount = ("--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    properties = ("--command-property", f"bootstrap.servers={broker.bootstrap}")
    produced = tools.run(f"{TOOLS}.ProducerPerformance", "--topic", "t", *amount, *properties)
    assert produced.code == 0, produced
    rate = float(re.findall(r"([\d.]+) records/sec", produced.out)[-1])
    total_s = RECORDS * RECORD_BYTES / BYTES_PER_S
    assert RECORDS / rate > 0.95 * (total_s - BURST_S)
    consumed = tools.run(f"{TOOLS}.ConsumerPerformance", "--topic", "t", "--num-records", str(RECORDS), *servers)
    assert consumed.code == 0, consumed
    fetch_ms = int(consumed.out.splitlines()[-1].split(", ")[7])
    assert fetch_ms / 1000 > 0.95 * (total_s - BURST_S)
