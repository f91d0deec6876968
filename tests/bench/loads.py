"""The loads of `make bench`: the programs that are run against each broker, and their figures."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

from tests.support.kafka import kafka_jars

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = "org.apache.kafka.tools"
OURS = "tests.bench."
LOAD_TIMEOUT_S = 300
HEARTBEATS_S = 15.0
MIN_COUNT = 100


class Load(NamedTuple):
    """One figure of a run of a tool: a class of Apache Kafka's, or a module of ours for what its tools do not measure.

    `arguments` may name {bootstrap}, {tls_port} of a listener with TLS, {topic}, {pid} of the broker, {seconds} of
    heartbeats and {count}, which is `count` unless only a share of it is run. `pattern` finds the figure in the output.
    `after` is a load that must have run before. `limit` is that of gregor's value. `is_crowd`: thousands of connections
    send at once, and the event loop serves all of them before it proceeds. `is_tls`: both brokers are others, which
    have a listener with TLS. `is_guarded`: the two brokers are gregor with an authorizer and quotas, and without.
    """

    figure: str
    tool: str
    arguments: str
    count: int
    pattern: str
    higher_is_better: bool
    after: str = ""
    limit: float | None = None
    is_crowd: bool = False
    is_tls: bool = False
    is_guarded: bool = False


PRODUCED = r"records sent, .*\(([\d.]+) MB/sec\)(?!.*records sent)"
LARGE = "produce 1000 B records, MB/s"
TRANSACTIONS = "transactions"
RATE = ("MB/s", r"([\d.]+) MB/s", True)
CPU = ("broker CPU, s/GB", r"([\d.]+) s/GB", False)
OF_REQUESTS = (("1/s", r"([\d.]+) requests/s", True), ("broker CPU, us", r"([\d.]+) us/request", False))
MAX_HEARTBEATS_PERCENT = 5
"""Of a core, for 3,000 members at the interval that is their default."""
TLS_LOADS = (
    ("produce 16 KB batches", "produce --batch-bytes 16000 --milliseconds {count}", 3_000, (RATE, CPU)),
    ("produce 1 MB batches", "produce --batch-bytes 1000000 --milliseconds {count}", 2_000, (RATE, CPU)),
    ("fetch 16 KB batches", "fetch --batch-bytes 16000 --milliseconds {count}", 3_000, (RATE, CPU)),
    ("fetch 1 MB batches", "fetch --batch-bytes 1000000 --milliseconds {count}", 3_000, (RATE, CPU)),
    (
        "64 synchronous producers",
        "produce --producers 64 --window 1 --batch-bytes 100 --milliseconds {count}",
        4_000,
        OF_REQUESTS,
    ),
    (
        "connections opened (500)",
        "open --connections {count}",
        500,
        (("s", r"in ([\d.]+) s", False), ("broker CPU, ms", r"([\d.]+) ms/connection", False)),
    ),
)
GUARDED_LOADS = (
    (
        "produce to a partition",
        "produce --producers 1 --window 5 --batch-bytes 100 --milliseconds {count}",
        3_000,
        OF_REQUESTS,
    ),
    (
        "64 synchronous producers",
        "produce --producers 64 --window 1 --batch-bytes 100 --milliseconds {count}",
        3_000,
        OF_REQUESTS,
    ),
    (
        "fetch 16 KB of a partition",
        "fetch --batch-bytes 16000 --fetch-bytes 16000 --milliseconds {count}",
        3_000,
        (RATE, OF_REQUESTS[1]),
    ),
)
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
            f"{OURS}transactions",
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
    *(
        Load(
            f"offset commits ({in_flight} in flight), 1/s",
            f"{OURS}offset_commits",
            f"--bootstrap {{bootstrap}} --topic {{topic}}o --in-flight {in_flight} --commits {{count}}",
            count,
            r"([\d.]+) commits/s",
            True,
        )
        for in_flight, count in ((1, 5_000), (64, 20_000))
    ),
    *(
        Load(
            f"{name}, {protocol}{unit}",
            f"{OURS}groups",
            f"--bootstrap {{bootstrap}} --topic {{topic}}g --protocol {protocol} --groups {{count}} --pid {{pid}}"
            " --heartbeats {seconds}",
            1_000,
            pattern,
            False,
            limit=limit,
            is_crowd=True,
        )
        for protocol in ("classic", "consumer")
        for name, unit, pattern, limit in (
            ("3,000 members join", ", s", r"stable after ([\d.]+) s", None),
            ("their heartbeats", ", % of a core", r"heartbeats/s need ([\d.]+) %", MAX_HEARTBEATS_PERCENT),
        )
    ),
    *(
        Load(
            f"{kind}: {name}, {unit}",
            f"{OURS}tls_load",
            f"{arguments} --bootstrap {{bootstrap}} --pid {{pid}} --topic {{topic}}{topic}{number}{more}",
            count,
            pattern,
            higher_is_better,
            is_tls=loads is TLS_LOADS,
            is_guarded=loads is GUARDED_LOADS,
        )
        for kind, loads, topic, more in (
            ("tls", TLS_LOADS, "tls", " --tls-port {tls_port}"),
            ("ACLs and quotas", GUARDED_LOADS, "guarded", ""),
        )
        for number, (name, arguments, count, figures) in enumerate(loads)
        for unit, pattern, higher_is_better in figures
    ),
]


def chosen(words: list[str]) -> list[Load]:
    """The loads whose names hold one of the words, and before them those that they need."""
    wanted = [load for load in LOADS if not words or any(word in load.figure for word in words)]
    needed = {load.after for load in wanted}
    return [load for load in LOADS if load in wanted or load.figure in needed]


class Runs:
    """The runs of tools against one broker in one round. Loads with the same command are figures of one run."""

    def __init__(self, port: int, pid: int, topic: str, share: float, tls_port: int = 0) -> None:
        """The names of topics begin with `topic`; `share` of the usual counts is run."""
        seconds = max(1.0, HEARTBEATS_S * min(1.0, share))
        self._fields = {
            "bootstrap": f"127.0.0.1:{port}",
            "tls_port": tls_port,
            "pid": pid,
            "topic": topic,
            "seconds": seconds,
        }
        self._share = share
        self._outputs: dict[tuple[str, ...], str] = {}

    def measure(self, load: Load) -> float:
        count = max(MIN_COUNT, int(load.count * self._share))
        command = (load.tool, *load.arguments.format(**self._fields, count=count).split())
        output = self._outputs.get(command)
        if output is None:
            output = self._outputs[command] = _output(command)
        found = re.findall(load.pattern, output, re.MULTILINE)
        if not found:
            raise RuntimeError(f"{' '.join(command)} printed no figure:\n{output[-800:]}")
        return float(found[-1])


def _output(command: tuple[str, ...]) -> str:
    java = ["java", "-Xmx512M", "-cp", f"{kafka_jars()}/*"]
    program = [sys.executable, "-m"] if command[0].startswith(OURS) else java
    done = subprocess.run([*program, *command], cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout
