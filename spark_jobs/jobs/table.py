"""A topic as a table: all its records, or the latest row of each key.

Run it as `gregor spark table ...`, or from a checkout as `spark-submit spark_jobs/jobs/table.py ...`.
`tables/change.py` defines which record of a key wins, `tables/target.py` what a format guarantees.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.errors import JobError
    from gregor.spark_jobs.formats.value_format import WITH_SCHEMA
    from gregor.spark_jobs.jobs.common.checkpoint import Folder, read_identity, refuse_other
    from gregor.spark_jobs.jobs.common.job import Job, input_topics
    from gregor.spark_jobs.jobs.common.options import EVOLVING, FIXED, pair, positive
    from gregor.spark_jobs.jobs.common.sinks import CHECKPOINT_FOLDER, Sink, no_problem
    from gregor.spark_jobs.jobs.common.tombstones import missed_tombstones, offset_problem, ranges_of
    from gregor.spark_jobs.jobs.common.values import (
        COLUMNS_HELP,
        ValueOptions,
        add_value_arguments,
        decoded_batch,
        decoded_stream,
        undecodable_batch,
        value_problem,
        with_schema,
    )
    from gregor.spark_jobs.tables.formats import FORMATS, open_target, packages_of, settings_of
    from gregor.spark_jobs.tables.target import UNITS, Layout, TableTarget
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"table: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
The table has the columns `key` and `value`, or the fields of the value, unless --column names others, and always
_topic_partition, _offset and _timestamp: the position of the record in the topic.

With --key-columns the table has the latest row of each key of a compacted topic. Within a partition the highest offset
wins, and a record without a value (a tombstone) deletes the row. Of a key that is in two partitions, as after growth of
the topic, the partition that received the key at the latest timestamp wins, then the one with the higher number. A
deleted row leaves nothing behind: an older record of its key in another partition inserts it again if a later batch has
it. The first batch has the whole topic, unless --max-offsets-per-trigger limits it: leave that out for a grown topic.
A run with --reconcile deletes such rows. The rows of a topic that was deleted and made again would win against its new
records: a run that finds offsets behind the ends of the topic ends with that, and one with --reconcile and another
--checkpoint replaces them.

examples:
  # all records of a topic as Parquet files, a folder per day; each row once, also after kill -9
  gregor spark table --topic clicks --value-format json --schema "user STRING, seconds DOUBLE" \\
    --format parquet --path /data/clicks --partition-by day --once

  # the latest row of each user of a compacted topic, in a Delta table
  gregor spark table --topic users --value-format json --schema "name STRING, country STRING" \\
    --format delta --path /data/users --key-columns key --compact 100

  # the same after a pause in which tombstones may have been removed from the topic
  gregor spark table --topic users --value-format json --schema "name STRING, country STRING" \\
    --format delta --path /data/users --key-columns key --compact 100 --reconcile

  # the rows of a database table, from its change records by Debezium
  gregor spark table --topic shop.public.users --value-format avro --schema-registry http://registry:8081 \\
    --changes debezium --key-columns id --format delta --path /data/users
"""
GUARANTEE = "exactly once: a batch that the table contains is not written again"
TABLE = Sink("a table", GUARANTEE, no_problem)
ISOLATION = "isolation.level"
CHANGES = ("debezium",)


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job; `sink` is the format of the table."""

    sink: str = field(default="", metadata={**FIXED, "argument": "--format"})
    schema: str | None = field(default=None, metadata=EVOLVING)
    path: str = field(default="", metadata=FIXED)
    key_columns: Sequence[str] = field(default=(), metadata=FIXED)
    column: Sequence[tuple[str, str]] = field(default=(), metadata=EVOLVING)
    partition_by: str | None = field(default=None, metadata=FIXED)
    compact: int | None = None
    reconcile: bool = False
    changes: str | None = field(default=None, metadata=FIXED)


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the topic to the table that the options name."""
    from gregor.spark_jobs.sink.owners import owner_in_driver
    from gregor.spark_jobs.tables.change import table_rows, with_key_problem
    from gregor.spark_jobs.tables.target import DELETE
    from gregor.spark_jobs.tables.writer import TableWriter

    assert options.checkpoint is not None
    stored = read_identity(Folder(spark, options.checkpoint))
    if stored is not None:
        refuse_other(options.checkpoint, stored, JOB.name, options.fixed(), options.evolving())
    keyed = partial(with_key_problem, columns=options.column, key_columns=options.key_columns)
    decoded = decoded_stream(
        spark, JOB.name, committed_only(options), then=lambda found: keyed(changed(found, options))
    )
    rows = table_rows(decoded, columns_of(decoded, options), options.key_columns)
    target = open_target(options.sink, spark, options.path, Layout(options.partition_by))
    check_owner(spark, options, target)
    target.ensure_schema(rows.drop(DELETE).schema)
    if options.reconcile:
        delete_missed(spark, options, target)
    writer = TableWriter(
        target, options.key_columns, options.compact, lambda batch: owner_in_driver(batch.sparkSession).query_id
    )
    return rows.writeStream.outputMode("append").foreachBatch(writer)


