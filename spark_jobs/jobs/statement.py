"""One SQL statement over topics as tables.

Run it as `gregor spark sql ...`, or from a checkout as `spark-submit spark_jobs/jobs/statement.py ...`.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.errors import JobError
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.options import FIXED
    from gregor.spark_jobs.jobs.common.sinks import Result, writer_of
    from gregor.spark_jobs.jobs.common.values import (
        COLUMNS_HELP,
        ValueOptions,
        add_value_arguments,
        decoded_rows,
        letters_of,
        value_problem,
        with_schema,
    )
    from gregor.spark_jobs.jobs.common.windowed import MODES, mode_problem
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"sql: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = f"""\
{COLUMNS_HELP}
Each topic of --topic is a table; other characters than letters, digits and _ in its name become _. The columns `key`,
`value` and `headers` of the result are the record for --sink topic and exactly-once; without `value` the value is one
JSON object of all columns. All records go to --output-topic.

examples:
  # orders per country
  gregor spark sql --topic orders --value-format json --schema "country STRING, amount DOUBLE" \\
    --query "SELECT value.country AS key, count(*) AS orders, sum(value.amount) AS amount FROM orders GROUP BY 1"

  # payments with their order, at most an hour apart
  gregor spark sql --topic orders,payments --value-format json --schema "id STRING, amount DOUBLE" \\
    --watermark "2 hours" --mode append --query "SELECT o.value.id AS key, o.value.amount, p.value.amount AS paid
    FROM orders o JOIN payments p ON o.value.id = p.value.id AND p.time BETWEEN o.time AND o.time + INTERVAL '1 hour'"
"""


@dataclass(frozen=True)
class Options(ValueOptions):
    """The options of the job."""

    query: str = field(default="", metadata=FIXED)
    watermark: str | None = field(default=None, metadata=FIXED)
    mode: str = field(default="update", metadata=FIXED)


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the result to the sink that the options name."""
    tables = {topic: decoded_rows(spark, JOB.name, options, topic) for topic in options.topics}
    for topic, table in tables.items():
        rows = table.frame
        if options.watermark is not None:
            rows = rows.withWatermark("time", options.watermark)
        rows.createOrReplaceTempView(table_name(topic))
    frame = spark.sql(options.query)
    if not frame.isStreaming:
        raise JobError(
            f"--query reads none of the tables {', '.join(map(table_name, options.topics))}; name one in FROM"
        )
    is_records = "value" in frame.columns
    if is_records and options.output_topic is not None:
        # Those of SELECT * are the place of the record in the input: the job would read what it writes.
        frame = frame.drop("topic", "partition")
    result = Result(frame, options.mode, is_records=is_records, letters=letters_of(*tables.values()))
    return writer_of(spark, options, result)


def table_name(topic: str) -> str:
    """Return the name of the table of a topic."""
    name = re.sub(r"\W", "_", topic)
    return f"_{name}" if name[0].isdigit() else name


def problem_of(options: Options) -> str | None:
    """Return what is wrong with the options, or None."""
    problem = mode_problem(options.sink, options.mode)
    if problem is not None:
        return problem
    names = [table_name(topic) for topic in options.topics]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        return f"two topics of --topic have the same table name {double}"
    return value_problem(options)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_value_arguments(parser)
    add = parser.add_argument
    add("--query", required=True, metavar="SQL", help="the statement, a SELECT")
    add("--watermark", metavar="TIME", help="of the column `time` of each table, for windows and for joins")
    add(
        "--mode",
        choices=MODES,
        default="update",
        help="update: rows that changed, in each batch; append: rows that stay as they are, of joins and finished "
        "windows. Default: %(default)s",
    )


JOB = Job(
    name="sql",
    summary="Run one SQL statement over topics as tables.",
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
