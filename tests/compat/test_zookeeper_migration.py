"""zookeeper-security-migration of Apache Kafka 3.9.1 on two live brokers of gregor: nodes are closed, and open again.

Leaders and in-sync replicas change in both states: the controller and the leaders write their nodes.
"""

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
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster
from tests.support.kafka import java_command
from tests.support.zookeeper import ZooKeeperProcess, retry

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

MODULE = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="a-secret";'
SECURE_ROOTS = ("admin", "brokers", "cluster", "config", "controller", "controller_epoch", "isr_change_notification")
"""Some of the nodes whose trees the tool changes (ZkData.SecureRootPaths)."""
PARTITIONS = 2
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


class Migrated:
    """Two brokers whose nodes are migrated while they run."""

    def __init__(self, zookeeper: ZooKeeperProcess, folder: Path) -> None:
        settings = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "1"}
        self.cluster = GregorCluster(folder, 2, settings, zookeeper=zookeeper)
        for broker_id, broker in self.cluster.brokers.items():
            broker.file = folder / f"server-{broker_id}.properties"
            rules = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\n"
            broker.file.write_text(f"{JAAS}={MODULE}\n{rules}")

    def work(self, name: str) -> None:
        """Write nodes of each kind, and records."""
        cluster = self.cluster
        tool, admin = Tool(cluster.bootstrap), AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 2)])[name].result(PATIENCE_S)
        tool.run("configs", "--alter", "--user", name, "--add-config", "SCRAM-SHA-256=[password=word]")
        tool.run("acls", "--add", "--allow-principal", f"User:{name}", "--operation", "Read", "--topic", name)
        tool.run("console-producer", "--topic", name, stdin="one\n")
        read = ("--topic", name, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
        assert tool.run("console-consumer", *read) == "one\n"
        cluster.until_isr(name, (0, 1))

    def restart(self, broker_id: int, topic: str) -> None:
        """Restart a broker with zookeeper.set.acl; the other one leads meanwhile, and is alone in sync."""
        cluster, broker = self.cluster, self.cluster.brokers[broker_id]
        assert cluster.stop(broker_id) == 0
        for index in range(PARTITIONS):
            assert cluster.until_led(topic, index, not_by=broker_id) == 1 - broker_id
            cluster.until_isr(topic, (1 - broker_id,), index)
        broker.overrides["zookeeper.set.acl"] = "true"
        cluster.start(broker_id)
        for index in range(PARTITIONS):
            cluster.until_isr(topic, (0, 1), index)


def test_migration_of_live_brokers_there_and_back(
    zookeeper: ZooKeeperProcess, nodes: KazooClient, tmp_path: Path
) -> None:
    migrated = Migrated(zookeeper, tmp_path)
    with migrated.cluster as cluster:
        migrated.work("before")
        assert set(map(tuple, lists_of(nodes).values())) == {tuple(plain(OPEN_ACL_UNSAFE))}
        (warning,) = check_access(read_registered(zookeeper.connect), is_authorized=True)
        assert warning.level is Level.NOTE and "may read /config/users" in warning.text

        migrate(zookeeper, "secure")
        secured = lists_of(nodes)
        closed = {path: acl for path, acl in secured.items() if path.split("/")[1] in SECURE_ROOTS}
        assert {
            "/config/users/before",
            "/brokers/topics/before",
            "/brokers/ids/0",
            "/brokers/ids/1",
            "/controller",
        } <= closed.keys()
        # Each list is the one that gregor gives to a new node.
        assert closed == {path: plain(node_acl(path, set_acl=True)) for path in closed}
        assert secured["/kafka-acl/Topic/before"] == plain(node_acl("/kafka-acl/Topic/before", set_acl=True))
        (closed_to_others,) = check_access(read_registered(zookeeper.connect), is_authorized=True)
        assert closed_to_others.level is Level.OK
        migrated.work("within")
        for broker_id in cluster.brokers:
            migrated.restart(broker_id, "within")
        migrated.work("closed")
        made = {path: acl for path, acl in lists_of(nodes).items() if path.rpartition("/")[2] == "closed"}
        assert {"/config/users/closed", "/brokers/topics/closed", "/kafka-acl/Topic/closed"} <= made.keys()
        assert made == {path: plain(node_acl(path, set_acl=True)) for path in made}

        migrate(zookeeper, "unsecure")
        opened = {path: acl for path, acl in lists_of(nodes).items() if path.split("/")[1] in SECURE_ROOTS}
        assert {path: acl for path, acl in opened.items() if acl != plain(OPEN_ACL_UNSAFE)} == {}
        migrated.work("after")
        migrated.restart(0, "after")
        assert not any("ERROR" in broker.log() for broker in cluster.brokers.values())
