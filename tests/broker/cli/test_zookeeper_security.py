"""A real ZooKeeper with TLS and users, run by `gregor zookeeper FILE`: the store, the session watcher, `gregor doctor`
and the commands with --zookeeper reach it with a broker's settings, and others do not."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker import __main__ as gregor
from gregor.broker.cli.doctor.zookeeper import Reach, check_zookeeper, read_registered
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.zookeeper_option import brokers_of
from gregor.broker.cli.zookeeper_security import security_of_file, security_of_texts
from gregor.broker.session_watcher.session_end import Session, close_session
from gregor.broker.session_watcher.tls import wrap_of
from gregor.config.security.zookeeper import JAAS, ZooKeeperSecurity
from gregor.replication.store.metadata_store import StoreFailed
from gregor.replication.store.zookeeper import Settings, ZooKeeperStore
from tests.broker.cli.findings import wrong
from tests.compat.records import until
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess, free_port
from tests.support.zookeeper import SecuredZooKeeper

TIMEOUT_MS = 30_000
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
USER = {JAAS: f'{MODULE} required username="kafka" password="a-secret";'}


def test_file_has_the_settings_of_kafkas_tools_and_other_keys_are_ignored(
    tmp_path: Path, certificates: Certificates
) -> None:
    file = tmp_path / "zookeeper.properties"
    file.write_text(
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.type=PEM\nzookeeper.connect=a:1\nother=1\n"
        f"zookeeper.ssl.truststore.location={certificates.ca_file}\n"
    )
    security = security_of_file(str(file))
    assert security.tls is not None and security.tls.trust_store.location == certificates.ca_file
    assert security_of_file(None) == security_of_texts({"zookeeper.connect": "a:1"}) == ZooKeeperSecurity()
    file.write_text("zookeeper.ssl.client.enable=perhaps\n")
    with pytest.raises(CommandError, match=r"zookeeper.properties: zookeeper.ssl.client.enable"):
        security_of_file(str(file))
    assert gregor.main(["topics", "--list", "--zk-tls-config-file", str(file)]) == 1
    assert gregor.main(["topics", "--list", "--zookeeper", "127.0.0.1:1", "--zk-tls-config-file", str(file)]) == 1


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredZooKeeper]:
    with SecuredZooKeeper(tmp_path_factory.mktemp("zookeeper"), certificates, {"kafka": "a-secret"}) as server:
        yield server


@pytest.fixture(scope="module")
def security(zookeeper: SecuredZooKeeper) -> ZooKeeperSecurity:
    return security_of_texts({**zookeeper.client_settings, **USER})


def settings_of(zookeeper: SecuredZooKeeper, security: ZooKeeperSecurity, timeout_ms: int = TIMEOUT_MS) -> Settings:
    return Settings(zookeeper.connect, TIMEOUT_MS, timeout_ms, security=security)


@pytest.mark.jvm
@pytest.mark.slow
def test_store_reads_and_writes_over_tls_and_a_session_is_closed_from_outside(
    zookeeper: SecuredZooKeeper, security: ZooKeeperSecurity
) -> None:
    base = f"/{uuid.uuid4().hex}"

    async def work() -> None:
        sessions: list[Session] = []
        store, observer = (ZooKeeperStore(settings_of(zookeeper, security)) for _ in range(2))
        store.on_new_session.append(
            lambda number, password, servers: sessions.append(Session(number, password, TIMEOUT_MS, tuple(servers)))
        )
        await asyncio.gather(store.start(), observer.start())
        try:
            await store.create(f"{base}/large", b"x" * 500_000, make_parents=True)
            await store.create(f"{base}/alive", b"", ephemeral=True)
            found = await observer.get_many([f"{base}/large", f"{base}/alive"])
            assert [len(node[0]) for node in found if node is not None] == [500_000, 0]
            gone = asyncio.Event()
            await observer.exists(f"{base}/alive", lambda event: gone.set())
            assert await asyncio.to_thread(close_session, sessions[0], 30.0, wrap_of(security))
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await gone.wait()
            assert await observer.exists(f"{base}/alive") is None
        finally:
            await asyncio.gather(store.close(), observer.close())

    asyncio.run(work())


@pytest.mark.jvm
@pytest.mark.slow
def test_client_without_a_certificate_is_refused(zookeeper: SecuredZooKeeper) -> None:
    without = {key: text for key, text in zookeeper.client_settings.items() if ".keystore." not in key}

    async def work() -> None:
        store = ZooKeeperStore(settings_of(zookeeper, security_of_texts(without), 1500))
        with pytest.raises(StoreFailed, match="no ZooKeeper answered"):
            await store.start()

    asyncio.run(work())
    (finding,) = wrong(check_zookeeper(zookeeper.connect, Reach.of(security_of_texts(without))))
    assert "ssl.clientAuth" in finding.remedy
    (finding,) = wrong(check_zookeeper(zookeeper.connect))
    assert finding.text.endswith("has TLS, and these settings connect in clear text")


@pytest.mark.jvm
@pytest.mark.very_slow
def test_broker_commands_and_doctor_with_a_secured_zookeeper(
    zookeeper: SecuredZooKeeper, tmp_path: Path, certificates: Certificates, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    own = {**zookeeper.client_settings, **USER}
    file = tmp_path / "zookeeper.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in own.items()))
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificates.ca_file}\n"
    )
    tls_port = free_port()
    broker = BrokerProcess(tmp_path / "broker")
    broker.overrides["listeners"] += f",SSL://127.0.0.1:{tls_port}"
    secured = {**own, "broker.id": "0", "zookeeper.connect": connect, "zookeeper.set.acl": "true"}
    secured |= certificates.broker_settings
    broker.file = tmp_path / "server.properties"
    broker.file.write_text("".join(f"{key}={text}\n" for key, text in secured.items()))
    reached = ("--zookeeper", connect, "--zk-tls-config-file", str(file))
    with broker:
        assert gregor.main(["topics", *reached, "--command-config", str(client), "--create", "--topic", "made"]) == 0
        found = asyncio.run(brokers_of(connect, security=security_of_file(str(file)), protocol="SSL"))
        assert found == f"127.0.0.1:{tls_port}"
        with pytest.raises(CommandError, match="Set security.protocol of --command-config to PLAINTEXT or SSL"):
            asyncio.run(brokers_of(connect, security=security_of_file(str(file)), protocol="SASL_SSL"))
        capsys.readouterr()
        at = ("--bootstrap-server", found, "--command-config", str(client))
        gregor.main(["doctor", *at])
        assert f"note  the brokers' ZooKeeper ({connect}) has TLS and is not checked" in capsys.readouterr().out
        for way in (reached, ("--config", str(broker.file))):
            gregor.main(["doctor", *at, *way])
            lines = capsys.readouterr().out.splitlines()
            assert "ok    ZooKeeper accepts a session; brokers [0] are registered" in lines
            nodes = [line for line in lines if "ZooKeeper" in line]
            assert "ok    the nodes of the brokers in ZooKeeper are closed to others" in nodes
        broker.kill()
        until(lambda: "without closing its ZooKeeper session" in broker.log(), "the watcher of the dead broker")
        assert "the session is closed, and the controller elects" in broker.log()
    assert read_registered(connect, security_of_file(str(file))).broker_ids == frozenset()
