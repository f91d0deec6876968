"""Records of a topic without duplicates, as they were.

Run it as `gregor spark dedup ...`, or from a checkout as `spark-submit spark_jobs/jobs/dedup.py ...`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.options import FIXED
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
    from gregor.spark_jobs.jobs.common.values import (
        COLUMNS_HELP,
        ValueOptions,
        add_value_arguments,
        decoded_rows,
        value_problem,
        with_schema,
    )
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"dedup: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
examples:
  # the records of a topic, without those that a producer has sent twice within ten minutes
  gregor spark dedup --topic payments --sink topic --output-topic payments-once --checkpoint ./payments.checkpoint

  # duplicates have the same id, by the time in the record
  gregor spark dedup --topic payments --value-format json --schema "id STRING, at TIMESTAMP" --id value.id \\
    --time value.at --within "1 hour" --sink topic --output-topic payments-once --checkpoint ./payments.checkpoint
"""


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    value_format: str = field(default="bytes", metadata=FIXED)
    id: str = field(default="struct(raw_key, raw_value)", metadata=FIXED)
    within: str = field(default="10 minutes", metadata=FIXED)


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the records to the sink that the options name."""
    from gregor.spark_jobs.transforms.dedup import deduplicated
    from gregor.spark_jobs.transforms.route import routed

    rows = decoded_rows(spark, JOB.name, options, raw=True)
    records = routed(deduplicated(rows.frame, options.id, options.within))
    return writer_of(spark, options, Result(records, is_records=True, letters=rows.letters))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser, default="bytes")
    add = parser.add_argument
    add(
        "--id",
        default="struct(raw_key, raw_value)",
        metavar="EXPR",
        help="records with the same id are duplicates; default: those with the same bytes of key and value. Where such "
        "records are sent on purpose, as heartbeats are, give an id that distinguishes them",
    )
    add(
        "--within",
        default="10 minutes",
        metavar="TIME",
        help="duplicates with event times less than this apart are removed. Those further apart are removed too, until "
        "the highest event time of the batches before is twice this after the first record of the id. A record this "
        "far behind the highest event time is dropped, and counted in the last line. Default: %(default)s",
    )


JOB = Job(
    name="dedup",
    summary="Copy records without duplicates, within a time.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    problem=value_problem,
    prepare=with_schema,
    connect_problem=no_problem,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
