"""Java clients and console tools of Apache Kafka 0.10.0 to 3.9.1, each release with its own jars.

old_java/OldChecks.java runs all checks of one release in one JVM; here each is a test. 0.10.0 never requests
API versions; up to 0.10.2 the formats of records are those before 0.11. Some tools of 0.8 and 0.9 stand here for the
oldest format, magic 0, which later clients do not read.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.records import WAIT_S, until
from tests.support.kafka import java_command, run_kafka_tool
from tests.support.processes import ROOT

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(2, parameter="release")]

RELEASES = ("0.10.0.1", "0.10.2.2", "1.1.1", "2.0.0", "2.8.2", "3.9.1")
OLDEST = "0.8.2.2"
OLDEST_GROUPS = "0.9.0.1"
COMPILED_AGAINST = "0.10.2.2"
TIMEOUT_S = 300
CHECKS = [
    *(f"records[{codec}]" for codec in ("none", "gzip", "snappy", "lz4")),
    *(f"acks[{acks}]" for acks in ("0", "1", "all")),
    "small-fetches",
    "places",
    "too-large",
    "modern",
    "zstd",
    "group",
]
OLD_RECORDS = 300
"""In each topic that a check named records[...] writes."""
KEPT = {"retention.ms": "-1"}
"""For topics that `produce` fills: its records are old, and the next retention check would delete them."""

NewTopicFactory = Callable[..., str]
Unique = Callable[[str], str]

release = pytest.mark.parametrize("release", RELEASES)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("old-classes")
    command = java_command("", version=COMPILED_AGAINST)
    libraries = command[command.index("-cp") + 1]
    source = ROOT / "tests/compat/old_java/OldChecks.java"
    flags = ("-Xlint:-options", "--release", "8", "-proc:none")
    done = subprocess.run(
        ["javac", *flags, "-cp", libraries, "-d", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return folder


def produce(bootstrap: str, topic: str, codec: str, numbers: range, word: str = "value-%d") -> None:
    """Records as OldChecks expects them, filled up so that the codec is worth it."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in numbers:
        text = word % number if "%" in word else word
        key = None if number % 2 == 0 else f"key-{number}"
        stamp = 1_700_000_000_000 + number
        producer.produce(topic, text.ljust(200), key, 0, timestamp=stamp, headers=[("h", b"x")])
    assert producer.flush(WAIT_S) == 0


class Run:
    """The program's result of each check, and the prefix of the topics that it wrote."""

    def __init__(self, prefix: str, done: subprocess.CompletedProcess[str]) -> None:
        self.prefix = prefix
        self.said: dict[str, str] = {}
        self.output = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        for line in done.stdout.splitlines():
            match = re.match(r"(PASS|FAIL) ([^:]+)(?:: (.*))?$", line)
            if match is not None:
                self.said[match[2]] = match[3] or match[1]


@pytest.fixture(scope="module")
def runs(bootstrap: str, new_topic: NewTopicFactory, unique: Unique, classes: pathlib.Path) -> Callable[[str], Run]:
    made: dict[str, Run] = {}

    def run(version: str) -> Run:
        if version not in made:
            prefix, modern, zstd, partitions = unique("old"), new_topic(1, KEPT), new_topic(1, KEPT), new_topic(4)
            for start, codec in enumerate(("none", "gzip", "snappy", "lz4")):
                produce(bootstrap, modern, codec, range(10 * start, 10 * start + 10))
            produce(bootstrap, zstd, "zstd", range(1), "packed")
            arguments = (version, bootstrap, prefix, modern, zstd, partitions)
            command = java_command("compat.OldChecks", *arguments, version=version)
            command[command.index("-cp") + 1] += f"{os.pathsep}{classes}"
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
            made[version] = Run(prefix, done)
        return made[version]

    return run


@release
@pytest.mark.parametrize("check", CHECKS)
def test_client(runs: Callable[[str], Run], release: str, check: str) -> None:
    run = runs(release)
    assert run.said.get(check, run.output) == "PASS"


@release
def test_nothing_is_left_out(runs: Callable[[str], Run], release: str) -> None:
    run = runs(release)
    assert set(run.said) == set(CHECKS), run.output


@release
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_a_client_of_today_reads_what_it_wrote(
    bootstrap: str, runs: Callable[[str], Run], release: str, codec: str
) -> None:
    topic = f"{runs(release).prefix}-records-{codec}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = [message for message in consumer.consume(OLD_RECORDS, WAIT_S) if message.error() is None]
    finally:
        consumer.close()
    assert [message.offset() for message in found] == list(range(OLD_RECORDS))
    keys = [message.key() for message in found]
    assert keys == [None if at % 3 == 0 else b"key-%d" % at for at in range(OLD_RECORDS)]
    times = {message.timestamp()[1] - at for at, message in enumerate(found)}
    assert len(times) == 1 and times.pop() > 0


# -- console tools ---------------------------------------------------------------------------------------------------


