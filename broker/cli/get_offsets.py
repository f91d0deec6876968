"""`gregor get-offsets`: shows offsets, with the flags and the output of kafka-get-offsets.sh."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from gregor.broker.cli.command import bootstrap_option, command_config_option, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse
from gregor.protocol.topic_partition import TopicPartition

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
UNKNOWN_OFFSET = -1
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]{0,10})|(?:([0-9]{0,10})-([0-9]{0,10}))))?")

Filter = Callable[[str, int], bool]

EPILOG = """\b
Examples:
  gregor get-offsets --topic orders
  gregor get-offsets --topic-partitions 'orders:0-3,returns' --time earliest
  gregor get-offsets --time 1700000000000

--time is latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered (-5),
earliest-pending-upload (-6), or a time in milliseconds, for the first record at or after it. Partitions without such
an offset are not shown.
"""


@click.command("get-offsets", epilog=EPILOG)
@bootstrap_option("--broker-list")
@command_config_option()
@click.option("--topic", metavar="REGEX", help="Only these topics; commas separate alternatives.")
@click.option("--partitions", default="", metavar="0,1,..", help="Only these partitions.")
@click.option(
    "--topic-partitions", "rules", metavar="NAME[:0|:0-2|:3-|:-2],..",
    help="Topics with partitions, or ranges of them without their end.",
)  # fmt: skip
@click.option("--time", default="latest", show_default=True, metavar="TIME", help="The offset to show, see below.")
@click.option("--exclude-internal-topics", is_flag=True, help="Exclude internal topics such as __consumer_offsets.")
def get_offsets(**given: Any) -> None:
    """Show the offsets of partitions: the end, the start, or at a time."""
    if given["rules"] and (given["topic"] or given["partitions"]):
        raise click.UsageError("--topic-partitions contradicts --topic and --partitions.")
    timestamp = parse_time(given["time"])
    wanted = rules_filter(given["rules"]) if given["rules"] else topic_filter(given["topic"], given["partitions"])
    with WireClient(given["bootstrap"], given["config_file"]) as client:
        leaders = find(client, wanted, given["exclude_internal_topics"])
        if not leaders:
            raise CommandError("no partition matches. `gregor topics --list` shows the topics that exist.")
        offsets = list_offsets(client, leaders, timestamp)
    rows = [(*partition_key, offsets[partition_key]) for partition_key in sorted(offsets, key=_java_order)]
    if on_terminal():
        columns = [Column("TOPIC"), Column("PARTITION", number=True), Column("OFFSET", number=True)]
        print_table(columns, sorted(rows))
        return
    for topic, partition, offset in rows:
        print(f"{topic}:{partition}:{offset}")


def _java_order(partition_key: TopicPartition) -> str:
    """Return the sort key of Kafka's tool, by which partition 10 comes before 2."""
    return f"{partition_key[0]}-{partition_key[1]}"


def parse_time(text: str) -> int:
    """Return the timestamp of ListOffsets for a word of TIMES, its number, or a time in milliseconds."""
    if text in TIMES:
        return TIMES[text]
    try:
        timestamp = int(text)
    except ValueError:
        timestamp = -100
    if timestamp < min(TIMES.values()) or timestamp >= 2**63:
        raise CommandError(f"'{text}' is not a time; give {', '.join(TIMES)}, or milliseconds since 1970.")
    return timestamp


def topic_filter(topic: str | None, partitions: str) -> Filter:
    """Return the filter of --topic and --partitions."""
    try:
        numbers = {int(number) for number in partitions.split(",") if number.strip()}
    except ValueError:
        raise CommandError(f"'{partitions}' is not a list of partitions; give numbers, e.g. 0,1.") from None
    names = _topics(topic)
    return lambda name, number: bool(names(name)) and (not numbers or number in numbers)


def rules_filter(text: str) -> Filter:
    """Return the filter of --topic-partitions, of which one rule must match."""
    rules: list[Filter] = []
    for rule in text.split(","):
        match = _RULE.fullmatch(rule.strip())
        if match is None:
            raise CommandError(f"'{rule}' does not select partitions; give NAME, NAME:0, NAME:0-2, NAME:3- or NAME:-2.")
        names = _topics(match[1] or None)
        first, end = int(match[3] or 0), int(match[4]) if match[4] else 2**31
        if match[2]:
            first, end = int(match[2]), int(match[2]) + 1
        rules.append(lambda name, number, n=names, a=first, b=end: bool(n(name)) and a <= number < b)  # type: ignore[misc]
    return lambda name, number: any(rule(name, number) for rule in rules)


def _topics(pattern: str | None) -> Callable[[str], object]:
    try:
        return re.compile((pattern or ".*").replace(",", "|").replace(" ", "").strip("\"'")).fullmatch
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise CommandError(f"'{pattern}' is not a regular expression: {error}.") from None


def find(client: WireClient, wanted: Filter, exclude_internal: bool) -> dict[TopicPartition, int]:
    """Return the partitions that the filter selects, with their leaders."""
    metadata: MetadataResponse = client.send(MetadataRequest(topics=None))
    return {
        TopicPartition(topic.name or "", part.partition_index): part.leader_id
        for topic in metadata.topics
        if not (exclude_internal and topic.is_internal)
        for part in topic.partitions
        if wanted(topic.name or "", part.partition_index)
    }


def list_offsets(client: WireClient, leaders: dict[TopicPartition, int], timestamp: int) -> dict[TopicPartition, int]:
    """Return the offsets of these partitions at this time; report failures to standard error."""
    found: dict[TopicPartition, int] = {}
    for leader in sorted(set(leaders.values())):
        keys = sorted(partition_key for partition_key, led_by in leaders.items() if led_by == leader)
        if leader not in client.brokers:
            for partition_key in keys:
                _skip(partition_key, BrokerRefusal(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader"))
            continue
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for topic, partition in keys:
            part = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            topics.setdefault(topic, ListOffsetsRequest.ListOffsetsTopic(name=topic)).partitions.append(part)
        answer: ListOffsetsResponse = client.send(
            ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=list(topics.values())), leader
        )
        for found_topic in answer.topics:
            for answered in found_topic.partitions:
                partition_key = TopicPartition(found_topic.name, answered.partition_index)
                try:
                    check_code(answered.error_code)
                except BrokerRefusal as refusal:
                    _skip(partition_key, refusal)
                    continue
                if answered.offset != UNKNOWN_OFFSET:
                    found[partition_key] = answered.offset
    return found


def _skip(partition_key: TopicPartition, why: Exception) -> None:
    print(f"Skip getting offsets for topic-partition {_java_order(partition_key)} due to error: {why}", file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(get_offsets, arguments)
