"""Waiting for a query, with a stand-in for the query: progress lines, signals, failures."""

import json
import os
import signal
import threading
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from gregor.spark_jobs.errors import JobError, reason
from gregor.spark_jobs.progress import Progress, offsets, reported_lag, run_to_end, stop_signals
from gregor.spark_jobs.source.lag import Lag
from tests.spark_jobs.client.brokers import BOOTSTRAP, Brokers, Partition


def report(batch_id: int, rows: int, end: dict[str, Any] | None = None, latest: Any = None) -> StreamingQueryProgress:
    """A progress report as Spark's JVM writes it."""
    source = {
        "description": "KafkaV2[Subscribe[t]]",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 12.5,
    }
    return StreamingQueryProgress.fromJson(
        {
            "id": "b903633d-13a9-4b52-876e-1e4352434797",
            "runId": "e20b737d-7fb6-4b60-b04f-0ec01524abf6",
            "name": None,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": batch_id,
            "batchDuration": 100,
            "durationMs": {},
            "stateOperators": [],
            "sources": [source],
            "sink": {"description": "x", "numOutputRows": -1},
            "numInputRows": rows,
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 12.5,
        }
    )


class FakeQuery:
    """Ends after so many waits; shows one report more after each."""

    def __init__(self, reports: list[StreamingQueryProgress], ends: bool = True, failure: str | None = None) -> None:
        self.reports, self.ends, self.failure = reports, ends, failure
        self.waits = 0
        self.stopped = False

    def awaitTermination(self, timeout: float) -> bool:
        self.waits += 1
        if self.failure is not None:
            raise StreamingQueryException(self.failure)
        return self.ends and self.waits > len(self.reports)

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        return self.reports[: self.waits]

    def stop(self) -> None:
        self.stopped = True


def run(query: FakeQuery, lines: list[str], timeout_s: float = 60, lag: Lag | None = None) -> Progress:
    return run_to_end(cast(StreamingQuery, query), lines.append, timeout_s, lag=lag)


def test_each_batch_is_reported_once_and_idle_reports_are_not() -> None:
    latest = {"t": {"0": 10, "1": 20}}
    reports = [
        report(0, 15, {"t": {"0": 10, "1": 5}}, latest),
        report(1, 0, {"t": {"0": 10, "1": 5}}, latest),
        report(1, 15, latest, latest),
        report(2, 0, latest, latest),
    ]
    lines: list[str] = []
    query = FakeQuery(reports)
    progress = run(query, lines)
    assert lines == [
        "batch 0: 15 records, 15 in this run, 15 waiting, 12 records/s, 0.1 s",
        "batch 1: 15 records, 30 in this run, 0 waiting, 12 records/s, 0.1 s",
    ]
    assert (progress.records, progress.batches, progress.interrupted) == (30, 2, False)
    assert query.stopped


def test_waiting_records_are_those_of_the_brokers_where_spark_reports_no_ends() -> None:
    """As with Spark 4.1 by both sources. A line that is shown late counts what arrived meanwhile, too."""
    brokers = Brokers()
    brokers.add("t", Partition(0, 10), Partition(0, 20))
    lag = Lag(BOOTSTRAP, lambda settings: brokers.cluster(), max_wait_s=60)
    lines: list[str] = []
    run(FakeQuery([report(0, 15, {"t": {"0": 10, "1": 5}}), report(1, 15, {"t": {"0": 10, "1": 20}})]), lines, lag=lag)
    assert [line.split(", ")[2] for line in lines] == ["15 waiting", "0 waiting"]


def test_the_ends_of_the_brokers_are_newer_than_those_of_spark() -> None:
    brokers = Brokers()
    brokers.add("t", Partition(0, 30))
    lag = Lag(BOOTSTRAP, lambda settings: brokers.cluster(), max_wait_s=60)
    lines: list[str] = []
    run(FakeQuery([report(0, 10, {"t": {"0": 10}}, {"t": {"0": 10}})]), lines, lag=lag)
    assert ", 20 waiting, " in lines[0]


