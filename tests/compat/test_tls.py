"""TLS with a certificate of the client: librdkafka, and the Java client 4.3.1 with PEM and with Java's stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.serialization import Encoding

from tests.compat.records import WAIT_S, until
from tests.support.certificates import PASSWORD, Certificates, trust_store
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess, free_port

pytestmark = [pytest.mark.compat, pytest.mark.slow]


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[tuple[str, BrokerProcess]]:
    """HOST:PORT of a listener that requires certificates, and its broker."""
    port, encrypted = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://localhost:{encrypted}",
        "ssl.client.auth": "required",
        **certificates.broker_settings,
    }
    with BrokerProcess(tmp_path_factory.mktemp("tls"), settings, port=port) as broker:
        yield f"localhost:{encrypted}", broker


def librdkafka(bootstrap: str, certificates: Certificates) -> dict[str, str | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.pem": certificates.authority.pem,
        "ssl.key.pem": certificates.alice.key_pem,
        "ssl.certificate.pem": certificates.alice.chain_pem,
    }


def create_topic(config: dict[str, str | bool], topic: str) -> None:
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT_S)


def test_records_of_librdkafka_come_back(secured: tuple[str, BrokerProcess], certificates: Certificates) -> None:
    config = librdkafka(secured[0], certificates)
    create_topic(config, "records")
    values = [bytes([number]) * size for number, size in enumerate((1, 1000, 900_000, 900_000, 900_000, 17))]
    producer = Producer({**config, "linger.ms": 0})
    for value in values:
        producer.produce("records", value)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**config, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["records"])
    read = []
    try:
        while len(read) < len(values):
            message = consumer.poll(WAIT_S)
            assert message is not None and message.error() is None
            read.append(message.value())
    finally:
        consumer.close()
    assert read == values


def test_librdkafka_without_a_certificate_is_refused(
    secured: tuple[str, BrokerProcess], certificates: Certificates
) -> None:
    errors: list[KafkaError] = []
    config = {
        "bootstrap.servers": secured[0],
        "security.protocol": "SSL",
        "ssl.ca.pem": certificates.authority.pem,
        "error_cb": errors.append,
    }
    producer = Producer(config)
    line = "the client presented no certificate, and ssl.client.auth is required"

    def is_refused() -> bool:
        producer.poll(0.1)
        return bool(errors) and line in secured[1].log()

    until(is_refused, "the refusal on both sides")
    assert errors[0].code() in (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


@pytest.mark.jvm
def test_java_client_with_pem_and_with_jks(
    secured: tuple[str, BrokerProcess], certificates: Certificates, tmp_path: Path
) -> None:
    create_topic(librdkafka(secured[0], certificates), "java")
    (tmp_path / "ca.jks").write_bytes(
        trust_store(certificates.authority.certificate.public_bytes(Encoding.DER), PASSWORD)
    )
    (tmp_path / "alice.p12").write_bytes(certificates.alice.pkcs12())
    stores = {
        "pem": {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.ca_file,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.alice_file,
        },
        "jks": {
            "ssl.truststore.type": "JKS",
            "ssl.truststore.location": str(tmp_path / "ca.jks"),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(tmp_path / "alice.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        },
    }
    with KafkaTools() as tools:
        for name, settings in stores.items():
            file = tmp_path / f"{name}.properties"
            lines = [f"{key}={text}" for key, text in {"security.protocol": "SSL", **settings}.items()]
            file.write_text("\n".join(lines))
            flags = ("--bootstrap-server", secured[0], "--topic", "java", "--num-records", "20", "--producer-acks", "1")
            said = tools.run(
                "org.apache.kafka.tools.EndToEndLatency", *flags, "--record-size", "50", "--command-config", str(file)
            )
            assert said.code == 0 and "99.9th = " in said.out, said
