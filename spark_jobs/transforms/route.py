"""Records filtered and mapped by SQL expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NESTED = ("struct", "array", "map")


def routed(
    rows: DataFrame,
    where: str | None = None,
    key: str | None = None,
    value: str | None = None,
    topic: str | None = None,
    keep_partition: bool = False,
) -> DataFrame:
    """Return records from rows with `raw_key` and `raw_value`, whose bytes stay unless an expression replaces them.

    Rows for which `where` is false or null are left out.
    """
    kept = rows if where is None else rows.filter(F.expr(where))
    columns = [
        F.col("raw_key").alias("key") if key is None else as_bytes(kept, key).alias("key"),
        F.col("raw_value").alias("value") if value is None else as_bytes(kept, value).alias("value"),
    ]
    if topic is not None:
        columns.append(F.expr(topic).cast("string").alias("topic"))
    if keep_partition:
        columns.append(F.col("partition"))
    return kept.select(*columns, "headers")


def as_bytes(rows: DataFrame, expression: str) -> Column:
    """Return the bytes of an expression: those of its text, of JSON for nested types, or the bytes that it is."""
    column = F.expr(expression)
    kind = rows.select(column.alias("one")).schema["one"].dataType.typeName()
    text = F.to_json(column) if kind in NESTED else column
    return text if kind == "binary" else text.cast("string").cast("binary")
