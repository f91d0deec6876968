"""The files of a watched folder to a topic: text lines, JSON lines, CSV or whole files.

Run it as `gregor spark files ...`, or from a checkout as `spark-submit spark_jobs/jobs/files_to_topic.py ...`.
Spark notes in the checkpoint which files it has read (class FileStreamSource); with the exactly-once sink each record
of a file is in the topic once.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from gregor.spark_jobs.errors import JobError
    from gregor.spark_jobs.formats.types import canonical, ddl_of, struct_of
    from gregor.spark_jobs.jobs.common.checkpoint import kept_option
    from gregor.spark_jobs.jobs.common.dead_letters import counted
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.options import FIXED, add_pairs, add_transactional_id
    from gregor.spark_jobs.jobs.common.options import Options as CommonOptions
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
    from gregor.spark_jobs.jobs.common.values import read_schema_file
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"files: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = """\
A file is read once, by its path: write it under a name that begins with a dot or an underscore, or in another folder of
the same file system, and rename it when it is complete. Lines that are appended later are not read.

--key is Spark SQL over `value` (the line; for csv, and for json with --schema, its fields are value.NAME), `file` (the
name), `path` and `modified`.

examples:
  # each line of the files that come into a folder
  gregor spark files --path /var/spool/logs --output-topic logs --checkpoint ./logs.checkpoint

  # CSV with a header line as JSON objects, keyed by a column, each row exactly once; lines that do not fit go elsewhere
  gregor spark files --path /data/orders --format csv --schema "id BIGINT, country STRING, amount DOUBLE" \\
    --key value.id --dead-letter-topic orders-rejected --output-topic orders \\
    --sink exactly-once --transactional-id orders-files --checkpoint ./orders.checkpoint

  # whole files, with their names in the headers, and end
  gregor spark files --path /data/pictures --format whole --key file --file-headers --output-topic pictures \\
    --checkpoint ./pictures.checkpoint --once
"""
FORMATS = ("text", "json", "csv", "whole")
SOURCES = {"text": "text", "json": "text", "csv": "csv", "whole": "binaryFile"}
"""The source of Spark for each format."""
CSV = {"header": "true", "enforceSchema": "false"}
"""Options of Spark's source for CSV, where the user has none: the header line is compared with the schema."""


@dataclass(frozen=True)
class Options(CommonOptions):
    """The options of the job."""

    path: str = field(default="", metadata=FIXED)
    format: str = field(default="text", metadata=FIXED)
    schema: str | None = field(default=None, metadata=FIXED)
    key: str | None = None
    file_headers: bool = False
    dead_letter_topic: str | None = None
    transactional_id: str | None = field(default=None, metadata=FIXED)

    @property
    def letters_in_transaction(self) -> bool:
        """Whether dead letters are in the transaction of their batch."""
        return self.sink == "exactly-once"


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the records to the sink that the options name."""
    from gregor.spark_jobs.transforms.files import records

    rows = rows_of(spark, options)
    if options.dead_letter_topic is not None:
        rows = counted(rows, "files")
    frame = records(rows, options.key, options.file_headers, options.dead_letter_topic)
    return writer_of(spark, options, Result(frame, is_records=True))


def rows_of(spark: SparkSession, options: Options) -> DataFrame:
    """Return the rows of the files as a stream."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    from gregor.spark_jobs.formats.columns import decoded_json
    from gregor.spark_jobs.transforms import files

    schema = struct_of(options.schema) if options.schema is not None else None
    given = options.source_options
    reader = spark.readStream.format(SOURCES[options.format])
    if options.format == "csv":
        assert schema is not None
        reader = reader.schema(StructType([*schema.fields, StructField(files.CORRUPT, StringType())]))
        given = {**CSV, **given, "columnNameOfCorruptRecord": files.CORRUPT, "mode": "PERMISSIVE"}
    if options.format == "whole":
        reader = reader.schema("path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY")
    frame = reader.options(**given).load(options.path)
    if options.format == "csv":
        return files.rows_of_csv(frame)
    if options.format == "whole":
        return files.rows_of_whole_files(frame)
    if options.format == "text":
        return files.rows_of_text(frame)
    return files.rows_of_json(frame, None if schema is None else decoded_json(F.col("value"), schema))


