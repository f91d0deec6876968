"""The command line against a running broker; `--against HOST:PORT` lets Apache Kafka answer instead."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

import pytest

from tests.broker.cli.tool import Tool

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(topic_with: Callable[[Sequence[str]], str]) -> str:
    """A topic with nine records: keys k0..k8, values v0..v8."""
    return topic_with([f"k{number}" for number in range(9)])


def test_topics_from_creation_to_deletion(tool: Tool) -> None:
    name = f"cli-topic-{time.time_ns()}"
    create = ("topics", "--create", "--topic", name)
    assert tool.run(*create, "--partitions", "3", "--config", "retention.ms=60000") == f"Created topic {name}.\n"
    assert "TOPIC_ALREADY_EXISTS" in tool.run(*create, code=1)
    assert tool.run(*create, "--if-not-exists") == ""
    assert name in tool.run("topics", "--list").splitlines()
    summary, *partitions = tool.run("topics", "--describe", "--topic", name).splitlines()
    assert summary.startswith(f"Topic: {name}\tTopicId: ")
    assert "\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: " in summary
    assert "retention.ms=60000" in summary
    assert [line.split("\t")[2] for line in partitions] == ["Partition: 0", "Partition: 1", "Partition: 2"]
    assert tool.run("topics", "--describe", "--topic", name, "--under-replicated-partitions") == ""
    assert tool.run("topics", "--describe", "--topic", name, "--topics-with-overrides") == summary + "\n"
    tool.run("topics", "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in tool.run("topics", "--describe", "--topic", name)
    assert "INVALID_PARTITIONS" in tool.run("topics", "--alter", "--topic", name, "--partitions", "4", code=1)
    assert tool.run("topics", "--delete", "--topic", name) == ""
    assert "does not exist" in tool.run("topics", "--delete", "--topic", name, code=1)
    assert tool.run("topics", "--delete", "--topic", name, "--if-exists") == ""


def test_refused_topics_say_why(tool: Tool) -> None:
    assert "TOPIC_EXCEPTION" in tool.run("topics", "--create", "--topic", "not a name", code=1)
    assert "INVALID_REPLICATION_FACTOR" in tool.run(
        "topics", "--create", "--topic", f"cli-{time.time_ns()}", "--replication-factor", "9", code=1
    )
    wrong = tool.run("topics", "--create", "--topic", f"cli-{time.time_ns()}", "--config", "retention.mss=1", code=1)
    assert "INVALID_CONFIG" in wrong and "retention.mss" in wrong


def test_records_come_back_whole(tool: Tool, topic: str) -> None:
    parts = ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"]
    read = ["console-consumer", "--topic", topic, "--from-beginning"]
    out = tool.run(*read, "--max-messages", "9", *parts)
    assert sorted(out.splitlines()) == [f"NO_HEADERS\tk{number}\tv{number}" for number in range(9)]


def test_key_has_the_partition_of_the_java_client(tool: Tool, topic: str) -> None:
    # The partitions that Apache Kafka 4.3.1's console producer chose for k0..k8.
    parts = ["--formatter-property", "print.key=true", "--formatter-property", "print.partition=true"]
    out = tool.run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "9", *parts)
    where = {line.split("\t")[1]: line.split("\t")[0] for line in out.splitlines()}
    assert [where[f"k{number}"][-1] for number in range(9)] == list("111000100")


def test_headers_nulls_and_compression(tool: Tool, topic: str) -> None:
    properties = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    flags = [flag for entry in properties for flag in ("--reader-property", entry)]
    line = "h:1,i:NULL\tkey\tNULL\n"
    tool.run("console-producer", "--topic", topic, "--sync", "--compression-codec", "zstd", *flags, stdin=line)
    parts = ["print.key=true", "print.headers=true", "null.literal=nil", "print.timestamp=true"]
    flags = [flag for entry in parts for flag in ("--formatter-property", entry)]
    out = tool.run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "10", *flags)
    [found] = [text for text in out.splitlines() if "\tkey\t" in text]
    timestamp, rest = found.split("\t", 1)
    assert timestamp.startswith("CreateTime:")
    assert rest == "h:1,i:nil\tkey\tnil"


def test_one_partition_from_an_offset(tool: Tool, topic: str) -> None:
    read = ["console-consumer", "--topic", topic, "--partition", "0", "--formatter-property", "print.offset=true"]
    out = tool.run(*read, "--offset", "2", "--max-messages", "2")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["Offset:2", "Offset:3"]


def test_topics_of_a_pattern_are_read_also_those_that_are_created_meanwhile(tool: Tool) -> None:
    name = f"cli-pattern-{time.time_ns()}"
    for suffix in ("d", "1"):
        tool.run("console-producer", "--topic", f"{name}-{suffix}", stdin=f"{suffix}\n")
    refresh = ("--consumer-property", "metadata.max.age.ms=100")
    read = ["console-consumer", "--include", rf"{name}-\d+", "--from-beginning", "--group", name, *refresh]
    process = tool.start(*read, "--max-messages", "2")
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    tool.run("console-producer", "--topic", f"{name}-2", stdin="2\n")
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "2\n")


def test_no_record_in_time_ends_the_consumer(tool: Tool, topic: str) -> None:
    process = tool.start("console-consumer", "--topic", topic, "--partition", "1", "--timeout-ms", "300")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "Processed a total of 0 messages"


def test_a_record_without_its_separator_ends_the_producer_after_the_good_ones(tool: Tool, topic: str) -> None:
    flags = ["--topic", topic, "--reader-property", "parse.key=true"]
    assert "line 2 has no key.separator" in tool.run("console-producer", *flags, stdin="k9\tv9\nbad\n", code=1)
    out = tool.run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "10")
    assert "v9" in out.split()


def test_ctrl_c_leaves_the_group_and_commits_printed_records(tool: Tool, topic: str) -> None:
    group = f"{topic}-group"
    process = tool.start("console-consumer", "--topic", topic, "--group", group, "--from-beginning")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(9)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "Processed a total of 9 messages"
    assert sorted(lines) == [f"v{number}\n" for number in range(9)]
    described = tool.run("groups", "--describe", "--group", group).splitlines()
    rows = [line.split() for line in described if line.startswith(group)]
    assert [(row[2], row[5]) for row in rows] == [("0", "0"), ("1", "0")]
    assert all(row[3] == row[4] for row in rows)


def test_closed_output_ends_the_consumer_without_a_traceback(tool: Tool, topic: str) -> None:
    process = tool.start("console-consumer", "--topic", topic, "--from-beginning")
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.stdin.close()


def test_groups_from_reset_to_deletion(tool: Tool, topic: str) -> None:
    group = f"{topic}-g"
    select = ["--group", group, "--topic", topic]
    reset = ["groups", "--reset-offsets", *select]
    assert "does not exist" in tool.run("groups", "--describe", "--group", group, code=1)
    dry = tool.run(*reset, "--to-latest", "--dry-run").split("\n")
    assert [line.split() for line in dry[2:4]] == [[group, topic, "0", "5"], [group, topic, "1", "4"]]
    assert group not in tool.run("groups", "--list").splitlines()
    tool.run(*reset, "--to-latest", "--execute")
    assert group in tool.run("groups", "--list").splitlines()
    states = tool.run("groups", "--list", "--state", "--type").splitlines()
    assert [group, "Classic", "Empty"] in [line.split() for line in states]
    tool.run("groups", "--reset-offsets", "--group", group, "--all-topics", "--shift-by", "-2", "--execute")
    assert offsets(tool, group) == [("0", "3", "2"), ("1", "2", "2")]
    tool.run("groups", "--reset-offsets", "--group", group, "--topic", f"{topic}:1", "--to-offset", "1", "--execute")
    assert offsets(tool, group) == [("0", "3", "2"), ("1", "1", "3")]
    tool.run(*reset, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert offsets(tool, group) == [("0", "0", "5"), ("1", "0", "4")]
    tool.run(*reset, "--by-duration", "PT0S", "--execute")
    assert offsets(tool, group) == [("0", "5", "0"), ("1", "4", "0")]
    titles, row = tool.run("groups", "--describe", "--group", group, "--state").strip().splitlines()
    assert row.split() == [group, *row.split()[1:3], "-", "Empty", "0"]
    (titles,) = tool.run("groups", "--describe", "--group", group, "--members").strip().splitlines()
    assert titles.split()[0] == "GROUP"
    done = tool.run("groups", "--delete", "--group", group)
    assert done == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert "GROUP_ID_NOT_FOUND" in tool.run("groups", "--delete", "--group", group, code=1)


def offsets(tool: Tool, group: str) -> list[tuple[str, str, str]]:
    """(partition, current offset, lag) of a group."""
    lines = tool.run("groups", "--describe", "--group", group).splitlines()
    return [(row[2], row[3], row[5]) for row in map(str.split, lines) if row and row[0] == group]


def test_an_active_group_is_described_and_protected(tool: Tool, topic: str) -> None:
    group = f"{topic}-live"
    consumer = tool.start("console-consumer", "--topic", topic, "--group", group, "--from-beginning")
    assert consumer.stdout is not None
    try:
        for _ in range(9):
            assert consumer.stdout.readline()
        members = tool.run("groups", "--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}:0,1" in members
        assert "Stable" in tool.run("groups", "--describe", "--group", group, "--state")
        assert "NON_EMPTY_GROUP" in tool.run("groups", "--delete", "--group", group, code=1)
        refused = tool.run(
            "groups", "--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute", code=1
        )
        assert "is Stable" in refused
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.communicate(timeout=60)
    assert consumer.returncode == 143