@pytest.mark.parametrize("with_lag", [False, True], ids=["without a client", "without a broker"])
def test_an_unknown_lag_is_no_word_of_the_line(with_lag: bool) -> None:
    brokers = Brokers()
    brokers.down = {0, 1}
    lag = Lag(BOOTSTRAP, lambda settings: brokers.cluster(), max_wait_s=60) if with_lag else None
    lines: list[str] = []
    run(FakeQuery([report(0, 15, {"t": {"0": 10}})]), lines, lag=lag)
    assert lines == ["batch 0: 15 records, 15 in this run, 12 records/s, 0.1 s"]


@pytest.mark.parametrize(
    ("end", "latest", "waiting"),
    [
        ({"t": {"0": 3}}, {"t": {"0": 10}}, 7),
        ({"t": {"0": 3, "1": 4}, "u": {"0": 0}}, {"t": {"0": 3, "1": 6}, "u": {"0": 5}}, 7),
        ({"t": {"0": 11}}, {"t": {"0": 10}}, 0),
        ({"t": {"0": 3}}, {"t": {"0": 3, "1": 9}}, 0),
        (None, {"t": {"0": 10}}, None),
        ({"t": {"0": 3}}, None, None),
        ({"logOffset": 3}, {"logOffset": 4}, None),
    ],
)
def test_lag_that_spark_reports(end: dict[str, Any] | None, latest: dict[str, Any] | None, waiting: int | None) -> None:
    assert reported_lag(report(0, 1, end, latest)) == waiting


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_query_and_is_no_failure(number: signal.Signals) -> None:
    class Signalled(FakeQuery):
        def awaitTermination(self, timeout: float) -> bool:
            os.kill(os.getpid(), number)
            return super().awaitTermination(timeout)

    before = signal.getsignal(number)
    query = Signalled([report(0, 5)], ends=False)
    progress = run(query, [])
    assert query.stopped
    assert (progress.interrupted, progress.records) == (True, 5)
    assert signal.getsignal(number) is before


def test_failed_query_is_reported_with_its_cause() -> None:
    query = FakeQuery([], failure=STREAM_FAILED)
    with pytest.raises(JobError, match=r"^the query failed: org\.apache\.\w+: no such topic\.$"):
        run(query, [])
    assert query.stopped


def test_query_is_stopped_at_its_timeout() -> None:
    query = FakeQuery([], ends=False)
    with pytest.raises(JobError, match="did not end within 0 s"):
        run(query, [], timeout_s=0)
    assert query.stopped


def test_signals_are_not_handled_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[bool] = []

    def wait() -> None:
        with stop_signals() as stopped:
            seen.append(stopped.is_set() or signal.getsignal(signal.SIGTERM) is not before)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [False]


STREAM_FAILED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: org.apache.X: no such topic. SQLSTATE: XXKST"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STREAM_FAILED, "org.apache.X: no such topic."),
        (f"{STREAM_FAILED}\n=== Streaming Query ===\nIdentifier: x", "org.apache.X: no such topic."),
        ("Outer\n\tat a.b(C.java:1)\nCaused by: middle\n\tat d\nCaused by: inner: it broke\n\tat e", "inner: it broke"),
        ("[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03", "[PATH_NOT_FOUND] Path does not exist: x."),
        ("plain", "plain"),
        (
            "An error occurred while calling o2.create.\n: java.io.X: no folder\n\tat a.b(C.java:1)",
            "java.io.X: no folder",
        ),
        ("An error occurred while calling o2.create.\n: java.io.X: z\n\tat a\nCaused by: Y: inner\n\tat b", "Y: inner"),
        ("", "ValueError"),
    ],
)
def test_reason_is_the_innermost_cause(text: str, told: str) -> None:
    assert reason(ValueError(text)) == told


def test_the_report_above_is_that_of_spark() -> None:
    """The stand-in is only worth something if PySpark keeps the offsets in the JSON that `Progress` reads."""
    made = report(0, 1, {"t": {"0": 1}}, {"t": {"0": 2}})
    assert json.loads(made.json)["sources"][0]["endOffset"] == {"t": {"0": 1}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        *(({"t": {"0": 3}}, {"t": {"0": 3}}), ("{'t': {'0': 3}}", {"t": {"0": 3}})),
        *(("None", None), (None, None), ("12", 12), ("rate@1", None)),
    ],
)
def test_offsets_of_a_source_also_as_spark_connect_reports_them(given: Any, found: Any) -> None:
    assert offsets(report(0, 1, given), "endOffset") == [found]
