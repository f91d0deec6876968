"""A job from its arguments to its exit code: parse, check, start the query, show its progress, stop it, sum up."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.client.listeners import listeners_of
from gregor.spark_jobs.errors import JobError, reason
from gregor.spark_jobs.jobs.common.checkpoint import Folder, check, claim
from gregor.spark_jobs.jobs.common.dead_letters import GUARANTEE, GUARANTEE_IN_TRANSACTION
from gregor.spark_jobs.jobs.common.failures import explained
from gregor.spark_jobs.jobs.common.once import forget_end, is_repeated, stop_at_end
from gregor.spark_jobs.jobs.common.options import Options, add_common_arguments, parse_options
from gregor.spark_jobs.jobs.common.sinks import SINKS, Sink, checkpoint_of, output_servers
from gregor.spark_jobs.jobs.common.sources import BY_OTHER_NAMES, lag_of, require_topics, stream_options
from gregor.spark_jobs.jobs.common.terminal import Terminal
from gregor.spark_jobs.launch.workers import require_workers
from gregor.spark_jobs.source.checkpoint import commit_last_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from gregor.spark_jobs.packages import Package
    from gregor.spark_jobs.progress import Ended, Progress

STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch stores its changes, not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings for the state, where the user has none. An old checkpoint keeps its provider."""

