"""Tombstones that a job may have missed: a topic keeps them for delete.retention.ms only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.configs import topic_configs
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
