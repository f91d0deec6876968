"""A streaming query: its positions, what each micro-batch reads, and the offsets that it commits.

Partitions that are new in a position are read from their earliest offset; those of a topic with another id are new.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import PartitionRange, ReadPlan
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.offsets import commit_offsets
from gregor.spark_jobs.source.admission import TriggerDelay, capped
from gregor.spark_jobs.source.batch import plan_of
from gregor.spark_jobs.source.offsets import StreamOffset, names
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.planning import divide
from gregor.spark_jobs.source.resolve import (
    Assigned,
    assigned_partitions,
    earliest_offsets,
    latest_offsets,
    offsets_at,
    report_data_loss,
)

_log = logging.getLogger("gregor.spark_jobs.source")


class Stream:
    """The driver's side of one streaming query."""

    def __init__(self, cluster: Cluster, options: SourceOptions, now_ms: Callable[[], float]) -> None:
        self._cluster = cluster
        self._options = options
        self._now_ms = now_ms
        self._delay = TriggerDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms)
        self._ends = options.stream_end is not None
        self._target: StreamOffset | None = None
        self._first: StreamOffset | None = None
        self.newest: StreamOffset | None = None
        """The ends of the partitions at the last call of `latest`."""

    def initial(self) -> StreamOffset:
        """Return the position at which a new query starts."""
        self._cluster.refresh()
        assigned = assigned_partitions(self._cluster, self._options)
        offsets = offsets_at(
            self._cluster, self._options, assigned.leaders.keys(), self._options.starting, starting=True
        )
        self._first = assigned.at(offsets)
        return self._first

    def stop_at_present_end(self) -> None:
        """End at the records that are there at the next call of `latest` (trigger available-now)."""
        self._ends = True
        self._target = None

    def latest(self, start: StreamOffset, limited: bool = True) -> StreamOffset:
        """Return the end of the batch that begins at `start`; if `limited`, by the options for the size of batches.

        It is `start` itself if there is nothing to read, since Spark begins a batch for each other text.
        """
        end = self._limited_end(start, limited)
        if end.offsets == start.offsets and not start.recreated(end):
            return start
        return replace(end, begin=start if self._is_first(start) else None)

    def _is_first(self, position: StreamOffset) -> bool:
        """Return whether this is the position that `initial` has returned."""
        return self._first is not None and position.offsets == self._first.offsets

    def _limited_end(self, start: StreamOffset, limited: bool) -> StreamOffset:
        newest = self._newest(start)
        self.newest = newest
        if not limited:
            return newest
        if self._waits(start, newest):
            return start
        if self._options.max_offsets_per_trigger is None:
            return newest
        starts = {**start.offsets}
        new = self._new_partitions(start, newest)
        if new:
            starts |= earliest_offsets(self._cluster, self._options, new)
        return StreamOffset(capped(starts, newest.offsets, self._options.max_offsets_per_trigger), newest.topic_ids)

    def _newest(self, start: StreamOffset) -> StreamOffset:
        """Return how far there are records to read: the fixed end of a stream that has one, else the present one."""
        if self._options.stream_end is not None:
            return self._options.stream_end.not_before(start)
        if not self._ends:
            return self._fetch_newest(start)
        if self._target is None:
            self._target = self._fetch_newest(start)
        return self._target

    def _waits(self, start: StreamOffset, newest: StreamOffset) -> bool:
        """Return whether the next batch waits for more records, which it never does where no more are to come."""
        if self._ends or self._options.min_offsets_per_trigger is None:
            return False
        return self._delay.waits(start.offsets, newest.offsets, self._now_ms())

    def _fetch_newest(self, start: StreamOffset) -> StreamOffset:
        """Return the ends of all partitions. A topic that is deleted between its description and the request for its
        ends is described again."""
        self._cluster.refresh()
        retries = self._cluster.retrying()
        may_be_missing = not self._options.fail_on_data_loss and bool(start.offsets)
        while True:
            assigned = assigned_partitions(self._cluster, self._options, may_be_missing)
            latest = latest_offsets(self._cluster, self._options, self._known(start, assigned))
            gone = assigned.leaders.keys() - latest.keys()
            if not gone:
                return assigned.at(latest)
            text = f"{names(gone)} were deleted while their ends were requested"
            retries.after(KafkaFailure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))

    def _known(self, start: StreamOffset, assigned: Assigned) -> dict[TopicPartition, int]:
        """Return the offsets that were there before; 0 for a new partition."""
        again = start.recreated(StreamOffset({}, assigned.topic_ids))
        return {
            partition: 0 if partition.topic in again else start.offsets.get(partition, 0)
            for partition in assigned.leaders
        }

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[ReadPlan]:
        """Return what each task of the batch between two positions reads.

        A first batch that is repeated begins at the `begin` of its end. A later batch may have one, too: before Spark
        4.2 the trigger available-now requests its end before it names the position where the query continues.
        """
        if end.begin is not None and self._is_first(start):
            start = end.begin
        if start.offsets == end.offsets and not start.recreated(end):
            return []
        self._report_lost_partitions(start, end)
        new = self._new_partitions(start, end)
        starts = {**start.offsets, **self._starts_of_new(new)}
        described = self._described(end)
        ranges = []
        for partition, offset in sorted(end.offsets.items()):
            if partition in new and partition not in starts:
                continue
            first = starts[partition]
            if offset < first and partition not in new:
                report_data_loss(
                    self._options,
                    f"the end of {names([partition])} has changed from {first} to {offset}: its records were truncated",
                )
            ranges.append(
                PartitionRange(
                    topic=partition.topic,
                    partition=partition.partition,
                    start_offset=first,
                    end_offset=offset,
                    topic_id=end.id_of(partition.topic),
                    leader_hint=described.leaders.get(partition, -1),
                )
            )
        parts = divide(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [plan_of(self._options, part) for part in parts]

    def commit(self, end: StreamOffset) -> None:
        """Commit the position to the group of the query, if the options name one."""
        group_id = group_of(self._options)
        if group_id is None:
            return
        gone = commit_offsets(self._cluster, group_id, end.offsets)
        if gone:
            _log.warning("The offsets of %s were not committed to %s: they do not exist.", names(gone), group_id)

    def _new_partitions(self, start: StreamOffset, end: StreamOffset) -> set[TopicPartition]:
        again = start.recreated(end)
        return {partition for partition in end.offsets if partition not in start.offsets or partition.topic in again}

    def _report_lost_partitions(self, start: StreamOffset, end: StreamOffset) -> None:
        for topic in sorted(start.recreated(end)):
            lost = [partition for partition in start.offsets if partition.topic == topic]
            report_data_loss(
                self._options,
                f"the topic {topic!r} was deleted and created again: it is read from its earliest offsets, and what "
                f"was left of {names(lost)} is gone",
            )
        gone = start.offsets.keys() - end.offsets.keys()
        gone = {partition for partition in gone if partition.topic not in start.recreated(end)}
        if gone:
            report_data_loss(self._options, f"{names(gone)} are gone: their topic was deleted")

    def _starts_of_new(self, new: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the earliest offsets of new partitions; those that are gone by now are left out."""
        if not new:
            return {}
        self._cluster.refresh()
        found = earliest_offsets(self._cluster, self._options, new)
        gone = set(new) - found.keys()
        if gone:
            report_data_loss(self._options, f"{names(gone)} are gone before they were read: their topic was deleted")
        for partition, offset in sorted(found.items()):
            if offset:
                report_data_loss(
                    self._options, f"the new partition {names([partition])} starts at the offset {offset} instead of 0"
                )
        return found

    def _described(self, end: StreamOffset) -> Assigned:
        """Return the leaders as far as they are known: tasks find the present ones themselves."""
        try:
            topics = self._cluster.topics(sorted({partition.topic for partition in end.offsets}))
        except KafkaFailure:
            return Assigned({}, {})
        leaders = {
            TopicPartition(topic.name, number): partition.leader
            for topic in topics.values()
            for number, partition in topic.partitions.items()
        }
        return Assigned(leaders, {})


def group_of(options: SourceOptions) -> str | None:
    """Return the group to which a query commits: kafka.group.id, or one of the prefix groupIdPrefix and the topics.

    The connector's groups of a prefix end in a random id. Here the name stays the same over restarts, so that lag
    tools show one group per query.
    """
    if options.settings.group_id:
        return options.settings.group_id
    if options.group_id_prefix is None:
        return None
    source = repr((sorted(options.topics), options.pattern, sorted(options.assignment)))
    return f"{options.group_id_prefix}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
