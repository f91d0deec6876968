"""`make bench`: Apache Kafka's own performance tools against gregor and against Apache Kafka, in turns on one machine.

Only ratios of one run mean something: absolute figures drift from run to run on a shared machine. While one broker is
loaded, the other is stopped (SIGSTOP). The first round warms up and is not counted. A full run also draws the chart
that the README shows. Ends with exit code 1 if a figure of gregor is beyond its limit, among them the time for which
its event loop was held up. Figures of gregor with an authorizer and quotas are beside gregor without.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from tests.bench import guards, rested_memory
from tests.bench.chart import Row, chart
from tests.bench.figures import Figure, allow_descriptors, memory_mb, stall_figures
from tests.bench.loads import LOADS, Load, Runs, chosen
from tests.bench.peer import GROUP_SETTINGS, Peer
from tests.bench.restart import create_coordinators, fill, group_ids, restart_s, transactional_ids
from tests.support.processes import BrokerProcess, free_port
from tests.support.stolen_time import StolenTime

IDLE_S = 3.0
DESCRIPTORS = 8_192
"""Of a broker with 3,000 members of groups, and of each tool."""
CHART = pathlib.Path(__file__).with_name("ratios.svg")

START = "start to first answer, s"
MEMORY = "idle memory, MB"
TRANSACTIONAL_IDS, GROUPS = 100_000, 1_000
RESTART = "restart, 100,000 transactional ids, s"
MAX_RESTART_S = 3
SIDES = ("gregor", "Apache Kafka")


class Side(NamedTuple):
    """One of the two brokers that are measured; `number` is 0 for gregor's."""

    number: int
    broker: BrokerProcess | Peer
    tls_port: int = 0

    def send(self, signal_number: signal.Signals) -> None:
        os.kill(self.broker.pid, signal_number)


class Values(NamedTuple):
    """The values of one figure in each round, on both sides."""

    figure: str
    higher_is_better: bool
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """Return the ratios, above 1 where gregor is better, without rounds whose figures are too small to measure."""
        pairs = [pair for pair in zip(self.ours, self.theirs, strict=True) if min(pair) > 0]
        return [a / b if self.higher_is_better else b / a for a, b in pairs]


def run(sides: list[Side], loads: list[Load], given: argparse.Namespace) -> tuple[list[Values], list[Figure]]:
    """Start both sides, gregor's first. Return the figures of both, and those of gregor that have a limit: loads,
    stalls of the event loop."""
    start, memory = Values(START, False, [], []), Values(MEMORY, False, [], [])
    values = [Values(load.figure, load.higher_is_better, [], []) for load in loads]
    stolen = StolenTime()
    for side in sides:
        begin = time.monotonic()
        side.broker.start()
        start[2 + side.number].append(time.monotonic() - begin)
    time.sleep(IDLE_S)
    for side in sides:
        memory[2 + side.number].append(memory_mb(side.broker.pid))
    ours, peer = sides[0].broker, sides[1].broker
    assert isinstance(ours, BrokerProcess) and isinstance(peer, Peer)
    figures: list[Figure] = []
    for crowds in (False, True):
        measured = [(load, found) for load, found in zip(loads, values, strict=True) if load.is_crowd == crowds]
        if not measured:
            continue
        run_rounds(sides, measured, given)
        sides[0].send(signal.SIGCONT)
        if crowds:
            figures += stall_figures(ours, stolen, "thousands of requests at once among them", None)
        else:
            figures += stall_figures(ours, stolen, "gregor, all rounds" + (", TLS" if sides[0].tls_port else ""))
    for side in sides:
        side.send(signal.SIGCONT)
    figures += _limited(loads, values)
    if sides[0].tls_port:
        return values, figures
    if restarts(given.only):
        restarted, more = run_restarts(ours, peer, given)
        values.append(restarted)
        figures += more
    return [*values, start, memory], figures


