"""Streaming word count of a topic's values, to the console, to a topic or to Parquet.

Run it as `gregor spark wordcount ...`, or from a checkout as `spark-submit spark_jobs/jobs/wordcount.py ...`. A stopped
query continues at its position when it is started again with the same checkpoint; a checkpoint belongs to one output.
`spark_jobs/sinks.py` explains how each sink keeps its counts correct, `transforms/wordcount.py` defines a word.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.jobs.common.job import Job, no_problem
    from gregor.spark_jobs.jobs.common.job import start as start_job
    from gregor.spark_jobs.jobs.common.options import Options as CommonOptions
    from gregor.spark_jobs.jobs.common.options import positive
    from gregor.spark_jobs.jobs.common.sinks import checkpoint_of
    from gregor.spark_jobs.jobs.common.sources import record_stream
except ModuleNotFoundError as error:
    if error.name != "gregor":
        raise
    sys.exit(
        f"wordcount: gregor is not installed for {sys.executable}, the Python that spark-submit has started.\n"
        "Use a Python that has it: PYSPARK_PYTHON=.venv/bin/python spark-submit ..., or .venv/bin/spark-submit."
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXAMPLES = """\
examples:
  # watch the most frequent words of a topic, from its beginning on
  gregor spark wordcount --topic lines

  # count what is there now into a topic, then end; next time, count only what was added
  gregor spark wordcount --topic lines --sink topic --output-topic counts --checkpoint ./counts.checkpoint --once

  # a Parquet folder that grows every minute; read it with
  #   spark.read.parquet("counts").groupBy("word").sum("count")
  gregor spark wordcount --topic lines --sink parquet --output-path counts --interval "1 minute"

  # the same job under spark-submit, from a checkout
  .venv/bin/spark-submit spark_jobs/jobs/wordcount.py --topic lines --once
"""


@dataclass(frozen=True)
class Options(CommonOptions):
    """The options of the job; `parse` creates them from arguments and checks them."""

    top: int = 20


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the job; return the exit code: 0 ended or stopped by a signal, 1 failed, 2 wrong arguments."""
    return JOB.main(argv, prog)


def parse(argv: Sequence[str] | None = None, prog: str | None = None) -> Options:
    """Parse the arguments; end the program with code 2 and a message if they are wrong."""
    options: Options = JOB.parse(argv, prog)
    return options


def start(spark: SparkSession, options: Options) -> StreamingQuery:
    """Start the query and return it at once; raise JobError if the output belongs to another checkpoint."""
    return start_job(spark, JOB, options)


def build(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return the writer of the counts to the sink that the options name."""
    from gregor.spark_jobs.sinks import console_sink, parquet_sink, refuse_foreign_batches, topic_sink
    from gregor.spark_jobs.transforms.wordcount import word_counts

    lines = record_stream(spark, options)
    if options.sink == "topic":
        assert options.output_topic is not None
        return topic_sink(word_counts(lines), options.bootstrap_server, options.output_topic, options.client)
    if options.sink == "parquet":
        checkpoint = checkpoint_of(options)
        assert options.output_path is not None and checkpoint is not None
        refuse_foreign_batches(spark, options.output_path, checkpoint)
        return parquet_sink(lines, word_counts, options.output_path)
    return console_sink(word_counts(lines), options.top)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top", type=positive, default=20, metavar="N", help="words shown by the console sink; default: %(default)s"
    )


JOB = Job(
    name="wordcount",
    summary="Count the words of a topic's values as they arrive.",
    examples=EXAMPLES,
    build=build,
    options=Options,
    add_arguments=_add_arguments,
    sinks=("console", "topic", "parquet"),
    topic_help="the topics to count",
    done="counted",
    connect_problem=no_problem,
)

if __name__ == "__main__":
    sys.exit(main())
