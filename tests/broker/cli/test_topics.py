"""`gregor topics` without a broker: arguments, name patterns, which partitions a filter shows."""

from __future__ import annotations

import pytest

from gregor.broker.cli import topics
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.reassignments import Reassignment
from gregor.broker.cli.topic_report import PartitionReport, TopicReport, print_report, url_safe

NAMES = ["orders", "orders-eu", "returns", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("pattern", "exclude_internal", "found"),
    [
        (None, False, ["__consumer_offsets", "orders", "orders-eu", "returns"]),
        (None, True, ["orders", "orders-eu", "returns"]),
        ("orders", False, ["orders"]),
        ("orders.*", False, ["orders", "orders-eu"]),
        ("orders,returns", False, ["orders", "returns"]),
        ("'orders'", False, ["orders"]),
        ("order", False, []),
    ],
)
def test_patterns_match_whole_names(pattern: str | None, exclude_internal: bool, found: list[str]) -> None:
    assert topics.matching_topics(NAMES, pattern, exclude_internal) == found


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "a{" + "9" * 5000 + "}", "(" * 5000])
def test_a_broken_pattern_is_named(pattern: str) -> None:
    with pytest.raises(CommandError, match="regular expression"):
        topics.matching_topics(NAMES, pattern, False)


def test_assignments() -> None:
    assert topics.parse_assignment("1:2,2:3") == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("text", "cause"),
    [("1:1", "twice"), ("1:2,3", "has 1 replicas, partition 0 has 2"), ("1:x", "broker ids"), ("", "broker ids")]
    + [(text, "each from 0 to 2147483647") for text in ("1,99999999999", "-1", "1_0", "9" * 5000)],
)
def test_broken_assignments(text: str, cause: str) -> None:
    with pytest.raises(CommandError, match=cause):
        topics.parse_assignment(text)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--list", "--create"], "exactly one"),
        (["--topic", "a"], "exactly one"),
        (["--create"], "needs --topic"),
        (["--delete"], "needs --topic"),
        (["--alter", "--topic", "a"], "needs --partitions"),
        (["--create", "--topic", "a", "--partitions", "0"], "0 is not in the range"),
        (["--create", "--topic", "a", "--partitions", "99999999999"], "99999999999 is not in the range"),
        (
            ["--create", "--topic", "a", "--replica-assignment", "1", "--partitions", "2"],
            "--replica-assignment contradicts",
        ),
        (["--create", "--topic", "a", "--if-exists"], "--if-exists goes with"),
        (["--list", "--config", "a=b"], "--config goes with --create"),
        (["--list", "--under-replicated-partitions"], "goes with --describe"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert topics.main(arguments) == 1
    assert cause in capsys.readouterr().err


HEALTHY = PartitionReport(0, leader=1, replicas=[1, 2], isr=[1, 2])
SHRUNK = PartitionReport(1, leader=1, replicas=[1, 2], isr=[1])
ORPHAN = PartitionReport(2, leader=None, replicas=[3], isr=[3])
STRANDED = PartitionReport(3, leader=9, replicas=[9, 1], isr=[9, 1])
GROWING = PartitionReport(4, leader=1, replicas=[1, 2, 3], isr=[1, 2], reassignment=Reassignment([1, 2, 3], [3], [2]))


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["--under-replicated-partitions"], [1]),
        (["--unavailable-partitions"], [2, 3]),
        (["--under-min-isr-partitions"], [1, 2]),
        (["--at-min-isr-partitions"], [0, 3, 4]),
        (["--unavailable-partitions", "--under-replicated-partitions"], [1, 2, 3]),
    ],
)
def test_filters(filters: list[str], shown: list[int]) -> None:
    partitions = [HEALTHY, SHRUNK, ORPHAN, STRANDED, GROWING]
    assert [part.number for part in partitions if part.wanted(filters, {1, 2, 3}, min_isr=2)] == shown


def test_summary_is_kafkas_line() -> None:
    report = TopicReport("t", "CsXamG2hT0yZ_JtBCyqytg", [HEALTHY, SHRUNK], {"a": "1", "b": "2"}, True, 1)
    assert report.summary() == (
        "Topic: t\tTopicId: CsXamG2hT0yZ_JtBCyqytg\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: a=1,b=2"
    )


def test_summary_counts_the_replicas_without_those_that_are_being_added() -> None:
    report = TopicReport("t", "", [GROWING], {}, False, 1)
    assert report.summary() == "Topic: t\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: "


def test_replicas_that_are_being_added_and_removed_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(TopicReport("t", "", [HEALTHY, GROWING], {}, False, 1), [HEALTHY, GROWING], summary=False)
    assert capsys.readouterr().out.splitlines() == [
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: N/A\tLastKnownElr: N/A",
        "\tTopic: t\tPartition: 4\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 2"
        "\tElr: N/A\tLastKnownElr: N/A",
    ]


@pytest.mark.parametrize(
    ("given", "text"), [("CsXamG2hT0yZ/Jt+CyqytA==", "CsXamG2hT0yZ_Jt-CyqytA"), ("A" * 22, ""), ("", "")]
)
def test_topic_ids_are_spelled_as_kafka_does(given: str, text: str) -> None:
    assert url_safe(given) == text