def run_rounds(
    sides: list[Side],
    measured: list[tuple[Load, Values]],
    given: argparse.Namespace,
    names: tuple[str, str] = SIDES,
) -> None:
    """Measure these loads on both sides, which are stopped before and after."""
    for side in sides:
        side.send(signal.SIGSTOP)
    for number in range(1 - given.warm_up, given.rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            side.send(signal.SIGCONT)
            broker = side.broker
            runs = Runs(broker.port, broker.pid, f"bench{number + given.warm_up}", given.share, side.tls_port)
            for load, found in measured:
                value = runs.measure(load)
                if number > 0:
                    found[2 + side.number].append(value)
                print(f"# round {number}, {names[side.number]}: {load.figure} {value}", flush=True)
            os.sync()
            side.send(signal.SIGSTOP)


def measure(folder: pathlib.Path, given: argparse.Namespace) -> tuple[list[Values], list[Figure]]:
    """Measure brokers without TLS, and then others with a listener that has it, as far as loads of each are chosen."""
    values: list[Values] = []
    figures: list[Figure] = []
    for tls in (False, True):
        loads = [load for load in chosen(given.only) if load.is_tls == tls and not load.is_guarded]
        if not loads and (tls or not restarts(given.only)):
            continue
        sides = tls_sides(folder) if tls else plain_sides(folder)
        try:
            of_rounds, of_whole = run(sides, loads, given)
            values += of_rounds
            figures += of_whole
        finally:
            for side in sides:
                side.broker.kill()
    return values, figures


def measure_guards(folder: pathlib.Path, given: argparse.Namespace) -> tuple[list[Values], list[Figure]]:
    """Measure gregor with an authorizer and quotas beside gregor without, as far as such loads are chosen."""
    loads = [load for load in chosen(given.only) if load.is_guarded]
    values = [Values(load.figure, load.higher_is_better, [], []) for load in loads]
    sides = [
        Side(0, BrokerProcess(folder / "guarded", guards.SETTINGS)),
        Side(1, BrokerProcess(folder / "without")),
    ]
    try:
        for side in sides if loads else []:
            side.broker.start()
        if loads:
            guards.prepare(sides[0].broker.port)
            run_rounds(sides, list(zip(loads, values, strict=True)), given, ("with", "without"))
    finally:
        for side in sides:
            side.broker.kill()
    figures = [guards.cost_figures(one.figure, one.higher_is_better, one.ours, one.theirs) for one in values]
    return values, [figure for some in figures for figure in some]


def plain_sides(folder: pathlib.Path) -> list[Side]:
    return [Side(0, BrokerProcess(folder / "gregor", GROUP_SETTINGS)), Side(1, Peer(folder / "kafka"))]


def tls_sides(folder: pathlib.Path) -> list[Side]:
    """Brokers with the same certificate, on the curve P-256. Clients have none."""
    from tests.support.certificates import Certificates

    settings = Certificates(folder).broker_settings
    port, tls_port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    peer = Peer(folder / "kafka-tls", settings)
    ours = BrokerProcess(folder / "gregor-tls", {**GROUP_SETTINGS, **settings, "listeners": listeners}, port=port)
    return [Side(0, ours, tls_port), Side(1, peer, peer.tls_port)]


def _limited(loads: list[Load], values: list[Values]) -> list[Figure]:
    """Return gregor's figures that have a limit."""
    figures = []
    for load, found in zip(loads, values, strict=True):
        if load.limit is not None and found.ours:
            name, _, unit = load.figure.rpartition(", ")
            figures.append(Figure(name, statistics.median(found.ours), unit, load.limit))
    return figures


def restarts(words: list[str]) -> bool:
    """Whether the restart of the coordinators is measured."""
    return not words or any(word in RESTART for word in words)


def run_restarts(ours: BrokerProcess, peer: Peer, given: argparse.Namespace) -> tuple[Values, list[Figure]]:
    """Restart both brokers, in turns, with the coordinators' logs filled. Both run, and are stopped at the end."""
    values = Values(RESTART, False, [], [])
    figures: list[Figure] = []
    transactions = transactional_ids(max(100, int(TRANSACTIONAL_IDS * given.share)))
    groups = group_ids(max(100, int(GROUPS * given.share)))
    sides = [(ours, pathlib.Path(ours.overrides["log.dirs"])), (peer, peer.data)]
    for broker, data in sides:
        create_coordinators(broker.port)
        broker.stop()
        fill(data, transactions, groups)
    os.sync()
    for number in range(1, given.rounds + 1):
        for side in (0, 1) if number % 2 else (1, 0):
            broker, stolen = sides[side][0], StolenTime()
            value = restart_s(broker.start, broker.port, transactions, groups)
            values[2 + side].append(value)
            print(f"# round {number}, {SIDES[side]}: {RESTART} {value:.2f}", flush=True)
            if not side:
                figures += stall_figures(ours, stolen, f"gregor, restart {number}")
            broker.stop()
    return values, [Figure("restart", statistics.median(values.ours), "s", MAX_RESTART_S), *figures]


def table(values: list[Values], other: str = "Kafka 4.3.1") -> str:
    lines = [f"{'figure':42} {'gregor':>10} {other:>12} {'ratio':>7}   min - max   (above 1: gregor is better)"]
    for one in values:
        ratios = one.ratios
        told = f"{statistics.median(ratios):7.2f}   {min(ratios):.2f} - {max(ratios):.2f}" if ratios else "      -"
        lines.append(
            f"{one.figure:42} {statistics.median(one.ours):10.2f} {statistics.median(one.theirs):12.2f} {told}"
        )
    return "\n".join(lines)


def draw(values: list[Values], rounds: int, day: datetime.date) -> str:
    rows = [Row(one.figure.rpartition(",")[0], one.ratios) for one in values if one.ratios]
    note = f"make bench on {day}: {rounds} rounds in turns, {os.cpu_count()} processors; median (least to most)"
    return chart("gregor over Apache Kafka 4.3.1: above 1, gregor is better", rows, note)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (3)")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before them that are not counted (1)")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="figures that hold these words")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of records (1.0)")
    parser.add_argument("--chart", type=pathlib.Path, help="where to draw; a full run does it beside this file")
    given = parser.parse_args(arguments)
    if not chosen(given.only) and not restarts(given.only):
        figures = [load.figure for load in LOADS] + [RESTART]
        parser.error(f"no figure holds {' or '.join(given.only)}: {'; '.join(figures)}")
    if given.chart is None and not given.only and given.share == 1.0:
        given.chart = CHART
    allow_descriptors(DESCRIPTORS)
    rested_memory.report()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-bench-"))
    try:
        values, figures = measure(folder, given)
        guarded, costs = measure_guards(folder, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if values:
        print("", table(values), *figures, sep="\n")
    if guarded:
        print("", table(guarded, "without"), *costs, sep="\n")
    rested_memory.report()
    if given.chart is not None:
        given.chart.write_text(draw(values, given.rounds, datetime.date.today()))
        print(f"chart: {given.chart}")
    return int(any(figure.missed for figure in (*figures, *costs)))


if __name__ == "__main__":
    sys.exit(main())
