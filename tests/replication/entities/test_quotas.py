"""Quotas in the nodes that Apache Kafka's brokers and tools read and write."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.errors import KafkaError
from gregor.replication.entities.names import desanitized, sanitized
from gregor.replication.entities.quotas import DEFAULT, QuotaEntity, QuotaStore, entity_of_node
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import StoreFailed
from gregor.replication.store.nodes import CONFIG_CHANGES, NodeFormatError, encode_config
from gregor.replication.store.registration import make_persistent_nodes
from tests.replication.fakes import on_loop

# As kafka-configs.sh of 3.9.1 writes them; names are encoded as in a URL.
NODES = {
    "/config/clients/<default>": {"producer_byte_rate": "1024"},
    "/config/clients/app%201": {"consumer_byte_rate": "2048", "request_percentage": "50.0"},
    "/config/ips/10.0.0.1": {"connection_creation_rate": "7"},
    "/config/users/<default>/clients/<default>": {"controller_mutation_rate": "3.5"},
    "/config/users/CN%3Dalice": {"producer_byte_rate": "9223372036854775807"},
    "/config/users/CN%3Dalice/clients/app": {"consumer_byte_rate": "1"},
}
ENTITIES = {
    QuotaEntity(client_id=DEFAULT): {"producer_byte_rate": 1024},
    QuotaEntity(client_id="app 1"): {"consumer_byte_rate": 2048, "request_percentage": 50.0},
    QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 7},
    QuotaEntity(DEFAULT, DEFAULT): {"controller_mutation_rate": 3.5},
    QuotaEntity("CN=alice"): {"producer_byte_rate": 9223372036854775807},
    QuotaEntity("CN=alice", "app"): {"consumer_byte_rate": 1},
}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[EmbeddedStore, QuotaStore]]:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    try:
        await make_persistent_nodes(store)
        yield store, QuotaStore(store, LoopGate())
    finally:
        await store.close()


@on_loop
async def test_quotas_of_all_kinds_of_entities_are_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, quotas):
        assert await quotas.read_all() == {}
        for path, texts in NODES.items():
            if await store.exists(path) is None:
                await store.create(path, encode_config(texts), make_parents=True)
        await store.create("/config/users/scram", encode_config({"SCRAM-SHA-256": "salt=x"}))
        assert await quotas.read_all() == ENTITIES
        for entity, limits in ENTITIES.items():
            assert await quotas.read(entity) == limits
        assert await quotas.read(QuotaEntity("nobody", "here")) == {}


@on_loop
async def test_a_change_makes_the_parent_of_notices_anew(tmp_path: Path) -> None:
    """An operator may delete it."""
    async with opened(tmp_path) as (store, quotas):
        await store.delete(CONFIG_CHANGES)
        await quotas.alter(QuotaEntity("alice"), {"producer_byte_rate": "1024"})
        assert await quotas.read(QuotaEntity("alice")) == {"producer_byte_rate": 1024}
        assert len(await store.children(CONFIG_CHANGES)) == 1


@on_loop
async def test_quotas_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, quotas):
        for (path, texts), entity in zip(NODES.items(), ENTITIES, strict=True):
            await quotas.alter(entity, dict(texts))
            node = await store.get(path)
            assert node is not None and json.loads(node[0]) == {"version": 1, "config": texts}
        notices = sorted(await store.children(CONFIG_CHANGES))
        changed = [json.loads(node[0]) for name in notices if (node := await store.get(f"{CONFIG_CHANGES}/{name}"))]
        assert changed[0] == {"version": 2, "entity_path": "clients/<default>"}
        assert changed[5] == {"version": 2, "entity_path": "users/CN%3Dalice/clients/app"}
        assert [name[:14] for name in notices] == ["config_change_"] * 6


@on_loop
async def test_other_settings_of_a_user_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, quotas):
        await store.create("/config/users/alice", encode_config({"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "1"}))
        await quotas.alter(QuotaEntity("alice"), {"producer_byte_rate": None, "request_percentage": "5.0"})
        node = await store.get("/config/users/alice")
        assert node is not None
        assert json.loads(node[0])["config"] == {"SCRAM-SHA-256": "salt=x", "request_percentage": "5.0"}


@on_loop
async def test_a_removal_of_what_is_no_quota_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, quotas):
        before = encode_config({"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "1"})
        await store.create("/config/users/alice", before)
        await quotas.alter(QuotaEntity("alice"), {"SCRAM-SHA-256": None, "connection_creation_rate": None})
        assert (await store.get("/config/users/alice") or (b"",))[0] == before
        assert await store.children(CONFIG_CHANGES) == []
        await quotas.alter(QuotaEntity("alice"), {"SCRAM-SHA-256": None, "producer_byte_rate": None})
        node = await store.get("/config/users/alice")
        assert node is not None and json.loads(node[0])["config"] == {"SCRAM-SHA-256": "salt=x"}


@on_loop
async def test_to_remove_a_quota_that_does_not_exist_makes_no_node(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, quotas):
        await quotas.alter(QuotaEntity("alice"), {"producer_byte_rate": None})
        assert await store.children("/config/users") == []
        assert await store.children(CONFIG_CHANGES) == []


@on_loop
async def test_a_broken_node_is_logged_and_never_overwritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as (store, quotas):
        await store.create("/config/users/broken", b"{", make_parents=True)
        await store.create(
            "/config/clients/odd", encode_config({"producer_byte_rate": "fast", "request_percentage": "2"})
        )
        assert await quotas.read_all() == {QuotaEntity(client_id="odd"): {"request_percentage": 2.0}}
        assert "/config/users/broken has no settings in Kafka's form" in caplog.text
        assert "producer_byte_rate of client id odd is not a number: 'fast'" in caplog.text
        with pytest.raises(NodeFormatError):
            await quotas.alter(QuotaEntity("broken"), {"producer_byte_rate": "1"})
        assert (await store.get("/config/users/broken") or (b"",))[0] == b"{"


@on_loop
async def test_quotas_that_cannot_be_read_are_logged_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as (store, quotas):

        async def refused(path: str, watch: object = None) -> list[str]:
            raise StoreFailed(f"{path}: not authenticated")

        monkeypatch.setattr(store, "children", refused)
        assert await quotas.read_all() == {}
        assert "cannot be read: /config/users: not authenticated" in caplog.text


@pytest.mark.parametrize("entity", [*ENTITIES, QuotaEntity("<default>"), QuotaEntity("a/b", "c d")])
def test_a_notification_names_the_entity(entity: QuotaEntity) -> None:
    assert entity_of_node(entity.config_type, entity.node_name) == entity


def test_notifications_of_other_forms_name_no_entity() -> None:
    assert entity_of_node("users", "alice/clients") is None
    assert entity_of_node("users", "alice/topics/t") is None
    assert entity_of_node("clients", "") is None
    assert entity_of_node("brokers", "1") is None


# As org.apache.kafka.common.utils.Sanitizer encodes them.
@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a-b_c.d", "a-b_c.d"),
        ("a b*c~", "a%20b%2Ac%7E"),
        ("CN=é,O=x/y", "CN%3D%C3%A9%2CO%3Dx%2Fy"),
        ("<default>", "%3Cdefault%3E"),
    ],
)
def test_names_are_encoded_as_kafka_encodes_them(name: str, encoded: str) -> None:
    assert sanitized(name) == encoded
    assert desanitized(encoded) == name


def test_a_name_that_no_node_can_have_is_refused() -> None:
    for name in (".", ".."):
        with pytest.raises(KafkaError, match="no node of the metadata store can be named"):
            sanitized(name)
