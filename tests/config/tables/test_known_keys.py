"""Keys without effect: gregor starts with every stock server.properties, and reports the keys without effect."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.tables.known_keys import NO_EFFECT_PREFIXES

# The lines of Apache Kafka's own files that are not comments.
STOCK_1_1_1 = {
    "broker.id": "0",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
}
STOCK_4_3 = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "num.network.threads": "3",
    "log.dirs": "/tmp/kraft-combined-logs",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def test_stock_file_of_1_1_1() -> None:
    config = BrokerConfig(STOCK_1_1_1)
    assert config.warnings == []
    assert config.notes == []
    assert (config.broker_id, config["zookeeper.connect"]) == (0, "localhost:2181")


def test_stock_file_of_4_3() -> None:
    config = BrokerConfig(STOCK_4_3)
    assert config.warnings == []
    (note,) = config.notes
    assert note.startswith("accepted, without effect here: controller.listener.names, controller.quorum.")
    # The controller's listener is not gregor's.
    assert [listener.text for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [listener.text for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.broker_id == 1


@pytest.mark.parametrize("prefix", NO_EFFECT_PREFIXES)
def test_open_families(prefix: str) -> None:
    config = BrokerConfig({f"{prefix}some.thing": "x"})
    assert (config.warnings, config.notes) == ([], [f"accepted, without effect here: {prefix}some.thing"])
