"""EmbeddedStore: its file through crashes, damage and a full disk; order and grouping of writes."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import Create, Delete, Set, StoreError, StoreFailed, StoreFull
from tests.replication.fakes import on_loop


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    return store


def folder_names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def files_in(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_file())


def copy_files(folder: Path, to: Path) -> None:
    to.mkdir()
    for entry in files_in(folder):
        shutil.copy(entry, to)


async def dump(store: EmbeddedStore, path: str = "/") -> dict[str, Any]:
    found = {path: await store.get(path)}
    for name in await store.children(path):
        found |= await dump(store, f"{path.rstrip('/')}/{name}")
    return found


@on_loop
async def test_only_files_in_the_folder_and_one_after_closing(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.create("/a")
    assert folder_names(tmp_path) == [FILE_NAME, FILE_NAME + "-wal"]
    assert len(files_in(tmp_path)) == 2
    await store.close()
    await store.close()
    assert folder_names(tmp_path) == [FILE_NAME]
    with pytest.raises(StoreFailed):
        await store.create("/b")


@on_loop
async def test_files_are_readable_by_their_user_only(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    for _ in range(2):  # new, and one of an earlier release
        store = EmbeddedStore(str(path))
        await store.start()
        try:
            assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
        finally:
            await store.close()
        path.chmod(0o644)


@on_loop
async def test_random_writes_survive_a_crash_at_any_moment(tmp_path: Path) -> None:
    """Copies of the files between writes stand for the disk after kill -9; each must open to the tree of then."""
    rng = random.Random(20)
    store = await opened(tmp_path)
    paths = ["/a", "/b", "/a/c", "/a/d", "/a/c/e"]
    for round_ in range(12):
        for _ in range(10):
            operations: list[Any] = []
            for _ in range(rng.randint(1, 3)):
                path = rng.choice(paths)
                data = rng.randbytes(rng.randint(0, 20))
                operations.append(
                    rng.choice([Create(path, data), Create(path, data, sequential=True), Set(path, data), Delete(path)])
                )
            before = await dump(store)
            try:
                await store.multi(operations)
            except StoreError:
                assert await dump(store) == before
        if round_ % 4 == 3:
            assert await store.overwrite("/", rng.randbytes(20))
        expected = await dump(store)
        crashed = tmp_path / str(round_)
        copy_files(tmp_path, crashed)
        copy = await opened(crashed)
        assert await dump(copy) == expected
        await copy.close()
    await store.close()


@on_loop
async def test_writes_at_the_same_time_are_done_in_order(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.create("/a", b"")
    order: list[int] = []

    async def write(number: int) -> None:
        stat = await store.set("/a", b"%d" % number)
        order.append(number)
        assert stat.version == number

    await asyncio.gather(*(write(number) for number in range(1, 51)))
    assert order == list(range(1, 51))
    await store.close()
    again = await opened(tmp_path)
    found = await again.get("/a")
    assert found is not None and found[0] == b"50"
    await again.close()


@on_loop
async def test_a_cancelled_write_is_done_all_the_same(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    events: list[object] = []
    await store.exists("/a", events.append)
    task = asyncio.ensure_future(store.create("/a"))
    await asyncio.sleep(0)
    task.cancel()
    await store.create("/b")
    assert task.cancelled()
    assert len(events) == 1
    await store.close()
    again = await opened(tmp_path)
    assert await again.exists("/a") is not None
    await again.close()


@on_loop
async def test_a_failing_watch_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await opened(tmp_path)
    events: list[object] = []

    def broken(event: object) -> None:
        raise RuntimeError("broken")

    await store.exists("/a", broken)
    await store.exists("/a", events.append)
    await store.create("/a")
    assert len(events) == len(caplog.records) == 1
    await store.close()


class Disk:
    """The disk under SQLite: its transactions end with `error`, its VACUUM with `vacuum_error`, if there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = self
        self.error: sqlite3.Error | None = None
        self.vacuum_error: sqlite3.Error | None = None
        self.before: dict[str, Callable[[], None]] = {}
        """Called before a statement is executed."""

        class Connection(sqlite3.Connection):
            def executemany(self, *arguments: Any) -> sqlite3.Cursor:
                if disk.error is not None:
                    raise disk.error
                return super().executemany(*arguments)

            def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
                disk.before.get(statement, lambda: None)()
                if disk.vacuum_error is not None and statement == "VACUUM":
                    raise disk.vacuum_error
                return super().execute(statement, *arguments)

        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))

    def fill(self) -> None:
        self.error = self.full()

    @staticmethod
    def full() -> sqlite3.Error:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        return error


@on_loop
async def test_each_commit_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[int] = []

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
            if statement == "COMMIT":
                levels.extend(super().execute("PRAGMA synchronous").fetchone())
            return super().execute(statement, *arguments)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    store = await opened(tmp_path)
    await store.create("/a")
    await store.close()
    full = 2  # the log is synced by each commit, and not only before it is written to the file
    assert levels == [full, full]


@on_loop
async def test_a_broken_disk_ends_writing_for_good_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    store = await opened(tmp_path)
    told: list[StoreFailed] = []
    store.on_failed.append(told.append)
    await store.create("/a")
    disk.error = sqlite3.OperationalError("disk I/O error")
    results = await asyncio.gather(store.create("/b"), store.create("/c"), return_exceptions=True)
    assert [type(result) for result in results] == [StoreFailed, StoreFailed]
    assert len(told) == 1 and "I/O error" in str(told[0])
    # Well again: too late, a write without its predecessors would tear the tree.
    disk.error = None
    with pytest.raises(StoreFailed):
        await store.create("/d")
    await store.close()
    again = await opened(tmp_path)
    assert sorted(await again.children("/")) == ["a"]
    await again.close()


