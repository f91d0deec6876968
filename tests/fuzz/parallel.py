"""All targets, fed by one process or several."""

from __future__ import annotations

import multiprocessing
import queue
import sys
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue

from tests.fuzz import (
    broker_targets,
    compaction_targets,
    conversion_targets,
    group_targets,
    record_targets,
    sasl_targets,
    storage_targets,
    store_targets,
    telemetry_targets,
    text_targets,
    transaction_targets,
    wire_targets,
)
from tests.fuzz.runner import Report, Target, fuzz

TELL_EVERY_SECONDS = 10


def all_targets(only: str = "") -> list[Target]:
    modules = (
        wire_targets,
        record_targets,
        conversion_targets,
        storage_targets,
        compaction_targets,
        store_targets,
        group_targets,
        text_targets,
        sasl_targets,
        transaction_targets,
        broker_targets,
        telemetry_targets,
    )
    return [target for module in modules for target in module.targets() if only in target.name]


def run(inputs: int, processes: int, seed: int, only: str) -> Report:
    if processes == 1:
        return fuzz(all_targets(only), inputs, f"{seed}/0", progress=Progress(inputs))
    # A forked process would share nothing useful: each makes its seeds, and compiles what it needs, by itself.
    context = multiprocessing.get_context("spawn")
    reports: Queue[Report] = context.Queue()
    share = -(-inputs // processes)
    workers = [
        context.Process(target=work, args=(share, f"{seed}/{number}", only, reports, number == 0))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    total = Report()
    try:
        for _ in workers:
            total.add(next_report(reports, workers))
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return total


def next_report(reports: Queue[Report], workers: Sequence[BaseProcess]) -> Report:
    """Wait for its end. Raise RuntimeError if a process has died; its reason is on stderr."""
    while True:
        try:
            return reports.get(timeout=1)
        except queue.Empty:
            if any(worker.exitcode for worker in workers):
                raise RuntimeError("a process has failed") from None


def work(inputs: int, seed: str, only: str, reports: Queue[Report], tells: bool) -> None:
    reports.put(fuzz(all_targets(only), inputs, seed, progress=Progress(inputs) if tells else None))


class Progress:
    """A line now and then, on a terminal always the same one; and failures as they are met."""

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self._began = self._told = time.monotonic()
        self._known: set[str] = set()

    def __call__(self, report: Report) -> None:
        for key in report.failures.keys() - self._known:
            self._known.add(key)
            print(f"{key}\n{report.failures[key].trace}", file=sys.stderr, flush=True)
        now = time.monotonic()
        on_terminal = sys.stderr.isatty()
        if not on_terminal and now - self._told < TELL_EVERY_SECONDS:
            return
        self._told = now
        done = report.inputs
        rate = done / (now - self._began)
        left_minutes = (self._inputs - done) / rate / 60
        line = (
            f"{done:,} of {self._inputs:,} inputs, {rate:,.0f}/s, "
            f"{len(report.failures)} failures, {left_minutes:.1f} minutes left"
        )
        print(line, file=sys.stderr, end="\r" if on_terminal else "\n", flush=True)
