"""Counts and sums by key in windows of the event time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def windowed(
    rows: DataFrame, key: str, length: str, slide: str | None, watermark: str, sums: Mapping[str, str] | None = None
) -> DataFrame:
    """Return rows `window_start`, `window_end`, `key`, `count` and one column per sum, from rows with `time`.

    Windows begin at multiples of `slide` (of `length` for tumbling windows) since 1970 in UTC. In a stream, a row whose
    window ended before the watermark, the highest time seen less `watermark`, is dropped.
    """
    selected = rows.select(
        "time",
        F.expr(key).cast("string").alias("key"),
        *[F.expr(one).alias(name) for name, one in (sums or {}).items()],
    )
    grouped = selected.withWatermark("time", watermark).groupBy(F.window("time", length, slide).alias("window"), "key")
    totals = [F.sum(name).alias(name) for name in sums or {}]
    return grouped.agg(F.count("*").alias("count"), *totals).select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "key",
        "count",
        *(sums or {}),
    )
