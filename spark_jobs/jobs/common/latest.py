"""The latest value of each key of a topic, kept from batch to batch: only appended records are read.

The offsets of the topic are fetched before each batch. Without new ones the table is used as it is; new
ones are read alone and merged into it. The table is read as a whole when records that it has were deleted, and after
MAX_ADDITIONS, because the plan of the table grows with each addition.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.extent import Extent, Ranges, appended, extent_of, size_of
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.jobs.common.values import decoded_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_ADDITIONS = 30


class LatestTable:
    """The table of one topic, for the batches of one query."""

    def __init__(self, spark: SparkSession, options: Any, topic: str, key: str) -> None:
        self._spark, self._options = spark, options
        self._topic, self._key = topic, key
        self._settings = ClientSettings.from_options(
            options.client | {"kafka.bootstrap.servers": options.bootstrap_server}
        )
        self._known: Extent | None = None
        self._newest: DataFrame | None = None
        self._additions = 0
        self.offsets_read = 0
        """The number of offsets that were read since the start."""

    def rows(self) -> DataFrame:
        """Return the rows `table_key` and `table_value` that the topic has now."""
        from gregor.spark_jobs.transforms.join import latest_of

        with Cluster(self._settings) as cluster:
            now = extent_of(cluster, self._topic)
        added = appended(self._known, now)
        if self._newest is None or added is None or (added and self._additions >= MAX_ADDITIONS):
            self._replace(self._read(now.ranges))
            self._additions = 0
        elif added:
            self._replace(self._newest.union(self._read(added)))
            self._additions += 1
        self._known = now
        assert self._newest is not None
        return latest_of(self._newest)

    def _replace(self, records: DataFrame) -> None:
        """Compute the table from these records before the one of before is dropped."""
        from gregor.spark_jobs.transforms.join import newest_records

        before, self._newest = self._newest, newest_records(records).persist()
        self._newest.count()
        if before is not None:
            before.unpersist()

    def _read(self, ranges: Ranges) -> DataFrame:
        from gregor.spark_jobs.transforms.join import keyed_records

        self.offsets_read += size_of(ranges)
        return keyed_records(decoded_batch(self._spark, self._options, self._topic, limits(ranges)), self._key)


def limits(ranges: Ranges) -> dict[str, str]:
    """Return ranges as options of the source."""
    numbers: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (start, end) in sorted(ranges.items()):
        numbers.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = end
    return {
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
