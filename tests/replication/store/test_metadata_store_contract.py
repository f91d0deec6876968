"""The contract of every metadata store. A new implementation joins as a parameter of the fixture `tree`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient

from gregor.broker.jobs.turns import LoopGate
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.features import FinalizedFeatures, create_feature_node
from gregor.replication.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    Stat,
    WatchEvent,
    subtree,
)
from gregor.replication.store.nodes import FEATURE, encode_features
from gregor.replication.store.zookeeper import Settings, ZooKeeperStore
from tests.replication.fakes import on_loop
from tests.support.zookeeper import ZooKeeperProcess
from tests.support.zookeeper_proxy import ZooKeeperProxy


class Harness(Protocol):
    """One tree that sessions come to and leave."""

    async def open(self) -> MetadataStore: ...

    async def kill(self, store: MetadataStore) -> None:
        """End a session as the death of its process does."""


class KilledStore(EmbeddedStore):
    async def kill(self) -> None:
        """Close the file without the end of the session: ephemeral nodes stay in it, as after kill -9."""
        assert self._ended is not None
        self._jobs.put(None)
        await self._ended


class EmbeddedHarness:
    def __init__(self, folder: Path) -> None:
        self._path = str(folder / FILE_NAME)

    async def open(self) -> MetadataStore:
        store = KilledStore(self._path)
        await store.start()
        return store

    async def kill(self, store: MetadataStore) -> None:
        assert isinstance(store, KilledStore)
        await store.kill()


class ZooKeeperHarness:
    """Each tree is a chroot of its own on one server."""

    def __init__(self, server: ZooKeeperProcess) -> None:
        self._server = server
        self._chroot = uuid.uuid4().hex
        self._proxies: dict[MetadataStore, ZooKeeperProxy] = {}

    async def open(self) -> MetadataStore:
        proxy = ZooKeeperProxy(self._server.port)
        store = ZooKeeperStore(Settings(f"{proxy.connect}/{self._chroot}", session_timeout_ms=30_000))
        self._proxies[store] = proxy
        await store.start()
        return store

    async def kill(self, store: MetadataStore) -> None:
        """The connection goes, so that the client cannot end its session; another client does, at once."""
        proxy = self._proxies[store]
        await asyncio.to_thread(proxy.close)
        await store.close()
        await asyncio.to_thread(self._end_session, proxy)

    def _end_session(self, proxy: ZooKeeperProxy) -> None:
        client = KazooClient(self._server.connect, timeout=30, client_id=proxy.client_id)
        client.start(timeout=30)
        client.stop()
        client.close()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=[pytest.mark.jvm, pytest.mark.slow])])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    if request.param == "embedded":
        yield EmbeddedHarness(tmp_path)
        return
    server: ZooKeeperProcess = request.getfixturevalue("zookeeper")
    harness = ZooKeeperHarness(server)
    yield harness
    harness.close()


@on_loop
async def test_versions_and_creation_ids(tree: Harness) -> None:
    store = await tree.open()
    assert await store.get("/a") is None
    assert await store.exists("/a") is None
    assert await store.create("/a", b"one") == "/a"
    data, first = (await store.get("/a")) or (b"", None)
    assert first is not None
    assert (data, first.version, first.ephemeral_owner) == (b"one", 0, 0)
    assert first.czxid > 0
    once = await store.set("/a", b"two")
    twice = await store.set("/a", b"two", 1)
    # Stores that number the write that gave the data do so in the order of the writes.
    assert once == Stat(1, first.czxid, 0, once.mzxid)
    assert twice == Stat(2, first.czxid, 0, twice.mzxid)
    assert (first.mzxid, once.mzxid, twice.mzxid) == (0, 0, 0) or first.czxid == first.mzxid < once.mzxid < twice.mzxid
    assert await store.get("/a") == (b"two", twice)
    assert await store.exists("/a") == twice
    assert await store.overwrite("/a", b"three", 2)
    data, thrice = (await store.get("/a")) or (b"", None)
    assert thrice is not None and (data, thrice.version) == (b"three", 3)
    await store.create("/b")
    await store.delete("/a", 3)
    await store.create("/a")
    again, other = await store.exists("/a"), await store.exists("/b")
    assert again is not None and other is not None
    assert (again.version, first.czxid < other.czxid < again.czxid) == (0, True)
    assert await store.get_many(["/a", "/none", "/b"]) == [(b"", again), None, (b"", other)]
    await store.close()


@on_loop
async def test_refusals(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/a")
    await store.create("/a/b")
    await store.create("/a/session", ephemeral=True)
    cases: list[tuple[Any, type[Exception]]] = [
        (lambda: store.create("/a"), NodeExists),
        (lambda: store.create("/x/y"), NoNode),
        (lambda: store.create("/a/session/c"), NoChildrenForEphemerals),
        (lambda: store.set("/x", b""), NoNode),
        (lambda: store.set("/a", b"", 1), BadVersion),
        (lambda: store.overwrite("/x", b""), NoNode),
        (lambda: store.overwrite("/a", b"", 1), BadVersion),
        (lambda: store.delete("/x"), NoNode),
        (lambda: store.delete("/a/b", 3), BadVersion),
        (lambda: store.delete("/a"), NotEmpty),
        (lambda: store.children("/x"), NoNode),
    ]
    for call, expected in cases:
        with pytest.raises(expected):
            await call()
    assert sorted(await store.children("/a")) == ["b", "session"]
    await store.close()


@on_loop
async def test_parents_are_made_on_demand(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/a/b/c", b"x", ephemeral=True, make_parents=True)
    await store.create("/a/b/d", make_parents=True)
    parent, leaf = await store.exists("/a/b"), await store.exists("/a/b/c")
    assert parent is not None and leaf is not None
    assert (parent.ephemeral_owner, leaf.ephemeral_owner) == (0, store.session_id)
    assert "a" in await store.children("/")
    with pytest.raises(NodeExists):
        await store.create("/a/b/d", make_parents=True)
    await store.close()


@on_loop
async def test_sequential_names_count_all_children_ever_made(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/q")
    assert await store.create("/q/n_", sequential=True) == "/q/n_0000000000"
    await store.create("/q/plain")
    assert await store.create("/q/n_", sequential=True) == "/q/n_0000000002"
    await store.delete("/q/n_0000000002")
    assert await store.create("/q/", sequential=True, ephemeral=True) == "/q/0000000003"
    with pytest.raises(NodeExists):
        await store.create("/q/plain")
    assert await store.create("/q/n_", sequential=True) == "/q/n_0000000004"
    await store.close()


@on_loop
async def test_a_multi_is_all_or_nothing(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/epoch", b"1")
    results = await store.multi(
        [
            Check("/epoch", 0),
            Create("/t"),
            Create("/t/p"),
            Set("/epoch", b"2", 0),
            Set("/epoch", b"3", 1),
            Delete("/t/p"),
        ]
    )
    epoch = await store.exists("/epoch")
    assert epoch is not None
    set_once = Stat(1, epoch.czxid, 0, epoch.mzxid)
    assert results == [None, "/t", "/t/p", set_once, set_once._replace(version=2), None]
    made = await store.exists("/t")
    assert made is not None and made.czxid > epoch.czxid

    failing: list[tuple[list[Any], type[Exception]]] = [
        ([Set("/epoch", b"x"), Create("/u"), Check("/epoch", 0)], BadVersion),
        ([Create("/u"), Create("/u")], NodeExists),
        ([Delete("/t"), Create("/t/p")], NoNode),
        ([Create("/t/p"), Delete("/t")], NotEmpty),
        ([Create("/u"), Check("/none", -1)], NoNode),
    ]
    for operations, expected in failing:
        with pytest.raises(expected):
            await store.multi(operations)
        assert await store.get("/epoch") == (b"3", set_once._replace(version=2))
        assert await store.exists("/t") == made
        assert await store.children("/t") == []
        assert await store.exists("/u") is None
    await store.close()


@on_loop
async def test_watches_are_called_once_each_for_their_kind(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/a")
    seen: list[tuple[str, WatchEvent]] = []

    def watch(name: str) -> Any:
        return lambda event: seen.append((name, event))

    async def arm() -> None:
        await store.get("/a", watch("get"))
        await store.exists("/a", watch("exists"))
        await store.children("/a", watch("children"))
        await store.exists("/a/b", watch("absent"))
        await store.get("/a/b", watch("never, no such node"))

    async def after(call: Any) -> list[tuple[str, WatchEvent]]:
        seen.clear()
        await call
        return sorted(seen, key=repr)

    created = WatchEvent(EventKind.CREATED, "/a/b")
    children = WatchEvent(EventKind.CHILDREN, "/a")
    changed = WatchEvent(EventKind.CHANGED, "/a")
    await arm()
    assert await after(store.create("/a/b")) == [("absent", created), ("children", children)]
    assert await after(store.set("/a", b"1")) == [("exists", changed), ("get", changed)]
    assert await after(store.set("/a", b"2")) == []
    assert await after(store.delete("/a/b")) == []
    await arm()
    # A failed write sets nothing off, nor does a set on the child the parent's watch.
    with pytest.raises(BadVersion):
        await after(store.set("/a", b"", 77))
    await store.create("/other")
    assert seen == []
    deleted = WatchEvent(EventKind.DELETED, "/a")
    assert await after(store.delete("/a")) == [("children", deleted), ("exists", deleted), ("get", deleted)]
    await store.create("/a")
    assert await after(store.create("/a/b")) == [("absent", created)]
    await store.close()


@on_loop
async def test_a_watch_may_write_and_read(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/a")
    done = asyncio.get_running_loop().create_future()

    async def react() -> None:
        found = await store.get("/a")
        await store.create("/b", found[0] if found else b"")
        done.set_result(None)

    tasks = []
    await store.get("/a", lambda event: tasks.append(asyncio.ensure_future(react())))
    await store.set("/a", b"news")
    await done
    found = await store.get("/b")
    assert found is not None and found[0] == b"news"
    await store.close()


@pytest.mark.parametrize("orderly", [True, False])
@on_loop
async def test_ephemeral_nodes_go_with_their_session(tree: Harness, orderly: bool) -> None:
    first = await tree.open()
    await first.create("/ids/0", b"mine", ephemeral=True, make_parents=True)
    await first.create("/ids/kept", b"stays")
    await (first.close() if orderly else tree.kill(first))
    second = await tree.open()
    assert second.session_id != first.session_id
    assert await second.children("/ids") == ["kept"]
    await second.create("/ids/0", b"new", ephemeral=True)
    stat = await second.exists("/ids/0")
    assert stat is not None and stat.ephemeral_owner == second.session_id
    await second.close()


@on_loop
async def test_answered_writes_are_there_after_reopening(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/q")
    await store.create("/q/n_", b"\x00\xff", sequential=True)
    await store.set("/q", b"x")
    before = await store.get_many(["/q", "/q/n_0000000000"])
    await tree.kill(store)
    store = await tree.open()
    assert await store.get_many(["/q", "/q/n_0000000000"]) == before
    assert await store.create("/q/n_", sequential=True) == "/q/n_0000000001"
    made = await store.exists("/q/n_0000000001")
    assert made is not None and all(found is not None and made.czxid > found[1].czxid for found in before)
    await store.close()


@on_loop
async def test_hundreds_of_nodes_at_once(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/a", b"x")
    await store.multi([Create(f"/a/{index}", b"%d" % index if index % 3 else b"") for index in range(450)])
    await store.set("/a/7", b"new")
    paths = [f"/a/{index}" for index in range(460)]
    found = await store.get_many(paths)
    assert found == [await store.get(path) for path in paths]
    assert (found[7] or (b"",))[0] == b"new"
    assert found[450:] == [None] * 10
    await store.close()


@on_loop
async def test_get_many_watches_existing_nodes(tree: Harness) -> None:
    store = await tree.open()
    await store.create("/a")
    await store.create("/b")
    seen: list[WatchEvent] = []
    await store.get_many(["/a", "/none", "/b"], seen.append)
    await store.set("/a", b"1")
    await store.create("/none")
    await store.delete("/b")
    assert seen == [WatchEvent(EventKind.CHANGED, "/a"), WatchEvent(EventKind.DELETED, "/b")]
    await store.close()


@on_loop
async def test_subtree_lists_children_before_parents(tree: Harness) -> None:
    store = await tree.open()
    for path in ("/t/a/b/c", "/t/a/d", "/t/e", "/u"):
        await store.create(path, make_parents=True)
    doomed = await subtree(store, "/t", LoopGate())
    assert sorted(doomed) == ["/t", "/t/a", "/t/a/b", "/t/a/b/c", "/t/a/d", "/t/e"]
    await store.multi([Delete(path) for path in doomed])
    assert await subtree(store, "/t", LoopGate()) == []
    assert await store.exists("/u") is not None
    await store.close()


@on_loop
async def test_finalised_features_follow_the_node_in_every_session(tree: Harness) -> None:
    writer, reader = await tree.open(), None
    await create_feature_node(writer, {})
    if isinstance(writer, ZooKeeperStore):
        reader = await tree.open()
    reads: list[asyncio.Task[None]] = []
    features = FinalizedFeatures(reader or writer, lambda work: reads.append(asyncio.ensure_future(work)))
    changed = asyncio.Event()
    features.on_changed.append(changed.set)
    await features.start()
    assert features.finalized == (0, {})
    for version, level in ((1, 2), (2, 1), (3, 0)):
        changed.clear()
        await writer.set(FEATURE, encode_features({"transaction.version": level}))
        await asyncio.wait_for(changed.wait(), 30)
        assert (features.finalized.epoch, features.transaction_version()) == (version, level)
    changed.clear()
    await writer.delete(FEATURE)
    await create_feature_node(writer, {"transaction.version": 1})
    await asyncio.wait_for(changed.wait(), 30)
    assert features.finalized == (4, {"transaction.version": 1})
    await asyncio.gather(*reads)
    for store in (reader, writer):
        if store is not None:
            await store.close()
