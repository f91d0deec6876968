"""A stream with another stream in a time bound, or with the latest value per key of a compacted topic.

Run it as `gregor spark join ...`, or from a checkout as `spark-submit spark_jobs/jobs/two_topics.py ...`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

try:
    from gregor.protocol.errors import ErrorCode
    from gregor.spark_jobs.client.failure import KafkaFailure
    from gregor.spark_jobs.jobs.common.job import Job
    from gregor.spark_jobs.jobs.common.latest import LatestTable
    from gregor.spark_jobs.jobs.common.options import FIXED
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
    from gregor.spark_jobs.jobs.common.values import (
        COLUMNS_HELP,
        ValueOptions,
        add_value_arguments,
        decoded_batch,
        decoded_rows,
        letters_of,
        value_problem,
        with_schema,
    )
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"join: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
--sink topic writes the key and one JSON object of all columns; both values have the same --value-format and --schema.

examples:
  # each payment with the order of the same key, at most an hour apart
  gregor spark join --topic orders --with payments --within "1 hour" --watermark "10 minutes" \\
    --sink topic --output-topic paid --checkpoint ./paid.checkpoint

  # each click with the latest profile of its user, from a compacted topic
  gregor spark join --topic clicks --with profiles --as-table --how left
"""
WITHIN = "1 hour"
WATERMARK = "10 minutes"
KINDS = ("inner", "left")


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    right_topic: str = field(default="", metadata=FIXED)
    as_table: bool = field(default=False, metadata=FIXED)
    left_key: str = field(default="key", metadata=FIXED)
    right_key: str = field(default="key", metadata=FIXED)
    within: str | None = field(default=None, metadata=FIXED)
    watermark: str | None = field(default=None, metadata=FIXED)
    how: str = field(default="inner", metadata=FIXED)

    @property
    def topics(self) -> list[str]:
        """The topics to read, of both sides."""
        return [*super().topics, self.right_topic]

    @property
    def needs_columns(self) -> bool:
        """Whether each batch is joined with the table."""
        return self.as_table


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the pairs to the sink that the options name."""
    from gregor.spark_jobs.transforms.join import with_latest, within_time

    left = decoded_rows(spark, JOB.name, options, options.topic)
    if not options.as_table:
        right = decoded_rows(spark, JOB.name, options, options.right_topic)
        pairs = within_time(
            left.frame,
            right.frame,
            options.left_key,
            options.right_key,
            options.within or WITHIN,
            options.watermark or WATERMARK,
            options.how,
        )
        return writer_of(spark, options, Result(pairs, order=("left_time", "key"), letters=letters_of(left, right)))

    table = table_of(spark, options)

    def with_table(batch: DataFrame) -> DataFrame:
        return with_latest(batch, table(), options.left_key, options.how)

    return writer_of(spark, options, Result(left.frame, order=("left_time", "key"), each=with_table))


def table_of(spark: SparkSession, options: Options) -> Callable[[], DataFrame]:
    """Return the function of the rows of the table, which is read anew for each batch where only Spark's connector has
    the security of the client."""
    from gregor.spark_jobs.transforms.join import keyed_records, latest_of, newest_records

    topic, key = options.right_topic, options.right_key
    try:
        return LatestTable(spark, options, topic, key).rows
    except KafkaFailure as failure:
        if failure.code != ErrorCode.SECURITY_DISABLED:
            raise
    return lambda: latest_of(newest_records(keyed_records(decoded_batch(spark, options, topic), key)))


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    if options.as_table and (options.within or options.watermark):
        return "--within and --watermark are of the join of two streams; leave them out with --as-table"
    if options.value_format == "bytes":
        return "--value-format bytes does not fit JSON objects of both values; use text or json"
    return value_problem(options)


def connect_problem_of(options: Options) -> str | None:
    """Return why the options do not suit Spark Connect, or None."""
    if options.as_table:
        return "with --as-table it keeps the table from batch to batch in the session of the driver; leave it out"
    return None


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser)
    add = parser.add_argument
    add("--with", dest="right_topic", required=True, metavar="NAME", help="the other topic, the right side")
    add(
        "--as-table",
        action="store_true",
        help="read the right side as a table: its latest value of each key when a batch runs. The table is kept in "
        "memory and on disk, and only appended records are read; a value that cannot be decoded ends the job",
    )
    add("--left-key", default="key", metavar="EXPR", help="default: the key of the record")
    add("--right-key", default="key", metavar="EXPR", help="default: the key of the record")
    add("--within", metavar="TIME", help=f"the event times of a pair are at most this far apart; default: {WITHIN}")
    add(
        "--watermark",
        metavar="TIME",
        help=f"records this long behind the highest event time of the slower topic are dropped; default: {WATERMARK}",
    )
    add(
        "--how",
        choices=KINDS,
        default="inner",
        help="left: also rows of the left side without a partner; default: %(default)s",
    )


JOB = Job(
    name="join",
    summary="Join a topic with another one, in a time bound or as a table.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    problem=problem_of,
    prepare=with_schema,
    connect_problem=connect_problem_of,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
