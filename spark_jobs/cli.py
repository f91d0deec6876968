"""`gregor spark`: runs a job or a cluster, or prints the jars that Spark needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from gregor.spark_jobs.connector import CONNECTORS, USUAL_SPARK, connector_package
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.packages import Package, package_jars
from gregor.spark_jobs.tables.packages import delta_package, iceberg_package

if TYPE_CHECKING:
    from gregor.spark_jobs.jobs.common.job import Job

JOBS: dict[str, tuple[str, str]] = {
    "dedup": ("dedup", "copy records without duplicates"),
    "files": ("files_to_topic", "write the files of a watched folder to a topic: lines, JSON, CSV or whole files"),
    "generate": ("generate", "write generated records to a topic at a given rate"),
    "join": ("two_topics", "join a topic with another one, in a time bound or as a table of the latest values"),
    "route": ("route", "filter, map and copy records to other topics and clusters"),
    "sessions": ("sessions", "count and sum records by key in sessions of activity"),
    "sql": ("statement", "run one SQL statement over topics as tables"),
    "table": ("table", "write a topic to a table: all its records, or the latest row of each key"),
    "top": ("top", "find the most frequent keys of each window, in bounded memory"),
    "windows": ("windows", "count and sum records by key in tumbling or sliding windows"),
    "wordcount": ("wordcount", "count the words of a topic as they arrive: to the console, to a topic or to Parquet"),
}
"""The jobs: the module in `jobs/`, and a line of help."""

PACKAGES: dict[str, Callable[[], Package]] = {
    "kafka": connector_package,
    "delta": delta_package,
    "iceberg": iceberg_package,
}
"""The packages of which `jars` prints the jars."""

_JOB_LINES = "\n".join(f"  {name:<11} {text}" for name, (_, text) in JOBS.items())
USAGE = f"""\
usage: gregor spark COMMAND [ARGUMENTS]

commands:
{_JOB_LINES}
  offsets     print where the query of a checkpoint ended, as the option startingOffsets of another query
  cluster     run a Spark cluster on this machine, a master and workers, to run jobs on
  connector   print the jars of Spark's Kafka connector; the first call downloads them
  jars NAME   print the jars of kafka (the connector), delta or iceberg, also of several
  archive     archive Spark's classes once, so that sessions start in half the time

examples:
  gregor spark wordcount --help
  gregor spark wordcount --topic lines --once
  gregor spark offsets ./counts.checkpoint
  spark-submit --jars $(gregor spark connector) my_job.py
  spark-submit --jars $(gregor spark jars kafka iceberg) my_job.py

Spark needs Java 17 or newer and PySpark {", ".join(CONNECTORS)} (pip install 'gregor[spark]'; PySpark {USUAL_SPARK} is
the one that is tested most). The connector is the one of the same minor version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 2 wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    command = COMMANDS.get(arguments[0])
    if command is None:
        print(
            f"gregor spark: there is no command {arguments[0]!r}; commands are {', '.join(COMMANDS)}", file=sys.stderr
        )
        return 2
    try:
        return command(arguments[1:])
    except JobError as error:
        print(f"gregor spark: {error}", file=sys.stderr)
        return 1
    except SystemExit as end:  # argparse ends the program for --help and for bad arguments
        return end.code if isinstance(end.code, int) else 1


def _job(name: str, arguments: list[str]) -> int:
    """Run a job. Its module is imported only now, so that the other jobs cost nothing."""
    job: Job = import_module(f"gregor.spark_jobs.jobs.{JOBS[name][0]}").JOB
    return job.main(arguments, prog=f"gregor spark {name}")


def _cluster(arguments: list[str]) -> int:
    from gregor.spark_jobs.launch.cluster import main as run_cluster

    return run_cluster(arguments)


def _connector(arguments: list[str]) -> int:
    if arguments:
        wants_help = arguments[0] in ("-h", "--help")
        print("usage: gregor spark connector", file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    return _jars(["kafka"])


def _jars(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="gregor spark jars",
        description="Print the jars that Spark needs for topics or for tables of a format, for `spark-submit --jars`. "
        "The first call downloads them.",
    )
    parser.add_argument("names", nargs="+", choices=list(PACKAGES), metavar="NAME", help=", ".join(PACKAGES))
    packages = [PACKAGES[name]() for name in parser.parse_args(arguments).names]
    java = require_java()
    print(",".join(str(jar) for package in packages for jar in package_jars(package, java)))
    return 0


def _archive(arguments: list[str]) -> int:
    from gregor.spark_jobs.launch.archive import main as make_archive

    return make_archive(arguments)


def _offsets(arguments: list[str]) -> int:
    from gregor.spark_jobs.source.checkpoint import starting_offsets

    parser = argparse.ArgumentParser(
        prog="gregor spark offsets",
        description="Print the end of the last completed batch of a checkpoint as the option startingOffsets, by which "
        "another query continues there. The checkpoint may be one of Spark's Kafka connector.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="folder of the checkpoint, on this machine")
    parser.add_argument("--source", type=int, default=0, metavar="N", help="number of the source in the query (0)")
    given = parser.parse_args(arguments)
    print(starting_offsets(given.checkpoint, given.source))
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {name: partial(_job, name) for name in JOBS} | {
    "offsets": _offsets,
    "cluster": _cluster,
    "connector": _connector,
    "jars": _jars,
    "archive": _archive,
}

if __name__ == "__main__":
    sys.exit(main())
