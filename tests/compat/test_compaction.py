"""Compacted topics as clients see them: `gregor compact` on a running broker, then everybody from the beginning."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from gregor.broker.admin_socket.address import SOCKET_NAME, connect
from tests.compat.confluent import read_to_end, reading
from tests.compat.records import CODECS, WAIT_S, until
from tests.support.kafka import run_kafka_tool
from tests.support.processes import ROOT, BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.slow]

CONFIG = {"cleanup.policy": "compact", "internal.segment.bytes": "20000", "min.cleanable.dirty.ratio": "1.0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Only the commands compact and remove: the tests judge what each of them has done.
    by_itself_in_a_day = {"log.initial.task.delay.ms": "86400000", "log.retention.check.interval.ms": "86400000"}
    with BrokerProcess(tmp_path_factory.mktemp("compaction"), by_itself_in_a_day) as started:
        yield started


def gregor(broker: BrokerProcess, *arguments: str, fails: bool = False) -> str:
    """Return the output of a command."""
    command = [sys.executable, "-m", "gregor.broker", *arguments, "--data-dir", str(broker.folder / "data")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == int(fails), done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def new_topic(broker: BrokerProcess, name: str, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1, config={**CONFIG, **config})])[name].result(WAIT_S)
    return name


def producer_of(broker: BrokerProcess, **config: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.num.messages": 100, "acks": "all", **config}
    )


def produce(producer: Producer, topic: str, last: dict[bytes, bytes], first: int = 0, count: int = 2000) -> None:
    """Brings `last` up to date; every seventh record deletes its key."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error

    for number in range(first, first + count):
        key = b"key-%d" % (number % 50)
        value = None if number % 7 == 0 else b"value %d" % number
        producer.produce(topic, value, key, on_delivery=delivered)
        if value is None:
            last.pop(key, None)
        else:
            last[key] = value
    assert producer.flush(WAIT_S) == 0


def table(broker: BrokerProcess, topic: str) -> dict[bytes, bytes]:
    """Return the last value of each key as a librdkafka consumer reads them."""
    consumer = reading(broker.bootstrap)
    found: dict[bytes, bytes] = {}
    for message in read_to_end(consumer, topic, OFFSET_BEGINNING):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        if value is None:
            found.pop(key, None)
        else:
            assert isinstance(value, bytes)
            found[key] = value
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_values_stay(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker, f"table-{codec}")
    producer = producer_of(broker, **{"enable.idempotence": True, "compression.type": codec})
    last: dict[bytes, bytes] = {}
    produce(producer, topic, last)
    said = gregor(broker, "compact", "--topic", topic)
    assert said.startswith(f"{topic}-0: ")
    assert "compacted up to offset 2000, from " in said and said.endswith("; 50 of 2000 records remain\n")
    assert table(broker, topic) == last
    # The producer continues with its next sequence number: the number outlived its records.
    produce(producer, topic, last, 2000)
    gregor(broker, "compact", "--topic", topic)
    assert table(broker, topic) == last


def test_deleted_keys_go_after_their_time(broker: BrokerProcess) -> None:
    topic = new_topic(broker, "forgetful", **{"delete.retention.ms": "0"})
    producer = producer_of(broker)
    for value in (b"1", None):
        for number in range(100):
            producer.produce(topic, value, b"key-%d" % number)
    producer.produce(topic, b"stays", b"stays")
    producer.flush(WAIT_S)
    for extra in range(2):  # the first sets the time until which they stay, the second finds it passed
        gregor(broker, "compact", "--topic", topic)
        producer.produce(topic, b"%d" % extra, b"extra")
        producer.flush(WAIT_S)
    consumer = reading(broker.bootstrap)
    assert [one.key() for one in read_to_end(consumer, topic, OFFSET_BEGINNING)] == [b"stays", b"extra", b"extra"]
    consumer.close()


@pytest.mark.jvm
@pytest.mark.very_slow
def test_a_java_consumer_from_the_beginning(broker: BrokerProcess) -> None:
    topic = new_topic(broker, "java")
    last: dict[bytes, bytes] = {}
    produce(producer_of(broker), topic, last)
    gregor(broker, "compact", "--topic", topic)
    said = run_kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "50",
        "--timeout-ms", "60000", "--formatter-property", "print.key=true",
    )  # fmt: skip
    found = dict(line.split("\t") for line in said.splitlines())
    assert {key.encode(): value.encode() for key, value in found.items() if value != "null"} == last


def test_a_live_switch_to_compact_refuses_records_without_a_key(broker: BrokerProcess) -> None:
    topic = new_topic(broker, "switched", **{"cleanup.policy": "delete"})
    producer = producer_of(broker)
    outcomes: list[int | None] = []

    def send(key: bytes | None) -> int | None:
        producer.produce(topic, b"v", key, on_delivery=lambda error, _: outcomes.append(error and error.code()))
        assert producer.flush(WAIT_S) == 0
        return outcomes[-1]

    # The same request again and again: the broker knows it by its bytes.
    assert [send(None) for _ in range(5)] == [None] * 5
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for policy, outcome in (("compact", KafkaError.INVALID_RECORD), ("delete", None)):
        change = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
        assert send(None) == outcome
        assert send(b"key") is None


