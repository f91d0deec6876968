"""Three brokers move from PLAINTEXT to SASL_SSL among themselves by restarts, one at a time, while a client writes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.replication.store import nodes
from tests.support.certificates import Certificates
from tests.support.gregor_cluster import GregorCluster
from tests.support.ports import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

TOPIC = "t"
IDS = (0, 1, 2)
PASSWORDS = {"broker": "not-for-any-log-1", "anna": "not-for-any-log-2"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())


def settings(certificates: Certificates) -> dict[str, str]:
    return {
        **certificates.broker_settings,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{MODULE} required username="broker" password="{PASSWORDS["broker"]}" {USERS};'
        ),
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
    }


class Load:
    """Writes numbers to the topic, as an authenticated client, until it is stopped."""

    def __init__(self, client: dict[str, Any]) -> None:
        self.acknowledged: set[int] = set()
        self.refused: list[KafkaError] = []
        self._producer = Producer({**client, "enable.idempotence": True})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def start(self) -> None:
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopped.is_set():
            self._producer.produce(TOPIC, str(number).encode(), on_delivery=self._delivered)
            self._producer.poll(0.005)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int(message.value() or b""))
        else:
            self.refused.append(error)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(120)


def read(client: dict[str, Any], count: int) -> list[int]:
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    found: list[int] = []
    try:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            messages = consumer.consume(1000, 60)
            assert messages, f"{len(found)} of {count} records, and no more in 60 s"
            found += [int(one.value() or b"") for one in messages if one.error() is None]
    finally:
        consumer.close()
    return found


def test_cluster_changes_to_sasl_ssl_without_a_pause(tmp_path: Path, certificates: Certificates) -> None:
    cluster = GregorCluster(tmp_path, 3, settings(certificates))
    secure = {broker_id: free_port() for broker_id in IDS}
    for broker_id, broker in cluster.brokers.items():
        plain = f"PLAINTEXT://127.0.0.1:{broker.port}"
        broker.overrides["listeners"] = f"{plain},SECURE://localhost:{secure[broker_id]}"
    client: dict[str, Any] = {
        "bootstrap.servers": ",".join(f"localhost:{port}" for port in secure.values()),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca_file,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "anna",
        "sasl.password": PASSWORDS["anna"],
        "log_level": 0,
    }
    with cluster:
        cluster.until(lambda: cluster.registered() == set(IDS), "all brokers are registered")
        admin = AdminClient(client)
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(120)
        load = Load(client)
        load.start()
        try:
            for broker_id in IDS:
                assert cluster.stop(broker_id) == 0
                cluster.brokers[broker_id].overrides["inter.broker.listener.name"] = "SECURE"
                cluster.start(broker_id)
                for index in range(3):
                    cluster.until_isr(TOPIC, IDS, index)
            written = len(load.acknowledged)
            cluster.until(lambda: len(load.acknowledged) > written, "records are acknowledged")
        finally:
            load.stop()
        assert load.refused == []
        assert sorted(read(client, len(load.acknowledged))) == sorted(load.acknowledged)
        for broker_id in IDS:
            registration = nodes.decode_broker(broker_id, cluster.nodes.get(nodes.broker_path(broker_id))[0])
            protocols = {one.name: (one.security_protocol, one.port) for one in registration.endpoints}
            assert protocols["SECURE"] == ("SASL_SSL", secure[broker_id])
        logs = "".join(broker.log() for broker in cluster.brokers.values())
        assert [name for name, password in PASSWORDS.items() if password in logs] == []
