"""The metadata store in ZooKeeper when connections and sessions are lost; its contract is tested elsewhere."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from gregor.replication.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NodeExists,
    SessionExpired,
    Set,
    StoreError,
    StoreFailed,
    TooLarge,
    WatchEvent,
)
from gregor.replication.store.zookeeper import Settings, ZooKeeperStore
from gregor.replication.store.zookeeper_connection import MultiRead
from tests.replication.fakes import on_loop
from tests.support.processes import free_port
from tests.support.zookeeper import ZooKeeperProcess
from tests.support.zookeeper_proxy import ZooKeeperProxy

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


class ProxiedStore(ZooKeeperStore):
    """A store behind a network that can fail."""

    def __init__(self, proxy: ZooKeeperProxy, chroot: str, session_timeout_ms: int) -> None:
        super().__init__(Settings(f"{proxy.connect}/{chroot}", session_timeout_ms))
        self.proxy = proxy
        self.chroot = f"/{chroot}"


@asynccontextmanager
async def opened(server: ZooKeeperProcess, session_timeout_ms: int = 10_000) -> AsyncIterator[ProxiedStore]:
    with ZooKeeperProxy(server.port) as proxy:
        store = ProxiedStore(proxy, uuid.uuid4().hex, session_timeout_ms)
        await store.start()
        try:
            yield store
        finally:
            await store.close()


@contextmanager
def client_of(server: ZooKeeperProcess, client_id: tuple[int, bytes] | None = None) -> Iterator[Any]:
    """Another client, of the same session if `client_id` is given."""
    client = KazooClient(server.connect, timeout=30, client_id=client_id)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def end_session(store: ProxiedStore, server: ZooKeeperProcess) -> None:
    """As the server does when the client has been silent for too long."""
    with client_of(server, store.proxy.client_id):
        return


@on_loop
async def test_reads_wait_for_a_new_connection_and_watches_are_called(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        await store.create("/a", b"x")
        session = store.session_id
        seen: list[WatchEvent] = []
        await store.get("/a", seen.append)
        await store.exists("/none", seen.append)
        await store.children("/", seen.append)
        store.proxy.drop_connections()
        assert [found and found[0] for found in await store.get_many(["/a", "/none"] * 20)] == [b"x", None] * 20
        assert store.session_id == session
        await until(lambda: len(seen) == 3)
        assert {(event.kind, event.path) for event in seen} == {
            (EventKind.CHANGED, "/a"),
            (EventKind.CHANGED, "/none"),
            (EventKind.CHILDREN, "/"),
        }


@pytest.mark.parametrize("answers", [1, 2])
@on_loop
async def test_writes_whose_answer_is_lost_are_done_once(zookeeper: ZooKeeperProcess, answers: int) -> None:
    async with opened(zookeeper) as store:
        await store.create("/e", b"0")
        store.proxy.lose_responses(answers)
        assert await store.create("/a", b"x") == "/a"
        store.proxy.lose_responses(answers)
        assert (await store.set("/a", b"y", 0)).version == 1
        store.proxy.lose_responses(answers)
        assert await store.create("/own", b"1", ephemeral=True) == "/own"
        store.proxy.lose_responses(answers)
        results = await store.multi([Check("/e", 0), Set("/e", b"1"), Create("/b", b"z"), Delete("/own")])
        found = await store.get("/e")
        assert found is not None and found[0] == b"1"
        assert results[:1] + results[2:] == [None, "/b", None]
        store.proxy.lose_responses(answers)
        await store.delete("/b")
        assert sorted(await store.children("/")) == ["a", "e"]
        # With a node whose name the server completes, as changes with a notice have it.
        await store.create("/changes")
        notice = Create("/changes/change_", b"a", sequential=True)
        writes = (Set("/a", b"z", 1), Create("/c", b"x"), Delete("/c", 0))
        for count, write in enumerate(writes, 1):
            store.proxy.lose_responses(answers)
            assert len(await store.multi([write, notice])) == 2
            assert len(await store.children("/changes")) == count
        assert sorted(await store.children("/")) == ["a", "changes", "e"]


@on_loop
async def test_a_refusal_after_a_lost_answer_is_still_one_when_another_did_it(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        await store.create("/a", b"x")
        notice = Create("/change_", b"a", sequential=True)
        cases: list[tuple[Callable[[], Awaitable[object]], type[StoreError]]] = [
            (lambda: store.create("/a", b"mine"), NodeExists),
            (lambda: store.create("/a", b"x", ephemeral=True), NodeExists),
            (lambda: store.set("/a", b"y", 7), BadVersion),
            (lambda: store.multi([Check("/a", 7)]), BadVersion),
            (lambda: store.multi([Set("/a", b"y", 7), notice]), BadVersion),
            (lambda: store.multi([Check("/a", 7), notice]), BadVersion),
        ]
        for write, error in cases:
            store.proxy.lose_responses(1)
            with pytest.raises(error):
                await write()
        found = await store.get("/a")
        assert found is not None and (found[0], found[1].version) == (b"x", 0)


@on_loop
async def test_a_lost_session_is_reported_and_a_new_one_begins(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        told: list[int] = []
        store.on_session_expired.append(lambda: told.append(store.session_id))
        await store.create("/own", ephemeral=True)
        await store.create("/kept", b"x")
        seen: list[WatchEvent] = []
        await store.get("/kept", seen.append)
        old = store.session_id
        await asyncio.to_thread(end_session, store, zookeeper)
        await until(lambda: bool(told))
        assert told == [store.session_id] and store.session_id != old
        assert await store.children("/") == ["kept"]
        assert [event.path for event in seen] == ["/kept"]
        await store.create("/own", ephemeral=True)
        stat = await store.exists("/own")
        assert stat is not None and stat.ephemeral_owner == store.session_id
        store.proxy.drop_connections()
        await store.get("/kept")
        assert len(told) == 1


@on_loop
async def test_writes_under_way_when_the_session_ends_fail(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        for number in range(2000):
            if number == 1000:
                ending = asyncio.ensure_future(asyncio.to_thread(end_session, store, zookeeper))
            try:
                await store.create(f"/n{number}", ephemeral=True)
            except SessionExpired:
                break
        await ending
        assert len(await store.children("/")) < 1001


@on_loop
async def test_a_server_that_comes_back(tmp_path: Path) -> None:
    with ZooKeeperProcess(tmp_path) as server:
        async with opened(server) as store:
            await store.create("/own", b"x", ephemeral=True)
            server.kill()
            waiting = [asyncio.ensure_future(store.get("/own")), asyncio.ensure_future(store.create("/later"))]
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in waiting)
            await asyncio.to_thread(server.start)
            found, made = await asyncio.gather(*waiting)
            assert found is not None and found[0] == b"x" and made == "/later"


@on_loop
async def test_an_error_that_kazoo_does_not_expect_is_not_its_end(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        ended: list[int] = []
        store.on_session_expired.append(lambda: ended.append(store.session_id))
        before = store.session_id
        store.proxy.misnumber_response()
        assert await store.exists("/none") is None
        assert ended == [store.session_id] != [before]
        assert await store.create("/a") == "/a"


@on_loop
async def test_a_write_larger_than_the_server_accepts_is_not_repeated_without_end(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        await store.create("/a")
        with pytest.raises(TooLarge, match="jute.maxbuffer"):
            await store.set("/a", bytes(2_000_000))
        found = await store.get("/a")
        assert found is not None and (found[0], found[1].version) == (b"", 0)


@on_loop
async def test_a_node_without_data_has_none_as_apache_kafka_makes_it(zookeeper: ZooKeeperProcess) -> None:
    """Its controller considers /latest_producer_id_block with data of no bytes broken, and gives no producer ids."""
    async with opened(zookeeper) as store:
        await store.create("/a")
        await store.multi([Create("/b"), Create("/c", b"x")])
        with client_of(zookeeper) as raw:
            assert [raw.get(store.chroot + path)[0] for path in ("/a", "/b", "/c")] == [None, None, b"x"]
        assert [found and found[0] for found in await store.get_many(["/a", "/b", "/c"])] == [b"", b"", b"x"]


@on_loop
async def test_no_server_answers() -> None:
    store = ZooKeeperStore(Settings(f"127.0.0.1:{free_port()}", connection_timeout_ms=200))
    with pytest.raises(StoreFailed, match=r"within 200 ms"):
        await store.start()


@on_loop
async def test_after_close_nothing_is_done(zookeeper: ZooKeeperProcess) -> None:
    async with opened(zookeeper) as store:
        await store.create("/a")
    for call in (store.get("/a"), store.create("/b")):
        with pytest.raises(StoreError, match="closed"):
            await call


@on_loop
async def test_servers_that_cannot_read_many_at_once(
    zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(MultiRead, "type", 4711)  # as unknown to this server as the real one is to those before 3.6
    async with opened(zookeeper) as store:
        session = store.session_id
        await store.create("/a", b"x")
        assert [found and found[0] for found in await store.get_many(["/a", "/none"] * 40)] == [b"x", None] * 40
        assert store.session_id == session
        assert "it does not know multiRead" in caplog.text


@on_loop
async def test_a_node_that_may_not_be_read_among_many(
    zookeeper: ZooKeeperProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with opened(zookeeper) as store:
        await store.create("/a", b"x")
        with client_of(zookeeper) as raw:
            raw.create(f"{store.chroot}/secret", acl=[make_acl("world", "anyone", write=True)])
        with pytest.raises(StoreFailed, match="/secret"):
            await store.get_many(["/a"] * 30 + ["/secret"])
        assert "it does not know multiRead" not in caplog.text
