"""The partitions of a transaction, grouped by topic as its records hold them.

Each partition that is added makes a record of all partitions (Kafka's format). A transaction may have thousands of
them, so neither the addition nor the record may touch each one as an object of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from gregor.protocol.topic_partition import TopicPartition


class PartitionSet(Set[TopicPartition]):
    """An immutable set, which equals any other set of the same partitions."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Mapping[str, frozenset[int]]) -> None:
        """`topics` has no empty value, and is not changed any more."""
        self._topics = topics

    @classmethod
    def of(cls, topics: Iterable[tuple[str, Iterable[int]]]) -> PartitionSet:
        """Make a set of (topic, partitions)."""
        grouped: dict[str, frozenset[int]] = {}
        for topic, numbers in topics:
            grouped[topic] = grouped.get(topic, frozenset()).union(numbers)
        return cls({topic: numbers for topic, numbers in grouped.items() if numbers})

    def __contains__(self, partition: object) -> bool:
        if not isinstance(partition, tuple):
            return False
        topic, number = partition
        return number in self._topics.get(topic, ())

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, numbers in self._topics.items():
            for number in numbers:
                yield TopicPartition(topic, number)

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def __bool__(self) -> bool:
        return bool(self._topics)

    def issuperset(self, partitions: Iterable[TopicPartition]) -> bool:
        return all(partition in self for partition in partitions)

    def union(self, added: Iterable[TopicPartition]) -> PartitionSet:
        """Return the set with more partitions."""
        more: dict[str, list[int]] = {}
        for topic, number in added:
            more.setdefault(topic, []).append(number)
        changed = {topic: self._topics.get(topic, frozenset()).union(numbers) for topic, numbers in more.items()}
        return PartitionSet({**self._topics, **changed})

    def by_topic(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the topics with their partitions, both in order."""
        for topic in sorted(self._topics):
            yield topic, sorted(self._topics[topic])


NO_PARTITIONS = PartitionSet({})
