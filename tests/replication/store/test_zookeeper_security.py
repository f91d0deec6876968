"""A real ZooKeeper that knows users: brokers authenticate, and their nodes are closed to others (Kafka's ZkData)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from gregor.config.security.settings import Secret
from gregor.config.security.zookeeper import ZooKeeperSecurity
from gregor.replication.store.metadata_store import StoreFailed
from gregor.replication.store.zookeeper import Settings, ZooKeeperStore
from gregor.replication.store.zookeeper_connection import node_acl
from tests.support.zookeeper import ZooKeeperProcess

TIMEOUT_MS = 30_000


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/brokers/ids/1", CREATOR_ALL_ACL + READ_ACL_UNSAFE),
        ("/config/topics/t", CREATOR_ALL_ACL + READ_ACL_UNSAFE),
        ("/config/users", CREATOR_ALL_ACL),
        ("/config/users/anna", CREATOR_ALL_ACL),
        ("/config/brokers/1", CREATOR_ALL_ACL),
        ("/delegation_token/tokens/x", CREATOR_ALL_ACL),
        ("/consumers", OPEN_ACL_UNSAFE),
        ("/consumers/g", CREATOR_ALL_ACL + READ_ACL_UNSAFE),
    ],
)
def test_acl_of_a_new_node_is_that_of_apache_kafka(path: str, acl: list[ACL]) -> None:
    assert node_acl(path, set_acl=True) == acl
    assert node_acl(path, set_acl=False) == OPEN_ACL_UNSAFE


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    jaas = folder / "server.jaas"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="a-secret"; };\n')
    server = ZooKeeperProcess(folder)
    server.ensemble = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    server.jvm_flags = f"-Djava.security.auth.login.config={jaas}"
    with server:
        yield server


def store_of(zookeeper: ZooKeeperProcess, password: str) -> ZooKeeperStore:
    security = ZooKeeperSecurity(user="kafka", password=Secret(password), set_acl=True)
    return ZooKeeperStore(Settings(zookeeper.connect, TIMEOUT_MS, TIMEOUT_MS, security=security))


@pytest.mark.jvm
def test_nodes_of_an_authenticated_broker_are_closed_to_others(zookeeper: ZooKeeperProcess) -> None:
    async def work() -> None:
        store = store_of(zookeeper, "a-secret")
        await store.start()
        try:
            await store.create("/config/users/anna", b"hers", make_parents=True)
            await store.create("/config/topics/t", b"all", make_parents=True)
            await store.set("/config/topics/t", b"changed")
            assert (await store.get("/config/users/anna") or (b"",))[0] == b"hers"
        finally:
            await store.close()

    asyncio.run(work())
    stranger = KazooClient(zookeeper.connect, timeout=30)
    stranger.start(timeout=60)
    try:
        acls, _ = stranger.get_acls("/config/topics/t")
        assert sorted((acl.id.scheme, acl.id.id, acl.perms) for acl in acls) == [
            ("sasl", "kafka", 31),
            ("world", "anyone", 1),
        ]
        assert stranger.get("/config/topics/t")[0] == b"changed"
        for refused in (
            lambda: stranger.set("/config/topics/t", b"mine"),
            lambda: stranger.get("/config/users/anna"),
            lambda: stranger.get_children("/config/users"),
        ):
            with pytest.raises(NoAuthError):
                refused()
    finally:
        stranger.stop()
        stranger.close()


@pytest.mark.jvm
def test_wrong_password_is_an_error_of_the_start(zookeeper: ZooKeeperProcess) -> None:
    async def work() -> None:
        store = store_of(zookeeper, "another")
        try:
            with pytest.raises(StoreFailed):
                await store.start()
                await store.exists("/config")
        finally:
            await store.close()

    asyncio.run(work())
