"""Sessions of each key: records with gaps shorter than a given time.

Run it as `gregor spark sessions ...`, or from a checkout as `spark-submit spark_jobs/jobs/sessions.py ...`.
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
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"sessions: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
examples:
  # visits: clicks of a user less than 30 minutes apart
  gregor spark sessions --topic clicks --gap "30 minutes" --watermark "5 minutes" --chart visits.svg

  gregor spark sessions --topic clicks --value-format json --schema "user STRING, seconds DOUBLE" --key value.user \\
    --sum seconds=value.seconds --sink topic --output-topic visits --checkpoint ./visits.checkpoint
"""


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    key: str = field(default="key", metadata=FIXED)
    gap: str = field(default="30 minutes", metadata=FIXED)
    watermark: str = field(default="10 minutes", metadata=FIXED)
    sum: Sequence[tuple[str, str]] = field(default=(), metadata=FIXED)
    chart: str | None = None

    @property
    def needs_columns(self) -> bool:
        """Whether a chart is drawn of each batch."""
        return self.chart is not None


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the finished sessions to the sink that the options name."""
    from gregor.spark_jobs.transforms.sessions import sessions

    rows = decoded_rows(spark, JOB.name, options)
    found = sessions(rows.frame, options.key, options.gap, options.watermark, dict(options.sum))
    charts = []
    if options.chart is not None:
        shown = options.sum[0][0] if options.sum else "count"
        title = f"{shown} of {options.topic} by {options.key}, sessions with gaps below {options.gap}"
        charts.append(Chart(options.chart, title, "session_start", "key", shown).observer())
    return writer_of(spark, options, Result(found, order=("session_start", "key"), letters=rows.letters), charts)


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    return sum_problem(options.sum, {"session_start", "session_end"}) or value_problem(options)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser)
    add = parser.add_argument
    add("--key", default="key", metavar="EXPR", help="sessions of this; default: the key of the record")
    add(
        "--gap",
        default="30 minutes",
        metavar="TIME",
        help="a session ends this long after its last record; default: %(default)s",
    )
    add(
        "--watermark",
        default="10 minutes",
        metavar="TIME",
        help="a session is written, and later records for it are dropped, when it ended this long before the highest "
        "event time; default: %(default)s",
    )
    add("--sum", type=pair, action="append", default=[], metavar="NAME=EXPR", help="a sum per session; may be repeated")
    add(
        "--chart",
        metavar="FILE.svg",
        help="chart of this run: the first sum, or the counts, of the sessions of the largest keys, by their starts",
    )


JOB = Job(
    name="sessions",
    summary="Count and sum records by key in sessions of activity.",
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
