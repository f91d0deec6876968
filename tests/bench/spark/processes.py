"""Processor time and memory of the processes that Spark has started: its JVM and the Python workers below it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tests.bench.figures import TICKS_PER_S

WORKER = "pyspark"
"""In the command line of each Python process that a JVM of Spark starts, those it forks included."""


class Process(NamedTuple):
    """A process, its parent, and the processor time of its threads and of its children that have ended."""

    pid: int
    parent: int
    seconds: float


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            yield Process(int(name), int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S)


def descendants(root: int, without: Collection[int] = ()) -> list[Process]:
    """Return all processes below one, without those named and what is below them."""
    children: dict[int, list[Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    pending = [root]
    while pending:
        for child in children.get(pending.pop(), []):
            if child.pid not in without:
                found.append(child)
                pending.append(child.pid)
    return found


def processor_s(without: Collection[int]) -> float:
    """Return the processor time of all processes below this one, those that have ended included."""
    return sum(process.seconds for process in descendants(os.getpid(), without))


def workers(without: Collection[int]) -> list[int]:
    """Return the Python processes that Spark's JVM has started."""
    return [process.pid for process in descendants(os.getpid(), without) if WORKER in _command(process.pid)]


def jvm(without: Collection[int]) -> int:
    """Return the JVM of Spark."""
    found = [process.pid for process in descendants(os.getpid(), without) if "SparkSubmit" in _command(process.pid)]
    return found[0]


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as command:
            return command.read()
    except OSError:
        return ""


def memory_mb(pid: int, peak: bool) -> float:
    """Return the resident memory of a process, or the largest that it has had."""
    field = "VmHWM:" if peak else "VmRSS:"
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no {field}")
