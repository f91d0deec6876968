"""The first MirrorMaker, of 1.1.1, copies a topic from Apache Kafka 3.9.1 into gregor and continues after a stop."""

from __future__ import annotations

import pathlib
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka import java_command

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

RELEASE = "1.1.1"
MAIN = "kafka.tools.MirrorMaker"
PARTITIONS = 2
RECORDS = 100
COMMIT_INTERVAL_MS = 500
PATIENCE_S = 120
STOPPED_BY_SIGTERM = 143

Record = tuple[bytes | None, bytes | None, int]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    folder = tmp_path_factory.mktemp("source")
    running = ApacheKafka(folder, folder / "data", None, 0)
    yield running
    running.kill()


@contextmanager
def mirror(folder: pathlib.Path, source: str, target: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the tool with two threads; it is killed where it is not stopped before."""
    consumer, producer = folder / "consumer.properties", folder / "producer.properties"
    consumer.write_text(f"bootstrap.servers={source}\ngroup.id=mirror\nauto.offset.reset=earliest\n")
    producer.write_text(f"bootstrap.servers={target}\n")
    files = ("--consumer.config", str(consumer), "--producer.config", str(producer))
    flags = ("--whitelist", topic, "--num.streams", "2", "--offset.commit.interval.ms", str(COMMIT_INTERVAL_MS))
    with (folder / "mirror.out").open("ab") as output:
        command = java_command(MAIN, *files, *flags, version=RELEASE)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    with process:
        try:
            yield process
        finally:
            process.kill()


def produce(bootstrap: str, topic: str, begin: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(begin, begin + RECORDS):
        producer.produce(topic, f"value-{number}", f"key-{number}", timestamp=1_700_000_000_000 + number)
    assert producer.flush(WAIT_S) == 0


def contents(bootstrap: str, topic: str) -> Counter[Record]:
    consumer = reading(bootstrap)
    try:
        messages = [message for part in range(PARTITIONS) for message in read_to_end(consumer, topic, 0, part)]
    finally:
        consumer.close()
    return Counter((message.key(), message.value(), message.timestamp()[1]) for message in messages)


def test_topic_is_copied_and_continued(
    bootstrap: str, source: ApacheKafka, unique: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    topic = unique("orders")
    for server in (bootstrap, source.bootstrap):
        admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
        # Records with these times are past their retention.
        new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin.create_topics([new])[topic].result(WAIT_S)
    for begin in (0, RECORDS):
        produce(source.bootstrap, topic, begin)
        with mirror(tmp_path, source.bootstrap, bootstrap, topic) as running:
            until(
                lambda begin=begin: sum(contents(bootstrap, topic).values()) >= begin + RECORDS,  # type: ignore[misc]
                f"{begin + RECORDS} records in the copy\n{(tmp_path / 'mirror.out').read_text()}",
                PATIENCE_S,
            )
            running.terminate()
            # It commits its offsets as it ends: no record is copied twice.
            assert running.wait(WAIT_S) == STOPPED_BY_SIGTERM
        assert contents(bootstrap, topic) == contents(source.bootstrap, topic)
