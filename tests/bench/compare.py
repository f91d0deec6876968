"""`make bench`: Apache Kafka's own performance tools against gregor and against Apache Kafka, in turns on one machine.

Only ratios of one run mean something: absolute figures drift from run to run on a shared machine. While one broker is
loaded, the other is stopped (SIGSTOP). The first round warms up and is not counted.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.kafka import QUIET_LOG4J, kafka_jars  # noqa: E402  the folder above must be on the path first
from tests.support.processes import BrokerProcess, answers_metadata, free_port  # noqa: E402  see above

CLUSTER_ID = "gregorBenchKafkaPeer-0"
TOOLS = "org.apache.kafka.tools"
LOAD_TIMEOUT_S = 300
START_TIMEOUT_S = 90


class Load(NamedTuple):
    """One run of a tool. `arguments` may name {bootstrap} and {topic}; `pattern` finds the figure in what it prints."""

    figure: str
    main_class: str
    arguments: str
    pattern: str
    higher_is_better: bool


LOADS = [
    Load(
        "produce 100 B records, MB/s",
        f"{TOOLS}.ProducerPerformance",
        "--topic {topic}s --num-records 2000000 --record-size 100 --throughput -1"
        " --command-property bootstrap.servers={bootstrap}",
        r"records sent, .*\(([\d.]+) MB/sec\)(?!.*records sent)",
        True,
    ),
    Load(
        "produce 1000 B records, MB/s",
        f"{TOOLS}.ProducerPerformance",
        "--topic {topic}b --num-records 1000000 --record-size 1000 --throughput -1"
        " --command-property bootstrap.servers={bootstrap}",
        r"records sent, .*\(([\d.]+) MB/sec\)(?!.*records sent)",
        True,
    ),
    Load(
        "consume 1000 B records, MB/s",
        f"{TOOLS}.ConsumerPerformance",
        "--bootstrap-server {bootstrap} --topic {topic}b --num-records 1000000",
        r"^\d{4}-.*?, [\d.]+, ([\d.]+),",
        True,
    ),
    Load(
        "end to end, 99th percentile, ms",
        f"{TOOLS}.EndToEndLatency",
        "--bootstrap-server {bootstrap} --topic {topic}e --num-records 5000 --producer-acks all --record-size 100",
        r"99th = ([\d.]+)",
        False,
    ),
]


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
            f"log.dirs={folder}/data\noffsets.topic.replication.factor=1\ngroup.initial.rebalance.delay.ms=0\n"
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


def measure(load: Load, port: int, topic: str) -> float:
    arguments = load.arguments.format(bootstrap=f"127.0.0.1:{port}", topic=topic).split()
    done = subprocess.run(
        ["java", "-Xmx512M", "-cp", f"{kafka_jars()}/*", load.main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
    )
    found = re.findall(load.pattern, done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise RuntimeError(f"{load.main_class} {' '.join(arguments)} failed:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return float(found[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (3)")
    rounds = parser.parse_args().rounds
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-bench-"))
    ours, peer = BrokerProcess(folder / "gregor"), Peer(folder / "kafka")
    values: dict[str, tuple[list[float], list[float]]] = {load.figure: ([], []) for load in LOADS}
    try:
        ours.start()
        peer.start()
        assert ours.process is not None
        assert peer.process is not None
        sides = [(ours.process, ours.port, 0), (peer.process, peer.port, 1)]
        for process, _, _ in sides:
            os.kill(process.pid, signal.SIGSTOP)
        for number in range(rounds + 1):
            for process, port, side in sides if number % 2 else sides[::-1]:
                os.kill(process.pid, signal.SIGCONT)
                for load in LOADS:
                    value = measure(load, port, f"bench{number}")
                    if number:
                        values[load.figure][side].append(value)
                    print(f"# round {number}, {('gregor', 'Apache Kafka')[side]}: {load.figure} {value}", flush=True)
                os.sync()
                os.kill(process.pid, signal.SIGSTOP)
    finally:
        ours.kill()
        peer.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{'figure':34} {'gregor':>10} {'Kafka 4.3.1':>12} {'ratio':>7}   min - max   (above 1: gregor is better)")
    for load in LOADS:
        mine, theirs = values[load.figure]
        pairs = sorted(a / b if load.higher_is_better else b / a for a, b in zip(mine, theirs, strict=True))
        print(
            f"{load.figure:34} {statistics.median(mine):10.2f} {statistics.median(theirs):12.2f}"
            f" {statistics.median(pairs):7.2f}   {pairs[0]:.2f} - {pairs[-1]:.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
