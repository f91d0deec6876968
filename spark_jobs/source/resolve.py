"""The partitions that a query reads, and the offsets of its limits, as the cluster has them now."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, UNKNOWN_OFFSET, list_offsets
from gregor.spark_jobs.client.retries import Retries
from gregor.spark_jobs.client.topics import Topic
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import Offsets, StreamOffset, names
from gregor.spark_jobs.source.options import Limit, SourceOptions

_log = logging.getLogger("gregor.spark_jobs.source")


@dataclass(frozen=True)
class Assigned:
    """The partitions of a query with their leaders (-1 for none), and the ids of their topics."""

    leaders: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, Uuid]

    def at(self, offsets: Offsets) -> StreamOffset:
        """Return the position at these offsets."""
        topics = {partition.topic for partition in offsets}
        return StreamOffset(offsets, {topic: self.topic_ids[topic] for topic in topics if topic in self.topic_ids})


def report_data_loss(options: SourceOptions, text: str) -> None:
    """Fail because of lost data, or log it if the option failOnDataLoss is false."""
    if options.fail_on_data_loss:
        raise JobError(
            f"{text}. Some data may have been lost because it is not available in Kafka any more; set failOnDataLoss "
            "to false to continue without it"
        )
    _log.warning("%s. Some data may have been lost; failOnDataLoss=true makes this an error", text)


def assigned_partitions(cluster: Cluster, options: SourceOptions, may_be_missing: bool = False) -> Assigned:
    """Return the partitions that the query subscribes to or names.

    A topic that does not exist is an error after the attempts of the options, unless it `may_be_missing`: a pattern
    matches only what exists. Other failures, such as brokers that do not respond, are retried until
    default.api.timeout.ms.
    """
    retries, until_it_exists = cluster.retrying(), None
    while True:
        try:
            return _assigned_now(cluster, options, may_be_missing)
        except KafkaFailure as failure:
            if failure.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                retries.after(failure)
                continue
            until_it_exists = until_it_exists or _attempts(cluster, options)
            until_it_exists.after(failure)


def _attempts(cluster: Cluster, options: SourceOptions) -> Retries:
    """Return the retries of fetchOffset.numRetries and fetchOffset.retryIntervalMs, from now on."""
    interval_ms = options.retry_interval_ms
    return cluster.retrying(interval_ms * (options.attempts - 1), interval_ms)


def _assigned_now(cluster: Cluster, options: SourceOptions, may_be_missing: bool) -> Assigned:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        topics = [
            topic for topic in cluster.topics().values() if not topic.is_internal and pattern.fullmatch(topic.name)
        ]
    else:
        wanted = options.topics or tuple(dict.fromkeys(partition.topic for partition in options.assignment))
        described = cluster.topics(wanted)
        topics = [
            described.get(name) or Topic(name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in wanted
        ]
    missing = may_be_missing or options.pattern is not None
    for topic in topics:
        if topic.error_code and not (missing and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise KafkaFailure(topic.error_code, _text_of(topic))
    found = [topic for topic in topics if not topic.error_code]
    leaders = {
        TopicPartition(topic.name, number): partition.leader
        for topic in found
        for number, partition in topic.partitions.items()
    }
    if options.assignment:
        absent = [partition for partition in options.assignment if partition not in leaders]
        if absent and not may_be_missing:
            raise KafkaFailure(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"assign names {names(absent)}, which do not exist"
            )
        leaders = {partition: leaders[partition] for partition in options.assignment if partition in leaders}
    return Assigned(leaders, {topic.name: topic.topic_id for topic in found})


def _text_of(topic: Topic) -> str:
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return (
            f"the topic {topic.name!r} does not exist; `gregor topics --list` shows the topics, and "
            f"`gregor topics --create --topic {topic.name}` makes it"
        )
    return f"the cluster does not describe the topic {topic.name!r}"


def offsets_at(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition], limit: Limit, starting: bool
) -> dict[TopicPartition, int]:
    """Return the offsets of a limit; raise JobError if it does not name all partitions, or matches no record."""
    if limit.everywhere is not None:
        unresolved = dict.fromkeys(partitions, limit.everywhere)
    elif limit.offsets is not None:
        check_names_all(limit.offsets, partitions, "Offsets", starting)
        unresolved = dict(limit.offsets)
    else:
        times = limit.timestamps_ms
        if times is None:
            times = dict.fromkeys(partitions, limit.timestamp_ms or 0)
        else:
            check_names_all(times, partitions, "OffsetsByTimestamp", starting)
        unresolved = _at_times(cluster, options, times, starting)
    return _resolved(cluster, options, unresolved)


def check_names_all(given: Offsets, partitions: Collection[TopicPartition], kind: str, starting: bool) -> None:
    """Raise JobError unless the offsets of an option name exactly these partitions."""
    if given.keys() != set(partitions):
        raise JobError(
            f"{'starting' if starting else 'ending'}{kind} must name all partitions that are read, with -1 for the "
            f"latest offset and -2 for the earliest. Given are {names(given)}; read are {names(partitions)}"
        )


def _at_times(cluster: Cluster, options: SourceOptions, times_ms: Offsets, starting: bool) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, times_ms, options.isolation)
    offsets = {}
    for partition, at in found.items():
        if at.offset == UNKNOWN_OFFSET and starting and not options.latest_if_no_match:
            raise JobError(
                f"{names([partition])} has no record with the timestamp {times_ms[partition]} or a later one; set "
                "startingOffsetsByTimestampStrategy to latest to start at its end"
            )
        offsets[partition] = LATEST if at.offset == UNKNOWN_OFFSET else at.offset
    return offsets


def _resolved(
    cluster: Cluster, options: SourceOptions, unresolved: Offsets, may_be_missing: bool = False
) -> dict[TopicPartition, int]:
    for partition, offset in unresolved.items():
        if offset < min(EARLIEST, LATEST):
            raise JobError(
                f"{offset} is no offset of {names([partition])}; give -1 for the latest, -2 for the earliest"
            )
    ends = {partition: offset for partition, offset in unresolved.items() if offset < 0}
    found = list_offsets(cluster, ends, options.isolation, may_be_missing)
    return {
        partition: found[partition].offset if offset < 0 else offset
        for partition, offset in unresolved.items()
        if offset >= 0 or partition in found
    }


def earliest_offsets(
    cluster: Cluster, options: SourceOptions, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition that exists."""
    return _resolved(cluster, options, dict.fromkeys(partitions, EARLIEST), may_be_missing=True)


def latest_offsets(cluster: Cluster, options: SourceOptions, known: Offsets) -> dict[TopicPartition, int]:
    """Return the end of each partition that is a key of `known`, whose values are offsets that were there before.

    A partition that was deleted meanwhile is left out. An end below such an offset may be one of a leader that has not
    caught up yet (KAFKA-7703): it is fetched again some times.
    """
    latest = _resolved(cluster, options, dict.fromkeys(known, LATEST), may_be_missing=True)
    retries = _attempts(cluster, options)
    while True:
        behind = [partition for partition, offset in latest.items() if offset < known[partition]]
        if not behind:
            return latest
        failure = KafkaFailure(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"the end of {names(behind)} is below an offset that was there before"
        )
        try:
            retries.after(failure)
        except KafkaFailure:
            return latest
        latest = {partition: offset for partition, offset in latest.items() if partition not in behind}
        latest |= _resolved(cluster, options, dict.fromkeys(behind, LATEST), may_be_missing=True)
