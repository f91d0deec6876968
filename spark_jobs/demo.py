"""A demonstration on this machine: a broker, a text, a topic, a word count by Spark, and a check of its result.

`make demo` runs it (`python -m gregor.spark_jobs.demo`). With GREGOR_DEMO_BOOTSTRAP=HOST:PORT it uses a running broker.
The counts are written to a second topic, and consumed by the same client that produced the text, so that both
directions of both clients are part of the demonstration.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from gregor.spark_jobs.connector import connector_folder, connector_jars
from gregor.spark_jobs.errors import JobError, reason
from gregor.spark_jobs.installation import require_pyspark
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.session import SHORT_JOB, open_session

# The first existing one is used: long texts that readers know.
TEXTS = (
    "/usr/share/common-licenses/GPL-3",
    "/usr/share/licenses/common/GPL3/license.txt",
    "/usr/share/common-licenses/GPL-2",
    "/usr/share/dict/words",
    os.path.join(sysconfig.get_path("stdlib"), "LICENSE.txt"),
    os.path.join(sysconfig.get_path("stdlib"), "pydoc_data", "topics.py"),
)
PARTITIONS = 2
BATCHES = 4
BROKER_START_S = 30
BROKER_STOP_S = 20
CLIENT_S = 30
QUERY_S = 120


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 0 if the counts are correct, 1 after a failure, 130 after an interrupt."""
    parser = argparse.ArgumentParser(prog="gregor.spark_jobs.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", metavar="FILE", help="text to count; default: one of this machine")
    parser.add_argument("--top", type=int, default=12, metavar="N", help="words to show; default: %(default)s")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        with ExitStack() as cleanup:
            cleanup.enter_context(_ended_like_an_interrupt())
            _run(find_text(arguments.text), arguments.top, cleanup)
    except JobError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    print(f"Done in {time.monotonic() - started:.0f} s.")
    return 0


def _run(text: Path, top: int, cleanup: ExitStack) -> None:
    require_pyspark()
    if not connector_folder().is_dir():
        _print("First run: downloading Spark's Kafka connector ...")
    connector_jars(require_java())
    lines = text.read_text(encoding="utf-8", errors="replace").splitlines()
    _print(f"Text:     {text}, {len(lines):,} lines")
    folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="gregor-demo-", ignore_cleanup_errors=True)))
    bootstrap = os.environ.get("GREGOR_DEMO_BOOTSTRAP")
    if bootstrap is None:
        bootstrap = cleanup.enter_context(running_broker(folder))
    source, target = (f"demo-{name}-{os.urandom(3).hex()}" for name in ("lines", "counts"))
    _print(f"Broker:   {bootstrap}, topics {source} and {target}")
    cleanup.enter_context(topics(bootstrap, [source, target]))
    began = time.monotonic()
    produce(bootstrap, source, lines)
    _print(f"Produced: {len(lines):,} records by confluent-kafka in {time.monotonic() - began:.2f} s")
    _print("Spark:    starting ...")
    spark_word_count(bootstrap, source, target, folder, len(lines))
    counted = read_counts(bootstrap, target)
    _show(counted, top)
    check(counted, lines)


@contextmanager
def _ended_like_an_interrupt() -> Iterator[None]:
    """Convert SIGTERM and SIGHUP to KeyboardInterrupt, so that the clean-up stops the broker."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])
    saved = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def find_text(given: str | None, candidates: Sequence[str] = TEXTS) -> Path:
    """Return the text to count; raise JobError if the given one, or each candidate, is missing."""
    for candidate in [given] if given else candidates:
        path = Path(candidate)
        if path.is_file() and os.access(path, os.R_OK):
            return path
    raise JobError(
        f"{given} is not a readable file"
        if given
        else "this machine has no known text to count; give one with --text FILE"
    )


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """Run a broker on a free port, with its data in the folder; yield its address once it answers."""
    port = _free_port()
    log = folder / "gregor.broker.log"
    command = Path(sys.executable).with_name("gregor")
    start = [str(command)] if command.exists() else [sys.executable, "-m", "gregor.broker"]
    start += ["start", "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    start += ["--override", f"log.dirs={folder / 'data'}"]
    with log.open("wb") as stream:
        process = subprocess.Popen(  # in its own session, so that Ctrl-C does not reach it first
            start, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
    bootstrap = f"127.0.0.1:{port}"
    try:
        _wait_until_ready(bootstrap, process, log)
        yield bootstrap
    except BaseException:
        _stop(process)
        raise
    code = _stop(process)
    if code != 0:
        how = f"did not stop within {BROKER_STOP_S} s" if code is None else f"ended with code {code}"
        raise JobError(f"the broker {how}\n{_tail(log)}")
    _print("Broker:   stopped cleanly")


def _stop(process: subprocess.Popen[bytes]) -> int | None:
    """Terminate the process; return its exit code, or None if it had to be killed."""
    process.terminate()
    try:
        return process.wait(timeout=BROKER_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _wait_until_ready(bootstrap: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the broker answers a metadata request; a listening port alone does not suffice."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + BROKER_START_S
    admin = None
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise JobError(f"the broker ended with code {process.returncode} during its start\n{_tail(log)}")
        try:
            if admin is None:  # the client backs off after a refused connection, so it is created once the port listens
                socket.create_connection((host, int(port)), timeout=1).close()
                admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            if admin.list_topics(timeout=2).brokers:
                return
        except (OSError, KafkaException):
            time.sleep(0.05)
    raise JobError(f"the broker did not answer within {BROKER_START_S} s\n{_tail(log)}")


@contextmanager
def topics(bootstrap: str, names: Sequence[str]) -> Iterator[None]:
    """Create the topics, and delete them at the end, so that a broker that keeps running is left without them."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
            created.result(CLIENT_S)
    except KafkaException as error:
        raise JobError(f"the topics could not be created: {error}") from error
    try:
        yield
    finally:
        for name, deleted in admin.delete_topics(list(names)).items():
            try:
                deleted.result(CLIENT_S)
            except KafkaException as error:
                print(f"demo: topic {name} was not deleted: {error}", file=sys.stderr)


