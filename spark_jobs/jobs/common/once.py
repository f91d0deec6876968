"""`--once` with a limit of offsets per batch, on Spark before 4.2, where a Python source knows neither its trigger nor
the limit.

The end of each stream is fixed before the query starts, as an option of its source, and is kept in the checkpoint: a
run that is started again after a failure ends at the same records. The query runs with the usual trigger until there is
no batch left up to that end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.retries import SystemClock
from gregor.spark_jobs.jobs.common.checkpoint import Folder
from gregor.spark_jobs.jobs.common.sinks import checkpoint_of
from gregor.spark_jobs.source.checkpoint import last_positions, positions_of
from gregor.spark_jobs.source.offsets import StreamOffset
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gregor.spark_jobs.jobs.common.options import Options

ENDS = "gregor-ends.json"
"""The file in the checkpoint: the end of the stream of each topic, in the form of an offset of a checkpoint."""
LIMIT = "maxoffsetspertrigger"
SPARK_WITH_ADMISSION_CONTROL = (4, 2)


def is_repeated(spark: SparkSession, options: Options) -> bool:
    """Return whether the run needs a fixed end, because Spark would end it after its first batch."""
    if options.source != "gregor" or options.trigger != "available-now":
        return False
    capped = options.max_offsets_per_trigger is not None or LIMIT in map(str.lower, options.source_options)
    major, minor = spark.version.split(".")[:2]
    return capped and (int(major), int(minor)) < SPARK_WITH_ADMISSION_CONTROL


def fixed_end(spark: SparkSession, options: Options, topic: str, source: Mapping[str, str]) -> str:
    """Return the end of the stream of a topic: that of the interrupted run of the checkpoint, else the present one.

    `source` are the options of the stream.
    """
    checkpoint = checkpoint_of(options)
    folder = None if checkpoint is None else Folder(spark, checkpoint)
    ends = {} if folder is None else unreached_ends(folder)
    if topic not in ends:
        made = SourceOptions.from_options(source, streaming=True)
        with Cluster(made.settings) as cluster:
            ends[topic] = Stream(cluster, made, SystemClock().now_ms).latest(StreamOffset({}), limited=False).to_json()
        if folder is not None:
            folder.write(ENDS, json.dumps(ends, indent=1))
    return json.dumps(ends[topic])


def unreached_ends(folder: Folder) -> dict[str, Any]:
    """Return the ends of a run that began a batch and did not reach them; empty if there is none such."""
    text = folder.read(ENDS) if folder.names("offsets/[0-9]*") else None
    ends: dict[str, Any] = json.loads(text) if text else {}
    reached = positions_of(last_positions(folder)) if ends else []
    open_ends = [end for end in map(StreamOffset.from_json, ends.values()) if not any(map(end.is_reached_by, reached))]
    return ends if open_ends else {}


def forget_end(spark: SparkSession, checkpoint: str) -> None:
    """Remove the end of an interrupted run: this one has another."""
    folder = Folder(spark, checkpoint)
    if folder.names(ENDS):
        folder.write(ENDS, "{}")


def stop_at_end(query: StreamingQuery) -> StreamingQuery:
    """Let the query be stopped when there is no batch left, and return it at once.

    Its failure is raised where its end is awaited.
    """
    threading.Thread(target=_stop_without_batches, args=(query,), name="end of the query", daemon=True).start()
    return query


def _stop_without_batches(query: StreamingQuery) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        query.processAllAvailable()
        query.stop()
    except (PySparkException, Py4JError, OSError):
        return  # of a query that has failed, or whose session has ended
