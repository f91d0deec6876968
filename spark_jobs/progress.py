"""The run of a streaming query until it ends or a signal stops it: progress lines, signals, short errors."""

import ast
import json
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from gregor.spark_jobs.errors import JobError

Report = Callable[[str], None]
Ended = Callable[[list[StreamingQueryProgress]], bool]  # of the reports of a query whose source has no end
Offsets = dict[str, dict[str, int]]  # topic -> partition -> offset
POLL_S = 0.3
_RAISED = re.compile(r"^(?:pyspark\.errors|gregor\.spark_jobs)\.[\w.]+: (.*)$", re.MULTILINE)
DEAD_LETTERS = "dead_letters"
"""The first word of the names of observations that count records, and those without a decodable value."""


class Progress:
    """Converts the reports of a query to one line per batch with records."""

    def __init__(self, report: Report) -> None:
        self.records = 0
        self.batches = 0
        self.dropped = 0
        """Rows that a stateful operator dropped because they were behind the watermark."""
        self.dead_letters = 0
        """Records that were stored in the dead-letter topic, by the name under which a job observes them."""
        self.interrupted = False  # by a signal
        self._report = report
        self._last_batch = -1

    def update(self, reports: list[StreamingQueryProgress]) -> None:
        for progress in reports:
            observed = observed_counts(progress)
            # A source that is read for the result and for its dead letters reports its rows twice; that of generated
            # rows also reports those after the last one.
            records = progress.numInputRows if observed is None else observed[0]
            if progress.batchId <= self._last_batch or records == 0:
                continue  # reported already, or the idle report that Spark repeats every ten seconds
            self._last_batch = progress.batchId
            self.batches += 1
            self.records += records
            self.dead_letters += 0 if observed is None else observed[1]
            self.dropped += sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            self._report(self.line(progress, records))

    def line(self, progress: StreamingQueryProgress, records: int) -> str:
        text = f"batch {progress.batchId}: {records:,} records, {self.records:,} in this run"
        sources = json.loads(progress.json)["sources"]  # the attributes hold offsets as the repr of a dict
        waiting = sum(
            records_waiting(offsets_of(source, "endOffset"), offsets_of(source, "latestOffset")) for source in sources
        )
        rate = f"{progress.processedRowsPerSecond * records / progress.numInputRows:,.0f} records/s"
        return f"{text}, {waiting:,} waiting, {rate}, {progress.batchDuration / 1000:,.1f} s"


def observed_counts(progress: StreamingQueryProgress) -> tuple[int, int] | None:
    """Return the records of a batch and the dead letters among them, by the observations; None without any."""
    counts = [row for name, row in progress.observedMetrics.items() if name.startswith(DEAD_LETTERS)]
    if not counts:
        return None
    return sum(row["rows"] for row in counts), sum(row["records"] for row in counts)


def offsets_of(source: Mapping[str, Any], name: str) -> Offsets | None:
    """Return the offsets in the progress of a source; through Spark Connect they are the repr of a dict or of None."""
    value = source.get(name)
    try:
        found = ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError):  # of a source that has no offsets of partitions
        return None
    return found if isinstance(found, dict) else None


def records_waiting(end: Offsets | None, latest: Offsets | None) -> int:
    """Return the number of records of a source that were not read yet; 0 if the source does not report it."""
    return sum(
        max(0, offset - (end or {}).get(topic, {}).get(partition, offset))
        for topic, partitions in (latest or {}).items()
        if isinstance(partitions, dict)  # else the position of another source: of files, of generated rows
        and not topic.startswith("#")  # the ids of topics, in the offsets of format("gregor")
        for partition, offset in partitions.items()
    )


def run_to_end(
    query: StreamingQuery, report: Report, timeout_s: float = math.inf, ended: Ended | None = None
) -> Progress:
    """Wait until the query ends by itself, or stop it on SIGINT or SIGTERM, or when `ended` is true of its reports.

    Raise JobError if the query fails, or does not end within the timeout.
    """
    progress = Progress(report)
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


def reason(error: BaseException) -> str:
    """Return the innermost cause of an error of the JVM, without its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    raised = _RAISED.findall(str(error))  # by Python code that the JVM calls: a sink, or a task
    text = (
        raised[-1].strip()
        if raised
        else causes[-1]
        if causes
        else lines[0].partition("terminated with exception:")[2].strip() or lines[0]
    )
    return re.sub(r"\s*SQLSTATE: \w{5}$", "", text).removeprefix("[USER_RAISED_EXCEPTION] ")
