"""The changes that the records of a compacted topic make to a table of the latest row per key.

Within a partition the highest offset wins, and a tombstone deletes. A key that is in two partitions, as after growth
of the topic, has the row of the partition that received a record of the key at the latest timestamp; of two partitions
with the same latest timestamp, that of the higher number. A table row keeps its partition and offset, and as
`_timestamp` the latest one of its key in that partition: rows are the same however the records are cut into batches.

A deletion leaves no row. An older record of the key in another partition therefore inserts the row again if it is read
in a later batch than the tombstone; in one batch the tombstone wins. `writer.reconcile` deletes such rows. It also
replaces rows whose records are not in the topic any more, as after the topic was deleted and made again: by their
offsets they would win against its records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables.target import DAY, DELETE, HOUR, OFFSET, PARTITION, POSITION, TIMESTAMP, Layout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR_MICROS = 3_600_000_000
_CHANGES = "_gregor_changes"
_BEST, _ENDS, _STORED = "_gregor_best", "_gregor_ends", "_gregor_stored"
_OWN = {*POSITION, DELETE, DAY, HOUR}


def table_rows(rows: DataFrame, columns: Sequence[tuple[str, str]] = (), key_columns: Sequence[str] = ()) -> DataFrame:
    """Return the columns of the table and POSITION from decoded rows, and with key columns DELETE.

    `columns` are names and expressions; without them the table has `key` and the fields of the value, or the value.
    """
    chosen = dict(columns or default_columns(rows.schema))
    keys = _key_values(rows, chosen, key_columns)
    return rows.select(
        *[keys.get(name, F.expr(expression)).alias(name) for name, expression in chosen.items()],
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIMESTAMP),
        *([_is_deletion(rows).alias(DELETE)] if key_columns else []),
    )


def with_key_problem(
    rows: DataFrame, columns: Sequence[tuple[str, str]] = (), key_columns: Sequence[str] = ()
) -> DataFrame:
    """Return decoded rows whose `problem` names a key column that is null; raise JobError for impossible columns."""
    chosen = list(columns) or default_columns(rows.schema)
    refuse_names([name for name, _ in chosen], key_columns)
    found = rows
    for name, value in _key_values(rows, dict(chosen), key_columns).items():
        missing = F.when(value.isNull(), f"the record has no value for the key column {name}")
        found = found.withColumn("problem", F.coalesce("problem", missing))
    return found


def default_columns(schema: StructType) -> list[tuple[str, str]]:
    """Return the names and expressions of the columns of a table to which the user gives none."""
    value = schema["value"].dataType
    if not isinstance(value, StructType):
        return [("key", "key"), ("value", "value")]
    fields = [(one.name, f"value.{quoted(one.name)}") for one in value.fields]
    return fields if any(name.lower() == "key" for name, _ in fields) else [("key", "key"), *fields]


def refuse_names(names: Sequence[str], key_columns: Sequence[str]) -> None:
    """Raise JobError for columns with a name of the table's own or twice, and for key columns that are none of them."""
    lower = [name.lower() for name in names]
    wrong = next((name for name in names if name.lower() in _OWN or lower.count(name.lower()) > 1), None)
    if wrong is not None:
        raise JobError(
            f"the table cannot have the column {wrong}: the name is there already. Give the columns of the table by "
            "--column NAME=EXPR, with other names"
        )
    missing = next((name for name in key_columns if name not in names), None)
    if missing is not None:
        raise JobError(f"--key-columns {missing} is no column of the table; its columns are {', '.join(names)}")


def _is_deletion(rows: DataFrame) -> Column:
    return F.col(DELETE) if DELETE in rows.columns else F.col("value").isNull()


def _key_values(rows: DataFrame, chosen: Mapping[str, str], key_columns: Sequence[str]) -> dict[str, Column]:
    """Return the key columns. Of a tombstone one is the key of the record, cast to the type of the column; several are
    fields of a JSON object, which the key is."""
    types = rows.select(*[F.expr(chosen[name]).alias(name) for name in key_columns]).schema
    if len(key_columns) == 1:
        of_key = {name: F.col("key").try_cast(types[name].dataType) for name in key_columns}
    else:
        of_key = {name: F.from_json("key", types).getField(name) for name in key_columns}
    deleted = _is_deletion(rows)
    return {name: F.coalesce(F.expr(chosen[name]), F.when(deleted, of_key[name])) for name in key_columns}


