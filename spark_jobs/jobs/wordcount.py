"""Streaming word count of a topic's values, to the console, to a topic or to Parquet.

Run it as `gregor spark wordcount ...`, or from a checkout as `spark-submit spark_jobs/jobs/wordcount.py ...`. A stopped
query continues at its position when it is started again with the same checkpoint; a checkpoint belongs to one output.
`spark_jobs/sinks.py` explains how each sink keeps its counts correct, `transforms/wordcount.py` defines a word.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

try:
    from gregor.spark_jobs.errors import JobError
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

    from gregor.spark_jobs.progress import Progress

SINKS = ("console", "topic", "parquet")
TRIGGERS = ("processing-time", "available-now")

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
class Options:
    """The options of the job; `parse` creates them from arguments and checks them."""

    topic: str
    bootstrap_server: str = "localhost:9092"
    sink: str = "console"
    output_topic: str | None = None
    output_path: str | None = None
    checkpoint: str | None = None
    starting_offsets: str = "earliest"
    trigger: str = "processing-time"
    interval: str = "1 second"
    max_offsets_per_trigger: int | None = None
    top: int = 20
    kafka_options: dict[str, str] = field(default_factory=dict)  # of both sides' clients, without the kafka. prefix
    source_options: dict[str, str] = field(default_factory=dict)  # of the connector's reading side
    conf: dict[str, str] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the job; return the exit code: 0 ended or stopped by a signal, 1 failed, 2 wrong arguments."""
    options = parse(argv, prog)
    try:
        progress = _run(options)
    except JobError as error:
        print(f"wordcount: {error}", file=sys.stderr)
        return 1
    ending = "stopped: " if progress.interrupted else ""
    print(f"{ending}counted {progress.records:,} records in {progress.batches:,} batches", file=sys.stderr)
    return 0


def _run(options: Options) -> "Progress":
    from gregor.spark_jobs.bootstrap import require_broker
    from gregor.spark_jobs.session import open_session, require_pyspark

    require_pyspark()
    require_broker(options.bootstrap_server)
    from pyspark.errors import PySparkException

    from gregor.spark_jobs.progress import reason, run_to_end

    spark = open_session(f"wordcount of {options.topic}", options.conf)
    try:
        return run_to_end(start(spark, options), lambda line: print(line, file=sys.stderr, flush=True))
    except PySparkException as error:
        raise JobError(reason(error)) from error
    finally:
        spark.stop()


def start(spark: "SparkSession", options: Options) -> "StreamingQuery":
    """Start the query and return it at once; raise JobError if the output belongs to another checkpoint."""
    from gregor.spark_jobs.sinks import (
        CHECKPOINT_FOLDER,
        console_sink,
        parquet_sink,
        refuse_foreign_batches,
        topic_sink,
    )
    from gregor.spark_jobs.sources import stream_topic
    from gregor.spark_jobs.transforms.wordcount import word_counts

    client = {f"kafka.{key}": value for key, value in options.kafka_options.items()}
    source = client | {"startingOffsets": options.starting_offsets}
    if options.max_offsets_per_trigger is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_offsets_per_trigger)
    lines = stream_topic(spark, options.bootstrap_server, options.topic, source | options.source_options)
    checkpoint = options.checkpoint
    if options.sink == "topic":
        assert options.output_topic is not None
        writer = topic_sink(word_counts(lines), options.bootstrap_server, options.output_topic, client)
    elif options.sink == "parquet":
        assert options.output_path is not None
        checkpoint = checkpoint or f"{options.output_path.rstrip('/')}/{CHECKPOINT_FOLDER}"
        refuse_foreign_batches(spark, options.output_path, checkpoint)
        writer = parquet_sink(lines, word_counts, options.output_path)
    else:
        writer = console_sink(word_counts(lines), options.top)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if options.trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=options.interval).start()


def parse(argv: Sequence[str] | None = None, prog: str | None = None) -> Options:
    """Parse the arguments; end the program with code 2 and a message if they are wrong."""
    parser = _parser(prog)
    given = parser.parse_args(argv)
    if given.sink == "topic" and given.output_topic is None:
        parser.error("--sink topic needs --output-topic")
    if given.sink == "topic" and given.checkpoint is None:
        parser.error("--sink topic needs --checkpoint, a folder that keeps the counts between runs")
    if given.sink == "parquet" and given.output_path is None:
        parser.error("--sink parquet needs --output-path")
    if given.output_topic is not None and given.output_topic in given.topic.split(","):
        parser.error("--output-topic is one of the topics of --topic: the job would never end; choose another")
    return Options(
        topic=given.topic,
        bootstrap_server=given.bootstrap_server,
        sink=given.sink,
        output_topic=given.output_topic,
        output_path=given.output_path,
        checkpoint=given.checkpoint,
        starting_offsets=given.starting_offsets,
        trigger="available-now" if given.once else given.trigger,
        interval=given.interval,
        max_offsets_per_trigger=given.max_offsets_per_trigger,
        top=given.top,
        kafka_options=dict(given.kafka_option),
        source_options=dict(given.source_option),
        conf=dict(given.conf),
    )


def _parser(prog: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog or "wordcount",
        description="Count the words of a topic's values as they arrive.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--bootstrap-server", "-b", default="localhost:9092", metavar="HOST:PORT[,...]", help="default: %(default)s")
    add("--topic", "-t", required=True, metavar="NAME[,...]", help="the topics to count")
    add("--sink", choices=SINKS, default="console", help="output of the counts; default: %(default)s")
    add("--output-topic", metavar="NAME", help="for --sink topic: topic for the new count of each word that changed")
    add("--output-path", metavar="PATH", help="for --sink parquet: folder for one folder of counts per batch")
    add(
        "--checkpoint",
        metavar="PATH",
        help="folder for the position and the counts of the query; a start with the same folder continues. "
        "Default: inside the output path for parquet; none for the console, where each run starts from zero",
    )
    add(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help='earliest, latest, or offsets as JSON: {"topic": {"0": 23, "1": -2}}; a query that continues ignores it. '
        "Default: %(default)s",
    )
    add("--trigger", choices=TRIGGERS, default="processing-time", help="run until stopped, or end when all is counted")
    add("--once", action="store_true", help="the same as --trigger available-now")
    add("--interval", default="1 second", metavar="TIME", help="processing time between batches; default: %(default)s")
    add("--max-offsets-per-trigger", type=_positive, metavar="N", help="largest number of records in one batch")
    add("--top", type=_positive, default=20, metavar="N", help="words shown by the console sink; default: %(default)s")
    add(
        "--kafka-option",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a client setting for reading and writing, such as security.protocol=SSL; may be repeated",
    )
    add(
        "--source-option",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the connector, such as failOnDataLoss=false; may be repeated",
    )
    add("--conf", type=_pair, action="append", default=[], metavar="KEY=VALUE", help="a Spark setting; may be repeated")
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
