"""Processor time and memory of the processes that Spark has started: its JVM and the Python workers below it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tests.bench.figures import TICKS_PER_S

WORKER = "\0-m\0pyspark."
"""In the command line of each Python process that a JVM of Spark starts, those it forks included. The JVM's own has
pyspark, too: in the path of its jars."""

SAMPLE_S = 0.1


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


def is_worker(pid: int) -> bool:
    """Return whether this is a Python process that Spark's JVM has started."""
    return WORKER in _command(pid)


def is_jvm(pid: int) -> bool:
    """Return whether this is the JVM of Spark."""
    return "SparkSubmit" in _command(pid)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as command:
            return command.read()
    except OSError:
        return ""


class Memory(NamedTuple):
    """Memory of a process in MB: its own pages, and its part of all its pages, those of libraries that several
    processes share included."""

    private: float = 0.0
    proportional: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Return that of a process at present; nothing if it has ended."""
        found = {}
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as rollup:
            for line in rollup:
                name, _, value = line.partition(":")
                if value.endswith("kB\n"):
                    found[name] = int(value.split()[0]) / 1024
        private = found.get("Private_Clean", 0.0) + found.get("Private_Dirty", 0.0)
        return cls(private, found.get("Pss", 0.0))


class Peaks:
    """The largest memory of the processes below this one while they are sampled."""

    def __init__(self) -> None:
        self.jvm_mb = 0.0
        self.worker_mb = 0.0
        """Private memory of the largest Python worker."""
        self.all_mb = 0.0
        """Of all processes together: what the machine must have for them."""

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample in a thread, and once at the end."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(SAMPLE_S):
                self.sample()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.sample()

    def sample(self) -> None:
        all_mb = 0.0
        for process in descendants(os.getpid()):
            memory = Memory.of(process.pid)
            all_mb += memory.proportional
            if is_worker(process.pid):
                self.worker_mb = max(self.worker_mb, memory.private)
            elif is_jvm(process.pid):
                self.jvm_mb = max(self.jvm_mb, memory.private)
        self.all_mb = max(self.all_mb, all_mb)
