"""`make bench-cluster`: three gregor brokers beside three Apache Kafka 3.9.1 brokers in ZooKeeper mode, in turns.

    make bench-cluster                                      3 rounds, then failover of 5,000 partitions once
    make bench-cluster ARGS="--rounds 1 --only load"        the effect of a new change on the throughput
    make bench-cluster ARGS="--only kills --kills 100"      gregor's alone: writes after kill -9, see failover.py
    make bench-cluster ARGS="--only mixed --kills 20"       the same under Apache Kafka's controller

Each side begins each round with new processes, a ZooKeeper of its own and empty folders; the other side does not run
meanwhile. All topics have three replicas, and all writes wait for all in-sync replicas. Only ratios mean something.

Each load is measured twice: cold, in its first pass over these processes, while a JVM still compiles; and warm, after
at least two passes that are not counted. A cold ratio describes a cluster that
was just started, and no more.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.bench import failover, raw_load, rested_memory
from tests.bench.cluster_side import Side
from tests.support.mixed_cluster import GREGOR, KAFKA

ROOT = pathlib.Path(__file__).resolve().parents[2]

NAMES = {GREGOR: "gregor", KAFKA: "Apache Kafka 3.9.1"}
FAILOVER_PARTITIONS = 300
"""A third of them is led by each broker."""
MANY_PARTITIONS = 5000
PARTS = ("load", "failover", "many")
KILLS = {"kills": (GREGOR, GREGOR, GREGOR), "mixed": (KAFKA, GREGOR, GREGOR)}
"""The parts that are kills of gregor's brokers alone, and the brokers of their clusters."""
KILL_PARTITIONS = 1000
KILL_LIMITS_S = {"kills": (0.5, 1.5), "mixed": (2.5, 2.5)}
"""The longest that writes may stand still: the median, and the worst."""
SESSION_MS = 18_000
"""The default."""
IDLE_S = 3.0
MIN_WARM_UP_PASSES = 2
MAX_WARM_UP_PASSES = 5
FASTER = 1.05


class Load(NamedTuple):
    """`producers` with `window` requests under way each."""

    name: str
    producers: int
    window: int
    batch_bytes: int

    @property
    def topic(self) -> str:
        return f"load-{self.producers}-{self.batch_bytes}"

    @property
    def partitions(self) -> int:
        return 12 if self.producers > 6 else 6


LOADS = (
    Load("batches of 16 KB", 6, 5, 16_000),
    Load("batches of 1 MB", 6, 5, 1_000_000),
    Load("1 producer that waits", 1, 1, 100),
    Load("64 producers that wait", 64, 1, 100),
)


class Figure(NamedTuple):
    """One value of one side in one round."""

    name: str
    value: float
    higher_is_better: bool = False
    asked: float | None = None
    """The least ratio, above 1 gregor is better."""


def warm_up(run: Callable[[], raw_load.Found]) -> None:
    """Run at least `MIN_WARM_UP_PASSES` after the cold pass, and until a pass is not faster than all before it."""
    best = 0.0
    for number in range(1, MAX_WARM_UP_PASSES + 1):
        found = run().requests_per_s
        if number >= MIN_WARM_UP_PASSES and found < best * FASTER:
            return
        best = max(best, found)


def loads(side: Side, seconds: float) -> Iterator[Figure]:
    for load in LOADS:
        side.keep_trying(partial(side.create, load.topic, load.partitions))
        side.wait_until_whole(load.topic, load.partitions)
        run = partial(one_pass, side, load, seconds)
        yield from measured(side, load, "cold", run)
        warm_up(run)
        yield from measured(side, load, "warm", run)


def one_pass(side: Side, load: Load, seconds: float) -> raw_load.Found:
    return raw_load.load(
        side.port(),
        load.topic,
        count=load.producers,
        batch_bytes=load.batch_bytes,
        window=load.window,
        seconds=seconds,
    )


def measured(side: Side, load: Load, state: str, run: Callable[[], raw_load.Found]) -> Iterator[Figure]:
    """Run one pass and yield its figures. Only a warm ratio has a limit."""
    before_s, zookeeper_s = side.processor_s(), side.zookeeper_processor_s()
    found = run()
    spent_s, zookeeper_s = side.processor_s() - before_s, side.zookeeper_processor_s() - zookeeper_s
    warm = state == "warm"
    if load.window == 1:
        name = f"{load.name}, {state}, requests/s"
        yield Figure(name, found.requests_per_s, True, 1.2 if warm else None)
        yield Figure("  median, ms", found.median_ms)
        yield Figure("  p99, ms", found.percentile_ms(0.99), asked=1.0 if warm else None)
        yield Figure("  processor time of the brokers, us a request", spent_s / found.requests * 1e6)
    else:
        rate = found.size_bytes / found.seconds / 1e6
        yield Figure(f"{load.name}, {state}, MB/s", rate, True, 1.2 if warm else None)
        spent_s_per_gb = spent_s / found.size_bytes * 1e9
        yield Figure("  processor time of the brokers, s/GB", spent_s_per_gb, asked=1 / 0.8 if warm else None)
        yield Figure("  of ZooKeeper, s/GB", zookeeper_s / found.size_bytes * 1e9)


def failovers(side: Side, partitions: int) -> Iterator[Figure]:
    yield from one_failover(side, partitions, "a leader")
    yield from one_failover(side, partitions, "the controller")


