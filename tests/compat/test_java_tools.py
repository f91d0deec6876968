"""Apache Kafka 4.3.1's command line tools, each in a JVM of its own, and its log reader over the broker's files."""

from __future__ import annotations

import base64
import contextlib
import random
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.compat.records import CODECS, WAIT_S
from tests.support.kafka import java_command, run_kafka_tool
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"

NewTopicFactory = Callable[..., str]
Unique = Callable[[str], str]


class Tool:
    """Runs tools against the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.address = ("--bootstrap-server", bootstrap)

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        return run_kafka_tool(main_class, *self.address, *arguments, stdin=stdin)

    def fail(self, main_class: str, *arguments: str) -> str:
        """Return the output of a tool that must fail."""
        command = java_command(main_class, *self.address, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
        said = done.stdout + done.stderr
        assert done.returncode != 0, said
        return said

    def read(self, topic: str, count: int, *arguments: str) -> list[str]:
        limit = ("--max-messages", str(count), "--timeout-ms", "90000")
        return self.run(CONSOLE_CONSUMER, "--topic", topic, *limit, *arguments).splitlines()


@pytest.fixture(scope="module")
def tool(bootstrap: str) -> Tool:
    return Tool(bootstrap)


def test_kafka_topics(tool: Tool, unique: Unique) -> None:
    topic = unique("tool")
    create = ("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    assert f"Created topic {topic}." in tool.run(TOPICS, *create, "--config", "retention.ms=3600000")
    assert "exists" in tool.fail(TOPICS, *create)
    assert topic in tool.run(TOPICS, "--list").split()
    summary, *partitions = tool.run(TOPICS, "--describe", "--topic", topic).splitlines()
    assert re.search(rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 1\t", summary)
    assert "retention.ms=3600000" in summary
    found = [re.search(r"Partition: (\d)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", line) for line in partitions]
    assert [match and match[1] for match in found] == ["0", "1"]
    assert all(match is not None and match[2] == match[3] == match[4] for match in found)
    tool.run(TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in tool.run(TOPICS, "--describe", "--topic", topic)
    tool.run(TOPICS, "--delete", "--topic", topic)
    assert topic not in tool.run(TOPICS, "--list").split()


def test_kafka_configs(tool: Tool, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool.run(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    described = tool.run(CONFIGS, "--describe", *entity)
    assert "retention.ms=60000 " in described and "cleanup.policy=compact,delete " in described
    tool.run(CONFIGS, "--alter", *entity, "--delete-config", "retention.ms")
    everything = tool.run(CONFIGS, "--describe", "--all", *entity)
    assert "retention.ms=604800000 " in everything and "cleanup.policy=compact,delete " in everything
    refused = tool.fail(CONFIGS, "--alter", *entity, "--add-config", "no.such.key=1")
    assert "InvalidConfigurationException" in refused and "no.such.key" in refused


def test_kafka_configs_of_the_broker(tool: Tool, broker_id: int) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", str(broker_id))
    described = tool.run(CONFIGS, "--describe", "--all", *entity)
    assert "log.retention.hours=168 " in described
    assert "listeners=PLAINTEXT://127.0.0.1:" in described


@pytest.fixture(scope="module")
def broker_id(tool: Tool, new_topic: NewTopicFactory) -> int:
    described = tool.run(TOPICS, "--describe", "--topic", new_topic())
    match = re.search(r"Leader: (\d+)", described)
    assert match is not None, described
    return int(match[1])


def test_console_producer_and_consumer(tool: Tool, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    lines = "".join(f"h1:v1,h2:v2\tkey{number}\tvalue {number} \u2603\n" for number in range(20))
    parse = [f"parse.{part}=true" for part in ("key", "headers")]
    flags = [flag for entry in parse for flag in ("--reader-property", entry)]
    tool.run(CONSOLE_PRODUCER, "--topic", topic, "--compression-codec", "zstd", *flags, stdin=lines)
    show = [f"print.{part}=true" for part in ("key", "headers", "partition", "offset", "timestamp")]
    flags = [flag for entry in show for flag in ("--formatter-property", entry)]
    found = tool.read(topic, 20, "--from-beginning", *flags)
    # The partitions that murmur2 gives, and offsets that rise by one in each.
    ends = {"0": 0, "1": 0}
    texts: set[tuple[str, str]] = set()
    for line in found:
        stamp, partition, offset, headers, key, value = line.split("\t", 5)
        number = partition.removeprefix("Partition:")
        assert stamp.startswith("CreateTime:") and headers == "h1:v1,h2:v2"
        assert offset == f"Offset:{ends[number]}"
        ends[number] += 1
        texts.add((key, value))
    assert texts == {(f"key{number}", f"value {number} \u2603") for number in range(20)}
    assert min(ends.values()) > 0, "one key or another goes to each partition"
    tail = tool.read(topic, 2, "--partition", "0", "--offset", str(ends["0"] - 2))
    assert tail == [line.split("\t", 5)[5] for line in found if "\tPartition:0\t" in line][-2:]


def test_producer_performance_and_get_offsets(tool: Tool, new_topic: NewTopicFactory) -> None:
    topic = new_topic(3)
    limits = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    properties = ["acks=all", "compression.type=lz4", "enable.idempotence=true", f"bootstrap.servers={tool.address[1]}"]
    said = run_kafka_tool(f"{TOOLS}.ProducerPerformance", "--topic", topic, *limits, "--command-property", *properties)
    assert re.match(r"20000 records sent, .* records/sec", said.splitlines()[-1]), said
    offsets = f"{TOOLS}.GetOffsetShell"

    def total(*arguments: str) -> int:
        found = tool.run(offsets, "--topic", topic, *arguments).splitlines()
        assert [line.rpartition(":")[0] for line in found] == [f"{topic}:{number}" for number in range(3)]
        return sum(int(line.rpartition(":")[2]) for line in found)

    assert total() == total("--time", "latest") == 20_000
    assert total("--time", "earliest") == 0
    count = ("--messages", "20000", "--timeout", "90000")
    said = tool.run(f"{TOOLS}.ConsumerPerformance", "--topic", topic, *count)
    heading, numbers = [line.split(", ") for line in said.splitlines()[-2:]]
    assert int(numbers[heading.index("data.consumed.in.nMsg")]) == 20_000


def test_consumer_groups(tool: Tool, new_topic: NewTopicFactory, unique: Unique, bootstrap: str) -> None:
    topic, group = new_topic(2), unique("group")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    assert len(tool.read(topic, 6, "--from-beginning", "--group", group)) == 6
    described = tool.run(GROUPS, "--describe", "--group", group)
    lags = [int(number) for number in re.findall(rf"{group}\s+{topic}\s+\d\s+\S+\s+\d+\s+5\s+(\d)", described)]
    lags = lags or [int(number) for number in re.findall(rf"{topic}\s+\d\s+\d+\s+5\s+(\d)", described)]
    assert sum(lags) == 4 and len(lags) == 2, described
    assert group in tool.run(GROUPS, "--list").split()
    state = tool.run(GROUPS, "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s+\S+\s+\(\d+\).*Empty\s+0", state), state
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    tool.run(GROUPS, *reset, "--to-earliest", "--execute")
    assert len(tool.read(topic, 10, "--group", group)) == 10
    moved = tool.run(GROUPS, *reset, "--shift-by", "-2", "--dry-run")
    assert re.findall(rf"{group}\s+{topic}\s+\d\s+(\d)", moved) == ["3", "3"], moved
    assert "was successful" in tool.run(GROUPS, "--delete", "--group", group)
    assert group not in tool.run(GROUPS, "--list").split()


def test_members_of_a_running_group(tool: Tool, new_topic: NewTopicFactory, unique: Unique) -> None:
    topic, group = new_topic(3), unique("group")
    command = java_command(CONSOLE_CONSUMER, *tool.address, "--topic", topic, "--group", group, "--from-beginning")
    with contextlib.ExitStack() as stack:
        member = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        stack.callback(member.wait, WAIT_S)
        stack.callback(member.kill)
        tool.run(CONSOLE_PRODUCER, "--topic", topic, stdin="hello\n")
        assert member.stdout is not None
        stack.callback(member.stdout.close)
        assert member.stdout.readline() == "hello\n"
        members = tool.run(GROUPS, "--describe", "--group", group, "--members", "--verbose")
        assert re.search(rf"{group}\s+console-consumer-\S+ /127.0.0.1\s+console-consumer\s+3", members), members
        assert "Stable" in tool.run(GROUPS, "--describe", "--group", group, "--state")
        refused = tool.run(GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute")
        assert "inactive" in refused
        member.terminate()
        member.wait(WAIT_S)


def test_api_versions_and_cluster(tool: Tool) -> None:
    said = tool.run(f"{TOOLS}.BrokerApiVersionsCommand")
    served = dict(re.findall(r"^\t(\w+)\(\d+\): (\d+(?: to \d+)?) \[usable", said, re.MULTILINE))
    assert served["Produce"] == "0 to 13"
    assert served["Fetch"].endswith("to 18")
    assert {"Metadata", "OffsetCommit", "JoinGroup", "CreateTopics", "DescribeConfigs"} <= set(served)
    assert re.search(r"Cluster ID: \S{22}", run_kafka_tool(f"{TOOLS}.ClusterTool", "cluster-id", *tool.address))


# ---- the broker's files --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that stored records of every codec and a group's offsets, and was then stopped."""
    server = BrokerProcess(tmp_path_factory.mktemp("dumped"), {"log.segment.bytes": "1048576"})
    chance = random.Random(1)
    with server:
        for codec in CODECS:
            settings = {"bootstrap.servers": server.bootstrap, "compression.type": codec, "batch.num.messages": 20}
            producer = Producer({**settings, "linger.ms": 50, "enable.idempotence": True, "log_level": 0})
            for number in range(500):
                value = base64.b64encode(chance.randbytes(900))  # no codec makes it much smaller
                producer.produce("dumped", value, b"key-%d" % number, headers=[("h", codec)])
            assert producer.flush(WAIT_S) == 0
        tool = Tool(server.bootstrap)
        assert len(tool.read("dumped", 2500, "--from-beginning", "--group", "dumped-group")) == 2500
    yield server