def newest_by_partition(rows: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Return of each key and partition the row with the highest offset, with the latest timestamp of all of them.

    The rows have the columns of the table, POSITION and DELETE.
    """
    others = [name for name in rows.columns if name not in (*key_columns, PARTITION, TIMESTAMP)]
    newest = rows.groupBy(*key_columns, PARTITION).agg(
        F.max_by(F.struct(*others), OFFSET).alias("newest"), F.max(TIMESTAMP).alias(TIMESTAMP)
    )
    return newest.select(*key_columns, PARTITION, TIMESTAMP, "newest.*").select(rows.columns)


def winners(newest: DataFrame, key_columns: Sequence[str], table: DataFrame | None = None) -> DataFrame:
    """Return one row per key, that of the partition that wins.

    The rows of the `table` count for the latest timestamp of their partition. A row that loses against the table may be
    returned: `merge_statement` compares again.
    """
    raised = newest
    if table is not None:
        stored = table.select(*key_columns, PARTITION, F.col(TIMESTAMP).alias("_stored"))
        raised = newest.join(stored, [*key_columns, PARTITION], "left").withColumn(
            TIMESTAMP, F.greatest(TIMESTAMP, "_stored")
        )
    best = raised.groupBy(*key_columns).agg(_best(newest.columns).alias(_BEST))
    found = best.select(f"{_BEST}.*").select(newest.columns)
    return found if table is None else _apart_from_table(found)


def _best(columns: Sequence[str]) -> Column:
    """Return of rows of one key, as a struct of these columns, that of the partition that wins."""
    return F.max_by(F.struct(*columns), F.struct(TIMESTAMP, PARTITION))


def merge_statement(
    table: str, changes: str, columns: Sequence[str], key_columns: Sequence[str], always: bool = False
) -> str:
    """Return the MERGE of a view of changes, one row a key, into a table; both names are SQL already.

    `columns` are those of the changes without DELETE. Columns that only the table has become null in a changed row. A
    change wins by its position, or `always`.
    """
    same_key = " AND ".join(f"t.{name} = s.{name}" for name in map(quoted, key_columns))
    newer = (
        f"((s.{PARTITION} = t.{PARTITION} AND s.{OFFSET} >= t.{OFFSET}) OR (s.{PARTITION} <> t.{PARTITION} AND "
        f"(s.{TIMESTAMP} > t.{TIMESTAMP} OR (s.{TIMESTAMP} = t.{TIMESTAMP} AND s.{PARTITION} > t.{PARTITION}))))"
    )
    if always:
        newer = "true"
    sets = ", ".join(f"t.{quoted(name)} = {_new_value(name, always)}" for name in columns)
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"s.{name}" for name in map(quoted, columns))
    return (
        f"MERGE INTO {table} AS t USING {changes} AS s ON {same_key} "
        f"WHEN MATCHED AND {newer} AND s.{DELETE} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{DELETE} THEN INSERT ({names}) VALUES ({values})"
    )


def apply_changes(
    changes: DataFrame, table: str, key_columns: Sequence[str], settings: Mapping[str, str], always: bool = False
) -> None:
    """Merge changes, one row a key, into a table; the statement is run with these settings of the session."""
    session = changes.sparkSession
    changes.createOrReplaceTempView(_CHANGES)
    columns = [name for name in changes.columns if name != DELETE]
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        session.sql(merge_statement(table, _CHANGES, columns, key_columns, always))
    finally:
        for name in settings:
            session.conf.unset(name)
        session.catalog.dropTempView(_CHANGES)


def _new_value(name: str, always: bool) -> str:
    """Return the value of a column in a changed row: the latest timestamp of the partition does not decrease."""
    return f"greatest(t.{name}, s.{name})" if name == TIMESTAMP and not always else f"s.{quoted(name)}"


def corrections(table: DataFrame, newest: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Return the changes, which win always, of the rows of the table that the topic has not, whose rows of
    `newest_by_partition` are given.

    A row is deleted if its key has no row in the topic. It is replaced if its partition has no record of the key at its
    offset or above: the last record of a key stays in its partition, unless it is deleted or the topic is another one.
    """
    ends = F.map_from_entries(F.collect_list(F.struct(PARTITION, OFFSET)))
    topic = newest.groupBy(*key_columns).agg(_best(newest.columns).alias(_BEST), ends.alias(_ENDS))
    stored = table.select(*key_columns, F.struct(PARTITION, OFFSET).alias(_STORED))
    found = stored.join(topic, list(key_columns), "left")
    gone = F.coalesce(F.col(_BEST)[DELETE], F.lit(True))
    end = F.try_element_at(_ENDS, F.col(_STORED)[PARTITION])
    wrong = found.filter(gone | F.coalesce(end < F.col(_STORED)[OFFSET], F.lit(True)))
    others = [F.col(_BEST)[name].alias(name) for name in newest.columns if name not in (*key_columns, DELETE)]
    return _apart_from_table(wrong.select(*key_columns, *others, gone.alias(DELETE)))


def _apart_from_table(changes: DataFrame) -> DataFrame:
    """Return changes that were computed from the table as rows whose plan has no table: Spark 4.1 cannot plan the MERGE
    of a view that reads an Iceberg table (`No plan for TableReference`)."""
    return changes.localCheckpoint()


def with_time_columns(frame: DataFrame, layout: Layout) -> DataFrame:
    """Return rows with DAY, and HOUR for a table by hour, in UTC whatever the time zone of the session."""
    if layout.unit is None:
        return frame
    hours = F.floor(F.unix_micros(F.col(layout.column)) / F.lit(_HOUR_MICROS)).cast("int")
    days = F.floor(hours / F.lit(24)).cast("int")
    by_day = frame.withColumn(DAY, F.date_from_unix_date(days))
    return by_day if layout.unit == "day" else by_day.withColumn(HOUR, F.pmod(hours, F.lit(24)))


def time_columns(layout: Layout) -> list[str]:
    """Return the names of the columns that partition a table."""
    return [] if layout.unit is None else [DAY] if layout.unit == "day" else [DAY, HOUR]


def quoted(name: str) -> str:
    """Return a column name for SQL."""
    return "`" + name.replace("`", "``") + "`"
