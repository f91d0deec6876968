"""Memory of the processes that read, in a session of its own for each side.

    python -m tests.bench.spark.memory --bootstrap 127.0.0.1:9092 --topic t --mode files

The connector's part of a task is what its JVM has grown by, divided by the tasks at a time. That of gregor's source is
the largest Python worker and its own part of the JVM's growth.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.spark.data import Kind, fill
from tests.bench.spark.processes import jvm, memory_mb, workers
from tests.bench.spark.session import CORES, read_all, spark_session
from tests.support.processes import ROOT, BrokerProcess

MEMORY_TIMEOUT_S = 300
PASSES = 2


def growth(bootstrap: str, topic: str, mode: str, folder: Path) -> dict[str, float]:
    """Read a topic in a new session; return the growth of its JVM and the largest worker, in MB."""
    with spark_session(folder) as session:
        session.range(1).write.format("noop").mode("overwrite").save()
        before_mb = memory_mb(jvm([]), peak=True)
        for _ in range(PASSES):
            read_all(session, mode, bootstrap, topic)
        found = [memory_mb(pid, peak=True) for pid in workers([])]
        return {"jvm": memory_mb(jvm([]), peak=True) - before_mb, "worker": max(found, default=0.0)}


def memory(broker: BrokerProcess, records: int) -> Iterator[Figure]:
    fill(broker.port, "memory", Kind(1000, 0), max(100, records // 10))
    found = {}
    for mode in ("kafka", "files", "wire"):
        command = [sys.executable, "-m", "tests.bench.spark.memory", "--bootstrap", broker.bootstrap]
        done = subprocess.run(
            [*command, "--topic", "memory", "--mode", mode],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=MEMORY_TIMEOUT_S, check=True,
        )  # fmt: skip
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    share_mb = found["kafka"]["jvm"] / CORES
    yield Figure("growth of the JVM for each task, connector", share_mb, "MB")
    for mode in ("files", "wire"):
        yield Figure(f"growth of the JVM for each task, {mode}", found[mode]["jvm"] / CORES, "MB")
        yield Figure(f"largest worker, {mode}", found[mode]["worker"], "MB")
        of_task_mb = found[mode]["jvm"] / CORES + found[mode]["worker"]
        yield Figure(f"memory of a task over the connector's, {mode}", of_task_mb / max(share_mb, 1.0), "", 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--mode", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as folder:
        print(json.dumps(growth(given.bootstrap, given.topic, given.mode, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