NO_PAUSE = "0 seconds"


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no argument."""


def no_problem(options: Any) -> str | None:
    """Return None: any options fit."""
    return None


def no_needs(options: Any) -> tuple[Mapping[str, str], Sequence[Package]]:
    """Return no settings and no packages."""
    return {}, ()


def needs_jvm(options: Any) -> str | None:
    """Return the reason against Spark Connect of a job that is not made for it."""
    return "it needs the driver's JVM, which a client of Connect does not have"


def input_topics(options: Any) -> list[str]:
    """Return the topics of --topic, none if the source selects them by another option."""
    return [] if any(name in options.source_options for name in BY_OTHER_NAMES) else options.topics


@dataclass(frozen=True)
class Job:
    """A job: `build` returns the writer of its query; the rest describes it to the user."""

    name: str
    summary: str
    examples: str
    build: Callable[[SparkSession, Any], DataStreamWriter]
    options: type[Options] = Options
    add_arguments: Callable[[argparse.ArgumentParser], None] = no_arguments
    problem: Callable[[Any], str | None] = no_problem
    topics: Callable[[Any], list[str]] = input_topics
    prepare: Callable[[SparkSession, Any], Any] | None = None
    """Returns the options completed by the cluster or an old checkpoint, such as an inferred schema."""
    sinks: tuple[str, ...] = tuple(SINKS)
    sink: Sink | None = None
    """The output of a job that has only one, without `sinks`."""
    session: Callable[[Any], tuple[Mapping[str, str], Sequence[Package]]] = no_needs
    """Returns the settings and the packages of Spark that the options need; a setting of the user has precedence."""
    topic_help: str | None = "the topics to read"
    """None if the job reads no topic: then it has no arguments for one."""
    done: str = "processed"
    connect_problem: Callable[[Any], str | None] = needs_jvm
    """Returns why the options need the driver's JVM, which a session of Spark Connect does not have, or None."""
    ended: Callable[[Any], Ended] | None = None
    """Returns, for a job whose source has no end, the function that decides when the run ends."""

    def parse(self, argv: Sequence[str] | None = None, prog: str | None = None) -> Any:
        """Parse the arguments; end the program with code 2 and a message if they are wrong."""
        parser = argparse.ArgumentParser(
            prog=prog or self.name,
            description=self.summary,
            epilog=self.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_common_arguments(parser, self.sinks, self.topic_help)
        self.add_arguments(parser)
        return parse_options(parser, self.options, self._problem_of, argv)

    def _problem_of(self, options: Any) -> str | None:
        return self._sink_of(options).problem(options) or self.problem(options)

    def _sink_of(self, options: Any) -> Sink:
        return self.sink or SINKS[options.sink]

    def main(self, argv: Sequence[str] | None = None, prog: str | None = None) -> int:
        """Run the job; return the exit code: 0 ended or stopped by a signal, 1 failed, 2 wrong arguments."""
        options = self.parse(argv, prog)
        began = time.monotonic()
        terminal = Terminal(sys.stderr)
        try:
            progress = self._run(options, terminal)
        except JobError as error:
            terminal.close()
            print(f"{self.name}: {explained(str(error))}", file=sys.stderr)
            return 1
        print(self.summing_up(progress, time.monotonic() - began), file=sys.stderr)
        return 0

    def problem_with_connect(self, options: Any) -> str | None:
        """Return why a run with these options cannot be one of Spark Connect, or None."""
        problem = self.connect_problem(options) or self._sink_of(options).connect_problem
        if problem is not None:
            return problem
        if getattr(options, "chart", None) is not None:
            return "the batches run on the server, and --chart would write its file there; leave it out"
        return None

    def summing_up(self, progress: Progress, elapsed_s: float) -> str:
        """Return the last line of a run."""
        ending = "stopped: " if progress.interrupted else ""
        text = f"{ending}{self.done} {progress.records:,} records in {progress.batches:,} batches, {elapsed_s:,.1f} s"
        if progress.dropped:
            text += f"; {progress.dropped:,} rows behind the watermark were dropped"
        if progress.dead_letters:
            text += f"; {progress.dead_letters:,} went to the dead-letter topic"
        return text

    def _run(self, options: Any, terminal: Terminal) -> Progress:
        from gregor.spark_jobs.session import open_session, remote_server, require_no_connect, require_pyspark

        require_pyspark()
        reason_against_connect = self.problem_with_connect(options)
        if reason_against_connect is not None:
            require_no_connect(options.conf, self.name, reason_against_connect)
        require_topics(options.bootstrap_server, self.topics(options), options.client)
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            settings, packages = self.session(options)
            conf = {**settings, **options.conf}
            spark = open_session(f"{self.name} of {options.topic or options.output_topic}", conf, packages=packages)
            try:
                check_workers(spark, options, through_connect=remote_server(options.conf) is not None)
                return self.run_in(spark, options, terminal)
            finally:
                terminal.close()
                spark.stop()
        except (PySparkException, Py4JError) as error:
            raise JobError(reason(error)) from error

    def run_in(self, spark: SparkSession, options: Any, terminal: Terminal, timeout_s: float = math.inf) -> Progress:
        """Run the query in a session until it ends or is stopped, and commit its last batch."""
        from gregor.spark_jobs.progress import run_to_end

        options = completed(spark, self, options)
        query = start_completed(spark, self, options)
        if options.sink != "console":
            terminal.line(f"{self.name} to {options.sink}: {self._sink_of(options).guarantee}")
        if getattr(options, "dead_letter_topic", None) is not None:
            terminal.line(GUARANTEE_IN_TRANSACTION if options.letters_in_transaction else GUARANTEE)
        ended = None if self.ended is None else self.ended(options)
        progress = run_to_end(query, terminal.progress, timeout_s, ended, lag_of(options))
        for line in commit_end(spark, options):
            terminal.line(line)
        return progress


def check_workers(spark: SparkSession, options: Any, through_connect: bool) -> None:
    """Raise JobError, with the remedy, if the workers cannot run the functions in Python that the options need.

    Through Spark Connect each batch runs one, in the Python of the server.
    """
    modules = options.worker_modules
    if not modules and not through_connect:
        return
    given = stream_options(options)
    servers = dict.fromkeys([options.bootstrap_server, output_servers(options)])
    require_workers(spark, [listeners_of(given | {"kafka.bootstrap.servers": one}) for one in servers], modules)


def start(spark: SparkSession, job: Job, options: Any) -> StreamingQuery:
    """Start the query and return it at once; raise JobError if the checkpoint or the output belongs to another run."""
    return start_completed(spark, job, completed(spark, job, options))


def completed(spark: SparkSession, job: Job, options: Any) -> Any:
    """Return the options completed by the cluster or an old checkpoint."""
    return options if job.prepare is None else job.prepare(spark, options)


def start_completed(spark: SparkSession, job: Job, options: Any) -> StreamingQuery:
    """Start the query with options that are complete."""
    for key, value in STATE_STORE.items():
        if spark.conf.get(key, None) is None:
            spark.conf.set(key, value)
    checkpoint = checkpoint_of(options)
    ends_itself = is_repeated(spark, options)
    if checkpoint is not None and ends_itself:
        check(spark, checkpoint, job.name, options.fixed(), options.evolving())  # before its end is written there
    writer = job.build(spark, options)
    if checkpoint is not None:
        claim(spark, checkpoint, job.name, options.fixed(), options.evolving())
        if not ends_itself:
            forget_end(spark, checkpoint)
        writer = writer.option("checkpointLocation", checkpoint)
    if ends_itself:
        return stop_at_end(writer.trigger(processingTime=NO_PAUSE).start())
    if options.trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=options.interval).start()


def commit_end(spark: SparkSession, options: Options) -> list[str]:
    """Commit the end of the last batch, once the query has ended, to the group that the options name, if they do.

    Return the line about what was not committed, so that a lag tool shows an older position. Without a checkpoint no
    run continues there, and nothing is committed.
    """
    checkpoint = checkpoint_of(options)
    if options.source != "gregor" or checkpoint is None or not options.topics:
        return []
    servers = {"kafka.bootstrap.servers": options.bootstrap_server}
    try:
        commit_last_batches(Folder(spark, checkpoint), stream_options(options) | servers)
    except JobError as error:
        return [f"the end of the last batch was not committed to the group of the query: {error}"]
    return []
