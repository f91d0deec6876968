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
RECORDS, RECORD_BYTES = 4_000, 1_000
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


def test_quotas_of_users_and_client_ids(broker: BrokerProcess, tools: KafkaTools) -> None:
    def configs(*arguments: str) -> str:
        done = tools.run(CONFIGS, "--bootstrap-server", broker.bootstrap, *arguments)
        assert done.code == 0, done
        return done.out

    limits = "producer_byte_rate=7,request_percentage=2.5"
    configs("--alter", "--user", "Ann B", "--client-defaults", "--add-config", limits)
    described = configs("--describe", "--entity-type", "users", "--entity-type", "clients").strip()
    assert described.startswith("Quota configs for user-principal 'Ann B', the default client-id are ")
    assert sorted(described.rpartition(" are ")[2].split(", ")) == ["producer_byte_rate=7.0", "request_percentage=2.5"]


def test_the_perf_tools_do_not_exceed_their_quotas_and_use_them(broker: BrokerProcess, tools: KafkaTools) -> None:
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
    assert 0.95 * (total_s - BURST_S) < RECORDS / rate < total_s / 0.95
    # A fetch of 1 MB, the default, would be as much as all windows admit: the time between two of them would be theirs.
    small = ("--topic", "t", "--num-records", str(RECORDS), "--fetch-size", str(RECORD_BYTES * 50))
    consumed = tools.run(f"{TOOLS}.ConsumerPerformance", *small, *servers)
    assert consumed.code == 0, consumed
    fetch_ms = int(consumed.out.splitlines()[-1].split(", ")[7])
    assert 0.95 * (total_s - BURST_S) < fetch_ms / 1000 < total_s / 0.95
