"""`python -m tests.fuzz`: broken inputs for every parser.

    --inputs 10000000 --processes 1 --seed 1      how many in all, on how many processes, from which seed
    --only WORD                                   only targets with this word in their names
    --failures FOLDER                             where an input that led to an error is left
    --replay FILE                                 such an input once more

Exits with 1 if a parser answered an input with anything but its documented errors, or took too much time or memory.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests.fuzz import (
    conversion_targets,
    group_targets,
    record_targets,
    storage_targets,
    store_targets,
    text_targets,
    wire_targets,
)
from tests.fuzz.runner import Failure, Report, Target, fuzz, replay

TELL_EVERY_SECONDS = 10


def all_targets(only: str = "") -> list[Target]:
    modules = (
        wire_targets,
        record_targets,
        conversion_targets,
        storage_targets,
        store_targets,
        group_targets,
        text_targets,
    )
    return [target for module in modules for target in module.targets() if only in target.name]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None, help="by default one at random, which is printed")
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--failures", type=Path, default=None, metavar="FOLDER")
    parser.add_argument("--replay", type=Path, default=None, metavar="FILE")
    given = parser.parse_args(argv)
    if given.replay is not None:
        return tell_failures(replay_file(given.replay), None)
    if not all_targets(given.only):
        parser.error(f"no target has {given.only!r} in its name")
    seed = SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}, {given.inputs:,} inputs on {given.processes} process(es)", flush=True)
    began = time.monotonic()
    report = run(given.inputs, given.processes, seed, given.only)
    tell(report, time.monotonic() - began)
    return tell_failures(report, given.failures)


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
    for _ in workers:
        total.add(reports.get())
    for worker in workers:
        worker.join()
    return total


def work(inputs: int, seed: str, only: str, reports: Queue[Report], tells: bool) -> None:
    reports.put(fuzz(all_targets(only), inputs, seed, progress=Progress(inputs) if tells else None))


class Progress:
    """A line now and then; on a terminal always the same one."""

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self._began = self._told = time.monotonic()

    def __call__(self, report: Report) -> None:
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


def tell(report: Report, seconds: float) -> None:
    print(f"\n{'parser':28}{'inputs':>12}{'refused':>9}{'us each':>9}")
    for name, tally in report.tallies.items():
        share = tally.refused / tally.inputs
        print(f"{name:28}{tally.inputs:>12,}{share:>9.0%}{tally.seconds / tally.inputs * 1e6:>9.0f}")
    print(f"{'in all':28}{report.inputs:>12,}   in {seconds:,.0f} s, {report.inputs / seconds:,.0f} inputs/s")


def tell_failures(report: Report, folder: Path | None) -> int:
    if not report.failures:
        print("only documented errors")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="fuzz-")) if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    for number, (key, failure) in enumerate(report.failures.items(), start=1):
        path = folder / f"{number:03}-{key.split()[0]}.txt"
        save(failure, path)
        print(f"\n{key}, {failure.times} times: {failure.error}\n{failure.trace}python -m tests.fuzz --replay {path}")
    print(f"\n{len(report.failures)} failures")
    return 1


def save(failure: Failure, path: Path) -> None:
    path.write_text(repr((failure.target, failure.context, failure.data)))


def replay_file(path: Path) -> Report:
    saved: tuple[str, Any, bytes] = ast.literal_eval(path.read_text())
    name, context, data = saved
    (target,) = (target for target in all_targets() if target.name == name)
    return replay(target, context, data)


if __name__ == "__main__":
    sys.exit(main())
