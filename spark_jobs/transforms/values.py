"""The values of records as columns: bytes, text or JSON, with or without the five bytes of a schema registry.

`decoded` adds `problem`: the reason why a value cannot be decoded, null if it can. A null value (a tombstone) is no
problem. The columns of the record stay, so that a record with a problem can be stored as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RAW = ("raw_key", "raw_value")
REGISTRY_BYTES = 5
"""A zero byte and the id of the schema in four bytes (Confluent's wire format)."""
_CORRUPT = "_corrupt_record"


def decoded(records: DataFrame, kind: str, schema: T.StructType | None = None, registry: bool = False) -> DataFrame:
    """Return records with `key` as text, `value` of its kind, the raw bytes, and `problem`."""
    payload = F.expr(f"substring(value, {REGISTRY_BYTES + 1})") if registry else F.col("value")
    if kind == "json":
        assert schema is not None
        value, problem = decoded_json(payload, schema)
    elif kind == "text":
        value, problem = decoded_text(payload)
    else:
        value, problem = payload, F.lit(None).cast("string")
    if registry:
        marked = (F.length("value") >= REGISTRY_BYTES) & (F.substring(F.hex("value"), 1, 2) == "00")
        problem = F.when(~marked, "the value does not begin with the five bytes of a schema registry").otherwise(
            problem
        )
    others = [name for name in records.columns if name not in ("key", "value")]
    return records.select(
        F.col("key").cast("string").alias("key"),
        value.alias("value"),
        *others,
        F.col("key").alias("raw_key"),
        F.col("value").alias("raw_value"),
        F.when(F.col("value").isNotNull(), problem).alias("problem"),
    )


def decoded_text(payload: Column) -> tuple[Column, Column]:
    """Return the text and the problem of a value."""
    text = payload.cast("string")
    return text, F.when(~F.is_valid_utf8(text), "the value is not UTF-8")


def decoded_json(payload: Column, schema: T.StructType) -> tuple[Column, Column]:
    """Return the struct and the problem of a value."""
    text = payload.cast("string")
    with_corrupt = T.StructType([*schema.fields, T.StructField(_CORRUPT, T.StringType())])
    parsed = F.from_json(text, with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT})
    wrong = parsed.isNull() | parsed.getField(_CORRUPT).isNotNull()
    reason = F.when(F.try_parse_json(text).isNull(), "the value is not JSON").otherwise(
        f"the value does not fit the schema {schema.simpleString()}"
    )
    return parsed.dropFields(_CORRUPT), F.when(wrong, reason)


def with_time(rows: DataFrame, expression: str) -> DataFrame:
    """Return rows with the event time in `time`; a row without one gets a problem."""
    timed = rows.withColumn("time", F.expr(f"try_cast(({expression}) AS TIMESTAMP)"))
    missing = F.when(F.col("time").isNull(), f"the event time {expression} is null or no timestamp")
    return timed.withColumn("problem", F.coalesce("problem", missing))
