"""Kafka Streams 4.3.1, at least once: a word count with a repartition topic and a changelog, stopped and restored, and
on three brokers of which one is killed."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic

from tests.support.certificates import Certificates
from tests.support.gregor_cluster import GregorCluster
from tests.support.kafka import java_command, kafka_jars
from tests.support.secured_broker import SecuredBroker, login

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

FOLDER = pathlib.Path(__file__).parent
WAIT_S = 120
LINES = ["to be or not to be", "that is the question", "be that as it may"]
COUNTS = {"to": 2, "be": 3, "or": 1, "not": 1, "that": 2, "is": 1, "the": 1, "question": 1, "as": 1, "it": 1, "may": 1}


class Application:
    """One run of the word count; it ends with its standard input."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, state: str) -> str:
        """Wait for a line that begins with it; return the rest of the line."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(state):
                return line.removeprefix(state).strip()
        raise AssertionError(f"{state} was never reached")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait_for("CLOSED")
        assert self._process.wait(WAIT_S) == 0


def compiled(folder: pathlib.Path, source: str, jars: pathlib.Path) -> str:
    """Compile a program of this folder into `folder`; return the class path to run it with."""
    command = ["javac", "-proc:none", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(FOLDER / source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return f"{jars}/*{os.pathsep}{folder}"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("streams"), "streams/WordCount.java", kafka_jars())


@contextmanager
def application(
    classes: str, *arguments: str, main_class: str = "compat.WordCount", client_file: pathlib.Path | None = None
) -> Iterator[Application]:
    command = java_command(main_class, *arguments)
    command[command.index("-cp") + 1] = classes
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | ({} if client_file is None else {"CLIENT_FILE": str(client_file)}),
    )
    with process:
        try:
            yield Application(process)
        finally:
            process.kill()


def produce(bootstrap: str, topic: str, lines: list[str]) -> None:
    # A leader may be killed: without idempotence a line that is sent again may be there twice.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for line in lines:
        producer.produce(topic, line)
    assert producer.flush(WAIT_S) == 0


def counts(bootstrap: str, topic: str, expected: dict[str, int]) -> dict[str, int]:
    """Return the last count of each word in the output topic, once all are as high as expected or the wait is over."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: dict[str, int] = {}
    deadline = time.monotonic() + WAIT_S
    try:
        while any(found.get(word, 0) < count for word, count in expected.items()) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                found[key.decode()] = int(value)
    finally:
        consumer.close()
    return found


def test_word_count_survives_a_lost_state(
    bootstrap: str, unique: Callable[[str], str], classes: str, tmp_path: pathlib.Path
) -> None:
    source, target, name = unique("lines"), unique("counts"), unique("wordcount")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(source, 2, 1), NewTopic(target, 2, 1)]).values():
        future.result(WAIT_S)
    produce(bootstrap, source, LINES)
    with application(classes, bootstrap, name, source, target, str(tmp_path / "one")) as first:
        first.wait_for("RUNNING")
        assert counts(bootstrap, target, COUNTS) == COUNTS
        repartition = f"{name}-words-repartition"
        ends = {}
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        deadline = time.monotonic() + WAIT_S
        # Streams deletes the records that it has counted from its repartition topic (DeleteRecords).
        while time.monotonic() < deadline:
            ends = {p: consumer.get_watermark_offsets(TopicPartition(repartition, p)) for p in range(2)}
            if all(low == high for low, high in ends.values()):
                break
            time.sleep(0.2)
        consumer.close()
        assert sum(high for _, high in ends.values()) == sum(COUNTS.values())
        assert all(low == high for low, high in ends.values()), f"not purged: {ends}"
        first.stop()
    changelog = ConfigResource(ConfigResource.Type.TOPIC, f"{name}-counts-changelog")
    assert admin.describe_configs([changelog])[changelog].result(WAIT_S)["cleanup.policy"].value == "compact"
    # A new folder: the counts are restored from the changelog and continue.
    produce(bootstrap, source, ["may it be"])
    more = COUNTS | {"may": 2, "it": 2, "be": 4}
    with application(classes, bootstrap, name, source, target, str(tmp_path / "two")) as second:
        second.wait_for("RUNNING")
        assert counts(bootstrap, target, more) == more
        second.stop()


def test_word_count_goes_on_when_a_broker_is_killed(classes: str, tmp_path: pathlib.Path) -> None:
    settings = {"default.replication.factor": "3", "offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
    with GregorCluster(tmp_path / "cluster", overrides=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("lines", 2, 3), NewTopic("counts", 2, 3)]).values():
            future.result(WAIT_S)
        produce(cluster.bootstrap, "lines", LINES)
        with application(classes, cluster.bootstrap, "words", "lines", "counts", str(tmp_path / "state")) as running:
            running.wait_for("RUNNING")
            assert counts(cluster.bootstrap, "counts", COUNTS) == COUNTS
            changelog = "words-counts-changelog"
            cluster.until_isr(changelog, [0, 1, 2])
            leader = cluster.until_led(changelog)
            cluster.kill(leader)
            cluster.until_led(changelog, not_by=leader)
            produce(cluster.bootstrap, "lines", ["may it be"])
            more = COUNTS | {"may": 2, "it": 2, "be": 4}
            found = counts(cluster.bootstrap, "counts", more)
            # At least once: records that were under way may be counted again.
            assert found.keys() == more.keys()
            assert all(found[word] >= more[word] for word in more), found
            cluster.start(leader)
            cluster.until_isr(changelog, [0, 1, 2])
            running.stop()


def test_word_count_as_a_user_with_the_rules_that_it_needs(
    certificates: Certificates, classes: str, tmp_path: pathlib.Path
) -> None:
    """All else is denied: the application makes, and purges, topics whose names begin with its own."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    passwords = {"broker": "not-for-any-log-1", "paul": "not-for-any-log-2"}
    with SecuredBroker(tmp_path / "broker", certificates, passwords, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("lines", 2, 1), NewTopic("counts", 2, 1)]).values():
            future.result(WAIT_S)
        broker.allow("paul", "lines")
        broker.allow("paul", "counts")
        broker.allow("paul", "words", AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS)
        file = tmp_path / "client.properties"
        entry = login("plain.PlainLoginModule", username="paul", password=passwords["paul"])
        client = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": entry,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.ca_file,
        }
        file.write_text("".join(f"{key}={text}\n" for key, text in client.items()))
        produce(broker.bootstrap, "lines", LINES)
        arguments = (broker.address("SASL_SSL"), "words", "lines", "counts", str(tmp_path / "state"))
        with application(classes, *arguments, client_file=file) as running:
            running.wait_for("RUNNING")
            assert counts(broker.bootstrap, "counts", COUNTS) == COUNTS
            running.stop()
        denied = [line for line in broker.log().splitlines() if "is Denied" in line and "paul" in line]
        assert denied == []


def test_group_of_the_streams_protocol_gets_a_clear_error(
    bootstrap: str, unique: Callable[[str], str], classes: str, tmp_path: pathlib.Path
) -> None:
    """Groups of KIP-1071 are not served; the application ends, with the remedy in its error."""
    source, target, name = unique("lines"), unique("counts"), unique("wordcount")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(source, 1, 1), NewTopic(target, 1, 1)]).values():
        future.result(WAIT_S)
    arguments = (bootstrap, name, source, target, str(tmp_path), "at_least_once", "streams")
    with application(classes, *arguments) as running:
        reason = running.wait_for("FAILED ")
        running.wait_for("ERROR")
    assert "UnsupportedVersionException: The cluster does not support the STREAMS group protocol" in reason
