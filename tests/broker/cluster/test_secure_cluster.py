"""Three brokers move from PLAINTEXT to SASL_SSL with SCRAM, and then to rules, by restarts of one broker at a time,
while clients write; a certificate, a password and a rule change meanwhile. Each record is there once."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import MetadataRequest
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sync_client import SyncConnection
from gregor.replication.store import nodes
from tests.support.certificates import Certificates
from tests.support.gregor_cluster import GregorCluster
from tests.support.secure_listeners import SecureListeners
from tests.support.stolen_time import UndisturbedTime

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

TOPIC, PARTITIONS = "t", 3
IDS = (0, 1, 2)
WAIT_S = 120.0
RULE_LIMIT_S = 1.0
"""For a rule until each broker follows it, without the time for which others had the processors."""
PASSWORDS = {name: f"not-for-any-log-{name}" for name in ("broker", "admin", "anna", "bob")}
NEW_PASSWORD = "not-for-any-log-new"
PLAINTEXT_ONLY = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


class Load:
    """Writes numbers to the topic, behind its name, until it is stopped."""

    def __init__(self, name: str, client: dict[str, Any]) -> None:
        self.acknowledged: set[str] = set()
        self.refused: list[KafkaError] = []
        self._name = name
        self.producer = Producer({**client, "enable.idempotence": True})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopped.is_set():
            self.producer.produce(TOPIC, f"{self._name} {number}".encode(), on_delivery=self._delivered)
            self.producer.poll(0.005)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add((message.value() or b"").decode())
        else:
            self.refused.append(error)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.producer.flush(WAIT_S)


def read(client: dict[str, Any], count: int) -> list[str]:
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    found: list[str] = []
    try:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            messages = consumer.consume(min(1000, count - len(found)), 60)
            assert messages, f"{len(found)} of {count} records, and no more in 60 s"
            found += [(one.value() or b"").decode() for one in messages if one.error() is None]
    finally:
        consumer.close()
    return found


class Move:
    """The cluster of a test on its way."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.cluster = GregorCluster(folder, len(IDS), PLAINTEXT_ONLY)
        self.certificates = certificates
        self.secure = SecureListeners(certificates, IDS, PASSWORDS)
        self.loads: list[Load] = []

    def client(self, user: str, password: str | None = None) -> dict[str, Any]:
        return {**self.secure.client(user, password), "log_level": 0}

    @property
    def plain_client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.bootstrap, "log_level": 0}

    def load(self, name: str, client: dict[str, Any]) -> Load:
        self.loads.append(Load(name, client))
        self.until_written(self.loads[-1])
        return self.loads[-1]

    def until_written(self, load: Load) -> None:
        written = len(load.acknowledged)
        self.cluster.until(lambda: len(load.acknowledged) > written, "more records are acknowledged")

    def restart_each(self, settings: Mapping[str, str], *, listeners: str) -> None:
        """Restart one broker after the other with more settings, and wait until it is in sync.

        `listeners` has {plain} for a port and {secure} for a listener.
        """
        for broker_id in IDS:
            broker = self.cluster.brokers[broker_id]
            assert self.cluster.stop(broker_id) == 0
            ports = listeners.format(plain=broker.port, secure=self.secure.address(broker_id))
            broker.overrides |= {**settings, "listeners": ports}
            broker.start(wait_until_ready=False)
            self.cluster.until(lambda broker_id=broker_id: broker_id in self.cluster.registered(), "it is registered")
            for index in range(PARTITIONS):
                self.cluster.until_isr(TOPIC, IDS, index)

    def set_password(self, admin: dict[str, Any], user: str, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        client = AdminClient(admin)
        client.alter_user_scram_credentials([change])[user].result(WAIT_S)

    def is_authenticated(self, client: dict[str, Any]) -> bool:
        try:
            AdminClient(client).list_topics(timeout=3)
        except KafkaException:
            return False
        return True

    def is_refused(self, user: str) -> bool:
        """Whether each broker refuses the user's first password."""
        for broker_id in IDS:
            try:
                self.secure.connect(broker_id, user).close()
            except AuthenticationFailed:
                continue
            return False
        return True

    def present(self, certificate: str) -> None:
        """Let each broker present another certificate, by its dynamic settings."""
        admin = AdminClient(self.client("admin"))
        for broker_id in IDS:
            entry = ConfigEntry(
                "listener.name.secure.ssl.keystore.location", certificate, incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def serial(self, broker_id: int) -> int:
        """Return the serial number of the certificate that a broker presents in a new handshake."""
        with self.secure.connect(broker_id, "admin") as connection:
            return serial_of(connection)

    def add(self, *rules: AclBinding) -> None:
        """Add rules, those about a topic at once: without one of them it is still open to everybody."""
        admin = AdminClient(self.client("admin"))
        for made in admin.create_acls(list(rules)).values():
            made.result(WAIT_S)

    def withdraw(self, rule: AclBinding) -> None:
        wanted = AclBindingFilter(
            rule.restype,
            rule.name,
            rule.resource_pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        admin = AdminClient(self.client("admin"))
        removed = admin.delete_acls([wanted])[wanted].result(WAIT_S)
        assert len(removed) == 1

    def sees_the_topic(self, user: str) -> bool:
        return TOPIC in AdminClient(self.client(user)).list_topics(timeout=WAIT_S).topics


def rule(user: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> AclBinding:
    name = "g" if kind is ResourceType.GROUP else TOPIC
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def change_certificates(move: Move) -> None:
    """Let all brokers present a second certificate by a setting, and a third by a change of its file. The handshakes
    have it; connections of before, one of each broker and those between the brokers, are still served."""
    with ExitStack() as open_connections:
        wires = [open_connections.enter_context(move.secure.connect(broker_id, "admin")) for broker_id in IDS]
        presented = {move.certificates.server.chain[0].serial_number}
        assert {serial_of(wire) for wire in wires} == presented
        for change in ("setting", "file"):
            identity = move.certificates.authority.issue("localhost", move.certificates.HOSTS)
            path = move.certificates.file("next.pem", identity.pem)
            if change == "setting":
                move.present(path)
            for broker_id in IDS:
                move.cluster.until(
                    lambda broker_id=broker_id: move.serial(broker_id) == identity.chain[0].serial_number,  # noqa: B023
                    f"broker {broker_id} presents the certificate of the {change}",
                )
            presented.add(identity.chain[0].serial_number)
            for wire in wires:
                assert wire.exchange(MetadataRequest(topics=[]), 9).cluster_id
        assert len(presented) == 3
        for index in range(PARTITIONS):
            move.cluster.until_isr(TOPIC, IDS, index)


def serial_of(connection: SyncConnection) -> int:
    certificate = cast(ssl.SSLSocket, connection.socket).getpeercert()
    assert certificate
    return int(str(certificate["serialNumber"]), 16)


def change_a_rule(move: Move) -> None:
    """Add a rule and withdraw it; the open connections, one of each broker, see it within a second of the response."""
    pids = [move.cluster.zookeeper.pid, *(move.cluster.brokers[broker_id].pid for broker_id in IDS)]
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    )
    describing = rule("bob", AclOperation.DESCRIBE)

    def seconds_until(wire: SyncConnection, code: int) -> float:
        spent = UndisturbedTime(*pids)
        move.cluster.until(lambda: wire.exchange(request, 9).topics[0].error_code == code, f"the topic has {code}")
        return spent.seconds()

    with ExitStack() as open_connections, ThreadPoolExecutor(len(IDS)) as pool:
        wires = [open_connections.enter_context(move.secure.connect(broker_id, "bob")) for broker_id in IDS]
        codes = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
        for change, (before, after) in ((move.add, codes), (move.withdraw, codes[::-1])):
            for wire in wires:
                seconds_until(wire, before)
            change(describing)
            needed_s = list(pool.map(seconds_until, wires, [after] * len(wires)))
            assert max(needed_s) < RULE_LIMIT_S, needed_s


BOTH = "PLAINTEXT://127.0.0.1:{plain},{secure}"
SECURE = "{secure}"


def test_cluster_changes_to_sasl_ssl_and_to_rules_without_a_pause(tmp_path: Path, certificates: Certificates) -> None:
    move = Move(tmp_path, certificates)
    with move.cluster as cluster:
        cluster.until(lambda: cluster.registered() == set(IDS), "all brokers are registered")
        admin = AdminClient(move.plain_client)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(WAIT_S)
        try:
            steps(move)
        finally:
            for load in move.loads:
                load.stop()
        assert [load.refused for load in move.loads] == [[], []]
        acknowledged = set.union(*(load.acknowledged for load in move.loads))
        assert sorted(read(move.client("anna", NEW_PASSWORD), len(acknowledged))) == sorted(acknowledged)
        for broker_id in IDS:
            registration = nodes.decode_broker(broker_id, cluster.nodes.get(nodes.broker_path(broker_id))[0])
            protocols = {one.name: (one.security_protocol, one.port) for one in registration.endpoints}
            assert protocols == {"SECURE": ("SASL_SSL", move.secure.ports[broker_id])}
        logs = "".join(broker.log() for broker in cluster.brokers.values())
        assert [password for password in (*PASSWORDS.values(), NEW_PASSWORD) if password in logs] == []


def steps(move: Move) -> None:
    """Do the restarts and changes; the loads run on."""
    # The users are made before a broker needs one, over the listener that still serves everybody.
    for user, password in PASSWORDS.items():
        move.set_password(move.plain_client, user, password)
    plain = move.load("plain", move.plain_client)
    move.restart_each(move.secure.settings, listeners=BOTH)
    secure = move.load("secure", move.client("anna"))
    move.restart_each(move.secure.BETWEEN_BROKERS, listeners=BOTH)
    plain.stop()
    move.set_password(move.client("admin"), "anna", NEW_PASSWORD)
    secure.producer.set_sasl_credentials("anna", NEW_PASSWORD)
    move.cluster.until(lambda: move.is_authenticated(move.client("anna", NEW_PASSWORD)), "the new password is accepted")
    move.cluster.until(lambda: move.is_refused("anna"), "the old password is refused")
    move.restart_each({}, listeners=SECURE)
    change_certificates(move)
    rules = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:admin",
        "allow.everyone.if.no.acl.found": "true",  # until there are rules
    }
    move.restart_each(rules, listeners=SECURE)
    assert move.sees_the_topic("bob")
    move.add(
        rule("anna", AclOperation.READ),
        rule("anna", AclOperation.WRITE),
        rule("anna", AclOperation.READ, ResourceType.GROUP),
    )
    move.cluster.until(lambda: not move.sees_the_topic("bob"), "the topic is hidden from bob")
    change_a_rule(move)
    move.until_written(secure)
