"""The values of records as columns, with or without the five bytes of a schema registry.

`decoded` adds `problem`: the reason why a value cannot be decoded, null if it can. A null value (a tombstone) is no
problem. The columns of the record stay, so that a record with a problem can be stored as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from gregor.spark_jobs.formats.framing import FRAME_BYTES, NO_FRAME
from gregor.spark_jobs.formats.types import struct_of
from gregor.spark_jobs.formats.value_format import DECODED_IN_PYTHON, ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt_record"
_MARK = "_gregor_end"


def decoded(records: DataFrame, values: ValueFormat) -> DataFrame:
    """Return records with `key` as text, `value` of its kind, the raw bytes, and `problem`."""
    if values.kind in DECODED_IN_PYTHON:
        from gregor.spark_jobs.formats.parsing import with_parsed

        records = with_parsed(records, values)
        value, problem = F.col("parsed.value"), F.col("parsed.problem")
    else:
        value, problem = decoded_in_spark(values)
    others = [name for name in records.columns if name not in ("key", "value", "parsed")]
    return records.select(
        F.col("key").cast("string").alias("key"),
        value.alias("value"),
        *others,
        F.col("key").alias("raw_key"),
        F.col("value").alias("raw_value"),
        F.when(F.col("value").isNotNull(), problem).alias("problem"),
    )


def decoded_in_spark(values: ValueFormat) -> tuple[Column, Column]:
    """Return the value and the problem of the kinds for which Spark has functions."""
    payload = F.expr(f"substring(value, {FRAME_BYTES + 1})") if values.framed else F.col("value")
    if values.kind == "json":
        assert values.schema is not None
        value, problem = decoded_json(payload, struct_of(values.schema))
    elif values.kind == "text":
        value, problem = decoded_text(payload)
    else:
        value, problem = payload, F.lit(None).cast("string")
    if values.framed:
        marked = (F.length("value") >= FRAME_BYTES) & (F.substring(F.hex("value"), 1, 2) == "00")
        problem = F.when(~marked, NO_FRAME).otherwise(problem)
    return value, problem


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
    followed = F.when(~_is_alone(text), "the value has more than one JSON object, or something behind it")
    return parsed.dropFields(_CORRUPT), F.when(wrong, reason).otherwise(followed)


def _is_alone(text: Column) -> Column:
    """Return whether nothing but white space follows the JSON value with which a text begins.

    Spark's functions read the first value of a text only, and are silent about the rest. In an array whose second
    element is the mark, the mark comes behind that value.
    """
    mark = T.StructType([T.StructField(_MARK, T.BooleanType())])
    array = F.concat(F.lit("["), text, F.lit(f',{{"{_MARK}":true}}]'))
    return F.coalesce(F.get(F.from_json(array, T.ArrayType(mark)), 1).getField(_MARK), F.lit(False))


def with_time(rows: DataFrame, expression: str) -> DataFrame:
    """Return rows with the event time in `time`; a row without one gets a problem."""
    timed = rows.withColumn("time", F.expr(f"try_cast(({expression}) AS TIMESTAMP)"))
    missing = F.when(F.col("time").isNull(), f"the event time {expression} is null or no timestamp")
    return timed.withColumn("problem", F.coalesce("problem", missing))
