"""The regular check of in-sync replicas, and the thread on which a truncated log is flushed."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cluster.replication_service import Replicating
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.turns import WalkableDict
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.storage.log.log import Log
from tests.storage.logs import NOW_MS, batch, open_log
from tests.storage.memory_files import MemoryFiles


def replicating(background: Background, partitions: list[Led] | None = None) -> Replicating:
    replicas: Any = SimpleNamespace(
        partitions=WalkableDict(enumerate(partitions or [])), on_leadership=[], on_stopped=[], on_log_moved=[]
    )
    config = BrokerConfig({"replica.lag.time.max.ms": "2", "replica.fetch.wait.max.ms": "1"})

    async def withdraw() -> None:
        return

    return Replicating(config, replicas, MetadataImage(), background, lambda: NOW_MS, lambda: 1, withdraw)


class Led:
    """A partition that this broker leads, and whether its check fails."""

    topic, is_leader, log_end_offset = "t", True, 0

    def __init__(self, partition: int, broken: bool) -> None:
        self.partition = partition
        self.broken = broken
        self.checks = 0
        self.checked_often = asyncio.Event()
        self.in_sync = self.leadership = self

    def isr_to_shrink(self, _log_end_offset: int, _now_ms: int) -> None:
        self.checks += 1
        if self.checks >= 3:
            self.checked_often.set()
        if self.broken:
            raise AssertionError("a bug")

    def check_progress(self, _now_ms: int) -> None:
        return


def test_a_failed_check_of_a_partition_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def checking() -> None:
        led = [Led(0, True), Led(1, False)]
        background = Background(LoopGate())
        replicating(background, led).start()
        async with asyncio.timeout(30):
            for one in led:
                await one.checked_often.wait()
        await background.close()

    asyncio.run(checking())
    assert "t-0: its in-sync replicas could not be checked" in caplog.text


def test_a_truncated_log_is_flushed_on_the_fsync_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(2):
        log.append_as_leader(batch(), 0, NOW_MS)
    log.flusher.flush()
    log.truncate_to(1)

    async def flushing() -> None:
        background = Background(LoopGate())
        service = replicating(background)
        fsync = background.fsync

        async def named(call: Any) -> None:
            threads.append(await fsync(lambda: (call(), threading.current_thread().name)[1]))

        monkeypatch.setattr(background, "fsync", named)
        synced: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
        service.followers.truncated_logs.sync(log, synced.set_result)
        assert await synced is log
        await service.close()
        await background.close()

    asyncio.run(flushing())
    assert threads == ["fsync_0"] and not log.flusher.is_truncated
    files.crash()
    assert open_log(files).log_end_offset == 1