def test_a_crash_right_behind_it(tmp_path: pathlib.Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        topic = new_topic(broker, "table")
        last: dict[bytes, bytes] = {}
        produce(producer_of(broker), topic, last)
        gregor(broker, "compact", "--topic", topic)
        broker.kill()
        broker.start()
        assert table(broker, topic) == last
        assert "no broker answers" not in gregor(broker, "compact", "--topic", topic)


def test_explained(broker: BrokerProcess) -> None:
    topic = new_topic(broker, "explained")
    produce(producer_of(broker), topic, {})
    heading, line = gregor(broker, "compact", "--topic", topic, "--explain").splitlines()
    assert heading.split() == ["TOPIC", "PARTITION", "DIRTY", "CLEAN", "RATIO", "NEXT-RUN", "WHY"]
    assert "a ratio of 1.00; it is due above 1;" in line
    assert "the active segment is never compacted" in line
    everything = gregor(broker, "compact", "--explain")
    assert line.split()[:2] == ["explained", "0"]
    assert "explained 0" in " ".join(everything.split())
    assert "never cleanup.policy has no 'delete'" in " ".join(
        gregor(broker, "retention", "--topic", topic, "--explain").split()
    )
    assert gregor(broker, "retention", "--topic", topic) == "explained-0: no segment is due for removal\n"


def test_retention_now(broker: BrokerProcess) -> None:
    topic = new_topic(broker, "short", **{"cleanup.policy": "delete", "retention.bytes": "50000"})
    producer = producer_of(broker)
    for _ in range(100):
        producer.produce(topic, bytes(5000))
        producer.flush(WAIT_S)
    explained = gregor(broker, "retention", "--topic", topic, "--explain")
    assert "retention.bytes is 50.0 KB" in explained
    assert "in at most" in explained
    said = gregor(broker, "retention", "--topic", topic)
    assert said.startswith("short-0: removed ")
    assert "; the log now starts at offset " in said


def test_what_is_refused(broker: BrokerProcess, tmp_path: pathlib.Path) -> None:
    topic = new_topic(broker, "plain", **{"cleanup.policy": "delete"})
    assert "'plain' is not compacted: its cleanup.policy is delete." in gregor(
        broker, "compact", "--topic", topic, fails=True
    )
    assert "this broker has nothing of 'nobody'" in gregor(broker, "retention", "--topic", "nobody", fails=True)
    assert "no partition 7 of 'plain'" in gregor(broker, "retention", "--topic", topic, "--partition", "7", fails=True)
    assert "Name the topic" in gregor(broker, "compact", fails=True)
    elsewhere = BrokerProcess(tmp_path)
    assert "the command must run on its host, as its user" in gregor(elsewhere, "compact", "--explain", fails=True)


def test_the_socket_is_its_owners_alone_and_bears_nonsense(broker: BrokerProcess) -> None:
    folder = broker.folder / "data"
    assert (folder / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    for order in (b"nonsense\n", b"\n", b"[]\n", b'{"command": "explode"}\n', b"x" * 100_000 + b"\n", b"\xff\xfe\n"):
        with connect(str(folder)) as connected, connected.makefile("rwb") as stream:
            stream.write(order)
            stream.flush()
            assert set(json.loads(stream.readline())) == {"error"}
    connect(str(folder)).close()
    assert gregor(broker, "compact", "--explain").startswith("TOPIC")


def test_a_broker_that_is_killed_takes_its_worker_along(tmp_path: pathlib.Path) -> None:
    slow = {"log.cleaner.io.max.bytes.per.second": "20000", "log.cleaner.backoff.ms": "100"}
    with BrokerProcess(tmp_path, slow) as broker:
        topic = new_topic(broker, "table", **{"min.cleanable.dirty.ratio": "0"})
        last: dict[bytes, bytes] = {}
        produce(producer_of(broker), topic, last)
        partition = broker.folder / "data" / f"{topic}-0"
        until(lambda: bool(list(partition.glob("*.cleaned"))), "a compaction to be under way")
        children = pathlib.Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
        broker.kill()
        until(lambda: not any(pathlib.Path(f"/proc/{child}/cmdline").exists() for child in children), "the end of it")
        assert children
        broker.overrides["log.cleaner.io.max.bytes.per.second"] = "1e9"
        broker.start()
        assert table(broker, topic) == last
        checkpoint = broker.folder / "data/cleaner-offset-checkpoint"
        until(lambda: checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text(), "the next one")
        assert list(partition.glob("*.cleaned")) == []
        assert table(broker, topic) == last
