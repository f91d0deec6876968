"""Streaming counts and sums by key in tumbling or sliding windows of the event time.

Run it as `gregor spark windows ...`, or from a checkout as `spark-submit spark_jobs/jobs/windows.py ...`.
`transforms/windows.py` defines the windows and which records are dropped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.jobs.common.chart import Chart
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.options import FIXED, pair
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
    from gregor.spark_jobs.jobs.common.values import (
        COLUMNS_HELP,
        ValueOptions,
        add_value_arguments,
        decoded_rows,
        sum_problem,
        value_problem,
        with_schema,
    )
    from gregor.spark_jobs.jobs.common.windowed import add_window_arguments, mode_for, mode_problem
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"windows: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
examples:
  # records per key and minute, by the timestamps of the records
  gregor spark windows --topic clicks --window "1 minute"

  # page views and seconds per user in the last ten minutes, every minute, as a chart too
  gregor spark windows --topic clicks --value-format json --schema "user STRING, seconds DOUBLE, at TIMESTAMP" \\
    --key value.user --time value.at --sum seconds=value.seconds --window "10 minutes" --slide "1 minute" \\
    --chart views.svg

  # finished windows only, to a topic; a window is finished 5 minutes after its end
  gregor spark windows --topic clicks --window "1 hour" --watermark "5 minutes" --mode append \\
    --sink topic --output-topic views --checkpoint ./views.checkpoint
"""


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    key: str = field(default="key", metadata=FIXED)
    window: str = field(default="1 minute", metadata=FIXED)
    slide: str | None = field(default=None, metadata=FIXED)
    watermark: str = field(default="10 minutes", metadata=FIXED)
    mode: str | None = field(default=None, metadata=FIXED)
    sum: Sequence[tuple[str, str]] = field(default=(), metadata=FIXED)
    chart: str | None = None

    @property
    def needs_columns(self) -> bool:
        """Whether a chart is drawn of each batch."""
        return self.chart is not None


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the windows to the sink that the options name."""
    from gregor.spark_jobs.transforms.windows import windowed

    rows = decoded_rows(spark, JOB.name, options)
    counts = windowed(rows.frame, options.key, options.window, options.slide, options.watermark, dict(options.sum))
    mode = mode_for(options.sink, options.mode)
    observers = []
    if options.chart is not None:
        shown = options.sum[0][0] if options.sum else "count"
        title = f"{shown} of {options.topic} by {options.key}, windows of {options.window}"
        observers.append(Chart(options.chart, title, "window_start", "key", shown).observer())
    result = Result(counts, mode, ("window_start", "key"), letters=rows.letters)
    return writer_of(spark, options, result, observers)


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    return (
        mode_problem(options.sink, options.mode)
        or sum_problem(options.sum, {"window_start", "window_end"})
        or value_problem(options)
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser)
    add = parser.add_argument
    add("--key", default="key", metavar="EXPR", help="group by this; default: the key of the record")
    add_window_arguments(parser, "rows")
    add("--sum", type=pair, action="append", default=[], metavar="NAME=EXPR", help="a sum per window; may be repeated")
    add("--chart", metavar="FILE.svg", help="chart of this run: the first sum, or the counts, of the largest keys")


JOB = Job(
    name="windows",
    summary="Count and sum records by key in windows of the event time.",
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
