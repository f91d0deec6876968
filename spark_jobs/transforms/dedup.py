"""Rows without duplicates, by an id and the event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicated(rows: DataFrame, key: str, within: str) -> DataFrame:
    """Return the first row of each id, from rows with `time`; the columns are those of the rows.

    A row is a duplicate if an earlier one has the same id and its event time lies less than `within` away. In a stream
    the ids are forgotten once the watermark, the highest event time less `within`, has passed them by `within`. Rows
    behind the watermark are dropped, as whether they are duplicates is no longer known.
    """
    identified = rows.withColumn("_id", F.expr(key)).withWatermark("time", within)
    return identified.dropDuplicatesWithinWatermark(["_id"]).drop("_id")
