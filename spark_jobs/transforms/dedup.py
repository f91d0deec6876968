"""Rows without duplicates, by an id and the event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicated(rows: DataFrame, key: str, within: str) -> DataFrame:
    """Return the first row of each id, from rows with `time`; the columns are those of the rows.

    Of rows with the same id whose event times lie less than `within` apart one is returned. Spark does not compare the
    times: until an id is forgotten all its later rows are dropped, however far apart. It is forgotten once the
    watermark, the highest event time of the batches before less `within`, has passed its first row by `within`. Rows
    behind the watermark are dropped, as whether they are duplicates is no longer known.
    """
    identified = rows.withColumn("_id", F.expr(key)).withWatermark("time", within)
    return identified.dropDuplicatesWithinWatermark(["_id"]).drop("_id")
