"""A batch query on the data folder of a stopped broker, by the option `path`: what each task reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from gregor.protocol.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.stopped import StoppedBroker
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.batch import plan_of
from gregor.spark_jobs.source.filters import Pushed
from gregor.spark_jobs.source.offsets import names
from gregor.spark_jobs.source.options import Limit, SourceOptions
from gregor.spark_jobs.source.planning import divide
from gregor.spark_jobs.source.resolve import check_names_all, report_data_loss

_NOT_OF_USERS = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}

Bounds = Mapping[TopicPartition, tuple[int, int]]


def plan_folder(options: SourceOptions, pushed: Pushed) -> list[ReadPlan]:
    """Return what each task reads of the folder. Raises JobError, also if a broker uses it."""
    assert options.folder is not None
    broker = StoppedBroker(options.folder)
    bounds = {
        partition: broker.bounds(partition.topic, partition.partition, options.settings.read_committed)
        for partition in _partitions(broker, options)
    }
    starts = _offsets_at(options, bounds, options.starting, starting=True)
    ends = _offsets_at(options, bounds, options.ending, starting=False)
    ranges = [PartitionRange(*key, start, ends[key]) for key, start in sorted(starts.items())]
    parts = divide(pushed.within(ranges), options.min_partitions, options.max_records_per_partition)
    return [replace(plan_of(options, part, pushed), folder=options.folder) for part in parts]


def _partitions(broker: StoppedBroker, options: SourceOptions) -> list[TopicPartition]:
    found = broker.topics()
    if options.assignment:
        wanted = list(options.assignment)
        missing = [key for key in wanted if key.partition not in found.get(key.topic, ())]
        if missing:
            raise JobError(f"assign names {names(missing)}, which the data folder {broker.folder} does not have")
        return wanted
    topics: Collection[str] = options.topics
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        topics = [topic for topic in found if topic not in _NOT_OF_USERS and pattern.fullmatch(topic)]
    absent = [topic for topic in topics if topic not in found]
    if absent:
        raise JobError(
            f"the data folder {broker.folder} has no partition of the topic {absent[0]}; it has partitions of "
            f"{', '.join(found) or 'no topic'}"
        )
    return [TopicPartition(topic, number) for topic in topics for number in found[topic]]


def _offsets_at(options: SourceOptions, bounds: Bounds, limit: Limit, starting: bool) -> dict[TopicPartition, int]:
    """Return the offsets of a limit within what the folder has."""
    given = limit.offsets
    if given is None:
        given = dict.fromkeys(bounds, EARLIEST if limit.everywhere is None else limit.everywhere)
    else:
        check_names_all(given, bounds.keys(), "Offsets", starting)
    offsets = {}
    for key, (first, end) in bounds.items():
        offset = {EARLIEST: first, LATEST: end}.get(given[key], given[key])
        if not first <= offset <= end:
            report_data_loss(
                options,
                f"{names([key])} has the offsets {first} to {end} in the data folder {options.folder}, and "
                f"{'starting' if starting else 'ending'}Offsets names {offset}",
            )
        offsets[key] = min(max(offset, first), end)
    return offsets
