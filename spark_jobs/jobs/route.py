"""Records filtered, mapped and copied, from topic to topic and from cluster to cluster.

Run it as `gregor spark route ...`, or from a checkout as `spark-submit spark_jobs/jobs/route.py ...`.
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
        f"route: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
examples:
  # large orders to a topic of their own, unchanged
  gregor spark route --topic orders --value-format json --schema "id STRING, country STRING, amount DOUBLE" \\
    --where "value.amount > 1000" --sink topic --output-topic large-orders --checkpoint ./large.checkpoint

  # a topic per country, keyed by the order; records without a country go to the output topic
  gregor spark route --topic orders --value-format json --schema "id STRING, country STRING, amount DOUBLE" \\
    --to "'orders-' || value.country" --set-key value.id --set-value "struct(value.id, value.amount)" \\
    --sink topic --output-topic orders-rest --checkpoint ./countries.checkpoint

  # copy a topic to another cluster; keys, values, headers and partitions stay
  gregor spark route --topic orders --keep-partition --output-bootstrap-server other:9092 \\
    --sink topic --output-topic orders --checkpoint ./copy.checkpoint
"""


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    value_format: str = field(default="bytes", metadata=FIXED)
    where: str | None = None
    set_key: str | None = None
    set_value: str | None = None
    to: str | None = None
    keep_partition: bool = False
    output_bootstrap_server: str | None = None


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the records to the sink that the options name."""
    from gregor.spark_jobs.transforms.route import routed

    rows = decoded_rows(spark, JOB.name, options, raw=True)
    records = routed(rows.frame, options.where, options.set_key, options.set_value, options.to, options.keep_partition)
    return writer_of(spark, options, Result(records, is_records=True, letters=rows.letters))


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    if options.sink not in ("topic", "exactly-once") and options.output_bootstrap_server is not None:
        return "--output-bootstrap-server needs a sink to a topic"
    return value_problem(options)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser, time=False, default="bytes")
    add = parser.add_argument
    add("--where", metavar="EXPR", help="copy only the records for which this is true")
    add("--set-key", metavar="EXPR", help="the new key; default: the key as it is")
    add("--set-value", metavar="EXPR", help="the new value, nested ones become JSON; default: the value as it is")
    add("--to", metavar="EXPR", help="the topic of each record; --output-topic is that of the records where it is null")
    add("--keep-partition", action="store_true", help="write to the partition with the number of the one that was read")
    add(
        "--output-bootstrap-server", metavar="HOST:PORT[,...]", help="cluster of the output; default: that of the input"
    )


JOB = Job(
    name="route",
    summary="Filter, map and copy records to other topics and clusters.",
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
