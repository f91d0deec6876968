"""Altering settings by their nodes: what is refused with which error, and what is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.config_changes import ConfigChange
from gregor.replication.admin.configs import ConfigAdmin, Edit, entity_name, incremental, node_name, replacement
from gregor.replication.store import nodes
from gregor.replication.store.embedded import EmbeddedStore
from gregor.replication.store.registration import make_persistent_nodes
from gregor.replication.store.topic_configs import TopicConfigs


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class Place:
    """A store with one topic, and what alters settings in it."""

    def __init__(
        self, folder: Path, check_listeners: Callable[[BrokerConfig], None] = lambda candidate: None, **static: str
    ) -> None:
        self.store = EmbeddedStore(str(folder / "store"))
        self.config = BrokerConfig({key.replace("_", "."): text for key, text in static.items()})
        spawn = asyncio.get_running_loop().create_task
        self.configs = TopicConfigs(self.store, self.config, 0, spawn, lambda: 0, LoopGate())
        self.admin = ConfigAdmin(self.store, self.config, 0, self.configs, LoopGate(), check_listeners)

    async def __aenter__(self) -> Place:
        await self.store.start()
        await make_persistent_nodes(self.store)
        await self.store.create(nodes.topic_path("t"), b"{}")
        await self.configs.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.store.close()

    async def code(self, entity_type: str, name: str, edit: Edit) -> str:
        with pytest.raises(KafkaError) as error:
            await self.admin.alter(entity_type, name, edit)
        return error.value.code.name


@on_loop
async def test_a_change_makes_the_parent_of_notices_anew(tmp_path: Path) -> None:
    """An operator may delete it."""
    async with Place(tmp_path) as place:
        await place.store.delete(nodes.CONFIG_CHANGES)
        await place.admin.alter("topics", "t", replacement({"retention.ms": "5"}))
        assert len(await place.store.children(nodes.CONFIG_CHANGES)) == 1


@on_loop
async def test_what_is_refused(tmp_path: Path) -> None:
    async with Place(tmp_path) as place:
        for entity_type, name, texts, code in [
            ("topics", "", {}, "INVALID_REQUEST"),
            ("topics", "a/b", {}, "INVALID_TOPIC_EXCEPTION"),
            ("topics", "absent", {}, "UNKNOWN_TOPIC_OR_PARTITION"),
            ("topics", "absent", {"retention.ms": "x"}, "INVALID_CONFIG"),
            ("topics", "t", {"no.such.key": "1"}, "INVALID_CONFIG"),
            ("topics", "t", {"": "1"}, "INVALID_CONFIG"),
            ("brokers", "x", {}, "INVALID_REQUEST"),
            ("brokers", "7", {}, "INVALID_REQUEST"),
            ("brokers", "0", {"log.dirs": "/x"}, "INVALID_REQUEST"),
            ("brokers", "0", {"no.such.key": "1"}, "INVALID_REQUEST"),
            ("brokers", "", {"listeners": "PLAINTEXT://:1"}, "INVALID_REQUEST"),
            ("brokers", "", {"num.io.threads": "100"}, "INVALID_REQUEST"),
            ("brokers", "0", {"ssl.keystore.location": "/x"}, "INVALID_REQUEST"),
            ("brokers", "0", {"sasl.server.max.receive.size": "1000"}, "INVALID_REQUEST"),
            ("brokers", "0", {"sasl.kerberos.min.time.before.relogin": "soon"}, "INVALID_REQUEST"),
            ("brokers", "", {"sasl.kerberos.min.time.before.relogin": "58000"}, "INVALID_REQUEST"),
            ("brokers", "0", {"listener.name.plaintext.ssl.provider": "x"}, "INVALID_REQUEST"),
            ("brokers", "0", {"listener.name.plaintext.message.max.bytes": "5"}, "INVALID_REQUEST"),
            ("groups", "", {}, "INVALID_REQUEST"),
            ("groups", "g", {"no.such.key": "1"}, "INVALID_CONFIG"),
            ("client-metrics", "", {}, "INVALID_REQUEST"),
            ("client-metrics", "m", {"no.such.key": "1"}, "INVALID_REQUEST"),
            ("client-metrics", "m", {"match": "x"}, "INVALID_CONFIG"),
        ]:
            assert await place.code(entity_type, name, replacement(texts)) == code, (entity_type, name, texts)
        unknown = [ConfigChange("retention.ms", 9, "1")]
        assert await place.code("topics", "t", incremental(unknown, TOPIC_KEYS)) == "UNKNOWN_SERVER_ERROR"
        edit = incremental(unknown, TOPIC_KEYS, ErrorCode.INVALID_REQUEST)
        assert await place.code("brokers", "0", edit) == "INVALID_REQUEST"
        assert await place.store.children("/config/topics") == []
        assert await place.admin.names("groups") == []


@on_loop
async def test_groups_and_subscriptions_are_kept_until_nothing_is_set(tmp_path: Path) -> None:
    async with Place(tmp_path) as place:
        for entity_type, name, texts in [
            ("groups", "a/b %\u00e9", {"consumer.session.timeout.ms": "50000"}),
            ("client-metrics", "m", {"interval.ms": "1000"}),
        ]:
            await place.admin.alter(entity_type, name, replacement(texts))
            assert await place.admin.names(entity_type) == [name]
            assert await place.admin.texts(entity_type, name) == texts
            await place.admin.alter(entity_type, name, replacement({}), validate_only=True)
            assert await place.admin.names(entity_type) == [name]
            await place.admin.alter(entity_type, name, replacement({}))
            assert await place.admin.names(entity_type) == []
            assert await place.admin.texts(entity_type, name) == {}


@on_loop
async def test_layers_of_a_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Place(tmp_path, message_max_bytes="4") as place:
        seen: list[int] = []
        place.configs.on_broker_changed.append(lambda: seen.append(place.config["message.max.bytes"]))
        await place.admin.alter("brokers", "", replacement({"message.max.bytes": "3"}))
        await place.admin.alter("brokers", "0", replacement({"message.max.bytes": "2"}))
        assert place.configs.log_config("t").max_message_bytes == 2
        await place.admin.alter("brokers", "0", replacement({}))
        await place.admin.alter("brokers", "", replacement({}))
        assert seen == [3, 2, 3, 4]
        with caplog.at_level(logging.WARNING):
            await place.admin.alter("brokers", "", replacement({"remote.log.reader.threads": "11"}))
            await place.admin.alter("brokers", "0", replacement({"sasl.kerberos.min.time.before.relogin": "58000"}))
        assert "remote.log.reader.threads=11 is kept, but has no effect: gregor has no remote storage" in caplog.text
        # librdkafka's tests alter this one: as it protects nothing, it is kept as by Apache Kafka.
        assert (
            "sasl.kerberos.min.time.before.relogin=58000 is kept, but has no effect: the Kerberos library requests"
            in caplog.text
        )


@on_loop
async def test_settings_that_another_broker_stored_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Place(tmp_path) as place:
        stored = {"message.max.bytes": "7", "some.plugin": "x", "broker.id": "9"}
        await place.store.create("/config/brokers/0", nodes.encode_config(stored))
        with caplog.at_level(logging.WARNING):
            await place.configs.refresh_broker()
        assert place.config.dynamic_texts == {"message.max.bytes": "7"}
        assert "some.plugin" in caplog.text and "broker.id" in caplog.text
        await place.admin.alter("brokers", "0", incremental([ConfigChange("log.segment.bytes", 0, "2000000")], {}))
        assert place.config["message.max.bytes"] == 7


@on_loop
async def test_addresses_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    asked: list[str] = []

    def check(addresses: BrokerConfig) -> None:
        asked.extend(listener.text for listener in addresses.listeners)
        raise ConfigError("listeners", "", "in use")

    async with Place(tmp_path, check) as place:
        edit = replacement({"listeners": "PLAINTEXT://localhost:9093"})
        assert await place.code("brokers", "0", edit) == "INVALID_REQUEST"
        assert asked == ["PLAINTEXT://localhost:9093"]
        await place.admin.alter("brokers", "0", replacement({"message.max.bytes": "9"}))


@pytest.mark.parametrize("name", ["plain", "a/b", "%", "\u00e9\u2603", "a b", "", "%41", ".", ".."])
def test_names_of_any_character(name: str) -> None:
    encoded = node_name("groups", name)
    assert "/" not in encoded and encoded.isascii() and encoded not in (".", "..")
    assert entity_name(encoded) == name