def one_failover(side: Side, partitions: int, role: str) -> Iterator[Figure]:
    """On a new topic: each broker leads a third of it. After the first, the broker is started again."""
    topic = f"failover-{role.split()[-1]}"
    begin = time.monotonic()
    side.keep_trying(lambda: side.create(topic, partitions))
    side.wait_until_whole(topic, partitions)
    if role == "a leader":
        yield Figure(f"making {partitions} partitions, all in sync, s", time.monotonic() - begin)
        yield Figure("  memory of the brokers, MB", side.memory_mb())
    controller = side.cluster.controller()
    assert controller is not None
    killed = controller if role == "the controller" else next(n for n in side.running() if n != controller)
    _, total_s, beyond_s, _ = side.failover(topic, killed)
    led = partitions // 3
    yield Figure(f"kill of {role}, {led} led: all take writes, s beyond the session", beyond_s, asked=1.0)
    yield Figure("  in all, s", total_s)
    if role == "a leader":
        begin = time.monotonic()
        side.cluster.start(killed)
        side.wait_until_whole(topic, partitions)
        yield Figure("  it is back: until all are in sync again, s", time.monotonic() - begin)


def once(folder: pathlib.Path, kind: str, parts: list[str], given: argparse.Namespace) -> Iterator[Figure]:
    """Run one side, from its start to its end, and yield its figures."""
    with Side(folder, kind) as side:
        start_s = side.start()
        yield Figure("start to the first record, s", start_s, asked=2.0)
        yield Figure("  ZooKeeper's start included, s", start_s + side.zookeeper_s)
        time.sleep(IDLE_S)
        yield Figure("  memory of the idle brokers, MB", side.memory_mb())
        if "load" in parts:
            yield from loads(side, given.seconds)
        if "failover" in parts:
            yield from failovers(side, FAILOVER_PARTITIONS)
        if "many" in parts:
            yield from failovers(side, given.partitions)


Values = dict[str, dict[str, list[Figure]]]
"""Figure name -> side -> the figure of each round."""


def play(values: Values, kinds: list[str], parts: list[str], given: argparse.Namespace, label: str) -> None:
    for kind in kinds:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-bench-"))
        under = ""
        try:
            for figure in once(folder, kind, parts, given):
                print(f"# {label}, {NAMES[kind]}: {figure.name.strip()} {figure.value:.3f}", flush=True)
                under = figure.name if not figure.name.startswith(" ") else under
                name = figure.name if figure.name == under else f"{under}\n{figure.name}"
                values.setdefault(name, {}).setdefault(kind, []).append(figure)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def table(values: Values) -> str:
    """The sides' medians, and the ratios of the rounds: above 1 gregor is better."""
    width = max((len(name.rpartition("\n")[2]) for name in values), default=10)
    lines = [f"{'':{width}} {'gregor':>10} {'Kafka 3.9.1':>12} {'ratio':>7}   min - max    asked"]
    for name, sides in values.items():
        ours, theirs = ([one.value for one in sides.get(kind, [])] for kind in (GREGOR, KAFKA))
        [figure, *_] = [one for found in sides.values() for one in found]
        pairs = [pair for pair in zip(ours, theirs, strict=False) if min(pair) > 0]
        ratios = [a / b if figure.higher_is_better else b / a for a, b in pairs]
        told = [f"{statistics.median(found):.2f}" if found else "-" for found in (ours, theirs)]
        line = f"{name.rpartition(chr(10))[2]:{width}} {told[0]:>10} {told[1]:>12}"
        if ratios:
            line += f" {statistics.median(ratios):7.2f}   {min(ratios):.2f} - {max(ratios):.2f}"
            if figure.asked is not None:
                missed = "" if statistics.median(ratios) >= figure.asked else ", missed"
                line += f"  >= {figure.asked:.2f}{missed}"
        lines.append(line)
    return "\n".join(lines)


def play_kills(part: str, partitions: int, count: int) -> None:
    """Print each kill, and then the table of all."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-bench-"))
    found: list[failover.Killed] = []
    try:
        with failover.sides(folder, KILLS[part], SESSION_MS) as side:
            side.start()
            victims = None
            if part == "mixed":
                side.cluster.force_controller(0)
                victims = (1, 2)
            for killed in failover.kills(side, partitions, count, victims):
                found.append(killed)
                clients = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in killed.clients_s.items())
                again = ", started at once" if killed.restarted else ""
                print(f"# kill of {killed.role}{again}: {killed.cluster_s:.2f} s; {clients}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if found:
            print("\n".join(["", f"{part}, {partitions} partitions", *failover.summary(found, *KILL_LIMITS_S[part])]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of load and failover (3)")
    parser.add_argument("--only", action="append", choices=[*PARTS, *KILLS], help="parts of it")
    parser.add_argument("--side", choices=[GREGOR, KAFKA], help="one side only")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each pass of a load (8)")
    parser.add_argument("--partitions", type=int, default=MANY_PARTITIONS, help="of the part `many` (5000)")
    parser.add_argument("--kills", type=int, default=20, help="of the parts `kills` and `mixed` (20)")
    parser.add_argument("--killed-partitions", type=int, default=KILL_PARTITIONS, help="of these two (1000)")
    given = parser.parse_args(arguments)
    parts = given.only or list(PARTS)
    kinds = [given.side] if given.side else [GREGOR, KAFKA]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # with an end to all brokers
    values: Values = {}
    most: Values = {}
    rested_memory.report()
    often = [part for part in parts if part != "many" and part not in KILLS]
    try:
        for number in range(given.rounds if often else 0):
            play(values, kinds if number % 2 == 0 else kinds[::-1], often, given, f"round {number + 1}")
        if "many" in parts:
            play(most, kinds, ["many"], given, f"{given.partitions} partitions")
        for part in parts:
            if part in KILLS:
                play_kills(part, given.killed_partitions, given.kills)
    finally:
        print(f"\n{table(values)}" if values else "")
        print(f"\nwith {given.partitions} partitions\n{table(most)}" if most else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