def test_dump_log(stopped: BrokerProcess) -> None:
    logs = sorted((stopped.folder / "data").glob("dumped-0/*.log"))
    assert len(logs) > 1, "several segments"
    dump = f"{TOOLS}.DumpLogSegments"
    names = ",".join(map(str, logs))
    said = run_kafka_tool(dump, "--deep-iteration", "--print-data-log", "--files", names)
    assert "isvalid: false" not in said
    assert said.count("| offset:") == 2500
    assert {match.lower() for match in re.findall(r"compresscodec: (\w+)", said)} == set(CODECS)
    assert said.count("headerKeys: [h]") == 2500
    for suffix in (".index", ".timeindex"):
        indexes = [str(log.with_suffix(suffix)) for log in logs]
        assert run_kafka_tool(dump, "--files", ",".join(indexes)).count("Dumping") == len(indexes)
        sane = run_kafka_tool(dump, "--index-sanity-check", "--files", ",".join(indexes))
        assert sane.count("passed sanity check") == len(indexes), sane


def test_dump_of_the_offsets_topic(stopped: BrokerProcess) -> None:
    logs = [path for path in (stopped.folder / "data").glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    said = run_kafka_tool(f"{TOOLS}.DumpLogSegments", "--offsets-decoder", "--files", ",".join(map(str, sorted(logs))))
    assert re.search(r'"group":"dumped-group","topic":"dumped","partition":0.*"offset":2500', said), said
    assert '"protocolType":"consumer"' in said
