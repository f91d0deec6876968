"""The options of jobs that compute with the values of records, and the rows that they compute with.

The expressions of these jobs are Spark SQL over the columns `key` (text), `value` (text, or the fields of the JSON
object as `value.name`), `topic`, `partition`, `offset`, `timestamp` and `time`, the event time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.checkpoint import Folder, read_identity
from gregor.spark_jobs.jobs.common.dead_letters import client_settings, diverted, refused
from gregor.spark_jobs.jobs.common.options import FIXED, Options, positive
from gregor.spark_jobs.jobs.common.sinks import checkpoint_of
from gregor.spark_jobs.jobs.common.sources import record_batch, record_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("text", "json", "bytes")
RAW = ("raw_key", "raw_value", "headers")
"""The columns of a record as it is in the topic."""
SAMPLE_RECORDS = 500
"""The records from which a schema is inferred."""
COLUMNS_HELP = """\
Expressions are Spark SQL over the columns of a record: key (text), value (text, or bytes for --format bytes; for
--format json its fields are value.NAME), topic, partition, offset, timestamp, and time, the event time of --time.
"""


@dataclass(frozen=True)
class ValueOptions(Options):
    """The options of a job that decodes values."""

    format: str = field(default="text", metadata=FIXED)
    schema: str | None = field(default=None, metadata=FIXED)
    schema_registry: bool = field(default=False, metadata=FIXED)
    dead_letter_topic: str | None = None
    time: str = field(default="timestamp", metadata=FIXED)
    rows: int = 20
    transactional_id: str | None = field(default=None, metadata=FIXED)


def add_value_arguments(parser: argparse.ArgumentParser, time: bool = True, default: str = "text") -> None:
    """Add the arguments of the fields of `ValueOptions`."""
    add = parser.add_argument
    add("--format", choices=FORMATS, default=default, help="format of the values; default: %(default)s")
    add(
        "--schema",
        metavar="DDL|@FILE",
        help="for --format json: the fields, as in 'user STRING, amount DOUBLE'. Default: inferred from the first "
        f"{SAMPLE_RECORDS} records, shown, and kept in the checkpoint",
    )
    add(
        "--schema-registry",
        action="store_true",
        help="the values begin with the five bytes of a schema registry, which are skipped",
    )
    add(
        "--dead-letter-topic",
        metavar="NAME",
        help="topic for the records that cannot be decoded, with the reason. Default: such a record ends the job",
    )
    if time:
        add("--time", default="timestamp", metavar="EXPR", help="the event time; default: the timestamp of the record")
    else:
        parser.set_defaults(time="timestamp")
    add(
        "--transactional-id",
        metavar="NAME",
        help="for --sink exactly-once: a name of this query alone, with which a newer run fences an older one",
    )
    add("--rows", type=positive, default=20, metavar="N", help="rows shown by the console sink; default: %(default)s")


def value_problem(options: ValueOptions) -> str | None:
    """Return what is wrong with the options of values, or None."""
    if options.transactional_id is not None and options.sink != "exactly-once":
        return "--transactional-id needs --sink exactly-once"
    if options.schema is not None and options.format != "json":
        return "--schema needs --format json: text has no fields"
    if options.dead_letter_topic is not None and options.dead_letter_topic in (*options.topics, options.output_topic):
        return "--dead-letter-topic must be a topic of its own, neither read nor written by the job"
    return None


def sum_problem(sums: Sequence[tuple[str, str]], taken: set[str]) -> str | None:
    """Return what is wrong with the names of sums, or None."""
    names = [name for name, _ in sums]
    taken = taken | {"key", "count", "time"}
    wrong = next((name for name in names if name in taken or names.count(name) > 1 or not name.isidentifier()), None)
    return None if wrong is None else f"--sum {wrong}=... needs a name of letters and digits that no other column has"


def with_schema(spark: SparkSession, options: Any) -> Any:
    """Return the options with the schema of the values: given, kept in the checkpoint, or inferred and shown."""
    if options.format != "json":
        return options
    text = options.schema
    if text is not None:
        if text.startswith("@"):
            text = read_schema_file(text[1:])
        return replace(options, schema=canonical(text))
    checkpoint = checkpoint_of(options)
    identity = read_identity(Folder(spark, checkpoint)) if checkpoint is not None else None
    kept = identity["options"].get("--schema") if identity else None
    if kept is None:
        kept = inferred_schema(record_batch(spark, options, ",".join(options.topics)), options)
        print(f"inferred --schema '{kept}'", file=sys.stderr, flush=True)
    return replace(options, schema=kept)


def read_schema_file(path: str) -> str:
    """Return the text of a schema file."""
    try:
        return " ".join(Path(path).read_text().split())
    except OSError as error:
        raise JobError(f"the schema file {path} cannot be read: {error.strerror}") from error


def canonical(text: str) -> str:
    """Return the DDL of a schema in one form, whatever its spaces and case; raise JobError if it is none."""
    return ddl_of(struct_of(text))


def struct_of(text: str) -> Any:
    """Return the type of a DDL text."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    try:
        found = DataType.fromDDL(text)
    except PySparkException as error:
        raise JobError(f"--schema {text!r} is no list of fields; give one like 'user STRING, amount DOUBLE'") from error
    if not isinstance(found, StructType):
        raise JobError(f"--schema {text!r} is {found.simpleString()}, no list of fields like 'user STRING'")
    return found


