"""The finalised features as a broker follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.features import (
    LEVELS_OF_NEW_STORE,
    REGISTERED,
    FinalizedFeatures,
    UnsupportedFeature,
    create_feature_node,
    unsupported,
)
from gregor.replication.store.metadata_store import StoreError
from tests.replication.fakes import on_loop

GROUPS, TRANSACTIONS = "group.version", "transaction.version"


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    return store


class Followed:
    """The features of one broker, and the reads that watches start."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.reads: list[asyncio.Task[None]] = []
        self.features = FinalizedFeatures(store, self._spawn)
        self.changes: list[int] = []
        self.features.on_changed.append(lambda: self.changes.append(self.features.transaction_version()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.reads.append(asyncio.ensure_future(work))

    async def settle(self) -> None:
        while self.reads:
            await self.reads.pop()


async def followed(store: EmbeddedStore) -> Followed:
    made = Followed(store)
    await made.features.start()
    return made


@on_loop
async def test_levels_follow_the_node_and_the_epoch_is_its_version(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    broker = await followed(store)
    assert (broker.features.finalized, broker.features.transaction_version()) == ((-1, {}), 0)
    await create_feature_node(store, {})
    await broker.settle()
    assert broker.features.finalized == (0, {})
    for version, level in ((1, 2), (2, 1), (3, 0)):
        await store.set(nodes.FEATURE, nodes.encode_features({TRANSACTIONS: level}))
        await broker.settle()
        assert broker.features.transaction_version() == level
        assert broker.features.finalized.epoch == version
    assert broker.changes == [2, 1, 0]
    await store.close()


@on_loop
async def test_node_of_a_new_store_is_made_once(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await create_feature_node(store, LEVELS_OF_NEW_STORE)
    await create_feature_node(store, {})
    broker = await followed(store)
    assert broker.features.finalized == (0, {GROUPS: 1, TRANSACTIONS: 2})
    assert (broker.features.group_version(), broker.features.transaction_version()) == (1, 2)
    await store.close()


@on_loop
async def test_epoch_does_not_fall_with_a_node_that_is_created_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await create_feature_node(store, {TRANSACTIONS: 1})
    for _ in range(3):
        await store.set(nodes.FEATURE, nodes.encode_features({TRANSACTIONS: 2}))
    broker = await followed(store)
    assert broker.features.finalized.epoch == 3
    await store.delete(nodes.FEATURE)
    await broker.settle()
    assert (broker.features.finalized, broker.features.highest_epoch) == ((-1, {}), 3)
    await create_feature_node(store, {TRANSACTIONS: 1})
    await broker.settle()
    assert broker.features.finalized == (4, {TRANSACTIONS: 1})
    await store.set(nodes.FEATURE, nodes.encode_features({}))
    await broker.settle()
    assert broker.features.finalized == (5, {})
    await broker.features.refresh()
    assert broker.features.finalized == (5, {})
    await store.close()


@on_loop
async def test_disabled_levels_are_not_in_force(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    text = b'{"version":2,"status":0,"features":{"transaction.version":{"max_version_level":2}}}'
    await store.create(nodes.FEATURE, text)
    broker = await followed(store)
    assert (broker.features.transaction_version(), broker.features.finalized.epoch) == (0, -1)
    await store.close()


@on_loop
async def test_broker_that_does_not_serve_a_level_refuses_to_start(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await create_feature_node(store, {TRANSACTIONS: 2, "metadata.version": 20})
    with pytest.raises(UnsupportedFeature, match=r"metadata\.version=20.*downgrade"):
        await followed(store)
    await store.close()


@on_loop
async def test_level_that_rises_too_high_is_reported_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    await create_feature_node(store, {})
    broker = await followed(store)
    await store.set(nodes.FEATURE, nodes.encode_features({TRANSACTIONS: 3}))
    await broker.settle()
    assert broker.features.transaction_version() == 2
    assert "transaction.version=3, which this release does not serve" in caplog.text
    await store.close()


@on_loop
async def test_node_that_cannot_be_decoded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await opened(tmp_path)
    await create_feature_node(store, {TRANSACTIONS: 2})
    broker = await followed(store)
    await store.set(nodes.FEATURE, b"?")
    await broker.settle()
    assert broker.features.transaction_version() == 2
    assert "correct the value of /feature" in caplog.text
    with pytest.raises(StoreError, match="cannot be decoded"):
        await followed(store)
    await store.set(nodes.FEATURE, nodes.encode_features({}))
    await broker.settle()
    assert broker.features.transaction_version() == 0
    await store.close()


@on_loop
async def test_levels_are_read_again_after_the_session(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    broker = await followed(store)
    await create_feature_node(store, {TRANSACTIONS: 1})
    for session_expired in store.on_session_expired:
        session_expired()
    await broker.settle()
    assert (broker.features.transaction_version(), broker.changes) == (1, [1])
    await store.close()


def test_registered_levels_can_be_decoded_by_brokers_before_3_9() -> None:
    assert REGISTERED == {
        GROUPS: {"min_version": 1, "max_version": 1},
        TRANSACTIONS: {"min_version": 1, "max_version": 2},
    }


def test_level_0_is_served_by_every_release() -> None:
    assert unsupported({TRANSACTIONS: 0, "unknown": 0}) == []
    assert unsupported({TRANSACTIONS: 2, "unknown": 1, "below": 1}, {TRANSACTIONS: (0, 1), "below": (2, 3)}) == [
        "below=1",
        "transaction.version=2",
        "unknown=1",
    ]