@on_loop
async def test_writes_to_a_full_disk_are_rolled_back_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    store = await opened(tmp_path)
    told: list[str] = []
    store.on_full.append(lambda: told.append("full"))
    store.on_failed.append(lambda failure: pytest.fail(str(failure)))
    await store.create("/kept", b"before")
    before = await dump(store)
    watched: list[str] = []
    await store.children("/", lambda event: watched.append(event.path))
    disk.fill()
    writes = [
        store.create("/a"),
        store.create("/a/b"),
        store.set("/kept", b"after"),
        store.multi([Delete("/kept"), Create("/c")]),
        store.create("/a/b/n-", sequential=True),
    ]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreFull] * len(writes)
    assert await dump(store) == before
    assert told
    assert watched == ["/"]  # it reads the node again, and watches it again
    disk.error = None
    await store.create("/a")
    assert await store.create("/a/n-", sequential=True) == "/a/n-0000000000"
    after = await dump(store)
    await store.close()
    again = await opened(tmp_path)
    assert await dump(again) == after
    await again.close()


@on_loop
async def test_replaced_data_is_erased_once_a_full_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    store = await opened(tmp_path)
    store.on_failed.append(lambda failure: pytest.fail(str(failure)))

    def has_replaced() -> bool:
        return any(b"replaced" in path.read_bytes() for path in files_in(tmp_path))

    await store.create("/a", b"replaced")
    await store.set("/a", b"new")
    disk.fill()
    with pytest.raises(StoreFull):
        await store.overwrite("/a", b"newer")
    assert (await dump(store))["/a"][0] == b"new"
    disk.error, disk.vacuum_error = None, disk.full()
    assert not await store.overwrite("/a", b"newer")
    await store.create("/b")
    assert has_replaced()
    disk.vacuum_error = None
    await store.create("/c")
    assert not has_replaced()
    await store.set("/c", b"replaced")
    await store.set("/c", b"new")
    assert has_replaced() and await store.overwrite("/c", b"newer") and not has_replaced()
    after = await dump(store)
    await store.close()
    again = await opened(tmp_path)
    assert await dump(again) == after
    await again.close()


def has_text(folder: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in files_in(folder))


def lines_of_resumption(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "as they were before they were encrypted" in line]


@pytest.mark.parametrize("last", ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "DELETE FROM counter WHERE name = ?"])
@on_loop
async def test_start_resumes_an_erasure_that_a_crash_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, last: str
) -> None:
    """A copy of the files before a statement stands for the disk after kill -9."""
    caplog.set_level("INFO")
    disk = Disk(monkeypatch)
    crashed = tmp_path / "crashed"
    store = await opened(tmp_path)
    await store.create("/a", b"replaced")
    disk.before[last] = partial(copy_files, tmp_path, crashed)
    assert await store.overwrite("/a", b"new")
    assert not has_text(tmp_path, b"replaced")
    assert has_text(crashed, b"replaced") == (not last.startswith("DELETE"))
    await store.close()
    again = await opened(tmp_path)
    await again.close()
    assert lines_of_resumption(caplog) == [], "the erasure was finished"

    disk.before.clear()
    for _ in range(2):  # the second start has nothing to resume
        resumed = await opened(crashed)
        assert (await dump(resumed))["/a"][0] == b"new"
        assert not has_text(crashed, b"replaced")
        await resumed.close()
        (line,) = lines_of_resumption(caplog)
        assert f"{crashed / FILE_NAME} is written anew" in line


@on_loop
async def test_start_on_a_full_disk_keeps_the_erasure_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(monkeypatch)
    store = await opened(tmp_path)
    await store.create("/a", b"replaced")
    disk.vacuum_error = disk.full()
    assert not await store.overwrite("/a", b"new")
    crashed = tmp_path / "crashed"
    copy_files(tmp_path, crashed)
    await store.close()
    again = await opened(crashed)
    (line,) = lines_of_resumption(caplog)
    assert "its disk has no room" in line and has_text(crashed, b"replaced")
    disk.vacuum_error = None
    await again.create("/b")
    assert not has_text(crashed, b"replaced")
    await again.close()


@on_loop
async def test_a_start_that_is_stopped_while_the_file_is_opened_leaves_no_error(tmp_path: Path) -> None:
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    store = EmbeddedStore(str(tmp_path / FILE_NAME))
    starting = asyncio.ensure_future(store.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    await store.close()
    assert errors == []
    again = await opened(tmp_path)
    await again.close()


@on_loop
async def test_closing_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    store = await opened(tmp_path)
    await store.create("/a")
    await store.create("/mine", ephemeral=True)
    disk.fill()
    await asyncio.wait_for(store.close(), 30)
    disk.error = None
    again = await opened(tmp_path)
    assert sorted(await again.children("/")) == ["a"]
    await again.close()


@on_loop
async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME

    async def refused() -> str:
        with pytest.raises(StoreFailed) as error:
            await EmbeddedStore(str(path)).start()
        return str(error.value)

    path.write_bytes(b"not a database" * 100)
    assert str(path) in await refused()
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert "newer gregor" in await refused()
    path.unlink()
    store = await opened(tmp_path)
    assert "locked" in await refused()
    await store.close()
