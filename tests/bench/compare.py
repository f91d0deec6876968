"""`make bench`: Apache Kafka's own performance tools against gregor and against Apache Kafka, in turns on one machine.

Only ratios of one run mean something: absolute figures drift from run to run on a shared machine. While one broker is
loaded, the other is stopped (SIGSTOP). The first round warms up and is not counted. A full run also draws the chart
that the README shows. Ends with exit code 1 if gregor's event loop was held up for longer than its limit.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from tests.bench.chart import Row, chart
from tests.bench.figures import Figure, memory_mb, stall_figures
from tests.support.kafka import QUIET_LOG4J, kafka_jars
from tests.support.processes import BrokerProcess, answers_metadata, free_port
from tests.support.stolen_time import StolenTime

ROOT = pathlib.Path(__file__).resolve().parents[2]

CLUSTER_ID = "gregorBenchKafkaPeer-0"
TOOLS = "org.apache.kafka.tools"
LOAD_TIMEOUT_S = 300
START_TIMEOUT_S = 90
IDLE_S = 3.0
CHART = pathlib.Path(__file__).with_name("ratios.svg")


class Load(NamedTuple):
    """One run of a tool: a class of Apache Kafka's, or a module of ours for what its tools do not measure.

    `arguments` may name {bootstrap}, {topic} and {count}, which is `count` unless only a share of it is run. `pattern`
    finds the figure in the output. `after` is a load that must have run before.
    """

    figure: str
    tool: str
    arguments: str
    count: int
    pattern: str
    higher_is_better: bool
    after: str = ""


PRODUCED = r"records sent, .*\(([\d.]+) MB/sec\)(?!.*records sent)"
LARGE = "produce 1000 B records, MB/s"
TRANSACTIONS = "transactions"
TRANSACTION_LOAD = "tests.bench.transactions"
LOADS = [
    Load(
        "produce 100 B records, MB/s",
        f"{TOOLS}.ProducerPerformance",
        "--topic {topic}s --num-records {count} --record-size 100 --throughput -1"
        " --command-property bootstrap.servers={bootstrap}",
        2_000_000,
        PRODUCED,
        True,
    ),
    Load(
        LARGE,
        f"{TOOLS}.ProducerPerformance",
        "--topic {topic}b --num-records {count} --record-size 1000 --throughput -1"
        " --command-property bootstrap.servers={bootstrap}",
        1_000_000,
        PRODUCED,
        True,
    ),
    Load(
        "consume 1000 B records, MB/s",
        f"{TOOLS}.ConsumerPerformance",
        "--bootstrap-server {bootstrap} --topic {topic}b --num-records {count}",
        1_000_000,
        r"^\d{4}-.*?, [\d.]+, ([\d.]+),",
        True,
        after=LARGE,
    ),
    Load(
        "end to end, mean, ms",
        f"{TOOLS}.EndToEndLatency",
        "--bootstrap-server {bootstrap} --topic {topic}e --num-records {count} --producer-acks all --record-size 100",
        5_000,
        r"Avg latency: ([\d.]+)",
        False,
    ),
    Load(
        "end to end, 99th percentile, ms",
        f"{TOOLS}.EndToEndLatency",
        "--bootstrap-server {bootstrap} --topic {topic}f --num-records {count} --producer-acks all --record-size 100",
        5_000,
        r"99th = ([\d.]+)",
        False,
    ),
    *(
        Load(
            f"{TRANSACTIONS} ({producers} at a time){name}",
            TRANSACTION_LOAD,
            f"--bootstrap {{bootstrap}} --topic {{topic}}t --producers {producers} --transactions {{count}}",
            count,
            pattern,
            higher_is_better,
        )
        for producers, count in ((1, 1000), (8, 250))
        for name, pattern, higher_is_better in (
            (", 1/s", r"([\d.]+) transactions/s", True),
            (" 99th, ms", r"99th ([\d.]+) ms", False),
        )
    ),
]
START = "start to first answer, s"
MEMORY = "idle memory, MB"


class Peer:
    """Apache Kafka 4.3.1 as a single KRaft node, with the settings of its own quick start and a 1 GB heap."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.port, controller = free_port(), free_port()
        folder.mkdir()
        (folder / "log4j2.yaml").write_text(QUIET_LOG4J)
        (folder / "server.properties").write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@localhost:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={folder}/data\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        run = ["java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", f"-Dlog4j2.configurationFile={self.folder}/log4j2.yaml"]
        run += ["-cp", f"{kafka_jars()}/*"]
        storage = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties"]
        subprocess.run(storage, cwd=self.folder, check=True, capture_output=True)
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [*run, "kafka.Kafka", "server.properties"], cwd=self.folder, stdout=out, stderr=out
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_metadata(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Apache Kafka did not start: {(self.folder / 'out').read_text()[-500:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def measure(load: Load, port: int, topic: str, share: float) -> float:
    count = max(100, int(load.count * share))
    arguments = load.arguments.format(bootstrap=f"127.0.0.1:{port}", topic=topic, count=count).split()
    java = ["java", "-Xmx512M", "-cp", f"{kafka_jars()}/*"]
    program = [sys.executable, "-m"] if load.tool == TRANSACTION_LOAD else java
    done = subprocess.run(
        [*program, load.tool, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S
    )
    found = re.findall(load.pattern, done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise RuntimeError(f"{load.tool} {' '.join(arguments)} failed:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return float(found[-1])


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


def chosen(words: list[str]) -> list[Load]:
    """The loads whose names hold one of the words, and before them those that they need."""
    wanted = [load for load in LOADS if not words or any(word in load.figure for word in words)]
    needed = {load.after for load in wanted}
    return [load for load in LOADS if load in wanted or load.figure in needed]


def run(ours: BrokerProcess, peer: Peer, given: argparse.Namespace) -> tuple[list[Values], list[Figure]]:
    """Return the figures of both sides, and the stalls of gregor's event loop."""
    loads = chosen(given.only)
    start, memory = Values(START, False, [], []), Values(MEMORY, False, [], [])
    values = [Values(load.figure, load.higher_is_better, [], []) for load in loads]
    stolen = StolenTime()
    for side, broker in enumerate((ours, peer)):
        begin = time.monotonic()
        broker.start()
        start[2 + side].append(time.monotonic() - begin)
    assert ours.process is not None
    assert peer.process is not None
    time.sleep(IDLE_S)
    sides = [(ours.process, ours.port, 0), (peer.process, peer.port, 1)]
    for process, _, side in sides:
        memory[2 + side].append(memory_mb(process.pid))
        os.kill(process.pid, signal.SIGSTOP)
    for number in range(1 - given.warm_up, given.rounds + 1):
        for process, port, side in sides if number % 2 else sides[::-1]:
            os.kill(process.pid, signal.SIGCONT)
            for load, found in zip(loads, values, strict=True):
                value = measure(load, port, f"bench{number + given.warm_up}", given.share)
                if number > 0:
                    found[2 + side].append(value)
                print(f"# round {number}, {('gregor', 'Apache Kafka')[side]}: {load.figure} {value}", flush=True)
            os.sync()
            os.kill(process.pid, signal.SIGSTOP)
    os.kill(ours.process.pid, signal.SIGCONT)
    return [*values, start, memory], stall_figures(ours, stolen, "gregor, all rounds")


def table(values: list[Values]) -> str:
    lines = [f"{'figure':34} {'gregor':>10} {'Kafka 4.3.1':>12} {'ratio':>7}   min - max   (above 1: gregor is better)"]
    for one in values:
        ratios = one.ratios
        told = f"{statistics.median(ratios):7.2f}   {min(ratios):.2f} - {max(ratios):.2f}" if ratios else "      -"
        lines.append(
            f"{one.figure:34} {statistics.median(one.ours):10.2f} {statistics.median(one.theirs):12.2f} {told}"
        )
    return "\n".join(lines)


def draw(values: list[Values], rounds: int) -> str:
    rows = [Row(one.figure.rpartition(",")[0], one.ratios) for one in values if one.ratios]
    note = f"{rounds} rounds in turns on one machine, median (least to most)"
    return chart("gregor over Apache Kafka 4.3.1: above 1, gregor is better", rows, note)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (3)")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before them that are not counted (1)")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="figures that hold these words")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of records (1.0)")
    parser.add_argument("--chart", type=pathlib.Path, help="where to draw; a full run does it beside this file")
    given = parser.parse_args(arguments)
    if not chosen(given.only):
        parser.error(f"no figure holds {' or '.join(given.only)}: {', '.join(load.figure for load in LOADS)}")
    if given.chart is None and not given.only and given.share == 1.0:
        given.chart = CHART
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-bench-"))
    ours, peer = BrokerProcess(folder / "gregor"), Peer(folder / "kafka")
    try:
        values, found_stalls = run(ours, peer, given)
    finally:
        ours.kill()
        peer.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print("", table(values), *found_stalls, sep="\n")
    if given.chart is not None:
        given.chart.write_text(draw(values, given.rounds))
        print(f"chart: {given.chart}")
    return int(any(figure.missed for figure in found_stalls))


if __name__ == "__main__":
    sys.exit(main())
