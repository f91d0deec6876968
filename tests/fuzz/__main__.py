"""`python -m tests.fuzz`: broken inputs for every parser.

    --inputs 10000000 --processes 1 --seed 1      how many in all, on how many processes, from which seed
    --only WORD                                   only targets with this word in their names
    --failures FOLDER                             where an input that led to an error is left
    --replay FILE                                 such an input once more

Exits with 1 if a parser answered an input with anything but its documented errors, or used too much time or memory.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests.fuzz.parallel import all_targets, run
from tests.fuzz.runner import Failure, Report, replay


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
