"""Many seeds, over processes, until the first that fails: `python -m tests.simulation.run --seeds 20000 --processes 2`.

A failing seed is run again with a trace, which goes to standard output; `--seed N` does that for one.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator

from tests.simulation.ledger import Violated
from tests.simulation.world import World


def failure(seed: int) -> str | None:
    """Return the first violation of this seed, None if there is none."""
    try:
        World(seed).run()
    except Violated as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return None


def trace(seed: int) -> tuple[str | None, list[str]]:
    """Run the same seed again, with a trace of all events."""
    world = World(seed, tracing=True)
    found = None
    try:
        world.run()
    except Violated as error:
        found = str(error)
    except Exception:
        found = traceback.format_exc()
    return found, world.lines


def _outcomes(seeds: range, processes: int) -> Iterator[tuple[int, str | None]]:
    if processes == 1:
        gc.freeze()  # what is imported stays, so collections between seeds skip it
        yield from ((seed, failure(seed)) for seed in seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, gc.freeze) as pool:
        yield from zip(seeds, pool.imap(failure, seeds, chunksize=4), strict=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--quiet", action="store_true", help="no trace of the one that fails")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        found, lines = trace(arguments.seed)
        print(*lines, sep="\n")
        print(f"seed {arguments.seed}: {found or 'all well'}")
        return found is not None
    started_s = time.monotonic()
    failed = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for count, (seed, found) in enumerate(_outcomes(seeds, arguments.processes), 1):
        if found is not None:
            failed += 1
            print(f"seed {seed}: {found}", flush=True)
            if not arguments.go_on:
                if not arguments.quiet:
                    print(*trace(seed)[1], sep="\n")
                break
        if count % 500 == 0:
            print(f"{count} seeds, {failed} failed, {time.monotonic() - started_s:.0f} s", flush=True)
    print(f"{count} seeds, {failed} failed, {time.monotonic() - started_s:.0f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
