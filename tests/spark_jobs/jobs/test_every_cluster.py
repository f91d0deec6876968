"""Every job, unchanged, as a file under spark-submit on a standalone cluster, and through a server of Spark Connect.

The jobs share one cluster of one worker, one server and one topic. Each has its result compared with what the topic
contains; a job that cannot run through Spark Connect refuses it with a line of its own.

Three cases of each kind run, other ones on other days; `--every-case` runs all.
"""

from __future__ import annotations

import datetime
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from gregor.spark_jobs.cli import JOBS
from gregor.spark_jobs.jobs.statement import table_name
from gregor.spark_jobs.launch.cluster import Settings, SparkCluster
from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.connect_server import connect_server, run_through
from tests.spark_jobs.jobs.running import (
    MINUTE,
    SECOND,
    Event,
    committed,
    epoch_ms,
    exactly_once,
    json_rows,
    send,
)
from tests.spark_jobs.test_spark_programs import spark_submit
from tests.spark_jobs.topics import Topics
from tests.support.processes import ROOT
from tests.support.sampling import of_the_day

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

CASES_OF_A_DAY = 3
HOUR = 60 * MINUTE
START = 1_700_000_000_000 // HOUR * HOUR
EVENTS = [
    Event(b"x", "a", START),
    Event(b"y", "b", START + SECOND),
    Event(b"z", "a", START + 2 * SECOND),
    Event(b"x", "a", START + 3 * SECOND),
    Event(b"x", "end", START + 5 * HOUR),
]
"""The fourth is a duplicate of the first; the last one moves the watermark."""
VALUES = [(event.key, event.value) for event in EVENTS]


class Ground(NamedTuple):
    """The topics and the folder of a run."""

    topics: Topics
    source: str
    target: str
    folder: Path

    def to_topic(self) -> list[str]:
        checkpoint = str(self.folder / "checkpoint")
        return ["--sink", "topic", "--output-topic", self.target, "--checkpoint", checkpoint]

    def from_topic(self, *more: str) -> list[str]:
        return ["--topic", self.source, *more, *self.to_topic()]

    def written(self) -> list[tuple[str | None, bytes | None]]:
        """Return the records of the target in the order of their keys."""
        read = self.topics.read(self.target, 1)
        found = [(key.decode() if key is not None else None, value) for key, value in read]
        return sorted(found, key=lambda one: (one[0] or "", one[1] or b""))

    def rows(self, *names: str) -> list[tuple[object, ...]]:
        """Return fields of the JSON values, with the times of windows as minutes behind the start."""
        found = [tuple(_value(name, row[name]) for name in names) for row in json_rows(self.topics, self.target)]
        return sorted(found)


def _value(name: str, value: object) -> object:
    return (epoch_ms(str(value)) - START) // MINUTE if name.endswith(("_start", "_end")) else value


class Case(NamedTuple):
    """A run of a job: its arguments, and the check of its result."""

    job: str
    arguments: Callable[[Ground], list[str]]
    check: Callable[[Ground], None]
    refused: str | None = None
    """The line with which the job refuses Spark Connect."""


def check_wordcount(ground: Ground) -> None:
    counts = {key: int(value) for key, value in ground.written() if value is not None}
    assert counts == {"x": 3, "y": 1, "z": 1}


def check_windows(ground: Ground) -> None:
    assert ground.rows("window_start", "key", "count") == [(0, "a", 3), (0, "b", 1), (300, "end", 1)]


def check_sessions(ground: Ground) -> None:
    """The session of the end is not over."""
    assert ground.rows("session_start", "key", "count") == [(0, "a", 3), (0, "b", 1)]


def check_dedup(ground: Ground) -> None:
    assert ground.written() == sorted(set(VALUES))


def check_join(ground: Ground) -> None:
    found = Counter(ground.rows("key", "left_value", "right_value"))
    assert found == Counter(
        (left.key, (left.value or b"").decode(), (right.value or b"").decode())
        for left in EVENTS
        for right in EVENTS
        if left.key == right.key and abs(left.time_ms - right.time_ms) <= 2 * SECOND
    )


def check_as_table(ground: Ground) -> None:
    """The right side is the latest value of each key."""
    latest = {event.key: (event.value or b"").decode() for event in EVENTS}
    found = Counter(ground.rows("key", "left_value", "right_value"))
    assert found == Counter((event.key, (event.value or b"").decode(), latest[event.key]) for event in EVENTS)


def check_top(ground: Ground) -> None:
    assert ground.rows("window_start", "rank", "key", "count") == [(0, 1, "a", 3), (300, 1, "end", 1)]


def check_route(ground: Ground) -> None:
    assert ground.written() == sorted(one for one in VALUES if one[0] != "b")


def check_sql(ground: Ground) -> None:
    assert ground.rows("key", "records") == [("a", 3), ("b", 1), ("end", 1)]


