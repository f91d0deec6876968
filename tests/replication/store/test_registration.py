"""Entering the cluster: ids, registration, producer id blocks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gregor.config.listeners import Listener
from gregor.replication.admin.producer_ids import ProducerIdAllocator
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import Stat, StoreError
from gregor.replication.store.nodes import BrokerRegistration
from gregor.replication.store.registration import (
    BrokerIdInUse,
    generate_broker_id,
    join_cluster,
    make_persistent_nodes,
    pass_over_producer_ids,
    register,
)
from tests.replication.fakes import on_loop


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    await make_persistent_nodes(store)
    return store


@on_loop
async def test_nodes_that_another_broker_makes_meanwhile_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.delete("/admin/delete_topics")
    exists = store.exists

    async def exists_not_yet(path: str) -> Stat | None:
        await exists(path)
        return None

    monkeypatch.setattr(store, "exists", exists_not_yet)
    await make_persistent_nodes(store)
    assert all([await exists(path) is not None for path in nodes.PERSISTENT_PATHS])
    await store.close()


@on_loop
async def test_the_cluster_id_is_given_once(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert await join_cluster(store, "XoSDzgrARomkabma0vbG8w") == "XoSDzgrARomkabma0vbG8w"
    assert await join_cluster(store, "another") == "XoSDzgrARomkabma0vbG8w"
    assert await join_cluster(store) == "XoSDzgrARomkabma0vbG8w"
    found = await store.get("/cluster/id")
    assert found is not None and found[0] == b'{"version":"1","id":"XoSDzgrARomkabma0vbG8w"}'
    await store.close()


@on_loop
async def test_a_fresh_cluster_id_is_a_uuid(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert len(await join_cluster(store)) == 22
    await store.close()


@on_loop
async def test_generated_broker_ids_lie_above_the_reserved(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert [await generate_broker_id(store, 1000) for _ in range(3)] == [1001, 1002, 1003]
    await store.close()
    store = await opened(tmp_path)
    assert await generate_broker_id(store, 1000) == 1004
    await store.close()


@on_loop
async def test_registration_lasts_as_long_as_the_session_and_its_epoch_grows(tmp_path: Path) -> None:
    broker = BrokerRegistration(0, (Listener("PLAINTEXT", "h", 1, "PLAINTEXT"),))
    store = await opened(tmp_path)
    first = await register(store, broker)
    found = await store.get("/brokers/ids/0")
    assert found is not None
    assert (found[1].czxid, found[1].version, found[1].ephemeral_owner) == (first, 1, store.session_id)
    assert nodes.decode_broker(0, found[0]) == broker
    # Once more in the same session: the same life of the broker.
    assert await register(store, broker) == first
    await store.close()
    store = await opened(tmp_path)
    assert await store.children("/brokers/ids") == []
    assert await register(store, broker) > first
    await store.close()


@on_loop
async def test_a_number_in_use_is_refused(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await register(store, BrokerRegistration(0, ()))
    store.session_id += 1  # as another process sees it
    with pytest.raises(BrokerIdInUse):
        await register(store, BrokerRegistration(0, ()))
    await store.close()


@on_loop
async def test_an_id_that_is_freed_during_the_registration_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await register(store, BrokerRegistration(0, ()))
    exists = store.exists

    async def freed(path: str) -> Stat | None:
        await store.delete(path)  # its session ends, between the refusal and the read
        return await exists(path)

    store.session_id += 1
    monkeypatch.setattr(store, "exists", freed)
    epoch = await register(store, BrokerRegistration(0, ()))
    found = await store.get("/brokers/ids/0")
    assert found is not None
    assert found[1].czxid == epoch
    await store.close()


@on_loop
async def test_making_the_nodes_twice(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await make_persistent_nodes(store)
    assert await store.children("/consumers") == []
    await store.close()


class TestProducerIds:
    @on_loop
    async def test_ids_come_from_blocks_of_a_thousand(self, tmp_path: Path) -> None:
        store = await opened(tmp_path)
        ids = ProducerIdAllocator(store, 7)
        assert [await ids.next_id() for _ in range(1001)] == list(range(1001))
        found = await store.get(nodes.PRODUCER_ID_BLOCK)
        assert found is not None
        assert found[0] == b'{"version":1,"broker":7,"block_start":"1000","block_end":"1999"}'
        # The rest of a block is lost with the process.
        assert await ProducerIdAllocator(store, 7).next_id() == 2000
        await store.close()

    @on_loop
    async def test_brokers_and_callers_at_the_same_time_never_share_an_id(self, tmp_path: Path) -> None:
        store = await opened(tmp_path)
        allocators = [ProducerIdAllocator(store, broker_id) for broker_id in range(3)]
        ids = await asyncio.gather(*(allocators[n % 3].next_id() for n in range(60)))
        assert len(set(ids)) == 60
        found = await store.get(nodes.PRODUCER_ID_BLOCK)
        # One block for each broker, however many callers waited.
        assert found is not None and nodes.decode_producer_id_block(found[0]).last_id == 2999
        await store.close()

    @on_loop
    async def test_a_store_younger_than_the_logs_begins_with_unused_producer_ids(self, tmp_path: Path) -> None:
        store = await opened(tmp_path)
        await pass_over_producer_ids(store, 0, 1_700_000_000_777)
        ids = ProducerIdAllocator(store, 0)
        assert await ids.next_id() == 1_700_000_001_000
        # Later it changes nothing.
        await pass_over_producer_ids(store, 0, 1_800_000_000_000)
        assert await ProducerIdAllocator(store, 0).next_id() == 1_700_000_002_000
        await store.close()

    @on_loop
    async def test_brokers_that_start_together_on_logs_begin_in_one_place(self, tmp_path: Path) -> None:
        store = await opened(tmp_path)
        await asyncio.gather(*(pass_over_producer_ids(store, number, 1_700_000_000_777) for number in range(3)))
        assert await ProducerIdAllocator(store, 0).next_id() == 1_700_000_001_000
        await store.close()

    @on_loop
    async def test_the_end_of_all_ids_is_an_error(self, tmp_path: Path) -> None:
        store = await opened(tmp_path)
        last = nodes.ProducerIdBlock(0, 2**63 - 1500, 2**63 - 501)
        await store.set(nodes.PRODUCER_ID_BLOCK, nodes.encode_producer_id_block(last))
        ids = ProducerIdAllocator(store, 0)
        for _ in range(2):
            with pytest.raises(StoreError):
                await ids.next_id()
        await store.close()
