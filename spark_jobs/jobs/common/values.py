"""The options of jobs that compute with the values of records, and the rows that they compute with.

The expressions of these jobs are Spark SQL over the columns `key` (text), `value` (text, or the fields of the JSON
object as `value.name`), `topic`, `partition`, `offset`, `timestamp` and `time`, the event time.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.types import canonical
from gregor.spark_jobs.formats.value_format import DECODED_IN_PYTHON, KINDS, WITH_SCHEMA, ValueFormat
from gregor.spark_jobs.jobs.common.checkpoint import kept_option
from gregor.spark_jobs.jobs.common.dead_letters import counted, diverted, letter_records, producer_options, refused
from gregor.spark_jobs.jobs.common.options import FIXED, Options, add_transactional_id, positive
from gregor.spark_jobs.jobs.common.sinks import checkpoint_of, is_transactional
from gregor.spark_jobs.jobs.common.sources import record_batch, record_stream
from gregor.spark_jobs.launch.workers import MODULES_OF_FORMAT, MODULES_OF_SINK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = ("raw_key", "raw_value", "headers")
"""The columns of a record as it is in the topic."""
SAMPLE_RECORDS = 500
"""The records from which a schema is inferred."""
COLUMNS_HELP = """\
Expressions are Spark SQL over the columns of a record: key (text), value (text, or bytes for --value-format bytes; for
json, avro and protobuf its fields are value.NAME), topic, partition, offset, timestamp, and time, the event time of
--time.
"""


@dataclass(frozen=True)
class ValueOptions(Options):
    """The options of a job that decodes values."""

    value_format: str = field(default="text", metadata=FIXED)
    schema: str | None = field(default=None, metadata=FIXED)
    schema_file: str | None = None
    message: str | None = field(default=None, metadata=FIXED)
    schema_registry: bool = field(default=False, metadata=FIXED)
    registry_url: str | None = None
    dead_letter_topic: str | None = None
    time: str = field(default="timestamp", metadata=FIXED)
    rows: int = 20
    transactional_id: str | None = field(default=None, metadata=FIXED)

    @property
    def values(self) -> ValueFormat:
        """The format of the values."""
        return ValueFormat(self.value_format, self.schema, self.schema_registry, self.registry_url, self.message)

    @property
    def letters_in_transaction(self) -> bool:
        """Whether the dead letters are rows of the transaction that has the result."""
        return self.dead_letter_topic is not None and is_transactional(self) and not self.needs_columns

    @property
    def worker_modules(self) -> frozenset[str]:
        """The modules of the source and the sink, of the format of the values, and of dead letters."""
        produces_letters = self.dead_letter_topic is not None and not self.letters_in_transaction
        found = MODULES_OF_FORMAT.get(self.value_format, frozenset()) | super().worker_modules
        return found | (MODULES_OF_SINK if produces_letters else frozenset())

    @property
    def needs_columns(self) -> bool:
        """Whether something sees the columns of each batch before the sink makes records of them."""
        return False


class RegistryAction(argparse.Action):
    """Sets `schema_registry`, and `registry_url` where a URL is given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.schema_registry, namespace.registry_url = True, values


def add_value_arguments(
    parser: argparse.ArgumentParser, time: bool = True, default: str = "text", sinks: bool = True
) -> None:
    """Add the arguments of the fields of `ValueOptions`."""
    add = parser.add_argument
    add("--value-format", choices=KINDS, default=default, help="format of the values; default: %(default)s")
    add(
        "--schema",
        metavar="TEXT|@FILE",
        help="the fields of the values: for json DDL, as in 'user STRING, amount DOUBLE'; for avro the JSON of the "
        f"schema. Default for json: inferred from the first {SAMPLE_RECORDS} records, shown, kept in the checkpoint",
    )
    add(
        "--schema-file",
        metavar="FILE",
        help="the schema in a file: DDL, .avsc for avro, .proto or a descriptor set for protobuf. It gives the columns "
        "that are read; the schemas of the writers are those of the registry. Default with the URL of a registry: the "
        "newest schema of the subject TOPIC-value, shown, and kept in the checkpoint",
    )
    add("--message", metavar="NAME", help="for protobuf: the full name of the message; default: the first of the file")
    add(
        "--schema-registry",
        action=RegistryAction,
        nargs="?",
        default=False,
        metavar="URL",
        help="the values begin with the five bytes of a schema registry. With its URL avro and protobuf values are "
        "decoded with the schema that these bytes name; without, the bytes are skipped",
    )
    parser.set_defaults(registry_url=None)
    add(
        "--dead-letter-topic",
        metavar="NAME",
        help="topic for the records that cannot be decoded, with the reason. With --sink exactly-once to the cluster "
        "of the input, without --chart and --as-table, they are in the transaction of the result: once. Else they are "
        "stored before the batch commits: at least once. Default: such a record ends the job",
    )
    if time:
        add("--time", default="timestamp", metavar="EXPR", help="the event time; default: the timestamp of the record")
    else:
        parser.set_defaults(time="timestamp")
    if not sinks:
        parser.set_defaults(transactional_id=None, rows=20)
        return
    add_transactional_id(parser)
    add("--rows", type=positive, default=20, metavar="N", help="rows shown by the console sink; default: %(default)s")


