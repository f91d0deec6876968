"""Records, bytes and requests of this broker's partitions, counted per topic in plain integers, which only grow.

The hot path adds to the integers and does nothing else; a scrape reads them (gregor.broker.metrics).
"""

from __future__ import annotations

from collections import Counter

from gregor.replication.repeated_batches import ClientRepeats


class TopicTraffic:
    """The counters of one topic, shared by its partitions on this broker. Most are those of Kafka's BrokerTopicMetrics:
    records and bytes of appends as the leader, bytes of records sent to consumers, and bytes sent to and fetched from
    other brokers. A request counts once for each partition in it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produce_requests",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.failed_fetch_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def appended(self, records_count: int, size_bytes: int) -> None:
        """Count one append as the leader."""
        self.produce_requests += 1
        self.messages_in += records_count
        self.bytes_in += size_bytes

    def isr_changed(self, change: int) -> None:
        """Count a change of an in-sync set by so many replicas."""
        if change:
            self.isr_expands += change > 0
            self.isr_shrinks += change < 0

    def add(self, other: TopicTraffic) -> None:
        """Add the counters of another topic to these."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.failed_fetch_requests += other.failed_fetch_requests
        self.failed_produce_requests += other.failed_produce_requests
        self.fetch_requests += other.fetch_requests
        self.isr_expands += other.isr_expands
        self.isr_shrinks += other.isr_shrinks
        self.messages_in += other.messages_in
        self.produce_requests += other.produce_requests
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out


class Traffic:
    """The counters of all topics that have a replica here, and of those that had one."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.repeats = ClientRepeats()
        self._replicas: Counter[str] = Counter()
        self.of_removed_topics = TopicTraffic()
        """The sums of the topics that have no replica here any more: with `topics`, all since the start."""

    def replica_added(self, topic: str) -> TopicTraffic:
        """Return the counters for one more replica of the topic."""
        self._replicas[topic] += 1
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def replica_removed(self, topic: str) -> None:
        """Note that a replica was deleted; after the last one of its topic, the counters belong to the total alone."""
        self._replicas[topic] -= 1
        if self._replicas[topic] <= 0:
            del self._replicas[topic]
            self.of_removed_topics.add(self.topics.pop(topic))
