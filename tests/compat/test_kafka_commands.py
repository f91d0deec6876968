"""Every flag of Apache Kafka 4.3.1's admin tools against the broker, in one JVM; gregor's own commands beside them."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gregor.broker.__main__ import main as gregor
from tests.compat.records import WAIT_S, until
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "topics": f"{TOOLS}.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "get-offsets": f"{TOOLS}.GetOffsetShell",
    "log-dirs": f"{TOOLS}.LogDirsCommand",
    "delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "leader-election": f"{TOOLS}.LeaderElectionCommand",
}
RECORDS = 10
FIRST_MS = 1_700_000_000_000
"""The records of a topic are a second apart from here on."""

FOREVER = {"retention.ms": "-1"}
"""The records' timestamps are long ago: the next retention check would delete them."""

Unique = Callable[[str], str]


class Commands:
    """Runs a tool by the name of gregor's command that does the same."""

    def __init__(self, tools: KafkaTools, bootstrap: str) -> None:
        self._tools = tools
        self.bootstrap = bootstrap

    def run(self, name: str, *arguments: str, code: int = 0) -> str:
        """Return the standard output, and with it the standard error if the tool must fail."""
        said = self._tools.run(CLASSES[name], "--bootstrap-server", self.bootstrap, *arguments)
        assert said.code == code, f"{name} {' '.join(arguments)}: {said.out}{said.err}"
        return said.out + said.err if code else said.out

    def ours(self, name: str, *arguments: str, code: int = 0) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert gregor([name, "--bootstrap-server", self.bootstrap, *arguments]) == code
        return out.getvalue()

    def same(self, name: str, *arguments: str) -> str:
        """Return the output of both, which must be the same lines."""
        theirs = self.run(name, *arguments)
        assert self.ours(name, *arguments).splitlines() == theirs.splitlines()
        return theirs


@pytest.fixture(scope="module")
def commands(bootstrap: str) -> Iterator[Commands]:
    with KafkaTools() as tools:
        yield Commands(tools, bootstrap)


@pytest.fixture(scope="module")
def topic(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """Three partitions with ten records each; no test changes them."""
    return filled(bootstrap, new_topic(3, FOREVER), 3)


def filled(bootstrap: str, topic: str, partitions: int) -> str:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=FIRST_MS + 1000 * number)
    assert producer.flush(WAIT_S) == 0
    return topic


# ---- kafka-topics ----------------------------------------------------------------------------------------------------


