"""The worker's conversation, in this process and over pipes of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gregor.storage.cleaner.worker import CleanerWorker
from gregor.storage.fs.files import OsFiles
from gregor.storage.fs.worker import ParentGone
from gregor.storage.log.log import Log
from tests.storage.compacting import job_for
from tests.storage.logs import NOW_MS, batch, open_log

LIMITS: dict[str, Any] = {"segment_bytes": 400, "cleanup_policy": frozenset(["compact"])}


def filled(folder: Path, count: int = 20) -> Log:
    log = open_log(OsFiles(), str(folder), **LIMITS)
    for _ in range(count):
        log.append_as_leader(batch(1), 1, NOW_MS)
    log.roll(NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    return log


def order(log: Log, bytes_per_second: float | None = None, **changes: Any) -> dict[str, Any]:
    return {"job": job_for(log, NOW_MS, **changes)._asdict(), "bytes_per_second": bytes_per_second}


def spoken(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the responses of a worker to these messages."""
    source = io.BytesIO(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
    sink = io.BytesIO()
    CleanerWorker(source, sink).serve()
    return [json.loads(line) for line in sink.getvalue().splitlines()]


SWAPPED = {"swapped": True}


def test_a_job_and_another(tmp_path: Path) -> None:
    first, second = filled(tmp_path / "a-0"), filled(tmp_path / "b-0", 3)
    answers = spoken(order(first, segment_bytes=10_000), SWAPPED, order(second, segment_bytes=10_000), SWAPPED)
    assert [next(iter(one)) for one in answers] == ["mapped", "cleaned", "done"] * 2
    assert answers[0]["mapped"] == {"end_offset": 20, "groups": 1}
    assert answers[1]["cleaned"]["records_kept"] == 1
    assert answers[2]["done"]["end_offset"] == 20
    assert answers[5]["done"]["end_offset"] == 3
    assert len(list((tmp_path / "a-0").glob("*.cleaned"))) == 3


def test_producers_are_those_of_the_next_job_alone(tmp_path: Path) -> None:
    log = filled(tmp_path / "a-0", 0)
    sequenced = batch(2, producer_id=5, producer_epoch=1, base_sequence=0)
    log.append_as_leader(sequenced, 1, NOW_MS)
    log.append_as_leader(batch(1), 1, NOW_MS)
    log.roll(NOW_MS)
    log.offsets.restore_high_watermark(3)
    once = order(log, segment_bytes=10_000)
    kept = [
        answer["cleaned"]["size_bytes"]
        for answer in spoken({"producers": [[4, 9, 0]]}, {"producers": [[5, 1, 1]]}, once, SWAPPED, once, SWAPPED)
        if "cleaned" in answer
    ]
    assert kept[0] == kept[1] + 61, "an empty batch more"


def test_errors_are_told_and_the_worker_goes_on(tmp_path: Path) -> None:
    log = filled(tmp_path / "a-0")
    gone = order(log)
    gone["job"]["directory"] += "-gone"
    small = order(log, map_bytes=10)
    damaged = filled(tmp_path / "b-0")
    path = Path(damaged.segments[0].log.path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    answers = spoken(gone, small, order(damaged), order(log, segment_bytes=10_000), SWAPPED)
    assert [next(iter(one)) for one in answers] == ["error", "error", "error", "mapped", "cleaned", "done"]
    assert answers[0]["errno"] == 2
    assert "a-0-gone" in answers[0]["error"]
    assert "log.cleaner.dedupe.buffer.size" in answers[1]["error"]
    assert "checksum" in answers[2]["error"]


def test_it_does_not_go_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path / "a-0")
    with pytest.raises(ParentGone):
        spoken(order(log))  # the message that the first group was swapped never arrives
    worker = CleanerWorker(io.BytesIO(json.dumps(order(log)).encode()), io.BytesIO())
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(ParentGone):
        worker.serve()


@pytest.mark.slow
def test_it_is_small_and_ends_with_its_input(tmp_path: Path) -> None:
    log = filled(tmp_path / "a-0")
    with subprocess.Popen(
        [sys.executable, "-c", "import gregor.storage.cleaner.worker as w, sys; w.main(); "
         "print([m for m in sys.modules if m.split('.')[0] in ('asyncio', 'hashlib', 'uvloop', 'lz4', 'zstandard') "
         "or m.startswith(('gregor.broker', 'gregor.replication', 'gregor.coordinator'))])"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        out, _ = process.communicate(
            json.dumps(order(log, segment_bytes=10_000)) + "\n" + json.dumps(SWAPPED) + "\n", timeout=20
        )
        assert process.returncode == 0
        *_, done, modules = out.splitlines()
        assert json.loads(done)["done"]["end_offset"] == 20
        assert modules == "[]", "what only the broker needs is not loaded"