def value_problem(options: ValueOptions) -> str | None:
    """Return what is wrong with the options of values, or None."""
    if options.transactional_id is not None and options.sink != "exactly-once":
        return "--transactional-id needs --sink exactly-once"
    if options.dead_letter_topic is not None and options.dead_letter_topic in (*options.topics, options.output_topic):
        return "--dead-letter-topic must be a topic of its own, neither read nor written by the job"
    return schema_problem(options)


def schema_problem(options: ValueOptions) -> str | None:
    """Return what is wrong with the options of the schema, or None."""
    kind = options.value_format
    given = "--schema" if options.schema is not None else "--schema-file" if options.schema_file is not None else None
    if options.schema is not None and options.schema_file is not None:
        return "--schema and --schema-file are two schemas; give one of them"
    if given is not None and kind not in WITH_SCHEMA:
        return f"{given} needs --value-format json, avro or protobuf: {kind} has no fields"
    if kind == "protobuf" and options.schema is not None:
        return (
            "--schema does not fit --value-format protobuf; give --schema-file with a .proto file or a descriptor set"
        )
    if options.message is not None and kind != "protobuf":
        return "--message needs --value-format protobuf"
    if options.registry_url is not None and kind not in DECODED_IN_PYTHON:
        return f"--schema-registry with a URL is for avro and protobuf; the five bytes before {kind} need no URL"
    if kind in DECODED_IN_PYTHON and given is None and options.registry_url is None:
        return f"--value-format {kind} needs --schema-file, or --schema-registry with the URL of the registry"
    return None


def sum_problem(sums: Sequence[tuple[str, str]], columns: set[str]) -> str | None:
    """Return what is wrong with the names of sums, or None."""
    names = [name for name, _ in sums]
    columns = columns | {"key", "count", "time"}
    wrong = next((name for name in names if name in columns or names.count(name) > 1 or not name.isidentifier()), None)
    return None if wrong is None else f"--sum {wrong}=... needs a name of letters and digits that no other column has"


def with_schema(spark: SparkSession, options: Any) -> Any:
    """Return the options with the schema of the values: given, kept in the checkpoint, or inferred and shown."""
    if options.value_format not in WITH_SCHEMA:
        return options
    given = given_schema(options)
    if given is None:
        given = kept_option(spark, checkpoint_of(options), "--schema")
    if given is None:
        given, shown = default_schema(spark, options)
        print(f"inferred --schema '{shown}'", file=sys.stderr, flush=True)
    return replace(options, schema=given, schema_file=None)


def given_schema(options: ValueOptions) -> str | None:
    """Return the schema of the arguments in its canonical form, or None."""
    text, path = options.schema, options.schema_file
    if text is not None and text.startswith("@"):
        path, text = text[1:], None
    if text is None and path is None:
        return None
    if options.value_format == "protobuf":
        from gregor.spark_jobs.formats.protobuf import descriptors_of_file

        assert path is not None
        return descriptors_of_file(path, options.message)
    text = read_schema_file(path) if path is not None else text
    assert text is not None
    if options.value_format == "avro":
        from gregor.spark_jobs.formats.avro import canonical_avro

        return canonical_avro(text)
    return canonical(" ".join(text.split()))


