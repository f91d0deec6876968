"""The most frequent keys of each window, in bounded memory.

Run it as `gregor spark top ...`, or from a checkout as `spark-submit spark_jobs/jobs/top.py ...`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.errors import JobError
    from gregor.spark_jobs.jobs.common.chart import Chart
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.options import FIXED, positive
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
    from gregor.spark_jobs.jobs.common.values import (
        COLUMNS_HELP,
        ValueOptions,
        add_value_arguments,
        decoded_rows,
        value_problem,
        with_schema,
    )
    from gregor.spark_jobs.jobs.common.windowed import add_window_arguments, mode_for, mode_problem
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"top: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
examples:
  # the ten most frequent keys of each minute
  gregor spark top --topic clicks

  # the three most visited pages of the last hour, every minute, as a chart too
  gregor spark top --topic clicks --value-format json --schema "page STRING" --key value.page --count 3 \\
    --window "1 hour" --slide "1 minute" --chart pages.svg
"""
MAX_TRACKED = 1_000_000


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    key: str = field(default="key", metadata=FIXED)
    count: int = field(default=10, metadata=FIXED)
    tracked: int = field(default=10_000, metadata=FIXED)
    window: str = field(default="1 minute", metadata=FIXED)
    slide: str | None = field(default=None, metadata=FIXED)
    watermark: str = field(default="10 minutes", metadata=FIXED)
    mode: str | None = field(default=None, metadata=FIXED)
    chart: str | None = None

    @property
    def needs_columns(self) -> bool:
        """Whether a chart is drawn of each batch."""
        return self.chart is not None


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the keys to the sink that the options name."""
    from gregor.spark_jobs.transforms.top import heavy_hitters

    if spark.version.startswith("4.0."):
        raise JobError("top needs PySpark 4.1 or newer; install it with: pip install 'pyspark==4.1.*'")
    rows = decoded_rows(spark, JOB.name, options)
    top = heavy_hitters(
        rows.frame, options.key, options.count, options.window, options.slide, options.watermark, options.tracked
    )
    mode = mode_for(options.sink, options.mode)
    title = f"the {options.count} most frequent {options.key} of {options.topic}, windows of {options.window}"
    charts = [Chart(options.chart, title, "window_start", "key", "count").observer()] if options.chart else []
    return writer_of(spark, options, Result(top, mode, ("window_start", "rank"), letters=rows.letters), charts)


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    problem = mode_problem(options.sink, options.mode)
    if problem is not None:
        return problem
    if options.tracked < options.count or options.tracked > MAX_TRACKED:
        return f"--tracked must be from --count ({options.count}) to {MAX_TRACKED:,}"
    return value_problem(options)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser)
    add = parser.add_argument
    add("--key", default="key", metavar="EXPR", help="count this; default: the key of the record")
    add("--count", type=positive, default=10, metavar="N", help="keys of a window; default: %(default)s")
    add(
        "--tracked",
        type=positive,
        default=10_000,
        metavar="N",
        help="keys that a window holds: with more than three quarters of it the counts are estimates; "
        "default: %(default)s",
    )
    add_window_arguments(parser, "windows")
    add("--chart", metavar="FILE.svg", help="chart of this run: the counts of the largest keys")


JOB = Job(
    name="top",
    summary="Find the most frequent keys of each window, in bounded memory.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    problem=problem_of,
    prepare=with_schema,
    connect_problem=no_problem,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
