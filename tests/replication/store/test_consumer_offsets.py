"""Offsets as nodes: Kafka's paths and bytes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.store.consumer_offsets import ConsumerOffsets, consumer_offset_path
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import NodeExists, NoNode, SessionExpired, StoreError
from gregor.replication.store.registration import make_persistent_nodes
from tests.replication.fakes import on_loop


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    await make_persistent_nodes(store)
    return store


@on_loop
async def test_an_offset_is_bare_text_in_a_node_of_its_partition(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    offsets = ConsumerOffsets(store)
    assert await offsets.fetch("g", "t", 3) is None
    for offset in (0, 2**63 - 1, -1):
        await offsets.commit("g", "t", 3, offset)
        assert await offsets.fetch("g", "t", 3) == offset
        found = await store.get("/consumers/g/offsets/t/3")
        assert found is not None and found[0] == str(offset).encode()
    assert await store.children("/consumers/g/offsets/t") == ["3"]
    await store.close()


@pytest.mark.parametrize("junk", [b"", b"x", b"1.5", b"1" * 20])
@on_loop
async def test_a_node_that_holds_no_offset(tmp_path: Path, junk: bytes) -> None:
    store = await opened(tmp_path)
    await store.create(consumer_offset_path("g", "t", 0), junk, make_parents=True)
    assert await ConsumerOffsets(store).fetch("g", "t", 0) is None
    await store.close()


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "nul\0", "line\n"])
@on_loop
async def test_groups_that_cannot_be_nodes(tmp_path: Path, group: str) -> None:
    store = await opened(tmp_path)
    offsets = ConsumerOffsets(store)
    for attempt in (offsets.commit(group, "t", 0, 1), offsets.fetch(group, "t", 0)):
        with pytest.raises(KafkaError) as refusal:
            await attempt
        assert refusal.value.code == ErrorCode.INVALID_GROUP_ID
    await store.close()


class Rival:
    """A store in which another client is always a little faster, and then the session is lost."""

    def __init__(self, *errors: StoreError | None) -> None:
        self.errors = list(errors)
        self.calls: list[str] = []

    async def set(self, path: str, data: bytes) -> None:
        self._next("set")

    async def create(self, path: str, data: bytes, make_parents: bool) -> None:
        self._next("create")

    def _next(self, call: str) -> None:
        self.calls.append(call)
        error = self.errors.pop(0)
        if error is not None:
            raise error


@on_loop
async def test_a_node_that_appears_meanwhile_is_set() -> None:
    store = Rival(NoNode("/"), NodeExists("/"), None)
    await ConsumerOffsets(store).commit("g", "t", 0, 1)  # type: ignore[arg-type]
    assert store.calls == ["set", "create", "set"]


@on_loop
async def test_a_store_that_refuses() -> None:
    with pytest.raises(KafkaError) as refusal:
        await ConsumerOffsets(Rival(SessionExpired("/"))).commit("g", "t", 0, 1)  # type: ignore[arg-type]
    assert refusal.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
