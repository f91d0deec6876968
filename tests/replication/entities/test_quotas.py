"""Quotas that tools of Apache Kafka left in the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.replication.store import quotas
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import StoreFailed
from gregor.replication.store.nodes import encode_config
from gregor.replication.store.quotas import read_quotas
from gregor.replication.store.registration import make_persistent_nodes
from tests.replication.fakes import on_loop

# As kafka-configs.sh of 3.9.1 writes them; names are encoded as in a URL.
QUOTAS = {
    "/config/clients/<default>": {"producer_byte_rate": "1024"},
    "/config/clients/app%201": {"consumer_byte_rate": "2048", "request_percentage": "50.0"},
    "/config/ips/10.0.0.1": {"connection_creation_rate": "7"},
    "/config/users/<default>/clients/<default>": {"controller_mutation_rate": "3.5"},
    "/config/users/alice": {"producer_byte_rate": "1024"},
    "/config/users/alice/clients/app": {"consumer_byte_rate": "1"},
}


@on_loop
async def test_quotas_of_all_kinds_of_entities_are_found(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path / FILE_NAME))
    await store.start()
    try:
        assert await read_quotas(store) == {}
        await make_persistent_nodes(store)
        assert await read_quotas(store) == {}
        for path, texts in QUOTAS.items():
            await store.create(path, encode_config(texts), make_parents=True)
        await store.set(
            "/config/users/alice", encode_config({"SCRAM-SHA-256": "salt=x", **QUOTAS["/config/users/alice"]})
        )
        await store.create("/config/users/scram", encode_config({"SCRAM-SHA-256": "salt=x"}))
        assert await read_quotas(store) == QUOTAS
    finally:
        await store.close()


@on_loop
async def test_only_some_of_many_entities_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_ENTITIES", 3)
    store = EmbeddedStore(str(tmp_path / FILE_NAME))
    await store.start()
    try:
        for index in range(5):
            texts = encode_config({"producer_byte_rate": "1"})
            await store.create(f"/config/clients/app{index}", texts, make_parents=True)
            for client in range(2):
                await store.create(f"/config/users/u{index}/clients/c{client}", texts, make_parents=True)
        found = await read_quotas(store)
        assert [path for path in found if path.startswith("/config/clients/")] == [
            f"/config/clients/app{index}" for index in range(3)
        ]
        assert [path for path in found if path.startswith("/config/users/")] == [
            *("/config/users/u0/clients/c0", "/config/users/u0/clients/c1", "/config/users/u1/clients/c0")
        ]
    finally:
        await store.close()


@on_loop
async def test_a_broken_node_is_logged_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = EmbeddedStore(str(tmp_path / FILE_NAME))
    await store.start()
    try:
        await store.create("/config/clients/broken", b"{", make_parents=True)
        await store.create("/config/clients/good", encode_config({"producer_byte_rate": "1"}))
        assert await read_quotas(store) == {"/config/clients/good": {"producer_byte_rate": "1"}}
        assert (
            "/config/clients/broken has no settings in Kafka's form; if it sets a quota, that has no effect"
            in caplog.text
        )
    finally:
        await store.close()


@on_loop
async def test_quotas_that_cannot_be_read_are_logged_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = EmbeddedStore(str(tmp_path / FILE_NAME))
    await store.start()
    try:

        async def refused(path: str, watch: object = None) -> list[str]:
            raise StoreFailed(f"{path}: not authenticated")

        monkeypatch.setattr(store, "children", refused)
        assert await read_quotas(store) == {}
        assert "cannot be read: /config/users: not authenticated" in caplog.text
    finally:
        await store.close()
