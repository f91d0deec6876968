"""`make bench-spark`: gregor's source and sinks beside Spark's Kafka connector, in one session, in turns.

    make bench-spark                                     all of it
    make bench-spark ARGS="--only read --rounds 1"       one part
    make bench-spark ARGS="--records 400000"             a tenth of the records

Only ratios of one run mean something: absolute figures drift on a shared machine. Each turn of the sides is A B C C B
A, and the first is not counted. Processor time is that of Spark's JVM and its Python workers, without the broker. Ends
with exit code 1 if a figure is beyond its limit.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.bench.compare import Values, table
from tests.bench.figures import Figure
from tests.bench.spark.memory import memory
from tests.bench.spark.others import others
from tests.bench.spark.planning import FULL_PARTITIONS, planning
from tests.bench.spark.reads import KINDS, reads
from tests.bench.spark.session import spark_session
from tests.bench.spark.sinks import sinks
from tests.bench.spark.windows import FULL_RECORDS, windows
from tests.support.processes import BrokerProcess

PARTS = ("read", "memory", "planning", "sink", "windows", "others")
RECORDS = 4_000_000
LIMIT_MINUTES = 60
CONNECTOR = "connector"


class Report:
    """Prints figures as they come, and keeps those that were missed."""

    def __init__(self) -> None:
        self.values: list[Values] = []
        self.figures: list[Figure] = []

    def add(self, figures: Iterable[Figure], values: Iterable[Values] = ()) -> None:
        self.values += values
        for figure in figures:
            print(figure, flush=True)
            self.figures.append(figure)

    @property
    def missed(self) -> bool:
        return any(figure.missed for figure in self.figures)


def run(given: argparse.Namespace, folder: Path, report: Report) -> None:
    """Run the parts that were chosen."""
    parts = given.only or PARTS
    share = given.records / RECORDS
    # Timestamps of the records rise by a millisecond from a fixed day on; the topics keep them.
    broker = BrokerProcess(
        folder / "broker", {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    )
    with broker:
        if "memory" in parts:
            print("-- memory", flush=True)
            report.add(memory(broker, given.records))
        if set(parts) - {"memory"}:
            with spark_session(folder) as session:
                _in_session(session, broker, parts, given, folder, report, share)


def _in_session(
    session: Any,
    broker: BrokerProcess,
    parts: Iterable[str],
    given: argparse.Namespace,
    folder: Path,
    report: Report,
    share: float,
) -> None:
    for part in parts:
        if part == "memory":
            continue
        print(f"-- {part}", flush=True)
        if part == "read":
            kinds = [kind for kind in KINDS if not given.kind or kind.name in given.kind]
            for values, figures in reads(session, broker, given.records, given.rounds, kinds):
                report.add(figures, values)
        elif part == "planning":
            report.add(planning(session, broker, given.partitions, folder))
        elif part == "sink":
            values, figures = sinks(session, broker, given.records // 4, given.rounds, folder)
            report.add(figures, values)
        elif part == "windows":
            report.add(windows(session, broker, int(FULL_RECORDS * share), folder))
        else:
            report.add(others(session, broker, given.records, given.rounds))


def _over(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("the bench has run for its longest time; raise --minutes, or lower --records")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds, after one that is not (3)")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part of it; may be repeated")
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS], help="of records to read")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of 100 B; others in proportion ({RECORDS})")
    parser.add_argument("--partitions", type=int, default=FULL_PARTITIONS, help=f"to be planned ({FULL_PARTITIONS})")
    parser.add_argument("--minutes", type=float, default=LIMIT_MINUTES, help=f"at most ({LIMIT_MINUTES})")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="gregor-bench-spark-"))
    report = Report()
    former = signal.signal(signal.SIGALRM, _over)
    signal.setitimer(signal.ITIMER_REAL, given.minutes * 60)
    try:
        run(given, folder, report)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        shutil.rmtree(folder, ignore_errors=True)
    if report.values:
        print("", table(report.values, CONNECTOR), sep="\n")
    return int(report.missed)


if __name__ == "__main__":
    sys.exit(main())
