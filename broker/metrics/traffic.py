"""Records, bytes and requests by topic: Kafka's BrokerTopicMetrics."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from gregor.broker.metrics.family import COUNTER, Family
from gregor.broker.metrics.kept_lines import KeptLines, batched
from gregor.protocol.turns import ITEMS_PER_STEP, Steps
from gregor.replication.traffic import TopicTraffic

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.replication.traffic import Traffic

_PREFIX = "kafka_server_brokertopicmetrics_"
_OF_TOPICS = {
    "messages_in": ("messagesin", "Records appended as the leader"),
    "bytes_in": ("bytesin", "Bytes of record batches appended as the leader"),
    "bytes_out": ("bytesout", "Bytes of record batches sent to consumers"),
    "produce_requests": (
        "totalproducerequests",
        "Appends as the leader, refused ones too, one for each partition of a request",
    ),
    "failed_produce_requests": ("failedproducerequests", "Refused appends, without those that clients repeat anyway"),
    "fetch_requests": ("totalfetchrequests", "Reads for consumers, one for each partition of a request"),
    "failed_fetch_requests": ("failedfetchrequests", "Failed reads, without those after which clients proceed"),
}
_OF_BROKER = {
    "replication_bytes_in": ("replicationbytesin", "Bytes of record batches fetched from the leaders"),
    "replication_bytes_out": ("replicationbytesout", "Bytes of record batches sent to followers"),
}
_BOTH = "per topic, and without the label the sum over all topics since the start, also of deleted ones"

_TOPIC_FAMILIES = tuple(
    Family(f"{_PREFIX}{name}_total", COUNTER, ("topic",), f"{text}: {_BOTH}.") for name, text in _OF_TOPICS.values()
)
FAMILIES = (
    *_TOPIC_FAMILIES,
    *(Family(f"{_PREFIX}{name}_total", COUNTER, (), f"{text}.") for name, text in _OF_BROKER.values()),
)

_values = attrgetter(*_OF_TOPICS, *(name for name in TopicTraffic.__slots__ if name not in _OF_TOPICS))
"""All counters of a topic, those with lines first."""


class _Block:
    """The counters of some topics, their values at the last scrape, and the sums of these."""

    __slots__ = ("counters", "sums", "values")

    def __init__(self, counters: list[TopicTraffic], values: list[tuple[int, ...]]) -> None:
        self.counters = counters
        self.values = values
        self.sums = TopicTraffic()
        for one in counters:
            self.sums.add(one)


class TrafficLines:
    """Makes the lines of the topics and their sums. A block of topics without traffic since the last scrape costs its
    comparison."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._lines: KeptLines[str] = KeptLines(_TOPIC_FAMILIES, _labels)
        self._known: list[_Block] = []

    def collect(self, page: Page) -> Steps[TopicTraffic]:
        """Add the counters of each topic, and their sums; return the sums."""
        traffic = self._traffic
        topics = list(traffic.topics.items())
        total = TopicTraffic()
        total.add(traffic.of_removed_topics)  # in the same step as the list: a topic is in one of them
        known, blocks = self._known, list[_Block]()
        for index, some in enumerate(batched(topics, ITEMS_PER_STEP)):
            counters = [of_topic for _, of_topic in some]
            values = list(map(_values, counters))
            block = known[index] if index < len(known) else None
            if block is not None and block.values == values and block.counters == counters:
                self._lines.put_again()
            else:
                block = _Block(counters, values)
                self._lines.put([topic for topic, _ in some], [of_one[: len(_OF_TOPICS)] for of_one in values])
            blocks.append(block)
            total.add(block.sums)
            yield None
        self._known = blocks
        for field, (name, _) in (_OF_TOPICS | _OF_BROKER).items():
            page.add(f"{_PREFIX}{name}_total", getattr(total, field))
        yield from self._lines.end(page)
        return total


def _labels(topic: str) -> str:
    return f'{{topic="{topic}"}}'  # the characters of a topic's name need no escapes
