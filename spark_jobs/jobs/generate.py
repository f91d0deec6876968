"""Generated records for load, at a given rate, to a topic.

Run it as `gregor spark generate ...`, or from a checkout as `spark-submit spark_jobs/jobs/generate.py ...`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

try:
    from gregor.spark_jobs.errors import JobError
    from gregor.spark_jobs.jobs.common.checkpoint import kept_option
    from gregor.spark_jobs.jobs.common.dead_letters import counted
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.options import FIXED, add_transactional_id, pair, positive
    from gregor.spark_jobs.jobs.common.options import Options as CommonOptions
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"generate: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from gregor.spark_jobs.progress import Ended

EXAMPLES = """\
--column computes a field of the JSON object by Spark SQL from `id` (the number of the record, from 0), `key`, `time`
and `chance` (from 0 to below 1). Keys and `chance` are decided by the number of the record and --seed.

examples:
  # 10,000 records of 100 bytes a second for a minute, with 1,000 keys
  gregor spark generate --output-topic load --rate 10000 --keys 1000 --seconds 60

  # a million random values of 1,000 bytes without keys, as fast as they are written
  gregor spark generate --output-topic load --value-format bytes --size 1000 --rows 1000000 --once

  # purchases of users of whom a few buy most, each exactly once also when the run is interrupted and started again
  gregor spark generate --output-topic orders --keys 500 --distribution zipf --rate 100 --column user=key \\
    --column amount="round(chance * 200, 2)" --column at=time --sink exactly-once --transactional-id orders-load \\
    --checkpoint ./orders.checkpoint
"""
DISTRIBUTIONS = ("uniform", "zipf", "round-robin")
FORMATS = ("json", "bytes")
MAX_SIZE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Options(CommonOptions):
    """The options of the job."""

    needs_checkpoint: ClassVar[bool] = False
    rate: int = 1000
    rows: int | None = None
    seconds: int | None = None
    value_format: str = field(default="json", metadata=FIXED)
    size: int = field(default=100, metadata=FIXED)
    keys: int | None = field(default=None, metadata=FIXED)
    distribution: str = field(default="uniform", metadata=FIXED)
    skew: float = field(default=1.0, metadata=FIXED)
    column: Sequence[tuple[str, str]] = field(default=(), metadata=FIXED)
    seed: int = field(default=0, metadata=FIXED)
    start_timestamp: int | None = field(default=None, metadata=FIXED)
    transactional_id: str | None = field(default=None, metadata=FIXED)


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the records to the sink that the options name."""
    from pyspark.sql import functions as F

    from gregor.spark_jobs.transforms.generated import Shape, generated

    interval_ms = interval_of(spark, options.interval)
    source = {
        "rowsPerBatch": rows_per_batch(options, interval_ms),
        "startTimestamp": options.start_timestamp,
        "advanceMillisPerBatch": interval_ms,
    }
    numbers = spark.readStream.format("rate-micro-batch").options(**source).load()
    if options.rows is not None:
        numbers = numbers.filter(F.col("value") < options.rows)
    numbers = counted(numbers.withColumn("problem", F.lit(None)), "rows")
    shape = Shape(
        options.keys,
        options.distribution,
        options.skew,
        options.value_format,
        options.size,
        dict(options.column),
        options.seed,
    )
    return writer_of(spark, options, Result(generated(numbers, shape), is_records=True))


def with_start(spark: SparkSession, options: Options) -> Options:
    """Return the options with the time of the first record: given, kept in the checkpoint, or the present.

    The start of the first batch is not in the checkpoint of Spark: repeated, it begins at this time again.
    """
    if options.start_timestamp is not None:
        return options
    kept = kept_option(spark, options.checkpoint, "--start-timestamp")
    return replace(options, start_timestamp=int(time.time() * 1000) if kept is None else kept)


def interval_of(spark: SparkSession, text: str) -> int:
    """Return the milliseconds of a time as Spark writes it; raise JobError if it is none."""
    from pyspark.errors import PySparkException

    try:
        row = spark.sql("SELECT unix_millis(timestamp_millis(0) + CAST(:text AS INTERVAL))", {"text": text}).head()
    except PySparkException as error:
        raise JobError(f"--interval {text!r} is no time; give one like '1 second' or '200 milliseconds'") from error
    assert row is not None
    return int(row[0])


