"""Change records in the format of Debezium as changes of a table.

A record is one of these:

* an envelope with `op`, `before` and `after`: `c` created, `r` read by a snapshot, `u` updated, `d` deleted;
* an envelope in `payload`, beside the `schema` that Kafka Connect's JsonConverter adds;
* a row, flattened by ExtractNewRecordState. Its fields that begin with two underscores are no columns; a deletion has
  `__deleted` as the text or the value true, or `__op` as `d`;
* a tombstone, a null value, which follows a deletion and survives compaction alone.

A truncation (`t`) and a logical message (`m`) are no changes of a row, and have a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.value_format import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETE = "_gregor_delete"
KEY = "_gregor_key"
OPERATIONS = ("c", "r", "u", "d")
ADDED = "__"
"""The beginning of the fields that ExtractNewRecordState adds to a row."""


def changes(rows: DataFrame, key_columns: Sequence[str], values: ValueFormat) -> DataFrame:
    """Return decoded rows with the row after the change in `value` and the flag `_gregor_delete`.

    The key columns of `value` are set also for deletions: from `before`, or from the key of the record, which is JSON
    of these columns with or without a schema, or Avro by the registry of the values. The other columns of a deletion
    are null. A record that is no change, or has no key, gets a `problem`. Raise JobError if the values have none of the
    forms, or lack a key column.
    """
    kind = rows.schema["value"].dataType
    if not isinstance(kind, T.StructType):
        raise JobError(
            f"change records are fields, and the values are {kind.simpleString()}; give their --value-format"
        )
    envelope, value = kind, F.col("value")
    if "payload" in kind.names and isinstance(kind["payload"].dataType, T.StructType):
        envelope, value = kind["payload"].dataType, value["payload"]
    if {"op", "after"} <= set(envelope.names):
        after, before, deleted, problem = _of_envelope(envelope, value, key_columns)
        columns = envelope["after"].dataType
    else:
        after, before, deleted, problem = _of_row(envelope, value)
        columns = T.StructType([one for one in envelope if not one.name.startswith(ADDED)])
    if not isinstance(columns, T.StructType) or not columns.names:
        raise JobError(f"the values are no change records: {kind.simpleString()} has neither op and after, nor columns")
    missing = [name for name in key_columns if name not in columns.names]
    if missing:
        raise JobError(f"the change records have no column {missing[0]}, only {', '.join(columns.names)}")
    tombstone = F.col("raw_value").isNull()
    deleted = tombstone | F.coalesce(deleted, F.lit(False))
    flagged = with_key(rows.withColumn(DELETE, deleted), T.StructType([columns[name] for name in key_columns]), values)
    row = F.struct(*[_column(one, key_columns, after, before).alias(one.name) for one in columns])
    changed = flagged.withColumn("_row", row)
    no_key = F.lit(False)
    for name in key_columns:
        no_key = no_key | F.col("_row")[name].isNull()
    without_key = F.when(no_key, F.lit(f"the change has no value of the key {', '.join(key_columns)}"))
    problem = F.coalesce(F.col("problem"), F.when(~tombstone, problem), without_key)
    return changed.withColumns({"value": F.col("_row"), "problem": problem}).drop("_row", KEY)


def _of_envelope(
    envelope: T.StructType, value: Column, key_columns: Sequence[str]
) -> tuple[Column, Column | None, Column, Column]:
    """Return the row after and before the change, whether it is a deletion, and the problem."""
    operation, after = value["op"], value["after"]
    row_before = envelope["before"].dataType if "before" in envelope.names else None
    has_key = isinstance(row_before, T.StructType) and set(key_columns) <= set(row_before.names)
    before = value["before"] if has_key else None
    problem = F.when(
        operation.isNull() | ~operation.isin(*OPERATIONS),
        F.concat(F.lit("the operation "), F.coalesce(operation, F.lit("null")), F.lit(" is no change of a row")),
    ).when((operation != "d") & after.isNull(), F.lit("the change has no row after it"))
    return after, before, operation == "d", problem


def _of_row(row: T.StructType, value: Column) -> tuple[Column, Column | None, Column, Column]:
    """Return the same of a flattened row."""
    deleted = F.lit(False)
    if "__deleted" in row.names:
        deleted = F.coalesce(value["__deleted"].cast("string") == "true", F.lit(False))
    if "__op" in row.names:
        deleted = deleted | F.coalesce(value["__op"] == "d", F.lit(False))
    return value, value, deleted, F.lit(None).cast("string")


def with_key(rows: DataFrame, kind: T.StructType, values: ValueFormat) -> DataFrame:
    """Return rows with the key of the record of a deletion in KEY; null where it cannot be decoded."""
    raw = F.when(F.col(DELETE), F.col("raw_key"))
    if values.kind == "avro" and values.registry is not None:
        from gregor.spark_jobs.formats.parsing import avro_key

        return rows.withColumn(KEY, avro_key(raw, kind, values.registry))
    shape = T.StructType([*kind, T.StructField("payload", kind)])
    found = F.from_json(raw.cast("string"), shape)
    fields = [F.coalesce(found["payload"][one.name], found[one.name]).alias(one.name) for one in kind]
    return rows.withColumn(KEY, F.struct(*fields))


def _column(column: T.StructField, key_columns: Sequence[str], after: Column, before: Column | None) -> Column:
    """Return a column of the row after the change."""
    name, deleted = column.name, F.col(DELETE)
    if name not in key_columns:
        return F.when(~deleted, after[name])
    of_deletion = [] if before is None else [before[name].cast(column.dataType)]
    return F.when(deleted, F.coalesce(*of_deletion, F.col(KEY)[name])).otherwise(after[name])