def check_owner(spark: SparkSession, options: Options, target: TableTarget) -> None:
    """Raise JobError if a new query would append what the table has; print which deletions it may have missed."""
    assert options.checkpoint is not None
    checkpoint = Folder(spark, options.checkpoint)
    is_new = not checkpoint.names("metadata")
    has_rows = is_new and target.exists() and not target.rows().isEmpty()
    if has_rows and not options.key_columns:
        raise JobError(
            f"{options.path} contains rows of another run, and the checkpoint {options.checkpoint} is new.\n"
            "Give the checkpoint of that run to continue it, or another --path for a new table."
        )
    if options.key_columns and not options.reconcile:
        problem = missed_tombstones(checkpoint, options, is_new=has_rows)
        if problem is not None:
            print(problem, file=sys.stderr, flush=True)
        refuse_other_topic(options, target)


def refuse_other_topic(options: Options, target: TableTarget) -> None:
    """Raise JobError if the topic ends below an offset that the table has."""
    from pyspark.sql import functions as F

    from gregor.spark_jobs.tables.target import OFFSET, PARTITION

    ranges = ranges_of(options.topic, options) if input_topics(options) and target.exists() else None
    if ranges is None or OFFSET not in target.rows().columns:  # a table that this job has not made
        return
    rows = target.rows().filter(F.col(OFFSET).isNotNull()).groupBy(PARTITION).agg(F.max(OFFSET).alias(OFFSET))
    stored = {row[PARTITION]: row[OFFSET] for row in rows.collect()}
    problem = offset_problem(options.topic, stored, ranges)
    if problem is not None:
        raise JobError(f"{options.path}: {problem}")


def delete_missed(spark: SparkSession, options: Options, target: TableTarget) -> None:
    """Delete or replace the rows of the table that are not in the topic any more.

    A record that cannot be decoded ends the job, or, with a dead-letter topic, keeps the row of its key as it is.
    """
    from gregor.spark_jobs.tables.change import table_rows
    from gregor.spark_jobs.tables.writer import reconcile

    source, skips = committed_only(options), options.dead_letter_topic is not None
    records: DataFrame = decoded_batch(
        spark, source, options.topic, then=lambda found: changed(found, options), skips=skips
    )
    columns = columns_of(records, options)
    rows = table_rows(records, columns, options.key_columns)
    if not skips:
        reconcile(target, rows, options.key_columns)
        return
    skipped = undecodable_batch(spark, source, options.topic, then=lambda found: changed(found, options))
    kept = table_rows(skipped, columns, options.key_columns).persist()
    try:
        count = kept.count()
        if count:
            text = f"{count} records of {options.topic} cannot be decoded: --reconcile keeps the rows of their keys"
            print(text, file=sys.stderr, flush=True)
        reconcile(target, rows, options.key_columns, kept)
    finally:
        kept.unpersist()


def changed(rows: DataFrame, options: Options) -> DataFrame:
    """Return decoded rows, of change records the row after each change."""
    if options.changes is None:
        return rows
    from gregor.spark_jobs.formats.debezium import changes

    return changes(rows, options.key_columns, options.values)


