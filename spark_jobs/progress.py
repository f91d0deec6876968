"""The run of a streaming query until it ends or a signal stops it: progress lines, signals, short errors."""

from __future__ import annotations

import ast
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from gregor.spark_jobs.errors import JobError, reason
from gregor.spark_jobs.source.lag import Extents, Lag, position_of, topics_of

Report = Callable[[str], None]
Ended = Callable[[list[StreamingQueryProgress]], bool]  # of the reports of a query whose source has no end
POLL_S = 0.3
DEAD_LETTERS = "dead_letters"
"""The first word of the names of observations that count records, and those without a decodable value."""


class Progress:
    """Converts the reports of a query to one line per batch with records."""

    def __init__(self, report: Report, lag: Lag | None = None) -> None:
        """`lag` is None for a query that reads no topic, or of a client that gregor does not have."""
        self.records = 0
        self.batches = 0
        self.dropped = 0
        """Rows that a stateful operator dropped because they were behind the watermark."""
        self.dead_letters = 0
        """Records that were stored in the dead-letter topic, by the name under which a job observes them."""
        self.interrupted = False  # by a signal
        self._report = report
        self._lag = lag
        self._last_batch = -1

    def update(self, reports: list[StreamingQueryProgress]) -> None:
        new = [progress for progress in reports if self._is_new(progress)]
        extents = self._extents(new)
        for progress in new:
            if not self._is_new(progress):
                continue  # a report of a batch of this very list again
            observed, records = observed_counts(progress), records_of(progress)
            self._last_batch = progress.batchId
            self.batches += 1
            self.records += records
            self.dead_letters += 0 if observed is None else observed[1]
            self.dropped += sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            self._report(self._line(progress, records, extents))

    def _is_new(self, progress: StreamingQueryProgress) -> bool:
        """Return whether a report is none of those before, and none of an idle query, repeated every ten seconds."""
        return progress.batchId > self._last_batch and records_of(progress) > 0

    def _extents(self, reports: list[StreamingQueryProgress]) -> Extents | None:
        """Fetch the present extents of all topics of the reports."""
        positions = filter(None, (position_of(offsets(progress, "endOffset")) for progress in reports))
        topics = {topic for position in positions for topic in topics_of(position)}
        return None if self._lag is None else self._lag.extents(topics)

    def _line(self, progress: StreamingQueryProgress, records: int, extents: Extents | None) -> str:
        text = f"batch {progress.batchId}: {records:,} records, {self.records:,} in this run"
        waiting = self._waiting(progress, extents)
        if waiting is not None:
            text += f", {waiting:,} waiting"
        rate = f"{progress.processedRowsPerSecond * records / progress.numInputRows:,.0f} records/s"
        return f"{text}, {rate}, {progress.batchDuration / 1000:,.1f} s"

    def _waiting(self, progress: StreamingQueryProgress, extents: Extents | None) -> int | None:
        """Return the number of records behind a batch, None if neither the brokers nor Spark report it."""
        end = position_of(offsets(progress, "endOffset"))
        if end is None:
            return None
        waiting = None if self._lag is None else self._lag.records_behind(end, extents)
        return waiting if waiting is not None else reported_lag(progress)


def records_of(progress: StreamingQueryProgress) -> int:
    """Return the number of records of a batch.

    A source that is read for the result and for its dead letters reports its rows twice; that of generated rows also
    reports those after the last one. The observations count them once.
    """
    observed = observed_counts(progress)
    return int(progress.numInputRows) if observed is None else observed[0]


def observed_counts(progress: StreamingQueryProgress) -> tuple[int, int] | None:
    """Return the records of a batch and the dead letters among them, by the observations; None without any."""
    counts = [_named(row) for name, row in progress.observedMetrics.items() if name.startswith(DEAD_LETTERS)]
    if not counts:
        return None
    return sum(row["rows"] for row in counts), sum(row["records"] for row in counts)


def _named(row: Row) -> dict[str, Any]:
    """Return the values of a row by name; Spark Connect sends a row of the values and their schema in its place."""
    found: dict[str, Any] = row.asDict()
    if set(found) != {"schema", "values"}:
        return found
    return dict(zip([field["name"] for field in found["schema"]["fields"]], found["values"], strict=True))


def offsets(progress: StreamingQueryProgress, name: str) -> list[Any]:
    """Return the values of a field of all sources; through Spark Connect they are the repr of a dict or of None."""
    sources = json.loads(progress.json)["sources"]  # the attributes hold offsets as the repr of a dict
    return [_literal(source.get(name)) for source in sources]


def _literal(value: Any) -> Any:
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError):
        return None  # of a source that has no offsets of partitions


def reported_lag(progress: StreamingQueryProgress) -> int | None:
    """Return the lag by the ends that Spark reports, as they were when the batch was planned; None without them."""
    ends, latest = offsets(progress, "endOffset"), offsets(progress, "latestOffset")
    of_topics = [(end, newest) for end, newest in zip(ends, latest, strict=True) if position_of([end]) is not None]
    end, newest = position_of(one for one, _ in of_topics), position_of(one for _, one in of_topics)
    if end is None or newest is None or not topics_of(end) <= topics_of(newest):
        return None
    return sum(max(0, offset - end.offsets.get(partition, offset)) for partition, offset in newest.offsets.items())


def run_to_end(
    query: StreamingQuery,
    report: Report,
    timeout_s: float = math.inf,
    ended: Ended | None = None,
    lag: Lag | None = None,
) -> Progress:
    """Wait until the query ends by itself, or stop it on SIGINT or SIGTERM, or when `ended` is true of its reports.

    Raise JobError if the query fails, or does not end within the timeout.
    """
    progress = Progress(report, lag)
    deadline = time.monotonic() + timeout_s
    with stop_signals() as stopped:
        try:
            while not stopped.is_set() and not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # accepts floats
                reports = query.recentProgress
                progress.update(reports)
                if ended is not None and ended(reports):
                    break
                if time.monotonic() > deadline:
                    raise JobError(f"the query did not end within {timeout_s:.0f} s")
            progress.update(query.recentProgress)
            progress.interrupted = stopped.is_set()
        except StreamingQueryException as error:
            raise JobError(f"the query failed: {reason(error)}") from error
        finally:
            query.stop()
    return progress


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set during the block, if this is the main thread."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    saved: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        saved = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
