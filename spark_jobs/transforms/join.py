"""Joins of a stream with another stream, or with the latest value of each key of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def within_time(
    left: DataFrame, right: DataFrame, left_key: str, right_key: str, within: str, watermark: str, how: str = "inner"
) -> DataFrame:
    """Return rows `key`, `left_time`, `right_time`, `left_value`, `right_value` of each pair of rows with `time`.

    A pair has the same key, and event times at most `within` apart. `how` is inner, or left: then a row without a
    partner comes once, without one, when the watermark has passed the time in which a partner could come.
    """
    left_rows = left.select(
        F.expr(left_key).cast("string").alias("key"),
        F.col("time").alias("left_time"),
        F.col("value").alias("left_value"),
    ).withWatermark("left_time", watermark)
    right_rows = right.select(
        F.expr(right_key).cast("string").alias("right_key"),
        F.col("time").alias("right_time"),
        F.col("value").alias("right_value"),
    ).withWatermark("right_time", watermark)
    span = f"INTERVAL '{within}'"
    near = F.expr(f"key = right_key AND right_time >= left_time - {span} AND right_time <= left_time + {span}")
    joined = left_rows.join(right_rows, near, "left_outer" if how == "left" else "inner")
    return joined.select("key", "left_time", "right_time", "left_value", "right_value")


def keyed_records(rows: DataFrame, key: str) -> DataFrame:
    """Return the records of a table with their `table_key`; those without a key are left out."""
    keyed = rows.select(F.expr(key).cast("string").alias("table_key"), "value", "partition", "offset", "timestamp")
    return keyed.filter("table_key IS NOT NULL")


def newest_records(records: DataFrame) -> DataFrame:
    """Return of each key and partition the record with the highest offset, with the same columns."""
    newest = F.max_by(F.struct("value", "offset", "timestamp"), "offset").alias("newest")
    rows = records.groupBy("table_key", "partition").agg(newest)
    return rows.select("table_key", "newest.value", "partition", "newest.offset", "newest.timestamp")


def latest_of(newest: DataFrame) -> DataFrame:
    """Return rows `table_key`, `table_value`: the latest value of each key, from its newest records.

    Of a key that is in two partitions, as after growth of the topic, the record with the later timestamp wins, then
    that of the higher partition. A key whose latest value is null is left out.
    """
    value = F.max_by(F.struct("value"), F.struct("timestamp", "partition")).alias("latest")
    latest = newest.groupBy("table_key").agg(value)
    return latest.select("table_key", F.col("latest.value").alias("table_value")).filter("table_value IS NOT NULL")


def with_latest(rows: DataFrame, table: DataFrame, key: str, how: str = "inner") -> DataFrame:
    """Return rows `key`, `left_time`, `left_value`, `right_value`, with the value of the key in the table."""
    left = rows.select(
        F.expr(key).cast("string").alias("key"), F.col("time").alias("left_time"), F.col("value").alias("left_value")
    )
    joined = left.join(table, F.col("key") == F.col("table_key"), "left_outer" if how == "left" else "inner")
    return joined.select("key", "left_time", "left_value", F.col("table_value").alias("right_value"))