def produce(bootstrap: str, topic: str, lines: Sequence[str]) -> None:
    """Send one record per line, and wait until all are acknowledged."""
    from confluent_kafka import KafkaError, Message, Producer

    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})
    for number, line in enumerate(lines):
        producer.produce(topic, line.encode(), partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    waiting = producer.flush(CLIENT_S)
    if failures or waiting:
        why = failures[0] if failures else f"no answer within {CLIENT_S} s"
        raise JobError(f"{len(failures) + waiting} records were not acknowledged: {why}")


def spark_word_count(bootstrap: str, source: str, target: str, folder: Path, records: int) -> None:
    """Run the word count job over all records of the source topic, with a progress line per batch."""
    from pyspark.errors import PySparkException

    from gregor.spark_jobs.jobs.wordcount import Options, start
    from gregor.spark_jobs.progress import run_to_end

    log = folder / "spark.log"
    spark = open_session("gregor demo", log_file=log, jvm_options=SHORT_JOB)
    try:
        options = Options(
            topic=source,
            bootstrap_server=bootstrap,
            sink="topic",
            output_topic=target,
            checkpoint=str(folder / "checkpoint"),
            trigger="available-now",
            max_offsets_per_trigger=records // BATCHES + PARTITIONS,  # Spark rounds down for each partition
        )
        progress = run_to_end(start(spark, options), lambda line: _print(f"Spark:    {line}"), timeout_s=QUERY_S)
    except (PySparkException, JobError) as error:
        message = str(error) if isinstance(error, JobError) else reason(error)
        raise JobError(f"{message}\n{_tail(log)}") from error
    finally:
        spark.stop()
    if progress.interrupted:
        raise KeyboardInterrupt


def read_counts(bootstrap: str, topic: str) -> Counter[str]:
    """Return the last value of each key in the topic, up to its present end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), CLIENT_S)[1] for p in range(PARTITIONS)}
        left = {partition for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        counts: Counter[str] = Counter()
        deadline = time.monotonic() + CLIENT_S
        while left:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                key, value, offset = message.key(), message.value(), message.offset()
                assert isinstance(key, bytes) and isinstance(value, bytes) and offset is not None
                counts[key.decode()] = int(value)
                if offset + 1 >= ends[message.partition() or 0]:
                    left.discard(message.partition() or 0)
            if left and time.monotonic() > deadline:
                raise JobError(f"the counts could not be consumed from {topic} within {CLIENT_S} s")
        return counts
    finally:
        consumer.close()


def check(counted: Counter[str], lines: Sequence[str]) -> None:
    """Compare Spark's counts with a count in plain Python; raise JobError with the first differences."""
    from gregor.spark_jobs.transforms.wordcount import count_words

    expected = count_words(lines)
    if counted == expected:
        _print(f"Checked:  {len(expected):,} words, {expected.total():,} in all, the same as a plain count of the file")
        return
    wrong = sorted(word for word in counted.keys() | expected.keys() if counted[word] != expected[word])
    shown = "\n".join(f"    {word}: {counted[word]} by Spark, {expected[word]} in the file" for word in wrong[:5])
    raise JobError(f"the counts of {len(wrong):,} words are wrong:\n{shown}")


def _show(counts: Counter[str], top: int) -> None:
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:top]
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("word", box=box.SIMPLE_HEAD)
    table.add_column("count", justify="right")
    for word, count in rows:
        table.add_row(word, f"{count:,}")
    Console(highlight=False).print(table)


def _print(line: str) -> None:
    print(line, flush=True)


def _tail(log: Path, lines: int = 15) -> str:
    kept = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    return "\n".join(f"    {line}" for line in kept)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
