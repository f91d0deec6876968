"""The extent of a topic: the offsets that each partition has, and those that were appended since an earlier moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, list_offsets

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""The first offset of each partition, and the one after the last."""


@dataclass(frozen=True)
class Extent:
    """The offsets of a topic at one moment; the end is the last stable offset for read_committed."""

    topic_id: Uuid
    ranges: Ranges

    @property
    def size(self) -> int:
        """The number of offsets."""
        return size_of(self.ranges)


def extent_of(cluster: Cluster, topic: str) -> Extent:
    """Return the present extent of a topic; raise KafkaFailure if the cluster does not describe it."""
    return extents_of(cluster, [topic])[topic]


def extents_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, Extent]:
    """Return the present extents of topics; raise KafkaFailure if the cluster does not describe one of them."""
    cluster.refresh()
    described = cluster.retrying().run(lambda: cluster.topics(topics))
    partitions = []
    for topic in topics:
        found = described.get(topic)
        if found is None or found.error_code:
            code = found.error_code if found is not None else 0
            raise KafkaFailure(code, f"the cluster does not describe the topic {topic}")
        partitions += [TopicPartition(topic, number) for number in found.partitions]
    isolation = cluster.settings.isolation_level
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation)
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), isolation)
    ranges: dict[str, dict[TopicPartition, tuple[int, int]]] = {topic: {} for topic in topics}
    for one in partitions:
        ranges[one.topic][one] = starts[one].offset, ends[one].offset
    return {topic: Extent(described[topic].topic_id, ranges[topic]) for topic in topics}


def appended(known: Extent | None, now: Extent) -> Ranges | None:
    """Return the ranges that were appended since `known`, none of them empty.

    Return None if the records that were known are not all there any more, save for compaction: the topic was made anew
    or truncated, or records were deleted from its start.
    """
    if known is None or (known.topic_id != now.topic_id and ZERO_UUID not in (known.topic_id, now.topic_id)):
        return None
    for partition, (start, end) in known.ranges.items():
        if partition not in now.ranges or now.ranges[partition][0] != start or now.ranges[partition][1] < end:
            return None
    added = {
        partition: (known.ranges[partition][1] if partition in known.ranges else start, end)
        for partition, (start, end) in now.ranges.items()
    }
    return {partition: (start, end) for partition, (start, end) in added.items() if start < end}


def size_of(ranges: Ranges) -> int:
    """Return the number of offsets in ranges."""
    return sum(end - start for start, end in ranges.values())