class Tools:
    """The tools of one release: their classes and flags moved now and then."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        self.moved = version >= "3"

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        return run_kafka_tool(main_class, *arguments, stdin=stdin, version=self.version)

    @property
    def _new_consumer(self) -> tuple[str, ...]:
        # Before 2.0 the tools could also use ZooKeeper, and needed this flag to use brokers.
        return ("--new-consumer",) if self.version < "2" else ()

    def produce(self, topic: str, lines: str, *arguments: str) -> None:
        server = "--bootstrap-server" if self.moved else "--broker-list"
        address = (server, self.bootstrap, "--topic", topic)
        self.run("kafka.tools.ConsoleProducer", *address, *arguments, stdin=lines)

    def consume(self, topic: str, count: int, *arguments: str) -> list[str]:
        main_class = "org.apache.kafka.tools.consumer.ConsoleConsumer" if self.moved else "kafka.tools.ConsoleConsumer"
        address = (*self._new_consumer, "--bootstrap-server", self.bootstrap, "--topic", topic)
        return self.run(main_class, *address, "--max-messages", str(count), *arguments).splitlines()

    def groups(self, *arguments: str) -> str:
        apart = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        main_class = apart if self.moved else "kafka.admin.ConsumerGroupCommand"
        return self.run(main_class, *self._new_consumer, "--bootstrap-server", self.bootstrap, *arguments)

    def offsets(self, topic: str, time: str) -> str:
        main_class = "org.apache.kafka.tools.GetOffsetShell" if self.moved else "kafka.tools.GetOffsetShell"
        server = "--bootstrap-server" if self.moved else "--broker-list"
        return self.run(main_class, server, self.bootstrap, "--topic", topic, "--time", time)

    def topics(self, *arguments: str) -> str:
        main_class = "org.apache.kafka.tools.TopicCommand" if self.moved else "kafka.admin.TopicCommand"
        return self.run(main_class, "--bootstrap-server", self.bootstrap, *arguments)


@pytest.mark.parametrize("release", [OLDEST_GROUPS, *RELEASES])
def test_console_producer_and_consumer(bootstrap: str, unique: Unique, release: str) -> None:
    tools, topic = Tools(release, bootstrap), unique("console")
    lines = [f"key{number}\tvalue {number}" for number in range(20)]
    keys = ("--property", "parse.key=true")
    codec = "lz4" if release == OLDEST_GROUPS else "gzip"  # magic 0: with the checksum of KAFKA-3160
    tools.produce(topic, "".join(f"{line}\n" for line in lines), "--compression-codec", codec, *keys)
    assert tools.consume(topic, 20, "--from-beginning", "--property", "print.key=true") == lines


@release
def test_get_offset_shell(bootstrap: str, new_topic: NewTopicFactory, release: str) -> None:
    # Up to 1.1 these are ListOffsets version 0 and Metadata version 0, without a request for the API versions.
    tools, topic = Tools(release, bootstrap), new_topic(1, KEPT)
    produce(bootstrap, topic, "none", range(7))
    assert tools.offsets(topic, "-1").split() == [f"{topic}:0:7"]
    assert tools.offsets(topic, "-2").split() == [f"{topic}:0:0"]


@pytest.mark.parametrize("release", [OLDEST, OLDEST_GROUPS, "0.10.0.1", "0.10.2.2", "1.1.1"])
def test_simple_consumer_shell(bootstrap: str, unique: Unique, release: str) -> None:
    """The consumer from before there were groups on brokers."""
    tools, topic = Tools(release, bootstrap), unique("simple")
    lines = [f"value-{number}" for number in range(200)]
    tools.produce(topic, "".join(f"{line}\n" for line in lines), "--compression-codec", "snappy")
    place = ("--topic", topic, "--partition", "0", "--max-messages", "200")
    said = tools.run("kafka.tools.SimpleConsumerShell", "--broker-list", bootstrap, *place)
    assert said.split() == lines


@pytest.fixture
def member(bootstrap: str, new_topic: NewTopicFactory, unique: Unique) -> Iterator[tuple[str, str]]:
    """A group with one member that has read and committed 4 of 7 records: its name and its topic."""
    topic, group = new_topic(1, KEPT), unique("described")
    produce(bootstrap, topic, "none", range(7))
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    until(lambda: bool(consumer.poll(0.1)) or bool(consumer.assignment()), "an assignment")
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    yield group, topic
    consumer.close()


@release
def test_consumer_groups(bootstrap: str, member: tuple[str, str], release: str) -> None:
    tools, (group, topic) = Tools(release, bootstrap), member
    assert group in tools.groups("--list").split()
    described = tools.groups("--describe", "--group", group)
    (line,) = [line for line in described.splitlines() if topic in line]
    assert re.search(rf"\b{topic}[\s,]+0[\s,]+4[\s,]+7[\s,]+3\b", line), described


@pytest.mark.parametrize("release", [version for version in RELEASES if version >= "2.2"])
def test_topics(bootstrap: str, unique: Unique, release: str) -> None:
    tools, topic = Tools(release, bootstrap), unique("tool")
    tools.topics("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    assert re.search(r"PartitionCount: ?3\b", tools.topics("--describe", "--topic", topic))
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").split()
