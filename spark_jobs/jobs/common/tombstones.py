"""Changes that a table may have missed: a topic keeps tombstones for delete.retention.ms only, and the records of one
that was deleted and made again begin at offset 0."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.configs import topic_configs
from gregor.spark_jobs.client.extent import Ranges, extent_of
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings

if TYPE_CHECKING:
    from gregor.spark_jobs.jobs.common.checkpoint import Folder
    from gregor.spark_jobs.jobs.common.options import Options

DELETE_RETENTION = "delete.retention.ms"
HOUR_MS = 3_600_000
DEFAULT_RETENTION_MS = 24 * HOUR_MS
REMEDY = "--reconcile deletes such rows: it reads the whole topic once"


def missed_tombstones(checkpoint: Folder, options: Options, is_new: bool) -> str | None:
    """Return a line if tombstones may have been removed from the topic since the last batch, or None.

    `is_new` is for a new checkpoint of a table that has rows: nothing is known about the time before.
    """
    topic = options.topics[0]
    if is_new:
        return (
            f"the table has rows and the checkpoint is new: rows whose tombstones {topic} does not keep any more stay; "
            f"{REMEDY}"
        )
    last_ms = checkpoint.modified_ms("commits/[0-9]*")
    if last_ms is None:
        return None
    return pause_problem(topic, time.time() * 1000 - last_ms, *retention_of(topic, options))


def pause_problem(topic: str, pause_ms: float, retention_ms: int, is_known: bool) -> str | None:
    """Return a line if a pause is longer than the topic keeps tombstones, or None."""
    if pause_ms <= retention_ms:
        return None
    of = (
        f"{DELETE_RETENTION} of {topic}"
        if is_known
        else f"{DELETE_RETENTION} by default (that of {topic} is not known)"
    )
    return (
        f"the last batch was {_duration(pause_ms)} ago, and {of} is {_duration(retention_ms)}: tombstones"
        f" may have been removed that this job has not read, so that their rows stay; {REMEDY}"
    )


def _duration(ms: float) -> str:
    return f"{ms / HOUR_MS:,.1f} hours" if ms >= HOUR_MS else f"{ms / 1000:,.1f} seconds"


def retention_of(topic: str, options: Options) -> tuple[int, bool]:
    """Return how long a topic keeps tombstones, and whether that is known; else the default is returned."""
    try:
        settings = ClientSettings.from_options(options.client | {"kafka.bootstrap.servers": options.bootstrap_server})
        with Cluster(settings) as cluster:
            return int(topic_configs(cluster, topic, [DELETE_RETENTION])[DELETE_RETENTION]), True
    except (KafkaFailure, KeyError):
        return DEFAULT_RETENTION_MS, False


def ranges_of(topic: str, options: Options) -> Ranges | None:
    """Return the offsets that the partitions of a topic have; None where they are not known, as where only Spark's
    connector has the security of the client."""
    try:
        settings = ClientSettings.from_options(options.client | {"kafka.bootstrap.servers": options.bootstrap_server})
        with Cluster(settings) as cluster:
            return extent_of(cluster, topic).ranges
    except KafkaFailure:
        return None


def offset_problem(topic: str, stored: Mapping[int, int], ranges: Ranges) -> str | None:
    """Return a line if a partition ends at or below the highest offset that the table has of it, or None."""
    for partition, offset in sorted(stored.items()):
        end = ranges.get(TopicPartition(topic, partition), (0, 0))[1]
        if offset >= end:
            return (
                f"the table has a row of {topic}-{partition} at offset {offset}, and the partition ends at {end}: the "
                "topic was deleted and made again, or has lost records. By their offsets such rows would win against "
                "its records; give --reconcile, which replaces them, and another --checkpoint"
            )
    return None