def check_table(ground: Ground) -> None:
    rows = pq.read_table(ground.folder / "table").select(["key", "value", "_offset"]).to_pylist()
    found = sorted((row["_offset"], row["key"], row["value"].encode()) for row in rows)
    assert found == [(number, *one) for number, one in enumerate(VALUES)]


def files_arguments(ground: Ground) -> list[str]:
    (ground.folder / "in").mkdir()
    (ground.folder / "in" / "lines.txt").write_text("one\ntwo\n")
    return ["--path", str(ground.folder / "in"), "--format", "text", *ground.to_topic()]


def check_files(ground: Ground) -> None:
    assert ground.written() == [(None, b"one"), (None, b"two")]


def check_generate(ground: Ground) -> None:
    assert ground.rows("id") == [(number,) for number in range(5)]


def check_exactly_once(ground: Ground) -> None:
    assert committed(ground.topics, ground.target) == [((key or "").encode(), value) for key, value in VALUES]


def query_of(ground: Ground) -> str:
    return f"SELECT key, count(*) AS records FROM {table_name(ground.source)} GROUP BY key"


CASES = {
    "wordcount": Case("wordcount", Ground.from_topic, check_wordcount),
    "windows": Case("windows", Ground.from_topic, check_windows),
    "sessions": Case("sessions", Ground.from_topic, check_sessions),
    "dedup": Case("dedup", Ground.from_topic, check_dedup),
    "join": Case("join", lambda at: at.from_topic("--with", at.source, "--within", "2 seconds"), check_join),
    "join-as-table": Case(
        "join",
        lambda at: at.from_topic("--with", at.source, "--as-table"),
        check_as_table,
        "with --as-table it keeps the table from batch to batch in the session of the driver",
    ),
    "top": Case("top", lambda at: at.from_topic("--count", "1"), check_top),
    "route": Case("route", lambda at: at.from_topic("--where", "key != 'b'"), check_route),
    "exactly-once": Case(
        "route",
        lambda at: ["--topic", at.source, *exactly_once(at.target, at.folder / "checkpoint")],
        check_exactly_once,
    ),
    "sql": Case("sql", lambda at: at.from_topic("--query", query_of(at)), check_sql),
    "table": Case(
        "table",
        lambda at: [
            *("--topic", at.source, "--value-format", "text"),
            *("--format", "parquet", "--path", str(at.folder / "table")),
        ],
        check_table,
        "it needs the driver's JVM, which a client of Connect does not have",
    ),
    "files": Case("files", files_arguments, check_files),
    "generate": Case("generate", lambda at: ["--rows", "5", "--column", "id=id", *at.to_topic()], check_generate),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-case")
        metafunc.parametrize("number", range(len(CASES) if every else CASES_OF_A_DAY))


@pytest.fixture
def case(number: int, day: datetime.date) -> Case:
    """Numbers stand for the same cases all day: those of all workers are the same."""
    return of_the_day(list(CASES.values()), len(CASES), day)[number]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(Settings(workers=1, cores=1, memory="512m"), tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="module")
def source(topics: Topics) -> str:
    name = topics.create(1, "every_cluster")
    send(topics, name, EVENTS)
    return name


@pytest.fixture
def ground(topics: Topics, source: str, tmp_path: Path) -> Ground:
    return Ground(topics, source, topics.create(1), tmp_path)


def arguments_of(case: Case, ground: Ground) -> list[str]:
    conf = ["--conf", "spark.sql.shuffle.partitions=1"]
    return ["-b", ground.topics.bootstrap, "--once", *case.arguments(ground), *conf]


def test_every_job_has_a_case() -> None:
    assert {case.job for case in CASES.values()} == set(JOBS)


@pytest.mark.by_day(2, group="other sessions of Spark")
def test_as_a_file_under_spark_submit_on_a_cluster(cluster: SparkCluster, ground: Ground, case: Case) -> None:
    program = ROOT / "spark_jobs" / "jobs" / f"{JOBS[case.job][0]}.py"
    settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SHORT_JOB}
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    done = spark_submit("--master", cluster.url, *conf, str(program), *arguments_of(case, ground), folder=ground.folder)
    assert done.returncode == 0, done.stdout
    case.check(ground)


@pytest.mark.by_day(2, group="other sessions of Spark")
def test_through_spark_connect_or_refused_with_one_line(server: str, ground: Ground, case: Case) -> None:
    done = run_through(server, case.job, *arguments_of(case, ground), folder=ground.folder)
    if case.refused is None:
        assert done.returncode == 0, done.stderr
        case.check(ground)
        return
    require_refusal(done, f"{case.job}: {case.job} does not run through Spark Connect ({server}): {case.refused}")


def require_refusal(done: subprocess.CompletedProcess[str], beginning: str) -> None:
    """One line has the reason and the remedy."""
    assert done.returncode == 1, done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith(beginning)
    assert "Give the cluster itself with --master" in line
