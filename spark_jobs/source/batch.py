"""A batch query: the offsets of its limits, and what each task reads."""

from __future__ import annotations

from dataclasses import replace

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import PartitionRange, ReadPlan
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.offsets import UNKNOWN_OFFSET, list_offsets
from gregor.spark_jobs.source.filters import Pushed
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.planning import divide
from gregor.spark_jobs.source.resolve import assigned_partitions, offsets_at


def plan_batch(cluster: Cluster, options: SourceOptions, pushed: Pushed) -> list[ReadPlan]:
    """Return what each task of a batch query reads."""
    assigned = assigned_partitions(cluster, options)
    partitions = assigned.leaders.keys()
    starts = offsets_at(cluster, options, partitions, options.starting, starting=True)
    ends = offsets_at(cluster, options, partitions, options.ending, starting=False)
    ranges = [
        PartitionRange(
            topic=partition.topic,
            partition=partition.partition,
            start_offset=start,
            end_offset=ends[partition],
            topic_id=assigned.topic_ids[partition.topic],
            leader_hint=assigned.leaders[partition],
        )
        for partition, start in sorted(starts.items())
    ]
    ranges = _from_time(cluster, options, pushed.within(ranges), pushed.bounds.min_timestamp_ms)
    return [
        plan_of(options, part, pushed)
        for part in divide(ranges, options.min_partitions, options.max_records_per_partition)
    ]


def _from_time(
    cluster: Cluster, options: SourceOptions, ranges: list[PartitionRange], min_timestamp_ms: int | None
) -> list[PartitionRange]:
    """Leave out the offsets before the first record of the time: all of them are older."""
    if min_timestamp_ms is None or min_timestamp_ms < 0:
        return ranges
    wanted = {TopicPartition(part.topic, part.partition): min_timestamp_ms for part in ranges}
    first = list_offsets(cluster, wanted, options.isolation)
    left = []
    for part in ranges:
        offset = first[TopicPartition(part.topic, part.partition)].offset
        if offset != UNKNOWN_OFFSET and offset < part.end_offset:
            left.append(replace(part, start_offset=max(offset, part.start_offset)))
    return left


def plan_of(options: SourceOptions, part: PartitionRange, pushed: Pushed | None = None) -> ReadPlan:
    """Return what one task reads."""
    return ReadPlan(
        settings=options.settings,
        range=part,
        mode=options.mode,
        read_committed=options.settings.read_committed,
        include_headers=options.include_headers,
        fail_on_data_loss=options.fail_on_data_loss,
        filters=(pushed or Pushed()).bounds,
    )