def rows_per_batch(options: Options, interval_ms: int) -> int:
    """Return the number of rows of a batch: those of an interval, or all at once; raise JobError if it is none."""
    if options.trigger == "available-now":
        assert options.rows is not None
        return options.rows
    rows = options.rate * interval_ms // 1000
    if rows < 1:
        raise JobError(f"--rate {options.rate} gives no record in --interval {options.interval!r}; raise one of them")
    return rows


def ended(options: Options) -> Ended:
    """Return the function that ends a run when its rows are written or its time is over."""
    began: list[float] = []

    def is_over(reports: list[Any]) -> bool:
        if not reports:
            return False
        began[:] = began or [time.monotonic()]
        if options.seconds is not None and time.monotonic() - began[0] >= options.seconds:
            return True
        return options.rows is not None and position_of(reports[-1]) >= options.rows

    return is_over


def position_of(report: Any) -> int:
    """Return the number of the row at which the next batch begins."""
    from gregor.spark_jobs.progress import offsets

    [end] = offsets(report, "endOffset")
    return int((end or {}).get("offset", 0))


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    names = [name for name, _ in options.column]
    if options.trigger == "available-now" and options.rows is None:
        return "--once writes all records at once, without a rate; it needs --rows"
    if options.trigger == "available-now" and options.seconds is not None:
        return "--seconds limits a run at a rate; leave it out with --once"
    if options.transactional_id is not None and options.sink != "exactly-once":
        return "--transactional-id needs --sink exactly-once"
    if options.value_format == "bytes" and names:
        return "--column is a field of a JSON object; leave out one of --column and --value-format bytes"
    if len(set(names)) < len(names) or "filler" in names:
        return "each --column needs a name of its own, other than filler"
    if options.keys is None and options.distribution != "uniform":
        return f"--distribution {options.distribution} needs --keys"
    if options.skew != 1.0 and options.distribution != "zipf":
        return "--skew needs --distribution zipf"
    if not 0 < options.skew <= 10:
        return "--skew must be above 0 and at most 10"
    if options.size > MAX_SIZE_BYTES:
        return f"--size must be at most {MAX_SIZE_BYTES:,}"
    return None


def output_topics(options: Options) -> list[str]:
    """Return the topics that have to exist."""
    return [options.output_topic] if options.output_topic is not None else []


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--rate",
        type=positive,
        default=1000,
        metavar="N",
        help="records per second; fewer where they are not written as fast. Default: %(default)s",
    )
    add(
        "--rows",
        type=positive,
        metavar="N",
        help="end when so many records are written, also by the runs before with the same checkpoint; with --once all "
        "at once",
    )
    add(
        "--seconds",
        type=positive,
        metavar="N",
        help="end this long after the first batch; the batch that is being written then is broken off",
    )
    add("--value-format", choices=FORMATS, default="json", help="JSON objects or random bytes; default: %(default)s")
    add(
        "--size",
        type=positive,
        default=100,
        metavar="BYTES",
        help="size of each value: JSON is filled to it with random digits, and is larger if its columns are. "
        "Default: %(default)s",
    )
    add("--keys", type=positive, metavar="N", help="number of different keys; default: records without a key")
    add(
        "--distribution",
        choices=DISTRIBUTIONS,
        default="uniform",
        help="of the keys; zipf: the Nth key is about as frequent as 1/N**SKEW. Default: %(default)s",
    )
    add("--skew", type=float, default=1.0, metavar="SKEW", help="of the distribution zipf; default: %(default)s")
    add(
        "--column",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=EXPR",
        help="a field of the JSON object; may be repeated. Default: id, key and time",
    )
    add("--seed", type=int, default=0, metavar="N", help="another one gives other records; default: %(default)s")
    add(
        "--start-timestamp",
        type=positive,
        metavar="MS",
        help="time of the first records, in milliseconds since 1970; each batch is --interval later. Default: the "
        "present, kept in the checkpoint",
    )
    add_transactional_id(parser)


JOB = Job(
    name="generate",
    summary="Write generated records to a topic at a given rate.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    problem=problem_of,
    topics=output_topics,
    prepare=with_start,
    sinks=("topic", "exactly-once"),
    topic_help=None,
    done="generated",
    connect_problem=no_problem,
    ended=ended,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
