"""What a broker does about replicas by the clock, and where a log that was cut is flushed."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cluster.replication_service import Replicating
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from tests.storage.logs import NOW_MS, batch, open_log
from tests.storage.memory_files import MemoryFiles


class Led:
    """A partition that this broker leads, and whether looking at it fails."""

    topic, is_leader, log_end_offset = "t", True, 0

    def __init__(self, partition: int, broken: bool) -> None:
        self.partition = partition
        self.broken = broken
        self.looks = 0
        self.looked_often = asyncio.Event()
        self.in_sync = self

    def isr_to_shrink(self, _log_end_offset: int, _now_ms: int) -> None:
        self.looks += 1
        if self.looks >= 3:
            self.looked_often.set()
        if self.broken:
            raise AssertionError("a bug")

    def check_progress(self, _now_ms: int) -> None:
        return


def test_a_partition_over_which_a_look_fails_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    led = [Led(0, True), Led(1, False)]
    watch: Any = object.__new__(Replicating)
    watch._config = {"replica.lag.time.max.ms": 2}
    watch._replicas = SimpleNamespace(partitions=dict(enumerate(led)))
    watch._clock_ms = lambda: 0
    watch._background = SimpleNamespace(gate=LoopGate())

    async def watching() -> None:
        task = asyncio.create_task(Replicating._shrink_again_and_again(watch))
        async with asyncio.timeout(30):
            for one in led:
                await one.looked_often.wait()
        task.cancel()

    asyncio.run(watching())
    assert "t-0: its in-sync replicas could not be checked" in caplog.text


def test_a_cut_log_is_flushed_on_the_thread_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(2):
        log.append_as_leader(batch(), 0, NOW_MS)
    log.flush()
    log.truncate_to(1)

    async def flushing() -> None:
        replicating: Any = object.__new__(Replicating)
        replicating._background = background = Background(LoopGate())
        replicating._clock_ms = lambda: NOW_MS
        flush = background.fsync

        async def fsync(call: Any) -> None:
            threads.append(await flush(lambda: (call(), threading.current_thread().name)[1]))

        monkeypatch.setattr(background, "fsync", fsync)
        await replicating._flush(log)
        await background.close()

    asyncio.run(flushing())
    assert threads == ["fsync_0"] and not log.is_truncated
    files.crash()
    assert open_log(files).log_end_offset == 1
