"""Passwords of dynamic broker settings: encrypted in the node, in clear in memory, and the change of the secret."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.config.security.password_encoder import CBC, PasswordEncoder
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.replication.admin.config_changes import ConfigChange, ConfigOperation
from gregor.replication.admin.configs import BROKERS, ConfigAdmin, Edit, incremental, replacement
from gregor.replication.store import nodes
from gregor.replication.store.embedded import RESERVED_BYTES, EmbeddedStore
from gregor.replication.store.registration import make_persistent_nodes
from gregor.replication.store.topic_configs import TopicConfigs
from tests.replication.fakes import HandClock, on_loop

KEY = "listener.name.plaintext.ssl.keystore.password"
OTHER_KEY = "listener.name.plaintext.ssl.truststore.password"
PATH = nodes.config_path("brokers", "3")


class Broker:
    """One start of broker 3 with a secret; the nodes are in a store of the test."""

    def __init__(self, store: EmbeddedStore, zookeeper: str = "localhost:2181", **settings: str) -> None:
        texts = {f"password.encoder.{key.replace('_', '.')}": text for key, text in settings.items()}
        # With an address of ZooKeeper the embedded store stands in for it.
        self.config = BrokerConfig({"zookeeper.connect": zookeeper, "password.encoder.iterations": "1024", **texts})
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


def files_with(folder: Path, text: str) -> list[str]:
    """Return the names of the embedded store's files that contain a text."""
    return [path.name for path in folder.glob("store*") if text.encode() in path.read_bytes()]


def rewrite_without_erasure(folder: Path, *passwords: str) -> None:
    """Write the node with one password after the other as an SQLite does that leaves replaced rows in its file."""
    connection = sqlite3.connect(folder / "store", isolation_level=None)
    connection.execute("PRAGMA secure_delete = OFF")
    for password in passwords:
        connection.execute("DELETE FROM node WHERE path = ?", (PATH,))
        row = (PATH, nodes.encode_config({KEY: password}), 0, 1, 0, 0)
        connection.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.close()


@on_loop
async def test_private_key_in_the_embedded_store_is_encrypted_where_there_is_a_secret(tmp_path: Path) -> None:
    key, pem = "listener.name.plaintext.ssl.keystore.key", "-----BEGIN PRIVATE KEY----- MIIE -----END PRIVATE KEY-----"

    def shown(broker: Broker) -> object:
        return broker.config.listener_setting("plaintext", "ssl.keystore.key")

    store = await opened(tmp_path)
    secured = Broker(store, zookeeper="", secret="one")
    await secured.admin.alter(BROKERS, "3", replacement({key: pem, "message.max.bytes": "7"}))
    assert shown(secured) == pem
    again = Broker(store, zookeeper="", secret="one")
    await again.configs.start()
    assert (shown(again), again.config["message.max.bytes"]) == (pem, 7)
    await store.close()
    assert files_with(tmp_path, "message.max.bytes") and not files_with(tmp_path, "MIIE")


@on_loop
async def test_passwords_in_the_embedded_store_from_before_the_secret_are_encrypted_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = await opened(tmp_path)
    before = Broker(store, zookeeper="")
    await before.admin.alter(BROKERS, "3", replacement({KEY: "hunter2, once:more"}))
    assert (await before.stored())[KEY] == before.password == "hunter2, once:more"
    await store.close()
    rewrite_without_erasure(tmp_path, "replaced-1" * 1000, "replaced-2" * 10, "hunter2, once:more")
    assert files_with(tmp_path, "hunter2") == files_with(tmp_path, "replaced-1") == ["store"]
    store = await opened(tmp_path)
    for number in range(50):  # the log has pages with the password, too
        await store.create(f"{PATH}{number}")
    assert "store-wal" in files_with(tmp_path, "hunter2")
    secured = Broker(store, zookeeper="", secret="one")
    await secured.configs.start()
    assert "are encrypted with password.encoder.secret now; the old" in caplog.text
    assert not files_with(tmp_path, "hunter2") and not files_with(tmp_path, "replaced-")
    assert (tmp_path / "store-wal").stat().st_size >= RESERVED_BYTES
    assert secured.password == "hunter2, once:more"
    stored = await secured.stored()
    await secured.configs.start()
    assert await secured.stored() == stored
    await store.close()
    store = await opened(tmp_path)
    without = Broker(store, zookeeper="")
    await without.configs.start()
    assert without.password is None
    assert f"setting {KEY} of this broker is ignored" in caplog.text and "password.encoder.secret is not" in caplog.text
    await store.close()


