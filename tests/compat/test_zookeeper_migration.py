"""zookeeper-security-migration of Apache Kafka 3.9.1 on a live broker of gregor: nodes are closed, and open again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from gregor.broker.cli.doctor.checks import Level
from gregor.broker.cli.doctor.zookeeper import check_access, read_registered
from gregor.config.security.zookeeper import JAAS
from gregor.replication.store.zookeeper_connection import node_acl
from tests.broker.cli.tool import Tool
from tests.support.gregor_cluster import PATIENCE_S, until
from tests.support.kafka import java_command
from tests.support.processes import BrokerProcess
from tests.support.zookeeper import ZooKeeperProcess, retry

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

MODULE = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="a-secret";'
SECURE_ROOTS = ("admin", "brokers", "cluster", "config", "controller", "controller_epoch", "isr_change_notification")
"""Some of the nodes whose trees the tool changes (ZkData.SecureRootPaths)."""
Acl = list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    (folder / "server.jaas").write_text(f'Server {{ {MODULE.partition(" ")[0]} required user_kafka="a-secret"; }};\n')
    server = ZooKeeperProcess(folder)
    server.ensemble = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    server.jvm_flags = f"-Djava.security.auth.login.config={folder / 'server.jaas'}"
    with server:
        yield server


@pytest.fixture(scope="module")
def nodes(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "a-secret"}
    client = KazooClient(zookeeper.connect, timeout=30, sasl_options=sasl, command_retry=retry())
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


def migrate(zookeeper: ZooKeeperProcess, way: str) -> None:
    jaas = zookeeper.folder / "client.jaas"
    jaas.write_text(f"Client {{ {MODULE} }};\n")
    flags = (f"--zookeeper.acl={way}", f"--zookeeper.connect={zookeeper.connect}")
    command = java_command("kafka.admin.ZkSecurityMigrator", *flags, heap_mb=128, version="3.9.1")
    command.insert(1, f"-Djava.security.auth.login.config={jaas}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr


def plain(acls: list[ACL]) -> Acl:
    """The lists that kazoo and the server have for the creator of a node differ: `auth` stands for the user."""
    return sorted(
        ("sasl", "kafka", acl.perms) if acl.id.scheme == "auth" else (acl.id.scheme, acl.id.id, acl.perms)
        for acl in acls
    )


def lists_of(nodes: KazooClient, path: str = "") -> dict[str, Acl]:
    """The access control lists of all nodes but ZooKeeper's own; a notification may end meanwhile."""
    found: dict[str, Acl] = {}
    try:
        names = nodes.get_children(path or "/")
        if path:
            found[path] = plain(nodes.get_acls(path)[0])
    except NoNodeError:
        return found
    for name in names:
        if path or name != "zookeeper":
            found |= lists_of(nodes, f"{path}/{name}")
    return found


def test_migration_of_a_live_broker_there_and_back(
    zookeeper: ZooKeeperProcess, nodes: KazooClient, tmp_path: Path
) -> None:
    alone = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    broker = BrokerProcess(tmp_path, {"zookeeper.connect": zookeeper.connect, "broker.id": "0", **alone})
    broker.file = tmp_path / "server.properties"
    broker.file.write_text(f"{JAAS}={MODULE}\nauthorizer.class.name=kafka.security.authorizer.AclAuthorizer\n")
    with broker.file.open("a") as file:
        file.write("super.users=User:ANONYMOUS\n")
    with broker:
        tool = Tool(broker.bootstrap)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def work(name: str) -> None:
            """Write nodes of each kind, and records."""
            admin.create_topics([NewTopic(name, 2, 1)])[name].result(PATIENCE_S)
            tool.run("configs", "--alter", "--user", name, "--add-config", "SCRAM-SHA-256=[password=word]")
            tool.run("acls", "--add", "--allow-principal", f"User:{name}", "--operation", "Read", "--topic", name)
            tool.run("console-producer", "--topic", name, stdin="one\n")
            read = ("--topic", name, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
            assert tool.run("console-consumer", *read) == "one\n"

        work("before")
        assert set(map(tuple, lists_of(nodes).values())) == {tuple(plain(OPEN_ACL_UNSAFE))}
        (warning,) = check_access(read_registered(zookeeper.connect), is_authorized=True)
        assert warning.level is Level.NOTE and "may read /config/users" in warning.text

        migrate(zookeeper, "secure")
        secured = lists_of(nodes)
        closed = {path: acl for path, acl in secured.items() if path.split("/")[1] in SECURE_ROOTS}
        assert {"/config/users/before", "/brokers/topics/before", "/brokers/ids/0", "/controller"} <= closed.keys()
        # Each list is the one that gregor gives to a new node.
        assert closed == {path: plain(node_acl(path, set_acl=True)) for path in closed}
        assert secured["/kafka-acl/Topic/before"] == plain(node_acl("/kafka-acl/Topic/before", set_acl=True))
        (closed_to_others,) = check_access(read_registered(zookeeper.connect), is_authorized=True)
        assert closed_to_others.level is Level.OK
        work("within")
        assert broker.stop() == 0
        with broker.file.open("a") as file:
            file.write("zookeeper.set.acl=true\n")
        broker.start()
        until(lambda: "before" in admin.list_topics(timeout=PATIENCE_S).topics, "the broker serves")
        work("closed")
        made = {path: acl for path, acl in lists_of(nodes).items() if path.rpartition("/")[2] == "closed"}
        assert {"/config/users/closed", "/brokers/topics/closed", "/kafka-acl/Topic/closed"} <= made.keys()
        assert made == {path: plain(node_acl(path, set_acl=True)) for path in made}

        migrate(zookeeper, "unsecure")
        opened = {path: acl for path, acl in lists_of(nodes).items() if path.split("/")[1] in SECURE_ROOTS}
        assert {path: acl for path, acl in opened.items() if acl != plain(OPEN_ACL_UNSAFE)} == {}
        work("after")
        assert "ERROR" not in broker.log()