def default_schema(spark: SparkSession, options: ValueOptions) -> tuple[str, str]:
    """Return the schema where none is given, and its text for the user."""
    topic = options.topics[0]
    if options.value_format == "json":
        from gregor.spark_jobs.formats.inference import inferred_schema

        records = record_batch(spark, options, ",".join(options.topics))
        ddl = inferred_schema(records, options.schema_registry, options.topic, SAMPLE_RECORDS)
        return ddl, ddl
    from gregor.spark_jobs.formats.parsing import registered_schema

    return registered_schema(options.values, topic)


def read_schema_file(path: str) -> str:
    """Return the text of a schema file."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is no text"
        raise JobError(f"the schema file {path} cannot be read: {cause}") from error


def decoded_batch(
    spark: SparkSession,
    options: Any,
    topic: str,
    limits: Mapping[str, str] | None = None,
    then: Callable[[DataFrame], DataFrame] | None = None,
    skips: bool = False,
) -> DataFrame:
    """Return the rows that a topic has now; the first value that cannot be decoded fails the query.

    `limits` are options of the source that select a part of the topic; `then` is applied to the decoded rows. With
    `skips` values that cannot be decoded are left out.
    """
    from gregor.spark_jobs.formats.columns import decoded

    rows = decoded(record_batch(spark, options, topic, limits), options.values)
    rows = rows if then is None else then(rows)
    kept = [name for name in rows.columns if name not in ("problem", *RAW)]
    return rows.filter("problem IS NULL").select(kept) if skips else refused(rows, kept)


def undecodable_batch(
    spark: SparkSession, options: Any, topic: str, then: Callable[[DataFrame], DataFrame] | None = None
) -> DataFrame:
    """Return the rows that `decoded_batch` skips, without their values, as tombstones have none."""
    from pyspark.sql import functions as F

    from gregor.spark_jobs.formats.columns import decoded

    rows = decoded(record_batch(spark, options, topic), options.values).filter("problem IS NOT NULL")
    empty = {name: F.lit(None).cast(rows.schema[name].dataType) for name in ("value", "raw_value", "problem")}
    rows = rows.withColumns(empty)
    return rows if then is None else then(rows)


@dataclass(frozen=True)
class Rows:
    """Decoded rows as a stream, and the dead letters that the sink has to write with the result."""

    frame: DataFrame
    letters: DataFrame | None = None


def decoded_rows(
    spark: SparkSession,
    job: str,
    options: Any,
    topic: str | None = None,
    raw: bool = False,
    then: Callable[[DataFrame], DataFrame] | None = None,
) -> Rows:
    """Return the rows of the topics with their values decoded and their event time.

    With `raw` they also have the columns of the record as it is in the topic. `then` is applied to the decoded rows,
    whose column `problem` it may set. Records that cannot be decoded, or have no event time, go to the dead-letter
    topic, or else fail the query. `Rows.letters` is None if the tasks produce them.
    """
    from gregor.spark_jobs.formats.columns import decoded, with_time

    letters = options.dead_letter_topic
    source = replace(
        options, source_options=options.source_options | ({"includeHeaders": "true"} if letters or raw else {})
    )
    rows = decoded(record_stream(spark, source, topic), options.values)
    rows = with_time(rows if then is None else then(rows), options.time)
    kept = [name for name in rows.columns if name != "problem" and (raw or name not in RAW)]
    if letters is None:
        return Rows(refused(rows, kept))
    rows = counted(rows, topic or options.topic)
    if options.letters_in_transaction:
        return Rows(rows.filter("problem IS NULL").select(kept), letter_records(rows, job, letters))
    return Rows(diverted(rows, kept, job, letters, producer_options(options.bootstrap_server, options.client)))


def decoded_stream(
    spark: SparkSession,
    job: str,
    options: Any,
    topic: str | None = None,
    raw: bool = False,
    then: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Return the rows of `decoded_rows` for a sink that does not write dead letters with its result."""
    rows = decoded_rows(spark, job, options, topic, raw, then)
    assert rows.letters is None, "the sink has to write the dead letters"
    return rows.frame


def letters_of(*parts: Rows) -> DataFrame | None:
    """Return the dead letters of all topics, for the sink."""
    found = [rows.letters for rows in parts if rows.letters is not None]
    return functools.reduce(lambda one, other: one.unionByName(other), found) if found else None
