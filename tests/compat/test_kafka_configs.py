"""kafka-configs of Apache Kafka 4.3.1: describe, alter and delete for each type of entity that gregor keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.broker.cli.tool import Tool
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

CONFIGS = "kafka.admin.ConfigCommand"
Configs = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: altered settings apply to all its clients."""
    with BrokerProcess(tmp_path_factory.mktemp("configs")) as server:
        yield server


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


@pytest.fixture
def configs(broker: BrokerProcess, tools: KafkaTools) -> Configs:
    def run(kind: str, name: str | None, *arguments: str, fails: bool = False) -> str:
        entity = ("--entity-default",) if name is None else ("--entity-name", name)
        words = ("--bootstrap-server", broker.bootstrap, "--entity-type", kind, *entity, *arguments)
        said = tools.run(CONFIGS, *words)
        assert (said.code != 0) is fails, said
        return said.out + said.err if fails else said.out

    return run


def lines(described: str) -> dict[str, str]:
    """Key -> the rest of its line."""
    return dict(re.findall(r"^\s*([\w.]+)=(.*)$", described, re.MULTILINE))


def test_topics(configs: Configs, broker: BrokerProcess, tools: KafkaTools) -> None:
    bootstrap = ("--bootstrap-server", broker.bootstrap)
    created = tools.run("org.apache.kafka.tools.TopicCommand", *bootstrap, "--create", "--topic", "t")
    assert created.code == 0, created
    said = configs("topics", "t", "--alter", "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    assert "Completed updating config for topic t." in said
    found = lines(configs("topics", "t", "--describe"))
    assert found == {
        "cleanup.policy": "compact,delete sensitive=false synonyms={"
        "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "retention.ms": "60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}",
    }
    configs("topics", "t", "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert len(lines(configs("topics", "t", "--describe", "--all"))) == 33
    assert "InvalidConfigurationException" in configs("topics", "t", "--alter", "--add-config", "a.b=1", fails=True)


def test_brokers(configs: Configs) -> None:
    configs("brokers", "0", "--alter", "--add-config", "log.segment.bytes=5000000,max.connections=500")
    configs("brokers", None, "--alter", "--add-config", "log.segment.bytes=6000000")
    assert lines(configs("brokers", None, "--describe")) == {
        "log.segment.bytes": "6000000 sensitive=false "
        "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=6000000}"
    }
    found = lines(configs("brokers", "0", "--describe"))
    assert set(found) == {"log.segment.bytes", "max.connections"}
    assert found["log.segment.bytes"] == (
        "5000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.segment.bytes=5000000, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=6000000, DEFAULT_CONFIG:log.segment.bytes=1073741824}"
    )
    configs("brokers", "0", "--alter", "--delete-config", "log.segment.bytes,max.connections")
    everything = lines(configs("brokers", "0", "--describe", "--all"))
    assert len(everything) > 330
    assert everything["log.segment.bytes"].startswith("6000000 ")
    assert everything["ssl.key.password"].startswith("null sensitive=true")
    configs("brokers", None, "--alter", "--delete-config", "log.segment.bytes")
    refused = configs("brokers", "0", "--alter", "--add-config", "log.dirs=/x", fails=True)
    assert "InvalidRequestException" in refused and "log.dirs" in refused


def test_credentials_of_users(configs: Configs, broker: BrokerProcess) -> None:
    own = Tool(broker.bootstrap)
    flags = ("--entity-type", "users", "--entity-name", "alice")
    done = own.run("configs", "--alter", *flags, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=one]")
    assert done == configs("users", "alice", "--alter", "--add-config", "SCRAM-SHA-512=[password=two]")
    shown = configs("users", "alice", "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in shown and "SCRAM-SHA-512=iterations=4096" in shown
    assert own.run("configs", "--describe", *flags) == shown
    deleted = own.run("configs", "--alter", *flags, "--delete-config", "SCRAM-SHA-512")
    assert deleted == configs("users", "alice", "--alter", "--delete-config", "SCRAM-SHA-256")
    assert own.run("configs", "--describe", *flags) == configs("users", "alice", "--describe") == ""


def test_loggers(configs: Configs) -> None:
    assert lines(configs("broker-loggers", "0", "--describe"))["root"].startswith("INFO ")
    configs("broker-loggers", "0", "--alter", "--add-config", "gregor=ERROR")
    assert lines(configs("broker-loggers", "0", "--describe"))["gregor"].startswith("ERROR ")
    configs("broker-loggers", "0", "--alter", "--delete-config", "gregor")
    assert lines(configs("broker-loggers", "0", "--describe"))["gregor"].startswith("INFO ")


def test_groups_and_client_metrics(configs: Configs, broker: BrokerProcess, tools: KafkaTools) -> None:
    configs("groups", "g", "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    found = lines(configs("groups", "g", "--describe"))
    assert set(found) == {"consumer.session.timeout.ms"}
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in found["consumer.session.timeout.ms"]
    configs("groups", "g", "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert lines(configs("groups", "g", "--describe")) == {}
    configs("client-metrics", "m", "--alter", "--add-config", "interval.ms=1000,metrics=[a,b]")
    found = lines(configs("client-metrics", "m", "--describe"))
    assert {key: text.split()[0] for key, text in found.items()} == {"interval.ms": "1000", "metrics": "a,b"}
    command = ("org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", broker.bootstrap, "--list")
    assert tools.run(*command).out.split() == ["m"]
    assert "Unknown" not in configs("client-metrics", "m", "--alter", "--delete-config", "interval.ms,metrics")


def test_dynamic_settings_survive_a_restart(configs: Configs, broker: BrokerProcess) -> None:
    configs("brokers", "0", "--alter", "--add-config", "message.max.bytes=777777")
    configs("groups", "g", "--alter", "--add-config", "share.auto.offset.reset=earliest")
    assert broker.stop() == 0
    broker.start()
    assert lines(configs("brokers", "0", "--describe"))["message.max.bytes"].startswith("777777 ")
    assert lines(configs("groups", "g", "--describe"))["share.auto.offset.reset"].startswith("earliest ")
