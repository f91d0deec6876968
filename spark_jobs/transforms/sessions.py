"""Sessions of a key: its records with gaps shorter than a given time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sessions(rows: DataFrame, key: str, gap: str, watermark: str, sums: Mapping[str, str] | None = None) -> DataFrame:
    """Return rows `session_start`, `session_end`, `key`, `count` and one column per sum, from rows with `time`.

    A session begins with its first record and ends `gap` after its last one. In a stream, a session is finished when
    the watermark, the highest time seen less `watermark`, has passed its end.
    """
    selected = rows.select(
        "time",
        F.expr(key).cast("string").alias("key"),
        *[F.expr(one).alias(name) for name, one in (sums or {}).items()],
    )
    window = F.session_window("time", gap).alias("session")
    grouped = selected.withWatermark("time", watermark).groupBy(window, "key")
    totals = [F.sum(name).alias(name) for name in sums or {}]
    return grouped.agg(F.count("*").alias("count"), *totals).select(
        F.col("session.start").alias("session_start"),
        F.col("session.end").alias("session_end"),
        "key",
        "count",
        *(sums or {}),
    )
