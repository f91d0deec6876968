"""jobs.background: threads for work that waits for the disk; no work that began is dropped, every failure is logged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gregor.broker.jobs.background import Background, on_thread
from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.turns import Steps

ResultT = TypeVar("ResultT")


class Loop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.background = Background(LoopGate(clock=count().__next__))  # each step uses its turn up

    async def spawned(self) -> None:
        """Wait until all spawned work is done."""
        while self.background.spawned_count:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def run(self, work: Awaitable[ResultT]) -> ResultT:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.run(loop.background.close())
    loop.loop.close()


def test_calls_run_on_threads_and_a_slow_sync_keeps_no_other_work_waiting(loop: Loop) -> None:
    async def both() -> list[str]:
        released = threading.Event()

        def slow_sync() -> str:
            assert released.wait(60)
            return threading.current_thread().name

        def work() -> str:
            released.set()
            return threading.current_thread().name

        return list(await asyncio.gather(loop.background.fsync(slow_sync), loop.background.run(work)))

    sync, files = loop.run(both())
    assert sync.startswith("fsync") and files.startswith("files")


def test_each_kind_of_work_has_our_own_threads_by_way_of_aiofiles(loop: Loop) -> None:
    """A mixed-up executor would let a slow fsync hold up reads; the loop's own one is shared with the resolution of
    names."""

    def work(text: str, *, times: int) -> tuple[str, str]:
        return threading.current_thread().name, text * times

    background = loop.background
    before = {thread.name for thread in threading.enumerate() if thread.name.startswith("asyncio_")}
    for start, kind in ((background.fsync, "fsync"), (background.run, "files"), (background.read, "reads")):
        coroutine = start(work, "x", times=2)
        assert coroutine.cr_code.co_filename.endswith("aiofiles/base.py")
        name, result = loop.run(coroutine)
        assert name.startswith(f"{kind}_") and result == "xx"
    with ThreadPoolExecutor(1, "own") as threads:
        assert loop.run(on_thread(threads, work, "x", times=1))[0].startswith("own_")
    assert {thread.name for thread in threading.enumerate() if thread.name.startswith("asyncio_")} == before


def test_one_operation_is_one_hop(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_bytes(b"x")
    hops = []
    submit = ThreadPoolExecutor.submit

    def counted(executor: ThreadPoolExecutor, *call: Any) -> Future[Any]:
        hops.append(call)
        return submit(executor, *call)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)

    async def test() -> None:
        loop.background.remove_later([str(tmp_path / "folder")], 0)
        await loop.spawned()

    loop.run(test())
    assert len(hops) == 1
    assert list(tmp_path.iterdir()) == []


def test_errors_reach_the_caller(loop: Loop) -> None:
    def fail() -> None:
        raise OSError(28, "disk full")

    for ask in (loop.background.fsync, loop.background.run):
        with pytest.raises(OSError, match="disk full"):
            loop.run(ask(fail))


def test_files_and_folders_are_removed_after_their_delay(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "stays").write_bytes(b"x")
    paths = [str(tmp_path / name) for name in ("folder", "absent", "file")]

    async def test() -> float:
        begin = time.monotonic()
        loop.background.remove_later(iter(paths), 20)
        await asyncio.sleep(0.005)
        assert (tmp_path / "file").exists()
        await loop.spawned()
        return time.monotonic() - begin

    assert loop.run(test()) >= 0.02
    assert [path.name for path in tmp_path.iterdir()] == ["stays"]


def test_paths_of_one_moment_are_removed_by_one_task(loop: Loop, tmp_path: Path) -> None:
    paths = [tmp_path / f"file-{number}" for number in range(20)]
    for path in paths:
        path.write_bytes(b"x")

    async def test() -> None:
        background = loop.background
        for path in paths[:15]:
            background.remove_later([str(path)], 20)
        assert background.spawned_count == 1
        background.remove_later([str(paths[15])], 30)
        assert background.spawned_count == 2
        background.remove_now()
        background.remove_later([str(paths[16])], 20)  # not with those that go now: it may be read
        assert background.spawned_count == 3
        await loop.spawned()
        background.remove_later([str(path) for path in paths[17:]], 20)
        await loop.spawned()

    loop.run(test())
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_removed_is_logged_and_the_others_are_removed(
    loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    bad = tmp_path / "file" / "below a file"

    async def test() -> None:
        loop.background.remove_later([str(bad), str(tmp_path / "file")], 0)
        await loop.spawned()

    loop.run(test())
    assert not (tmp_path / "file").exists()
    assert "below a file cannot be removed" in caplog.text


def test_nothing_to_remove_is_no_work(loop: Loop) -> None:
    loop.background.remove_later([], 0)
    assert loop.background.spawned_count == 0


def test_failed_work_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async def test() -> None:
        loop.background.spawn(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run(test())
    assert "the background task test_failed_work_is_logged.<locals>.fail ended with an error: a bug" in caplog.text


def test_close_ends_what_waits_and_waits_for_what_runs() -> None:
    loop = Loop()
    done: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            done.append("ended")

    def sync() -> None:
        time.sleep(0.02)
        done.append("synced")

    async def test() -> None:
        loop.background.spawn(forever())
        running = asyncio.ensure_future(loop.background.fsync(sync))
        await asyncio.sleep(0.005)
        await loop.background.close()
        await running

    loop.run(test())
    assert sorted(done) == ["ended", "synced"]
    loop.loop.close()


def test_long_works_take_turns_and_leave_turns_to_the_loop(loop: Loop) -> None:
    told: list[str] = []

    def work(name: str) -> Steps[str]:
        for _ in range(3):
            told.append(name)
            yield None
        return name.upper()

    async def everything() -> list[str]:
        other = asyncio.ensure_future(ticks())
        found = await asyncio.gather(*(loop.background.run_steps(work(name)) for name in "ab"))
        other.cancel()
        return found

    async def ticks() -> None:
        while True:
            told.append(".")
            await asyncio.sleep(0)

    assert loop.run(everything()) == ["A", "B"]
    said = "".join(told)
    assert said.replace(".", "") == "aababb"  # the first begins at once, the others queue up behind it
    assert "ab" not in said and "ba" not in said


def test_calls_of_steps_run_on_a_thread_and_what_comes_of_them_goes_back(loop: Loop) -> None:
    def work() -> Steps[tuple[str, str]]:
        name = yield lambda: threading.current_thread().name
        try:
            yield fail
        except OSError as error:
            return name, str(error)
        return name, "no error"

    def fail() -> None:
        raise OSError("no luck")

    name, error = loop.run(loop.background.run_steps(work()))
    assert name.startswith("codecs") and error == "no luck"


def test_errors_of_steps_come_out_and_the_next_work_runs(loop: Loop) -> None:
    def bad() -> Steps[None]:
        yield None
        raise ValueError("in a step")

    def good() -> Steps[int]:
        yield None
        return 7

    with pytest.raises(ValueError, match="in a step"):
        loop.run(loop.background.run_steps(bad()))
    assert loop.run(loop.background.run_steps(good())) == 7


def test_work_that_is_cancelled_does_not_stop_the_others(loop: Loop) -> None:
    def endless() -> Steps[None]:
        while True:
            yield None

    async def give_up() -> None:
        task = asyncio.ensure_future(loop.background.run_steps(endless()))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def short() -> Steps[str]:
        yield None
        return "done"

    loop.run(give_up())
    assert loop.run(loop.background.run_steps(short())) == "done"


def test_a_kept_task_ends_with_the_broker_at_the_latest(loop: Loop) -> None:
    done = []

    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(seconds)

    async def both() -> tuple[bool, bool]:
        short, long = asyncio.ensure_future(work(0)), asyncio.ensure_future(work(600))
        loop.background.keep(short)
        loop.background.keep(long)
        await short
        await loop.background.close()
        return short.cancelled(), long.cancelled()

    assert loop.run(both()) == (False, True)
    assert done == [0]
