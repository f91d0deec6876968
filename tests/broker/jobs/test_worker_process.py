"""gregor.broker.jobs.worker_process: a process's beginning, conversation and end, in both event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from gregor.broker.jobs.worker_process import WorkerDied, WorkerProcess

WORKER = "gregor.storage.recovery.scan_worker"
LIMIT_S = 120.0

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine in a loop that ends at once behind it: anything left open then warns when it is collected."""

    def run(work: Coroutine[Any, Any, None]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            with asyncio.Runner(loop_factory=request.param) as runner:
                runner.run(asyncio.wait_for(work, LIMIT_S))
            gc.collect()

    return run


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("moment", ["working", "killed", "has sent more than was received"])
def test_after_close_nothing_of_it_is_left(run: Run, moment: str) -> None:
    async def work() -> None:
        worker = WorkerProcess(WORKER, line_bytes=16)
        await worker.start()
        pid = worker.pid
        assert pid is not None
        if moment == "killed":
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerDied, match="status -9"):
                await worker.receive()
        elif moment == "has sent more than was received":
            for _ in range(100):
                await worker.send(path="/no/such/file", scan={"base_offset": 0, "end": 99, "index_interval_bytes": 9})
        closing = asyncio.ensure_future(worker.close())
        await worker.close()
        await closing
        assert worker.pid is None
        assert is_gone(pid)

    run(work())


@pytest.mark.slow
def test_one_that_does_not_come_up_has_died(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        worker = WorkerProcess("no.such.module")
        await worker.start()
        with pytest.raises(WorkerDied, match="status 1"):
            await worker.receive()
        with pytest.raises(WorkerDied, match="status 1"):
            while True:
                await worker.send(anything="x" * 100)
        await worker.close()

    run(work())
    assert "no.such" in capfd.readouterr().err


@pytest.mark.slow
def test_a_start_that_is_cancelled_leaves_no_process(run: Run) -> None:
    async def work() -> None:
        worker = WorkerProcess(WORKER)
        starting = asyncio.ensure_future(worker.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait((starting,))
        await worker.close()
        assert worker.pid is None

    run(work())


def test_closing_one_that_was_never_started(run: Run) -> None:
    run(WorkerProcess(WORKER).close())
