"""Passwords of dynamic broker settings: encrypted in the node, in clear in memory, and the change of the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.replication.admin.configs import BROKERS, ConfigAdmin, replacement
from gregor.replication.store import nodes
from gregor.replication.store.embedded import EmbeddedStore
from gregor.replication.store.registration import make_persistent_nodes
from gregor.replication.store.topic_configs import TopicConfigs
from tests.replication.fakes import HandClock, on_loop

KEY = "listener.name.plaintext.ssl.keystore.password"
PATH = nodes.config_path("brokers", "3")


class Broker:
    """One start of broker 3 with a secret; the nodes are in a store of the test."""

    def __init__(self, store: EmbeddedStore, **settings: str) -> None:
        texts = {f"password.encoder.{key.replace('_', '.')}": text for key, text in settings.items()}
        # The embedded store stands in for ZooKeeper, whose address the settings must have.
        self.config = BrokerConfig(
            {"zookeeper.connect": "localhost:2181", "password.encoder.iterations": "1024", **texts}
        )
        spawn = self._no_spawn
        self.configs = TopicConfigs(store, self.config, 3, spawn, HandClock(), LoopGate())
        self.admin = ConfigAdmin(store, self.config, 3, self.configs, LoopGate())
        self.store = store

    @staticmethod
    def _no_spawn(coroutine: object) -> None:
        raise AssertionError("nothing runs later")

    async def stored(self) -> dict[str, str]:
        node = await self.store.get(PATH)
        assert node is not None
        return nodes.decode_config(node[0])

    @property
    def password(self) -> object:
        return self.config.listener_setting("plaintext", "ssl.keystore.password")


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / "store"))
    await store.start()
    await make_persistent_nodes(store)
    return store


@on_loop
async def test_password_is_encrypted_in_the_node_and_survives_other_changes(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    broker = Broker(store, secret="one")
    await broker.admin.alter(BROKERS, "3", replacement({KEY: "hunter2"}))
    first = await broker.stored()
    assert broker.password == "hunter2"
    assert "hunter2" not in first[KEY]
    await broker.admin.alter(BROKERS, "3", lambda before: {**before, "message.max.bytes": "7"})
    assert await broker.stored() == {KEY: first[KEY], "message.max.bytes": "7"}
    await broker.admin.alter(BROKERS, "3", lambda before: {**before, KEY: "other"})
    assert broker.password == "other"
    again = Broker(store, secret="one")
    await again.configs.start()
    assert (again.password, again.config["message.max.bytes"]) == ("other", 7)
    await store.close()


@on_loop
async def test_start_with_a_new_secret_encrypts_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await Broker(store, secret="one").admin.alter(BROKERS, "3", replacement({KEY: "hunter2"}))
    rotated = Broker(store, secret="two", old_secret="one")
    await rotated.configs.start()
    assert rotated.password == "hunter2"
    stored = await rotated.stored()
    once_more = Broker(store, secret="two", old_secret="one")
    await once_more.configs.start()
    assert (once_more.password, await once_more.stored()) == ("hunter2", stored)
    after = Broker(store, secret="two")
    await after.configs.start()
    assert after.password == "hunter2"
    await store.close()


@on_loop
async def test_password_that_cannot_be_decrypted_is_named_and_the_rest_applies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    texts = {KEY: "hunter2", "message.max.bytes": "7"}
    await Broker(store, secret="one").admin.alter(BROKERS, "3", replacement(texts))
    for settings, reason in (({"secret": "two"}, "the secret is another one"), ({}, "password.encoder.secret is not")):
        caplog.clear()
        broker = Broker(store, **settings)
        await broker.configs.start()
        assert (broker.password, broker.config["message.max.bytes"]) == (None, 7)
        (line,) = [one.getMessage() for one in caplog.records if KEY in one.getMessage()]
        assert reason in line
        assert "hunter2" not in line
    await store.close()
