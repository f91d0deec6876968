"""Memory of the processes that read, in a session of its own for each side.

    python -m tests.bench.spark.memory --bootstrap 127.0.0.1:9092 --topic t --mode files

Of a task, the connector needs what its JVM grows by, divided by the tasks at a time; gregor's source needs its own part
of that growth, and all private memory of the largest Python worker, the interpreter and its libraries included. Beside
it stands what all processes of Spark have together at most: JVM, workers, and the processes in which Spark plans.
Pages of libraries that processes share count once.
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
from tests.bench.spark.processes import Peaks
from tests.bench.spark.session import CORES, read_all, spark_session
from tests.support.processes import ROOT, BrokerProcess

MEMORY_TIMEOUT_S = 300
PASSES = 2


def peaks(bootstrap: str, topic: str, mode: str, folder: Path) -> dict[str, float]:
    """Read a topic in a new session; return the growth of its JVM, and the largest memory of one worker and of all
    processes, in MB."""
    with spark_session(folder) as session:
        session.range(1).write.format("noop").mode("overwrite").save()
        before, during = Peaks(), Peaks()
        before.sample()
        with during.sampled():
            for _ in range(PASSES):
                read_all(session, mode, bootstrap, topic)
        return {"jvm": during.jvm_mb - before.jvm_mb, "worker": during.worker_mb, "all": during.all_mb}


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
    share_mb, all_mb = found["kafka"]["jvm"] / CORES, found["kafka"]["all"]
    yield Figure("growth of the JVM for each task, connector", share_mb, "MB")
    yield Figure("all processes of Spark, connector", all_mb, "MB")
    for mode in ("files", "wire"):
        of_mode = found[mode]
        yield Figure(f"growth of the JVM for each task, {mode}", of_mode["jvm"] / CORES, "MB")
        yield Figure(f"private memory of the largest worker, {mode}", of_mode["worker"], "MB")
        of_task_mb = of_mode["jvm"] / CORES + of_mode["worker"]
        yield Figure(f"memory of a task over the connector's, {mode}", of_task_mb / max(share_mb, 1.0), "", 1.0)
        yield Figure(f"all processes of Spark, {mode}", of_mode["all"], "MB")
        yield Figure("  over the connector's", of_mode["all"] / all_mb, "", 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--mode", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as folder:
        print(json.dumps(peaks(given.bootstrap, given.topic, given.mode, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
