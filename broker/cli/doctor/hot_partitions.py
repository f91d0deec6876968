"""The check of `gregor doctor` for hot partitions: those that get many times the bytes of their topic's other ones.

The bytes of a second are the growth of the leader's log between two DescribeLogDirs. All load of a partition is on one
broker, its leader, so that other brokers and partitions cannot help.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from gregor.broker.cli.doctor.checks import Finding, Level, ObservedCluster
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.log_dirs import size_text
from gregor.broker.cli.wire import WireClient
from gregor.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from gregor.protocol.topic_partition import TopicPartitionKey

MIN_INTERVAL_S = 1.0
"""Between the two samples: a shorter time shows single batches."""
MIN_HOT_BYTES_PER_S = 100_000
HOT_MULTIPLE = 4
"""Of the mean of the topic's other partitions."""


def examine_hot_partitions(
    client: WireClient,
    seen: ObservedCluster,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """Read the sizes of each broker a second time, and compare them with those in `seen`."""
    leaders = _leaders(seen)
    rates: dict[TopicPartitionKey, float] = {}
    for broker in seen.brokers:
        led = {partition for partition, leader in leaders.items() if leader == broker.node_id}
        if broker.trouble or not led or not broker.log_dirs:
            continue
        sleep(max(0.0, broker.sized_at_s + MIN_INTERVAL_S - clock_s()))
        with suppress(CommandError):  # other checks report a broker that does not answer
            answer: DescribeLogDirsResponse = client.send(DescribeLogDirsRequest(topics=None), broker.node_id)
            elapsed_s = clock_s() - broker.sized_at_s
            before, after = sizes(broker.log_dirs), sizes(answer.results)
            for partition in led & before.keys() & after.keys():
                # A log shrinks where retention deletes meanwhile.
                rates[partition] = max(0, after[partition] - before[partition]) / elapsed_s
    return check_hot_partitions(rates, leaders)


def _leaders(seen: ObservedCluster) -> dict[TopicPartitionKey, int]:
    return {
        (str(topic.name), one.partition_index): one.leader_id
        for topic in seen.metadata.topics
        if len(topic.partitions) > 1 and not topic.is_internal
        for one in topic.partitions
    }


def sizes(folders: Iterable[DescribeLogDirsResponse.DescribeLogDirsResult]) -> dict[TopicPartitionKey, int]:
    """Return the bytes of each log in the folders of a broker; logs that are being moved there do not count."""
    return {
        (topic.name, one.partition_index): one.partition_size
        for folder in folders
        for topic in folder.topics
        for one in topic.partitions
        if not one.is_future_key
    }


def check_hot_partitions(
    rates: Mapping[TopicPartitionKey, float], leaders: Mapping[TopicPartitionKey, int]
) -> list[Finding]:
    """Name the partitions above the thresholds. `rates` are bytes per second."""
    by_topic: dict[str, dict[int, float]] = {}
    for (topic, index), rate in rates.items():
        by_topic.setdefault(topic, {})[index] = rate
    found = []
    for topic, of_topic in sorted(by_topic.items()):
        total = sum(of_topic.values())
        for index, rate in sorted(of_topic.items()):
            others = len(of_topic) - 1
            if not others or rate < MIN_HOT_BYTES_PER_S or rate < HOT_MULTIPLE * (total - rate) / others:
                continue
            text = (
                f"partition {topic}-{index} is hot: it gets {size_text(int(rate))} in a second, {rate / total:.0%} of"
                f" its topic's {len(of_topic)} partitions, all of it by broker {leaders[topic, index]}"
            )
            remedy = (
                "see which key its records have (`gregor console-consumer --partition N --property print.key=true`),"
                " and spread that key; a producer without keys that names the partition sends all records there"
            )
            found.append(Finding(Level.NOTE, text, remedy))
    return found
