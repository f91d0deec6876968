"""The commands of docs/spark.md for the uses of Kafka, run on a few records each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.cli import JOBS
from gregor.spark_jobs.jobs.common.job import Job
from tests.spark_jobs.jobs.running import MINUTE, SECOND, Event, json_rows, run_job, send
from tests.spark_jobs.topics import Topics
from tests.support.processes import ROOT, BrokerProcess

HOUR = 60 * MINUTE
START = 1_700_000_000_000 // HOUR * HOUR
OTHER_CLUSTER = "other:9092"

Check = Callable[["Use"], None]


class Use:
    """A command, the clusters that it uses, and the text that it has printed."""

    def __init__(self, here: Topics, other: Topics, folder: Path) -> None:
        self.here, self.other, self.folder = here, other, folder
        self.printed = ""

    def feed(self, topic: str, events: Iterable[Event], partitions: int = 1) -> None:
        self.here.create_named(topic, partitions)
        send(self.here, topic, events)

    def run(self, spark: SparkSession, words: list[str]) -> None:
        """Run the command with --once, with its files in the folder and the other cluster at its address."""
        job = job_of(words[0])
        inside = [str(self.folder / word) if word.startswith("./") or word.endswith(".svg") else word for word in words]
        run_job(
            spark, job, self.here, *[self.other.bootstrap if word == OTHER_CLUSTER else word for word in inside[1:]]
        )

    def printed_rows(self) -> list[list[str]]:
        """Return the cells of the printed rows; two spaces or more are between them."""
        lines = [line for line in self.printed.splitlines() if line.startswith("  ")]
        return [re.split(r"\s{2,}", line.strip()) for line in lines]


def documented() -> dict[str, list[str]]:
    """Return the words of each command, by the use that the comment above it names."""
    section = (ROOT / "docs" / "spark.md").read_text().partition("## Uses")[2].partition("\n## ")[0]
    found = re.findall(r"^# ([^:\n]+):[^\n]*\n(gregor spark .*)$", section, re.MULTILINE)
    return {name: shlex.split(line)[2:] for name, line in found}


def job_of(name: str) -> Job:
    job: Job = import_module(f"gregor.spark_jobs.jobs.{JOBS[name][0]}").JOB
    return job


def feed_messages(use: Use) -> None:
    use.feed("messages", [Event(b"urgent: fire", "a"), Event(b"not urgent", "b")])
    use.here.create_named("urgent", 1)


def check_messages(use: Use) -> None:
    assert use.here.read("urgent", 1) == [(b"a", b"urgent: fire")]


def feed_activity(use: Use) -> None:
    clicks = [("ann", 0), ("ann", 20), ("ben", 30), ("ann", 60), ("end", 300)]
    use.feed("clicks", [Event(b"/", user, START + minute * MINUTE) for user, minute in clicks])
    use.here.create_named("visits", 1)


def check_activity(use: Use) -> None:
    visits = sorted((row["key"], row["session_start"], row["count"]) for row in json_rows(use.here, "visits"))
    assert [(key, count) for key, _, count in visits] == [("ann", 2), ("ann", 1), ("ben", 1)]


def feed_metrics(use: Use) -> None:
    values = [("a", 1.5), ("a", 2), ("b", 4)]
    events = [b'{"host": "%s", "ms": %s}' % (host.encode(), str(ms).encode()) for host, ms in values]
    use.feed("metrics", [Event(event, None, START) for event in events])


def check_metrics(use: Use) -> None:
    assert [row[2:] for row in use.printed_rows()] == [["key", "count", "ms"], ["a", "2", "3.5"], ["b", "1", "4.0"]]
    assert (use.folder / "ms.svg").read_text().count("<polyline") == 2


def feed_logs(use: Use) -> None:
    lines = [b"ERROR disk: full", b"INFO disk: empty", b"ERROR net: down", b"ERROR disk: gone"]
    use.feed("logs", [Event(line, None, START) for line in lines])


def check_logs(use: Use) -> None:
    rows = [dict(zip(use.printed_rows()[0], row, strict=True)) for row in use.printed_rows()[1:]]
    assert [(row["rank"], row["key"], row["count"]) for row in rows] == [("1", "disk", "2"), ("2", "net", "1")]


def feed_streams(use: Use) -> None:
    use.feed("orders", [Event(b"book", "1", START), Event(b"pen", "2", START)])
    use.feed("payments", [Event(b"12.50", "1", START + MINUTE), Event(b"1.00", "2", START + 2 * HOUR)])


def check_streams(use: Use) -> None:
    assert [(row[0], *row[3:]) for row in use.printed_rows()[1:]] == [("1", "book", "12.50")]


def feed_events(use: Use) -> None:
    events = [("ann", 10), ("ben", 5), ("ann", -4)]
    values = [b'{"account": "%s", "amount": %d}' % (account.encode(), amount) for account, amount in events]
    use.feed("account_events", [Event(value, None, START + SECOND) for value in values])


def check_events(use: Use) -> None:
    assert sorted(use.printed_rows()[1:]) == [["ann", "6.0"], ["ben", "5.0"]]


def feed_log(use: Use) -> None:
    use.feed("changes", [Event(b"%d" % number, f"{number}", START, number % 2) for number in range(6)], 2)
    use.here.produce("changes", [None], 1, "1")
    use.other.create_named("changes", 2)


def check_log(use: Use) -> None:
    assert use.other.read("changes", 2) == use.here.read("changes", 2)


USES: dict[str, tuple[Check, Check]] = {
    "messaging": (feed_messages, check_messages),
    "website activity tracking": (feed_activity, check_activity),
    "metrics": (feed_metrics, check_metrics),
    "log aggregation": (feed_logs, check_logs),
    "stream processing": (feed_streams, check_streams),
    "event sourcing": (feed_events, check_events),
    "commit log": (feed_log, check_log),
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Topics, Topics]]:
    """Two clusters of their own, whose topics have the names that the page has."""
    with (
        BrokerProcess(tmp_path_factory.mktemp("here")) as here,
        BrokerProcess(tmp_path_factory.mktemp("other")) as other,
    ):
        yield Topics(here.bootstrap), Topics(other.bootstrap)


def test_each_use_has_a_command() -> None:
    assert list(documented()) == list(USES)


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.compat
@pytest.mark.parametrize("name", USES)
def test_each_use_gives_its_result(
    spark: SparkSession,
    clusters: tuple[Topics, Topics],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    use = Use(*clusters, tmp_path)
    feed, check = USES[name]
    feed(use)
    use.run(spark, documented()[name])
    use.printed = capsys.readouterr().out
    check(use)