def columns_of(rows: DataFrame, options: Options) -> Sequence[tuple[str, str]]:
    """Return the columns of the table that the options name; those of change records are the columns of their rows."""
    from gregor.spark_jobs.tables.change import quoted

    if options.column or options.changes is None:
        return options.column
    return [(name, f"value.{quoted(name)}") for name in rows.select("value.*").columns]


def committed_only(options: Options) -> Options:
    """Return options that read committed records only, unless the user has chosen.

    An option of the source has precedence, and counts for batches too, which have only those of the client.
    """
    of_source = {key.lower(): value for key, value in options.source_options.items()}.get(f"kafka.{ISOLATION}")
    chosen = {} if of_source is None else {ISOLATION: of_source}
    return replace(options, kafka_options={ISOLATION: "read_committed"} | options.kafka_options | chosen)


def prepared(spark: SparkSession, options: Options) -> Options:
    """Return the options with their checkpoint and with the schema of the values."""
    checkpoint = options.checkpoint or f"{options.path.rstrip('/')}/{CHECKPOINT_FOLDER}"
    completed: Options = with_schema(spark, replace(options, checkpoint=checkpoint))
    return completed


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    if len(options.topics) > 1:
        return "--topic names one topic: a table holds the records of one"
    if options.reconcile and not options.key_columns:
        return "--reconcile needs --key-columns: only rows of keys can be deleted"
    if options.changes is not None and not options.key_columns:
        return "--changes needs --key-columns: a change is one of the row with its key"
    if options.changes is not None and options.value_format not in WITH_SCHEMA:
        return f"--changes needs --value-format {', '.join(WITH_SCHEMA)}: {options.value_format} has no fields"
    if options.checkpoint is None and "/" not in options.path:
        return "--path without a folder needs --checkpoint, a folder that keeps the position between runs"
    of_format = FORMATS[options.sink].problem(bool(options.key_columns), options.compact is not None)
    return of_format or value_problem(options)


def names(text: str) -> list[str]:
    """Parse NAME[,...]."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser, time=False, sinks=False)
    add = parser.add_argument
    add("--format", dest="sink", choices=list(FORMATS), required=True, help="format of the table")
    add("--path", required=True, metavar="PATH", help="folder of the table")
    add(
        "--checkpoint",
        metavar="PATH",
        help="folder for the position of the query; a start with the same folder continues. Default: inside of --path",
    )
    add(
        "--key-columns",
        type=names,
        default=[],
        metavar="NAME[,...]",
        help="the table has the latest row of each key, which these columns are. Of a tombstone they are the key of "
        "the record; several ones are fields of a JSON object. Default: the table has a row for each record",
    )
    add(
        "--column",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=EXPR",
        help="a column of the table; may be repeated. Default: key, and value or the fields of the value",
    )
    add(
        "--partition-by",
        choices=UNITS,
        help="partition a new table by the day or the hour of the record's timestamp, in UTC",
    )
    add(
        "--changes",
        choices=CHANGES,
        help="the values are change records of a database: the table has its rows, by their --key-columns. Envelopes "
        "with op, before and after, with and without a schema part, and rows flattened by ExtractNewRecordState. "
        "Deletions and tombstones delete. The key of a tombstone is JSON, or Avro of --schema-registry URL",
    )
    add("--compact", type=positive, metavar="N", help="rewrite small files to larger ones after each N batches")
    add(
        "--reconcile",
        action="store_true",
        help="before the first batch read the whole topic, delete the rows of keys that it has not, and replace those "
        "whose records it has not: for a run after a pause longer than delete.retention.ms of the topic, in which "
        "tombstones may have been removed, and for a topic that was deleted and made again",
    )
    parser.set_defaults(output_topic=None, output_path=None)


JOB = Job(
    name="table",
    summary="Write a topic to a table: all its records, or the latest row of each key.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    problem=problem_of,
    prepare=prepared,
    sinks=(),
    sink=TABLE,
    session=lambda options: (settings_of(options.sink), packages_of(options.sink)),
    topic_help="the topic to read",
    done="wrote",
)

if __name__ == "__main__":
    sys.exit(JOB.main())
