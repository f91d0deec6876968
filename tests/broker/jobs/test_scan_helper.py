"""gregor.broker.jobs.scan_helper: walks in another process, with the same result as in this one."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from gregor.broker import wiring
from gregor.broker.jobs import scan_helper
from gregor.broker.jobs.scan_helper import ScanHelper
from gregor.broker.jobs.worker_process import WorkerProcess
from gregor.storage.folders import loading as log_loading
from gregor.storage.segment.scan import Scan
from tests.broker.harness import Harness
from tests.storage.logs import batch

PARTITIONS = 3
BATCHES = 4000

pytestmark = pytest.mark.slow


@pytest.fixture
def crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The leftovers of a crash: three partitions with many small batches, the last of each torn. A walk is offered with
    every window, and worth handing over until near its end."""
    template = batch(
        1,
        size=0,
        leader_epoch=5,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        timestamp_ms=int(time.time() * 1000),
    )
    data = bytearray(bytes(template) * BATCHES)
    for number in range(BATCHES):
        struct.pack_into(">q", data, number * len(template), number)
    for partition in range(PARTITIONS):
        folder = tmp_path / f"t-{partition}"
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(data[:-1])
    monkeypatch.setattr(log_loading, "STEP_S", 0.0)
    monkeypatch.setattr(wiring, "_LOAD_BEFORE_SERVING_S", 0.0)
    monkeypatch.setattr(scan_helper, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(scan_helper, "WORTH_A_WALK", 100)
    return tmp_path


def loaded(folder: Path) -> tuple[dict[str, Any], int]:
    """Start on the folder; return the logs, and the number of walks that were delegated."""
    harness = Harness(folder).start()
    harness.until(lambda: harness.node.loading.is_over, 30)
    found = {
        path.name: [
            (log.log_end_offset, log.producers.entries[7].batches, log.epochs.entries()[:1]),
            *(one.read_bytes() for one in sorted(path.glob("*.*index"))),
            (path / f"{0:020d}.log").stat().st_size,
        ]
        for log in harness.broker.logs.logs.values()
        for path in [Path(log.directory)]
    }
    walks = harness.node.scan_helper.walks_done
    harness.stop()
    return found, walks


@pytest.fixture
def alone(crashed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy = tmp_path_factory.mktemp("alone")
    for folder in crashed.iterdir():
        (copy / folder.name).mkdir()
        (copy / folder.name / f"{0:020d}.log").write_bytes((folder / f"{0:020d}.log").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(ScanHelper, "accepts", lambda *_: False)
        found, walks = loaded(copy)
    assert walks == 0
    assert all(one[0][::2] == (BATCHES - 1, [(5, 0)]) for one in found.values())
    return found


def test_logs_are_the_same_whoever_checked_them(crashed: Path, alone: dict[str, Any]) -> None:
    found, walks = loaded(crashed)
    assert found == alone
    assert walks > 0


@pytest.mark.parametrize("trouble", ["killed", "does not start", "gives back"])
def test_without_its_help_the_broker_does_it_alone(
    crashed: Path, alone: dict[str, Any], monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    asked: list[str] = []
    if trouble == "killed":
        send = WorkerProcess.send

        async def sent(process: WorkerProcess, **message: Any) -> None:
            asked.append(message["path"])
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            await send(process, **message)

        monkeypatch.setattr(WorkerProcess, "send", sent)
    elif trouble == "gives back":

        async def received(_process: WorkerProcess) -> dict[str, str]:
            asked.append("")
            return {"given_back": "too much"}

        monkeypatch.setattr(WorkerProcess, "receive", received)
    else:

        async def start(_process: WorkerProcess) -> None:
            asked.append("")
            raise OSError(12, "no memory")

        monkeypatch.setattr(WorkerProcess, "start", start)
    found, walks = loaded(crashed)
    assert (found, walks) == (alone, 0)
    # Once is enough: not again and again for the same walk, nor with another process.
    assert 1 <= len(asked) <= (PARTITIONS if trouble == "gives back" else 1)


def test_a_stop_in_the_middle_leaves_no_process(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(crashed)
    harness.start()
    helper = harness.node.scan_helper
    harness.until(lambda: helper.process_count > 0 or harness.node.loading.is_over)
    harness.stop()
    assert helper.process_count == 0
    again, _ = loaded(crashed)
    assert len(again) == PARTITIONS


def test_what_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions alone: nothing is started."""
    monkeypatch.setattr(scan_helper, "WORTH_A_PROCESS", 1000)
    monkeypatch.setattr(scan_helper, "WORTH_A_WALK", 100)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    def walk(left_batches: int) -> Scan:
        scan = Scan(0, 100 + left_batches * 10, 4096)
        scan.position, scan.batches = 100, 10  # ten bytes each
        return scan

    helper = ScanHelper(8)
    served: list[None] = []

    class Task:
        def cancel(self) -> None: ...

    def create_task(coroutine: Any) -> Any:
        coroutine.close()
        served.append(None)
        return Task()

    monkeypatch.setattr(scan_helper.asyncio, "create_task", create_task)
    assert not helper.accepts("", walk(99), 10**9), "too little of it is left"
    assert not helper.accepts("", walk(200), 9_990), "too little is left in all"
    assert helper.accepts("", walk(200), 10_000)
    assert helper.accepts("", walk(200), 10_000)
    assert len(served) == 1
    assert not helper.accepts("", walk(200), 19_990), "too little for a second process"
    assert helper.accepts("", walk(200), 20_000)
    assert helper.accepts("", walk(200), 20_000)
    assert not helper.accepts("", walk(200), 10**9), "no processor for a third one"
    assert len(served) == 2
