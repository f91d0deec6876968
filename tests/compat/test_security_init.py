"""`gregor security init` from end to end: a broker on its files, and clients with the files that it made for them.

Spark is in tests/spark_jobs/test_secured_sources.py, beside its session.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from gregor.config.properties import load_properties
from tests.compat.kafka_python_import import kafka  # noqa: F401
from tests.support.foreign_clients import GO_SOURCES, RUN_TIMEOUT_S, go_program, or_skip
from tests.support.initialised_broker import GROUP, TOPIC, USER, WAIT_S, InitialisedBroker
from tests.support.kafka_tools import KafkaTools

# kafka-python may leave a socket to the garbage collector.
LEAKS = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.compat, pytest.mark.very_slow, pytest.mark.filterwarnings(LEAKS)]

GO_MAIN = """\
package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := newClient()
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	record := &kgo.Record{Topic: "orders", Value: []byte("franz-go")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		panic(err)
	}
}
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InitialisedBroker]:
    with InitialisedBroker(tmp_path_factory.mktemp("init")) as broker:
        yield broker


def values(secured: InitialisedBroker) -> list[bytes]:
    """Return what is in the topic, as librdkafka reads it with the user's file."""
    config: dict[str, Any] = {**librdkafka(secured), "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.partition.eof": True, "enable.auto.commit": False})
    found: list[bytes] = []
    try:
        consumer.subscribe([TOPIC])
        while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def librdkafka(secured: InitialisedBroker) -> dict[str, str]:
    return load_properties(str(secured.files / USER / "librdkafka.properties"))


def test_commands_of_gregor(secured: InitialisedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert secured.command("topics", "--list", user=USER) == 0
    assert capsys.readouterr().out.split() == [TOPIC]
    assert secured.command("topics", "--create", "--topic", "another", user=USER) != 0
    assert "uthoriz" in capsys.readouterr().err
    assert secured.command("doctor") == 0


def test_librdkafka(secured: InitialisedBroker) -> None:
    producer = Producer(librdkafka(secured))
    producer.produce(TOPIC, b"librdkafka")
    assert producer.flush(WAIT_S) == 0
    assert b"librdkafka" in values(secured)


def test_kcat(secured: InitialisedBroker) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("needs kcat: apt-get install kcat")
    file = str(secured.files / USER / "librdkafka.properties")
    command = ["kcat", "-F", file, "-P", "-t", TOPIC]
    done = subprocess.run(command, input="kcat", capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert b"kcat" in values(secured)


def test_kafka_python(secured: InitialisedBroker) -> None:
    names: dict[str, Any] = {}
    exec((secured.files / USER / "kafka_python.py").read_text(), names)
    producer = names["producer"]
    try:
        producer.send(TOPIC, b"kafka-python").get(WAIT_S)
    finally:
        producer.close()
    assert b"kafka-python" in values(secured)


@pytest.mark.jvm
def test_java(secured: InitialisedBroker) -> None:
    place = ("--bootstrap-server", f"localhost:{secured.port}")
    file = ("--command-config", str(secured.files / USER / "client.properties"))
    with KafkaTools() as tools:
        listed = tools.run("org.apache.kafka.tools.TopicCommand", *place, *file, "--list")
        assert (listed.code, listed.out.split()) == (0, [TOPIC]), listed
        size = ("--num-records", "3", "--record-size", "77", "--throughput", "-1")
        said = tools.run("org.apache.kafka.tools.ProducerPerformance", *place, *file, "--topic", TOPIC, *size)
    assert said.code == 0 and "3 records sent" in said.out, said
    assert [len(value) for value in values(secured)].count(77) == 3


def test_go(secured: InitialisedBroker, tmp_path: Path) -> None:
    or_skip(go_program, "secured")  # a toolchain is there, and so is the module
    shutil.copy(secured.files / USER / "franz.go", tmp_path)
    (tmp_path / "main.go").write_text(GO_MAIN)
    command = ["go", "build", "-o", str(tmp_path / "program"), str(tmp_path / "franz.go"), str(tmp_path / "main.go")]
    built = subprocess.run(command, cwd=GO_SOURCES, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(tmp_path / "program")], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert b"franz-go" in values(secured)


def test_no_secret_is_logged(secured: InitialisedBroker) -> None:
    log = secured.broker.log()
    settings = load_properties(str(secured.files / "broker.properties"))
    passwords = [librdkafka(secured)["sasl.password"], settings["password.encoder.secret"]]
    assert "started in" in log and not any(password in log for password in passwords)
