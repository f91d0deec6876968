"""The order in which `make test-all` distributes the files of tests: the long ones first, so that workers end together.

pytest-xdist's own order is that of the folders, in which a worker that is given a file of three minutes last works on
alone. The first worker is given the longest file that is left; the second begins with the Spark jobs, for which one
session is started then; it continues, and further workers begin, with the shortest, so that the heaviest files do not
load one machine at the same time. Files that tests/durations.txt does not list are short; they are what is left for the
end.

`python -m tests.support.long_files RESULTS.xml...` prints the list from what pytest wrote with --junitxml.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.support.processes import ROOT

DURATIONS = ROOT / "tests" / "durations.txt"
MIN_LISTED_S = 8
SPARK = "tests/spark_jobs/"
FIRST, OF_SPARK = 0, 1
"""Workers: the one of the longest files, the one of the Spark jobs."""


def durations(text: str) -> dict[str, int]:
    """Return the seconds by file of lines `SECONDS FILE`."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {path: int(seconds) for seconds, path in lines}


def next_file(waiting: Sequence[str], seconds: Mapping[str, int], worker: int) -> str:
    """Choose for a worker from the files that wait, which are in the order of the folders."""
    spark = [path for path in waiting if path.startswith(SPARK)]
    others = [path for path in waiting if path not in spark]
    listed = sorted((path for path in others if path in seconds), key=lambda path: seconds[path])
    if worker == FIRST and listed:
        return listed[-1]
    if worker <= OF_SPARK:
        return (spark or listed or others)[0]
    return (listed or others or spark)[0]


class LongFilesFirst(LoadFileScheduling):  # type: ignore[misc]
    """pytest-xdist's distribution by files, in another order of the files."""

    @functools.cached_property
    def _seconds(self) -> dict[str, int]:
        return durations(DURATIONS.read_text())

    def _assign_work_unit(self, node: WorkerController) -> None:
        chosen = next_file(list(self.workqueue), self._seconds, self.nodes.index(node))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test during which the worker's process ended. It has failed: pytest-xdist would run it again, in
        one process after the other if it ends or hangs each time."""
        units = self.assigned_work[node].values()
        running = ((unit, name) for unit in units for name, completed in unit.items() if not completed)
        unit, ended = next(running, ({}, None))
        if ended is not None:
            unit[ended] = True
        super().remove_node(node)
        return ended


def listed(results: Iterable[str]) -> str:
    """Return the lines of the list for pytest's results, the text of XML files."""
    seconds: dict[str, float] = defaultdict(float)
    for text in results:
        for case in ElementTree.fromstring(text).iter("testcase"):
            seconds[case.get("file", "")] += float(case.get("time", 0))
    long = [(-found, path) for path, found in seconds.items() if found >= MIN_LISTED_S]
    return "".join(f"{-found:4.0f} {path}\n" for found, path in sorted(long))


if __name__ == "__main__":
    print(listed(pathlib.Path(path).read_text() for path in sys.argv[1:]), end="")
