"""Apache Kafka 3.9.1 and two gregor brokers move from PLAINTEXT to SASL_SSL with SCRAM, and then to rules, by restarts
of one broker at a time under load."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import MetadataRequest, ProduceRequest
from gregor.protocol.records.batch import build_batch
from tests.compat.cluster_load import WAIT_S, NumberedLoad, Reader, admin, create, wait_in_sync
from tests.compat.records import until
from tests.support.certificates import Certificates
from tests.support.mixed_cluster import GREGOR, KAFKA, MixedCluster
from tests.support.secure_listeners import SecureListeners

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOPIC, PARTITIONS, GROUP = "load", 3, "group"
ASSIGNMENT = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
IDS = range(3)
OF_KAFKA, OF_GREGOR = 0, 1
PASSWORDS = {name: f"not-for-any-log-{name}" for name in ("broker", "admin", "anna", "bob")}
"""`anna` is the user of the load, `bob` has no rule."""
RULES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:admin",
    "allow.everyone.if.no.acl.found": "true",  # until there are rules
}


def plain(cluster: MixedCluster, broker_id: int) -> str:
    return f"PLAINTEXT://{cluster.brokers[broker_id].bootstrap}"


def make_users(cluster: MixedCluster) -> None:
    """Over the listener that still serves everybody, before a broker needs one of them."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changes = [UserScramCredentialUpsertion(user, info, password.encode()) for user, password in PASSWORDS.items()]
    client = admin(cluster)
    for made in client.alter_user_scram_credentials(changes).values():
        made.result(WAIT_S)


def restart_each(
    cluster: MixedCluster, load: NumberedLoad, settings: Callable[[int], dict[str, str]], *, last: int
) -> None:
    """Restart one broker after the other, the controller last: each kind controls brokers that have changed already,
    before it has itself."""
    cluster.force_controller(last)
    for broker_id in sorted(IDS, key=lambda one: one == last):
        cluster.restart(broker_id, settings(broker_id))
        wait_in_sync(cluster, TOPIC, PARTITIONS)
        wait_in_sync(cluster, "__consumer_offsets", 3)
        load.goes_on()


def add_rules(settings: dict[str, str]) -> None:
    """Those about a resource at once: without one of them it is still open to everybody."""
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:anna", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in (
            (ResourceType.TOPIC, TOPIC, AclOperation.READ),
            (ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
            (ResourceType.GROUP, GROUP, AclOperation.READ),
        )
    ]
    client = AdminClient(settings)
    for made in client.create_acls(rules).values():
        made.result(WAIT_S)


def served(secured: SecureListeners, user: str) -> list[bool]:
    """Return by broker whether it shows the topic to the user."""
    shown = []
    for broker_id in IDS:
        with secured.connect(broker_id, user) as connection:
            topics = connection.exchange(MetadataRequest(topics=None), 9).topics
        shown.append(TOPIC in {one.name for one in topics})
    return shown


def produce_errors(secured: SecureListeners, user: str) -> list[int]:
    """Return by broker its response to a record of the user."""
    data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([(None, b"not allowed")], timestamp_ms=1))
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    codes = []
    for broker_id in IDS:
        with secured.connect(broker_id, user) as connection:
            answer = connection.exchange(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    return codes


def committed(client: dict[str, str]) -> list[int]:
    """Return the offsets of the group."""
    consumer = Consumer({**client, "group.id": GROUP})
    try:
        partitions = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], WAIT_S)
        return [one.offset for one in partitions]
    finally:
        consumer.close()


@pytest.mark.by_day(2, group="mixed clusters")
def test_mixed_cluster_changes_to_sasl_ssl_and_to_rules(tmp_path: pathlib.Path, certificates: Certificates) -> None:
    secured = SecureListeners(certificates, IDS, PASSWORDS)
    client = secured.client("anna")
    with MixedCluster(tmp_path, [KAFKA, GREGOR, GREGOR]) as cluster:
        cluster.start()
        create(cluster, TOPIC, ASSIGNMENT)
        make_users(cluster)
        with NumberedLoad(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            with Reader(cluster.bootstrap, GROUP, load) as before:
                load.goes_on()
                restart_each(
                    cluster,
                    load,
                    lambda one: {**secured.settings, "listeners": f"{plain(cluster, one)},{secured.address(one)}"},
                    last=OF_KAFKA,
                )
            left_at = committed(client)
            load.restart(client)
            with Reader(secured.bootstrap, GROUP, load, client=client) as after:
                restart_each(cluster, load, lambda one: {**secured.BETWEEN_BROKERS}, last=OF_GREGOR)
                restart_each(cluster, load, lambda one: {"listeners": secured.address(one)}, last=OF_KAFKA)
                restart_each(cluster, load, lambda one: RULES, last=OF_GREGOR)
                assert served(secured, "bob") == [True] * 3
                add_rules(secured.client("admin"))
                until(lambda: served(secured, "bob") == [False] * 3, "the topic is hidden from bob", WAIT_S)
                assert produce_errors(secured, "bob") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
                assert served(secured, "anna") == [True] * 3
                load.goes_on()
                load.finish()
                after.finish(before)
                stored = load.check_stored(secured.bootstrap, secured.client("admin"))
                ends = [len(records) for records in stored]
                until(lambda: committed(client) == ends, f"the group commits {ends}", WAIT_S)
        for records, offset, seen in zip(stored, left_at, after.seen, strict=True):
            assert dict(records)[offset] == min(seen), "the second member continues where the first one left"
        for broker_id in IDS:
            assert cluster.node(f"/brokers/ids/{broker_id}")["endpoints"] == [secured.address(broker_id)]
        logs = "".join(broker.log() for broker in cluster.brokers)
        assert [user for user, password in PASSWORDS.items() if password in logs] == []
