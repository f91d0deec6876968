"""The options that every job has, their arguments, and the checks of one that needs another.

A job adds options by a subclass of `Options`, whose fields have the names of its arguments. The options marked `FIXED`
decide what a checkpoint contains: a run that continues it must have the same (`checkpoint.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

from gregor.spark_jobs.launch.workers import MODULES, MODULES_OF_SINK

FIXED: Mapping[str, Any] = {"fixed": True}
EVOLVING: Mapping[str, Any] = {"fixed": True, "evolving": True}
"""Of an option that a checkpoint keeps, and that a later run may change."""
TRIGGERS = ("processing-time", "available-now")
SOURCES = ("kafka", "gregor")
PAIRS = ("kafka_options", "source_options", "conf")


@dataclass(frozen=True)
class Options:
    """The options of a job; `parse` creates them from arguments and checks them."""

    topic: str = field(metadata=FIXED)
    bootstrap_server: str = "localhost:9092"
    source: str = field(default="kafka", metadata=FIXED)
    sink: str = field(default="console", metadata=FIXED)
    output_topic: str | None = field(default=None, metadata=FIXED)
    output_path: str | None = None
    checkpoint: str | None = None
    starting_offsets: str = "earliest"
    trigger: str = "processing-time"
    interval: str = "1 second"
    max_offsets_per_trigger: int | None = None
    kafka_options: dict[str, str] = field(default_factory=dict)  # of both sides' clients, without the kafka. prefix
    source_options: dict[str, str] = field(default_factory=dict)  # of the source
    conf: dict[str, str] = field(default_factory=dict)
    needs_checkpoint: ClassVar[bool] = True
    """Whether a run to a topic without a checkpoint would repeat the work of the run before."""

    @property
    def topics(self) -> list[str]:
        """The topics to read."""
        return [name for name in map(str.strip, self.topic.split(",")) if name]

    @property
    def client(self) -> dict[str, str]:
        """The client settings as options of a source or a sink."""
        return {f"kafka.{key}": value for key, value in self.kafka_options.items()}

    @property
    def worker_modules(self) -> frozenset[str]:
        """The modules that the Python of Spark's workers needs; none if no function in Python runs there."""
        reads = MODULES if self.source == "gregor" and self.topics else frozenset()
        return reads | (MODULES_OF_SINK if self.sink == "exactly-once" else frozenset())

    def fixed(self) -> dict[str, Any]:
        """Return the options that a checkpoint fixes, by the names of their arguments."""
        values = {argument_of(one): getattr(self, one.name) for one in fields(self) if one.metadata.get("fixed")}
        stored: dict[str, Any] = json.loads(json.dumps(values))  # as it is read from the file of the identity
        return stored

    def evolving(self) -> set[str]:
        """Return the names of those among them that a run may change."""
        return {argument_of(one) for one in fields(self) if one.metadata.get("evolving")}


def argument_of(option: Field[Any]) -> str:
    """Return the argument that sets a field of the options."""
    return option.metadata.get("argument") or "--" + option.name.replace("_", "-")


def add_common_arguments(parser: argparse.ArgumentParser, sinks: Sequence[str], topic_help: str | None) -> None:
    """Add the arguments of the fields of `Options`, without `topic_help` only those of a job that reads no topic."""
    add = parser.add_argument
    add("--bootstrap-server", "-b", default="localhost:9092", metavar="HOST:PORT[,...]", help="default: %(default)s")
    if topic_help is None:
        parser.set_defaults(topic="")
    else:
        _add_input_arguments(parser, topic_help)
    if sinks:
        add_sink_arguments(parser, sinks)
    add(
        "--trigger", choices=TRIGGERS, default="processing-time", help="run until stopped, or end when all is processed"
    )
    add("--once", action="store_true", help="the same as --trigger available-now")
    add("--interval", default="1 second", metavar="TIME", help="processing time between batches; default: %(default)s")
    add_pairs(parser, "--kafka-option", "a client setting for reading and writing, such as security.protocol=SSL")
    add(
        "--master",
        "--remote",
        metavar="URL",
        help="the Spark cluster, such as spark://host:7077 or yarn, or a Spark Connect server, sc://host:15002; "
        "default: this machine",
    )
    add_pairs(parser, "--conf", "a Spark setting")


def _add_input_arguments(parser: argparse.ArgumentParser, topic_help: str) -> None:
    add = parser.add_argument
    add("--topic", "-t", required=True, metavar="NAME[,...]", help=topic_help)
    add(
        "--source",
        choices=SOURCES,
        default="kafka",
        help="kafka: Spark's Kafka connector; gregor: the source in Python, without jars. Default: %(default)s",
    )
    add(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help='earliest, latest, or offsets as JSON: {"topic": {"0": 23, "1": -2}}; a query that continues ignores it. '
        "Default: %(default)s",
    )
    add("--max-offsets-per-trigger", type=positive, metavar="N", help="largest number of records in one batch")
    add_pairs(parser, "--source-option", "an option of the source, such as failOnDataLoss=false")


def add_sink_arguments(parser: argparse.ArgumentParser, sinks: Sequence[str]) -> None:
    """Add the arguments of a job that leaves the choice of its output to the user."""
    add = parser.add_argument
    add("--sink", choices=sinks, default=sinks[0], help="output of the result; default: %(default)s")
    add("--output-topic", metavar="NAME", help="for the sinks to a topic: the topic for the rows of the result")
    if "parquet" in sinks:
        add("--output-path", metavar="PATH", help="for --sink parquet: folder for one folder of rows per batch")
    add(
        "--checkpoint",
        metavar="PATH",
        help="folder for the position and the state of the query; a start with the same folder continues. "
        "Default: inside the output path for parquet; none for the console, where each run starts anew",
    )


def add_pairs(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add a repeated argument KEY=VALUE."""
    dest = next(one for one in PAIRS if one.startswith(name.removeprefix("--").replace("-", "_")))
    parser.add_argument(
        name, type=pair, action="append", default=[], metavar="KEY=VALUE", dest=dest, help=f"{text}; may be repeated"
    )


def parse_options(
    parser: argparse.ArgumentParser,
    kind: Callable[..., Any],
    problem_of: Callable[[Any], str | None],
    argv: Sequence[str] | None,
) -> Any:
    """Parse the arguments to options; end the program with code 2 and a message if they are wrong."""
    given = vars(parser.parse_args(argv))
    if given.pop("once"):
        given["trigger"] = "available-now"
    master = given.pop("master")
    if master is not None:
        setting = "spark.remote" if master.startswith("sc://") else "spark.master"
        given["conf"] = [*given["conf"], (setting, master)]
    options = kind(**given | {name: dict(given.get(name, [])) for name in PAIRS})
    problem = problem_of(options)
    if problem is not None:
        parser.error(problem)
    return options


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def add_transactional_id(parser: argparse.ArgumentParser) -> None:
    """Add the argument of jobs that have the sink `exactly-once`."""
    parser.add_argument(
        "--transactional-id",
        metavar="NAME",
        help="for --sink exactly-once: a name of this query alone, with which a newer run fences an older one",
    )
