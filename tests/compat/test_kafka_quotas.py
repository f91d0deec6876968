"""Apache Kafka 4.3.1's tools and quotas: kafka-configs sets and describes them, and the perf tools are held to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from statistics import median

import pytest

from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

CONFIGS = "kafka.admin.ConfigCommand"
TOOLS = "org.apache.kafka.tools"
RECORDS, RECORD_BYTES = 24_000, 1_000
BYTES_PER_S = 2_000_000
WINDOWS = 1
"""As few as there can be. With more, a client may send a burst of all but one at its beginning, and a smaller one when
those of the burst expire: its rate is that of the quota in the mean of many windows."""
WARM_UP_S = 3
"""The tools' JVM compiles what it runs, and is slower than the quota admits."""
INTERVAL = ("--reporting-interval", "500")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: quotas apply to all its clients."""
    with BrokerProcess(tmp_path_factory.mktemp("quotas"), {"quota.window.num": str(WINDOWS)}) as server:
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


def test_the_perf_tools_run_at_their_quotas(broker: BrokerProcess, tools: KafkaTools) -> None:
    """Within 5 %. The quota counts requests and responses, which have 2 % more bytes than their records."""
    servers = ("--bootstrap-server", broker.bootstrap)
    limits = f"producer_byte_rate={BYTES_PER_S},consumer_byte_rate={BYTES_PER_S}"
    assert tools.run(CONFIGS, *servers, "--alter", "--client-defaults", "--add-config", limits).code == 0
    assert tools.run(f"{TOOLS}.TopicCommand", *servers, "--create", "--topic", "t").code == 0
    amount = ("--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    properties = ("--command-property", f"bootstrap.servers={broker.bootstrap}")
    produced = tools.run(f"{TOOLS}.ProducerPerformance", "--topic", "t", *amount, *INTERVAL, *properties)
    assert produced.code == 0, produced
    assert 0.95 < steady_rate(of_producer(produced.out)) / BYTES_PER_S < 1.05, produced
    # A response that exceeds the quota is sent later, and at the beginning of each window its size is lost.
    small = ("--topic", "t", "--num-records", str(RECORDS), "--fetch-size", str(RECORD_BYTES * 50))
    consumed = tools.run(f"{TOOLS}.ConsumerPerformance", *small, "--show-detailed-stats", *INTERVAL, *servers)
    assert consumed.code == 0, consumed
    assert 0.95 < steady_rate(of_consumer(consumed.out)) / BYTES_PER_S < 1.05, consumed


def of_producer(out: str) -> list[tuple[float, int]]:
    """Return the seconds since the first line of the producer's tool, and the records until then, of each line."""
    at_s, records = 0.0, 0
    found = []
    for sent, per_s in re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", out, re.MULTILINE)[:-1]:
        at_s, records = at_s + int(sent) / float(per_s), records + int(sent)
        found.append((at_s, records))
    return found


def of_consumer(out: str) -> list[tuple[float, int]]:
    """Return the time of each line of the consumer's tool, in seconds, and the records until then."""
    lines = re.findall(r"^([\d-]+ [\d:]+), \d+, [\d.]+, [\d.]+, (\d+),", out, re.MULTILINE)
    return [(datetime.strptime(at, "%Y-%m-%d %H:%M:%S:%f").timestamp(), int(records)) for at, records in lines]


def steady_rate(lines: list[tuple[float, int]]) -> float:
    """Return the bytes per second behind the time of warming up: the median of the spans of two lines.

    A client that gets no processor for a moment sends less in that span, and the quota lets it send no more later.
    """
    begun_s = lines[0][0]
    steady = [(at_s, records) for at_s, records in lines if at_s - begun_s >= WARM_UP_S]
    assert len(steady) >= 12, "enough time is measured"
    spans = zip(steady, steady[2:], strict=False)
    return RECORD_BYTES * median((later - before) / (end_s - from_s) for (from_s, before), (end_s, later) in spans)
