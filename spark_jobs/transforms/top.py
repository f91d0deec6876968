"""The most frequent keys of each window, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def heavy_hitters(
    rows: DataFrame, key: str, count: int, length: str, slide: str | None, watermark: str, tracked: int
) -> DataFrame:
    """Return rows `window_start`, `window_end`, `rank`, `key`, `count`, from rows with `time`.

    A window holds at most `tracked` keys with their estimated counts (a frequent items sketch). Below three quarters of
    `tracked` different keys the counts are exact; beyond, they are estimates, and rare keys are lost first. A null
    key is left out.
    """
    selected = rows.select("time", F.expr(key).cast("string").alias("key")).filter("key IS NOT NULL")
    window = F.window("time", length, slide).alias("window")
    top = F.expr(f"approx_top_k(key, {count}, {tracked})").alias("top")
    ranked = selected.withWatermark("time", watermark).groupBy(window).agg(top)
    return ranked.select("window", F.posexplode("top").alias("position", "one")).select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        (F.col("position") + 1).alias("rank"),
        F.col("one.item").alias("key"),
        F.col("one.count").alias("count"),
    )