def with_schema(spark: SparkSession, options: Options) -> Options:
    """Return the options with the schema of the files: given, kept in the checkpoint, or inferred and shown."""
    if options.schema is not None:
        text = read_schema_file(options.schema[1:]) if options.schema.startswith("@") else options.schema
        return replace(options, schema=canonical(" ".join(text.split())))
    if options.format != "csv":
        return options
    kept = kept_option(spark, options.checkpoint, "--schema")
    if kept is None:
        kept = inferred_schema(spark, options)
        print(f"inferred --schema '{kept}'", file=sys.stderr, flush=True)
    return replace(options, schema=kept)


def inferred_schema(spark: SparkSession, options: Options) -> str:
    """Return the schema that fits the files that are there; raise JobError if there are none."""
    from pyspark.errors import AnalysisException

    given: dict[str, Any] = {**CSV, "inferSchema": "true", **options.source_options}
    try:
        return ddl_of(spark.read.options(**given).csv(options.path).schema)
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" not in str(error):
            raise
        raise JobError(
            f"no schema can be inferred: {options.path} has no CSV file yet; give --schema 'name TYPE, ...'"
        ) from error


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    if options.transactional_id is not None and options.sink != "exactly-once":
        return "--transactional-id needs --sink exactly-once"
    if options.schema is not None and options.format not in ("json", "csv"):
        return f"--schema needs --format json or csv: {options.format} has no fields"
    if options.dead_letter_topic is not None and options.format not in ("json", "csv"):
        return f"--dead-letter-topic needs --format json or csv: {options.format} is always decoded"
    if options.dead_letter_topic is not None and options.dead_letter_topic == options.output_topic:
        return "--dead-letter-topic must be another topic than --output-topic"
    if options.checkpoint is not None and is_inside(options.checkpoint, options.path):
        return "--checkpoint is inside of --path, so that its files would be read; choose another folder"
    return None


def is_inside(folder: str, parent: str) -> bool:
    """Return whether a folder is below another one, both on this machine or with the same scheme."""
    if "://" in folder or "://" in parent:
        return f"{folder.rstrip('/')}/".startswith(f"{parent.rstrip('/')}/")
    return Path(folder).absolute().is_relative_to(Path(parent).absolute())


def output_topics(options: Options) -> list[str]:
    """Return the topics that have to exist."""
    return [name for name in (options.output_topic, options.dead_letter_topic) if name is not None]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--path", required=True, metavar="PATH", help="folder of the files, or a pattern such as '/data/2026-*'")
    add(
        "--format",
        choices=FORMATS,
        default="text",
        help="text and json: a record per line, unchanged; csv: a JSON object per row; whole: a record per file, its "
        "bytes. Default: %(default)s",
    )
    add(
        "--schema",
        metavar="DDL|@FILE",
        help="for csv and json: the fields, as in 'user STRING, amount DOUBLE'. Default: for csv inferred from the "
        "files that are there, shown, and kept in the checkpoint; for json any line that is JSON is accepted",
    )
    add("--key", metavar="EXPR", help="the key of each record; default: none")
    add(
        "--file-headers",
        action="store_true",
        help="each record has the headers file.name and file.modification.time (milliseconds since 1970)",
    )
    add(
        "--dead-letter-topic",
        metavar="NAME",
        help="topic for the lines that cannot be decoded, with the reason, written together with the batch. Default: "
        "such a line ends the job",
    )
    add_transactional_id(parser)
    add_pairs(
        parser,
        "--source-option",
        "an option of Spark's file sources, such as maxFilesPerTrigger=100, cleanSource=archive, pathGlobFilter=*.csv, "
        "sep=; or multiLine=true",
    )


JOB = Job(
    name="files",
    summary="Write the files of a watched folder to a topic.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    problem=problem_of,
    topics=output_topics,
    prepare=with_schema,
    sinks=("topic", "exactly-once"),
    topic_help=None,
    connect_problem=no_problem,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