def test_topics(commands: Commands, unique: Unique) -> None:
    topic = unique("commands")
    create = ("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in commands.run("topics", *create)
    assert "exists" in commands.run("topics", *create, code=1)
    commands.run("topics", *create, "--if-not-exists")
    assert topic in commands.run("topics", "--list").split()
    assert commands.run("topics", "--list", "--topic", topic + ".*").split() == [topic]
    assert "__consumer_offsets" not in commands.run("topics", "--list", "--exclude-internal").split()
    described = commands.run("topics", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described and "retention.ms=60000" in described
    topic_id = re.search(r"TopicId: (\S+)", described)
    assert topic_id is not None
    # For a topic id the tool sends another request, whose answer contains no eligible leader replicas.
    by_id = commands.run("topics", "--describe", "--topic-id", topic_id[1])
    assert re.sub(r"Elr: N/A", "Elr: ", by_id.replace("LastKnownElr: N/A", "LastKnownElr: ")) == described
    for flag in ("under-replicated", "unavailable", "under-min-isr"):
        assert commands.run("topics", "--describe", "--topic", topic, f"--{flag}-partitions") == ""
    at_min = commands.run("topics", "--describe", "--topic", topic, "--at-min-isr-partitions")
    assert at_min.count("Partition: ") == 3
    overrides = commands.run("topics", "--describe", "--topic", topic, "--topics-with-overrides")
    assert overrides.splitlines() == described.splitlines()[:1]
    commands.run("topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in commands.run("topics", "--describe", "--topic", topic)
    assert "5 partition" in commands.run("topics", "--alter", "--topic", topic, "--partitions", "4", code=1)
    commands.run("topics", "--delete", "--topic", topic)
    assert "does not exist" in commands.run("topics", "--delete", "--topic", topic, code=1)
    commands.run("topics", "--delete", "--topic", topic, "--if-exists")


def test_a_topic_of_many_partitions_is_described_in_slices(commands: Commands, unique: Unique) -> None:
    """--partition-size-limit-per-response goes to DescribeTopicPartitions."""
    topic = unique("slices")
    commands.run("topics", "--create", "--topic", topic, "--partitions", "12")
    limit = ("--partition-size-limit-per-response", "5")
    described = commands.run("topics", "--describe", "--topic", topic, *limit)
    assert [int(number) for number in re.findall(r"\tPartition: (\d+)", described)] == list(range(12))
    commands.run("topics", "--delete", "--topic", topic)


# ---- kafka-configs ---------------------------------------------------------------------------------------------------


def test_configs_of_topics(commands: Commands, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = new_topic()
    alter = ("--alter", "--topic", topic)
    assert commands.run("configs", *alter, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    shown = commands.same("configs", "--describe", "--topic", topic)
    assert "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in shown
    file = tmp_path / "add.properties"
    file.write_text("segment.bytes=1048576\n")
    commands.run("configs", *alter, "--add-config-file", str(file), "--delete-config", "retention.ms")
    shown = commands.same("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "segment.bytes=1048576" in shown and "retention.ms" not in shown
    commands.same("configs", "--describe", "--topic", topic, "--all")
    refused = commands.run("configs", *alter, "--add-config", "no.such.key=1", code=1)
    assert "InvalidConfigurationException" in refused and "no.such.key" in refused
    assert f"Dynamic configs for topic {topic} are:" in commands.run("configs", "--describe", "--entity-type", "topics")


def test_configs_of_brokers(commands: Commands) -> None:
    setting = "log.cleaner.backoff.ms=9000"
    commands.run("configs", "--alter", "--broker-defaults", "--add-config", setting)
    # A broker of Apache Kafka applies an altered setting a little later.
    until(lambda: setting in commands.run("configs", "--describe", "--broker-defaults"), "the setting")
    assert setting in commands.same("configs", "--describe", "--broker-defaults")
    assert setting in commands.same("configs", "--describe", "--entity-type", "brokers", "--entity-default")
    described = commands.same("configs", "--describe", "--entity-type", "brokers")
    broker_id = re.search(r"Dynamic configs for broker (\d+) are:", described)
    assert broker_id is not None
    broker = ("--broker", broker_id[1])
    everything = commands.same("configs", "--describe", "--all", *broker)
    assert f"DYNAMIC_DEFAULT_BROKER_CONFIG:{setting}" in everything
    commands.run("configs", "--alter", *broker, "--add-config", "log.cleaner.backoff.ms=8000")
    until(lambda: "=8000 " in commands.run("configs", "--describe", *broker), "the broker's own setting")
    assert "=8000 " in commands.same("configs", "--describe", *broker)
    commands.run("configs", "--alter", *broker, "--delete-config", "log.cleaner.backoff.ms")
    commands.run("configs", "--alter", "--broker-defaults", "--delete-config", "log.cleaner.backoff.ms")
    until(lambda: "backoff" not in commands.run("configs", "--describe", "--entity-type", "brokers"), "the defaults")
    loggers = commands.same("configs", "--describe", "--broker-logger", broker_id[1])
    assert re.search(r"^  root=\w+ sensitive=false", loggers, re.MULTILINE)


def test_configs_of_groups_and_client_metrics(commands: Commands, unique: Unique) -> None:
    group, subscription = unique("group"), unique("metrics")
    commands.run("configs", "--alter", "--group", group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in commands.same("configs", "--describe", "--group", group)
    metrics = ("--client-metrics", subscription)
    commands.run("configs", "--alter", *metrics, "--add-config", "interval.ms=5000,metrics=[a,b]")
    assert "metrics=a,b" in commands.same("configs", "--describe", *metrics)
    assert subscription in commands.same("configs", "--describe", "--entity-type", "client-metrics")
    commands.run("configs", "--alter", *metrics, "--delete-config", "interval.ms,metrics")
    commands.run("configs", "--alter", "--group", group, "--delete-config", "consumer.session.timeout.ms")


# ---- kafka-consumer-groups -------------------------------------------------------------------------------------------


def offsets_of(said: str, group: str) -> dict[int, int]:
    """New offsets by partition, from the table that a reset prints."""
    rows = [line.split() for line in said.splitlines()]
    return {int(row[2]): int(row[3]) for row in rows if len(row) == 4 and row[0] == group}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "3"), 3),
        (("--to-offset", "99"), 10),
        (("--shift-by", "2"), 7),
        (("--shift-by", "-100"), 0),
        (("--to-current",), 5),
        (("--by-duration", "P1D"), 10),
        (("--by-duration", "P10000D"), 0),
        (("--to-datetime", "2023-11-14T22:13:24.000"), 4),
        (("--to-datetime", "2023-11-14T22:13:24.500Z"), 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_resets(commands: Commands, topic: str, unique: Unique, flags: tuple[str, ...], expected: int) -> None:
    group = unique("reset")
    select = ("--reset-offsets", "--group", group)
    commands.run("groups", *select, "--topic", topic, "--to-offset", "5", "--execute")
    everywhere = dict.fromkeys(range(3), expected)
    assert offsets_of(commands.run("groups", *select, "--topic", topic, *flags, "--dry-run"), group) == everywhere
    assert offsets_of(commands.run("groups", *select, "--topic", topic, *flags), group) == everywhere
    assert committed(commands, group) == dict.fromkeys(range(3), 5), "a dry run changes nothing"
    one = commands.run("groups", *select, "--topic", f"{topic}:1", *flags, "--execute")
    assert offsets_of(one, group) == {1: expected}
    assert committed(commands, group) == {0: 5, 1: expected, 2: 5}


def committed(commands: Commands, group: str) -> dict[int, int]:
    rows = [line.split() for line in commands.run("groups", "--describe", "--group", group).splitlines()]
    return {int(row[2]): int(row[3]) for row in rows if row and row[0] == group and row[3] != "-"}


def test_resets_through_files(commands: Commands, topic: str, unique: Unique, tmp_path: Path) -> None:
    group = unique("file")
    select = ("--reset-offsets", "--group", group)
    commands.run("groups", *select, "--topic", topic, "--to-offset", "5", "--execute")
    exported = commands.run("groups", *select, "--all-topics", "--shift-by", "1", "--export", "--dry-run")
    rows = [row for row in csv.reader(exported.splitlines()) if row]
    assert sorted(rows) == [[topic, str(number), "6"] for number in range(3)]
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,2\n{topic},2,4\n")
    done = commands.run("groups", *select, "--from-file", str(file), "--execute")
    assert offsets_of(done, group) == {0: 2, 2: 4}
    assert committed(commands, group) == {0: 2, 1: 5, 2: 4}
    other = unique("file")
    file.write_text(f"{group},{topic},1,7\n{other},{topic},0,8\n")
    both = ("--reset-offsets", "--group", group, "--group", other)
    commands.run("groups", *both, "--from-file", str(file), "--execute")
    assert committed(commands, group)[1] == 7 and committed(commands, other) == {0: 8}


def test_deleted_offsets_and_groups(commands: Commands, topic: str, unique: Unique) -> None:
    group = unique("delete")
    commands.run("groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    forget = ("groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0,2")
    said = commands.run(*forget)
    assert "successful" in said.lower()
    assert commands.ours(*forget).split() == said.split()
    assert committed(commands, group) == {1: 10}
    said = commands.run("groups", "--delete-offsets", "--group", group, "--topic", "no-such-topic", "--topic", topic)
    assert "no-such-topic" in said
    absent = commands.run("groups", "--delete-offsets", "--group", unique("absent"), "--topic", topic)
    assert "group" in absent.lower()
    second = unique("delete")
    commands.run("groups", "--reset-offsets", "--group", second, "--topic", topic, "--to-latest", "--execute")
    assert "was successful" in commands.run("groups", "--delete", "--group", second)
    assert second not in commands.run("groups", "--list").split()


def test_an_active_group(commands: Commands, topic: str, unique: Unique) -> None:
    group = unique("active")
    settings = {"bootstrap.servers": commands.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": "watched", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is not None or len(consumer.assignment()) == 3, "the group")
        consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
        rows = commands.run("groups", "--describe", "--group", group)
        assert re.search(rf"{group}\s+{topic}\s+0\s+6\s+10\s+4\s+\S+\s+/127.0.0.1\s+watched", rows), rows
        offsets = commands.run("groups", "--describe", "--group", group, "--offsets", "--verbose")
        assert "LEADER-EPOCH" in offsets
        members = commands.run("groups", "--describe", "--group", group, "--members")
        assert re.search(rf"{group}\s+watched-\S+\s+/127.0.0.1\s+watched\s+3", members), members
        verbose = commands.run("groups", "--describe", "--group", group, "--members", "--verbose")
        assert re.search(rf"{topic}(:0,1,2|\(0,1,2\))", verbose), verbose
        state = commands.run("groups", "--describe", "--group", group, "--state")
        assert re.search(rf"{group}\s+\S+\s+\(\d+\)\s+range\s+Stable\s+1", state), state
        assert re.search(rf"{group}\s+Stable", commands.run("groups", "--list", "--state", "stable"))
        assert group not in commands.run("groups", "--list", "--state", "empty").split()
        assert group in commands.run("groups", "--list", "--type", "classic").split()
        assert group in commands.run("groups", "--describe", "--all-groups")
        reset = ("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
        assert "inactive" in commands.run("groups", *reset)
        assert "not empty" in commands.run("groups", "--delete", "--group", group)
        kept = commands.run("groups", "--delete-offsets", "--group", group, "--topic", topic)
        assert "subscribed" in kept.lower()
        assert committed(commands, group)[0] == 6
    finally:
        consumer.close()


# ---- kafka-get-offsets, kafka-log-dirs, kafka-delete-records, kafka-leader-election ----------------------------------


@pytest.mark.parametrize(
    ("time_name", "offset"),
    [
        ("latest", 10),
        ("-1", 10),
        ("earliest", 0),
        ("-2", 0),
        ("max-timestamp", 9),
        ("-3", 9),
        ("earliest-local", 0),
        ("-4", 0),
        ("latest-tiered", None),
        ("-5", None),
        ("earliest-pending-upload", None),
        ("-6", None),
        (str(FIRST_MS + 3500), 4),
        (str(FIRST_MS + 60_000), None),
        ("0", 0),
    ],
)
def test_get_offsets(commands: Commands, topic: str, time_name: str, offset: int | None) -> None:
    found = commands.same("get-offsets", "--topic", topic, "--time", time_name).splitlines()
    assert found == ([] if offset is None else [f"{topic}:{number}:{offset}" for number in range(3)])


def test_get_offsets_of_some(commands: Commands, topic: str) -> None:
    assert commands.same("get-offsets", "--topic-partitions", f"{topic}:1-").count(topic) == 2
    assert commands.same("get-offsets", "--topic-partitions", f"{topic}:-1,{topic}:2").count(topic) == 2
    assert commands.same("get-offsets", "--topic", topic, "--partitions", "0,2", "--exclude-internal-topics")
    assert "Could not match" in commands.run("get-offsets", "--topic", "no-such-topic", code=1)


def test_log_dirs(commands: Commands, topic: str) -> None:
    arguments = ("--describe", "--topic-list", topic)
    *heading, theirs = commands.run("log-dirs", *arguments).splitlines()
    *our_heading, ours = commands.ours("log-dirs", *arguments).splitlines()
    assert our_heading == heading
    assert in_order(json.loads(ours)) == in_order(json.loads(theirs))
    [node] = json.loads(theirs)["brokers"]
    sizes = {part["partition"]: part["size"] for folder in node["logDirs"] for part in folder["partitions"]}
    assert sizes.keys() == {f"{topic}-{number}" for number in range(3)} and min(sizes.values()) > 100
    everything = commands.run("log-dirs", "--describe", "--broker-list", str(node["broker"]))
    assert f'"{topic}-0"' in everything
    assert "do not exist" in commands.run("log-dirs", "--describe", "--broker-list", "77", code=1)


def in_order(value: object) -> object:
    """JSON with its lists sorted: Java's come in the order of a hash table."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    return sorted(map(in_order, value), key=repr) if isinstance(value, list) else value


def test_delete_records(commands: Commands, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = filled(commands.bootstrap, new_topic(2, FOREVER), 2)
    file = tmp_path / "delete.json"

    def delete(partition: int, offset: int) -> tuple[str, ...]:
        file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": partition, "offset": offset}]}))
        return "delete-records", "--offset-json-file", str(file)

    assert f"partition: {topic}-0\tlow_watermark: 4" in commands.same(*delete(0, 4))
    assert f"partition: {topic}-0\tlow_watermark: 10" in commands.same(*delete(0, -1))
    assert "OffsetOutOfRangeException" in commands.run(*delete(1, 99))
    assert commands.run("get-offsets", "--topic", topic, "--time", "earliest").split() == [
        f"{topic}:0:10",
        f"{topic}:1:0",
    ]


def test_reassignments(commands: Commands, topic: str, admin: AdminClient, tmp_path: Path) -> None:
    assert "No partition reassignments found." in commands.run("reassign-partitions", "--list")
    (me,) = admin.list_topics(topic, WAIT_S).brokers

    def plan(*replicas: int) -> tuple[str, str]:
        file = tmp_path / "plan.json"
        part = {"topic": topic, "partition": 1, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}
        file.write_text(json.dumps({"version": 1, "partitions": [part]}))
        return "--reassignment-json-file", str(file)

    started = commands.run("reassign-partitions", *plan(me), "--execute")
    assert f"Successfully started partition reassignment for {topic}-1" in started
    assert f"Reassignment of partition {topic}-1 is completed." in commands.run(
        "reassign-partitions", *plan(me), "--verify"
    )
    assert "None of the specified partition reassignments are active." in commands.run(
        "reassign-partitions", *plan(me), "--cancel"
    )
    commands.run("reassign-partitions", *plan(me, 77), "--execute", code=1)


def test_leader_election(commands: Commands, topic: str, tmp_path: Path) -> None:
    needless = f"Valid replica already elected for partitions {topic}-1"
    for kind in ("preferred", "unclean"):
        one = ("--election-type", kind, "--topic", topic, "--partition", "1")
        assert needless in commands.same("leader-election", *one)
        assert commands.same("leader-election", "--election-type", kind, "--all-topic-partitions") == ""
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 1}]}))
    assert needless in commands.same(
        "leader-election", "--election-type", "preferred", "--path-to-json-file", str(file)
    )
    missing = ("--election-type", "preferred", "--topic", topic, "--partition", "9")
    assert "UnknownTopicOrPartitionException" in commands.run("leader-election", *missing, code=1)