@on_loop
async def test_empty_secret_encrypts_nothing_and_an_empty_old_one_decrypts(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    broker = Broker(store, zookeeper="", secret="")
    await broker.admin.alter(BROKERS, "3", replacement({KEY: "hunter2"}))
    assert (await broker.stored())[KEY] == broker.password == "hunter2"
    await broker.configs.start()
    assert (await broker.stored())[KEY] == broker.password == "hunter2"
    of_kafka = PasswordEncoder("", "PBKDF2WithHmacSHA512", CBC, 128, 1024).encode("hunter3")
    await store.set(PATH, nodes.encode_config({KEY: of_kafka}))
    await broker.configs.refresh_broker()
    assert broker.password is None
    rotated = Broker(store, zookeeper="", secret="one", old_secret="")
    await rotated.configs.start()
    assert rotated.password == "hunter3" and (await rotated.stored())[KEY] != of_kafka
    await store.close()


@on_loop
async def test_next_start_erases_the_clear_text_if_a_crash_came_behind_its_encryption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = tmp_path / "crashed"
    crashed.mkdir()

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
            if statement == "VACUUM":  # it begins the erasure
                for name in ("store", "store-wal"):
                    shutil.copy(tmp_path / name, crashed)
            return super().execute(statement, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
        store = await opened(tmp_path)
    await Broker(store, zookeeper="").admin.alter(BROKERS, "3", replacement({KEY: "hunter2"}))
    await Broker(store, zookeeper="", secret="one").configs.start()
    await store.close()
    assert files_with(crashed, "hunter2")
    store = await opened(crashed)
    again = Broker(store, zookeeper="", secret="one")
    await again.configs.start()
    assert not files_with(crashed, "hunter2") and again.password == "hunter2"
    assert "hunter2" not in (await again.stored())[KEY]
    await store.close()


@on_loop
async def test_start_warns_of_clear_text_that_a_full_disk_keeps_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_erased(path: str, data: bytes, version: int) -> bool:
        await store.set(path, data, version)
        return False

    caplog.set_level(logging.INFO)
    store = await opened(tmp_path)
    await Broker(store, zookeeper="").admin.alter(BROKERS, "3", replacement({KEY: "hunter2"}))
    monkeypatch.setattr(store, "overwrite", not_erased)
    await Broker(store, zookeeper="", secret="one").configs.start()
    assert "still has them as they were before" in caplog.text and "not needed any more" not in caplog.text
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


@pytest.mark.parametrize("zookeeper", ["localhost:2181", ""])
@pytest.mark.parametrize("secret", [{}, {"secret": "two"}])
@on_loop
async def test_password_that_cannot_be_decrypted_stays_in_the_node_through_other_changes(
    tmp_path: Path, zookeeper: str, secret: dict[str, str]
) -> None:
    def change(key: str, operation: ConfigOperation, value: str | None = None) -> Edit:
        return incremental([ConfigChange(key, operation, value)], BROKER_KEYS)

    store = await opened(tmp_path)
    right = Broker(store, zookeeper, secret="one")
    await right.admin.alter(BROKERS, "3", replacement({KEY: "hunter2", OTHER_KEY: "hunter3"}))
    first = await right.stored()
    broker = Broker(store, zookeeper, **secret)
    await broker.configs.refresh_broker()
    await broker.admin.alter(BROKERS, "3", change("message.max.bytes", ConfigOperation.SET, "7"))
    assert await broker.stored() == {**first, "message.max.bytes": "7"}
    assert (broker.password, broker.config["message.max.bytes"]) == (None, 7)
    again = Broker(store, zookeeper, secret="one")
    await again.configs.refresh_broker()
    assert (again.password, again.config["message.max.bytes"]) == ("hunter2", 7)

    await broker.admin.alter(BROKERS, "3", change(OTHER_KEY, ConfigOperation.DELETE))
    assert await broker.stored() == {KEY: first[KEY], "message.max.bytes": "7"}
    if secret or not zookeeper:  # else a password is refused
        await broker.admin.alter(BROKERS, "3", change(KEY, ConfigOperation.SET, "other"))
        assert broker.password == "other" and (await broker.stored())[KEY] != first[KEY]
    await store.set(PATH, nodes.encode_config(first))
    await broker.admin.alter(BROKERS, "3", replacement({"message.max.bytes": "8"}))
    assert await broker.stored() == {"message.max.bytes": "8"}
    await store.close()
