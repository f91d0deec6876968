"""The comparison with Spark's connector: its data, its turns, and the command at the smallest size."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gregor.protocol.records.batch import RecordBatch
from gregor.protocol.records.compression import LZ4, NONE
from tests.bench.figures import Figure, create_topics, repeated
from tests.bench.spark import others, planning
from tests.bench.spark.data import START_MS, Kind, batches
from tests.bench.spark.processes import Peaks, descendants, is_jvm, is_worker, processor_s
from tests.bench.spark.turns import Cost, compared, run_turns
from tests.support.gregor_cluster import until
from tests.support.processes import ROOT, BrokerProcess
from tests.support.wire import RawConnection

RUN_S = 900


@pytest.mark.parametrize("kind", [Kind(100, NONE), Kind(1000, LZ4)])
def test_batches_are_whole_and_their_time_rises(kind: Kind) -> None:
    last_ms, total = START_MS - 1, 0
    for data, count in batches(kind, 500):
        batch = RecordBatch(data)
        assert batch.crc_ok() and batch.record_count == count and batch.compression == kind.codec
        records = list(batch.records())
        assert [record.timestamp for record in records] == [last_ms + 1 + slot for slot in range(count)]
        assert all(0.7 < len(record.value or b"") / kind.value_bytes < 1.3 for record in records)
        last_ms, total = records[-1].timestamp, total + count
    assert 500 <= total < 1000


def test_sides_run_forth_and_back_and_the_first_round_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []

    def load(side: str) -> int:
        calls.append(side)
        return 10

    found = run_turns("read", {side: lambda side=side: load(side) for side in "ABC"}, 2, [])  # type: ignore[misc]
    assert "".join(calls) == "ABCCBA" * 3
    assert [[cost.records for cost in found[side]] for side in "ABC"] == [[20, 20]] * 3
    assert "# warm-up, read, A: 10 records" in capsys.readouterr().out


def test_figures_are_of_time_and_of_cores() -> None:
    ours, theirs = [Cost(6000, 2.0, 1.0)], [Cost(6000, 3.0, 3.0)]
    rate, by_core = compared("files", ours, theirs)
    assert (rate.figure, rate.ours, rate.theirs, rate.ratios) == ("files, 1000/s", [3.0], [2.0], [1.5])
    assert (by_core.figure, by_core.ratios) == ("files, 1000/s and core", [3.0])
    assert Figure("ratio", 1.4, "", minimum=1.5).missed and not Figure("ratio", 1.5, "", minimum=1.5).missed
    assert "(at least 1.5, MISSED)" in str(Figure("ratio", 1.4, "", minimum=1.5))


def test_processes_below_and_their_time_are_found() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
    before_s = processor_s([])
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in {one.pid for one in descendants(os.getpid())}
        assert processor_s([]) - before_s >= 0.15
        assert process.pid not in {one.pid for one in descendants(os.getpid(), [process.pid])}
        process.communicate(b"\n")


def test_memory_of_a_worker_is_not_that_of_the_jvm() -> None:
    """Both have `pyspark` on their command lines."""
    hold = "import sys; block = bytearray(%d << 20); print(flush=True); input()"
    commands = {
        "worker": (40, ["-m", "pyspark.daemon", "pyspark.worker"]),
        "jvm": (80, ["-cp", "/venv/pyspark/jars/*", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]),
    }
    found = Peaks()
    with contextlib.ExitStack() as stack:
        for name, (size_mb, arguments) in commands.items():
            # Arguments behind the program only stand on its command line.
            process = subprocess.Popen(
                [sys.executable, "-c", hold % size_mb, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.enter_context(process)
            stack.callback(process.communicate, b"\n")
            assert process.stdout is not None
            process.stdout.readline()
            assert (is_worker(process.pid), is_jvm(process.pid)) == (name == "worker", name == "jvm")
        with found.sampled():
            pass
    assert 40 <= found.worker_mb < 80 <= found.jvm_mb < 120 <= found.all_mb


def test_plan_and_another_client_are_measured_on_a_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, RawConnection(broker.port) as connection:
        create_topics(connection, ["wide", others.TOPIC], 3)
        planning.append_everywhere(connection, "wide", 3)
        assert len(planning.plans_ms(broker.bootstrap, "wide")) == planning.PLANS
        with repeated(broker.port, others.PACE_S, others.produce_and_fetch) as times:
            until(lambda: len(times) >= 3, "the client has three times")
    assert others.p99([*map(float, range(200))]) == 198


@pytest.mark.jvm
@pytest.mark.very_slow
@pytest.mark.by_day(1, group="commands of the benchmarks")
def test_command_works() -> None:
    command = [sys.executable, "-m", "tests.bench.spark.run", "--rounds", "1", "--warm-up", "0", "--records", "4000"]
    command += ["--only", "read", "--only", "sink", "--kind", "1 KB lz4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == ("MISSED" in done.stdout), done.stdout + done.stderr
    for figure in (
        "files, 1 KB lz4, 1000/s and core",
        "wire, 1 KB lz4, 1000/s",
        "sink exactly once, 1000/s",
        "exactly once over the plain sink",
    ):
        assert figure in done.stdout