def ddl_of(schema: Any) -> str:
    """Return the DDL text of a struct."""
    return ", ".join(f"{quoted(one.name)} {one.dataType.simpleString()}" for one in schema.fields)


def quoted(name: str) -> str:
    """Return a name for SQL."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


def inferred_schema(records: DataFrame, options: ValueOptions) -> str:
    """Return the schema that fits a sample of JSON objects; raise JobError if there is none."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DataType, StructType

    start = 6 if options.schema_registry else 1
    text = F.expr(f"substring(value, {start})").cast("string")
    sample = [row.text for row in records.select(text.alias("text")).limit(SAMPLE_RECORDS).collect()]
    objects = [one for one in sample if one and is_object(one)]
    if not objects:
        raise JobError(
            f"no schema can be inferred: {options.topic} has no JSON object among its first {len(sample)} records; "
            "give --schema 'name TYPE, ...'"
        )
    literal = F.lit("[" + ",".join(objects) + "]")
    ddl = records.sparkSession.range(1).select(F.schema_of_json(literal)).head()[0]  # type: ignore[index]
    found = DataType.fromDDL(ddl)
    assert isinstance(found, ArrayType) and isinstance(found.elementType, StructType)
    return ddl_of(found.elementType)


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def decoded_batch(spark: SparkSession, options: Any, topic: str) -> DataFrame:
    """Return the rows that a topic has now; the first value that cannot be decoded fails the query."""
    from gregor.spark_jobs.transforms.values import decoded

    schema = struct_of(options.schema) if options.schema else None
    rows = decoded(record_batch(spark, options, topic), options.format, schema, options.schema_registry)
    return refused(rows, [name for name in rows.columns if name not in ("problem", *RAW)])


def decoded_stream(
    spark: SparkSession, job: str, options: Any, topic: str | None = None, raw: bool = False
) -> DataFrame:
    """Return the rows of the topics with their values decoded and their event time, as a stream.

    With `raw` they also have the columns of the record as it is in the topic. Records that cannot be decoded, or have
    no event time, go to the dead-letter topic, or else fail the query.
    """
    from gregor.spark_jobs.transforms.values import decoded, with_time

    letters = options.dead_letter_topic
    source = replace(
        options, source_options=options.source_options | ({"includeHeaders": "true"} if letters or raw else {})
    )
    records = record_stream(spark, source, topic)
    schema = struct_of(options.schema) if options.schema else None
    rows = with_time(decoded(records, options.format, schema, options.schema_registry), options.time)
    kept = [name for name in rows.columns if name != "problem" and (raw or name not in RAW)]
    if letters is None:
        return refused(rows, kept)
    return diverted(rows, kept, job, letters, client_settings(options.bootstrap_server, options.client))
