"""MirrorMaker 4.3.1 copies topics, their settings and the offsets of groups from one broker to another, and both ways
between Apache Kafka 3.9.1 and three brokers of gregor, exactly once."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.confluent import commit_offsets, read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Certificates
from tests.support.connect import ConnectProcess
from tests.support.gregor_cluster import REPLICATED, GregorCluster
from tests.support.processes import BrokerProcess, free_port
from tests.support.secured_broker import SecuredBroker, login

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(1)]

PATIENCE_S = 240
PARTITIONS = 2
RECORDS = 100
RETENTION_MS = "7654321"
# Settings of the worker: MirrorMaker accepts them only with the name of the target.
WORKER = {
    "offset.flush.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
    # After five seconds, the defaults, a task that ends slowly is given up, and its records are copied once more.
    "task.shutdown.graceful.timeout.ms": "60000",
    "offset.flush.timeout.ms": "60000",
}

Record = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("target")) as running:
        yield running


def mirror(
    folder: pathlib.Path, source: str, target: str, topic: str, group: str, overrides: Mapping[str, str] | None = None
) -> ConnectProcess:
    properties = {
        "clusters": "one,two",
        "one.bootstrap.servers": source,
        "two.bootstrap.servers": target,
        "one->two.enabled": "true",
        "one->two.topics": topic,
        "one->two.groups": group,
        "two->one.enabled": "false",
        "two->one.emit.heartbeats.enabled": "false",
        "tasks.max": "1",
        "offset.lag.max": "0",
        "sync.group.offsets.enabled": "true",
        **{f"{work}.interval.seconds": "1" for work in ("sync.group.offsets", "emit.checkpoints", "emit.heartbeats")},
        **{f"refresh.{names}.interval.seconds": "2" for names in ("topics", "groups")},
        "sync.topic.configs.interval.seconds": "2",
        # The default of the brokers.
        **{f"{names}.replication.factor": "-1" for names in ("checkpoints.topic", "heartbeats.topic")},
        **{f"{kind}.storage.replication.factor": "-1" for kind in ("config", "offset", "status")},
        "offset-syncs.topic.replication.factor": "-1",
        "replication.factor": "-1",
        "offset.storage.partitions": "3",
        "status.storage.partitions": "2",
        **{f"{name}.{key}": value for name in ("one", "two") for key, value in WORKER.items()},
        **(overrides or {}),
    }
    return ConnectProcess(folder, "mirror", "org.apache.kafka.connect.mirror.MirrorMaker", properties)


def produce(bootstrap: str, topic: str, begin: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(begin, begin + RECORDS):
        producer.produce(topic, f"value-{number}", f"key-{number}", partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def commit_ends(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """Commit the ends of the partitions for the group, and return them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        ends = {part.partition: consumer.get_watermark_offsets(part, WAIT_S)[1] for part in parts}
        offsets = [TopicPartition(topic, number, end) for number, end in ends.items()]
        commit_offsets(consumer, offsets)
    finally:
        consumer.close()
    return ends


def committed(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """Return the group's offsets; none while it has no coordinator."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    except KafkaException:
        return {}
    return {part.partition: part.offset for part in answer.topic_partitions if part.topic == topic}


def contents(bootstrap: str, topic: str) -> list[list[Record]]:
    """Return the records of each partition."""
    consumer = reading(bootstrap, **{"isolation.level": "read_committed"})
    try:
        parts = [read_to_end(consumer, topic, 0, number) for number in range(PARTITIONS)]
    except (KafkaException, AssertionError):
        return []
    finally:
        consumer.close()
    return [[(message.key(), message.value()) for message in part] for part in parts]


def written(bootstrap: str, topic: str, count: int) -> list[list[Record]]:
    """Return the records of each partition, once there are so many: a leader that was elected just now may refuse to
    show them, or show fewer."""
    found: list[list[Record]] = []

    def shown() -> bool:
        found[:] = contents(bootstrap, topic)
        return sum(map(len, found)) >= count

    until(shown, f"{count} records in {topic}", PATIENCE_S)
    return found


def ends_of_records(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the offset behind the last committed record of each partition."""
    consumer = reading(bootstrap, **{"isolation.level": "read_committed"})
    try:
        return {number: read_to_end(consumer, topic, 0, number)[-1].offset() + 1 for number in range(PARTITIONS)}  # type: ignore[operator]
    finally:
        consumer.close()


def partitions_of(bootstrap: str, topic: str) -> int:
    metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=WAIT_S)
    return len(metadata.topics[topic].partitions) if topic in metadata.topics else 0


def test_topics_settings_and_offsets_are_copied(
    bootstrap: str, target: BrokerProcess, unique: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    topic, group = unique("orders"), unique("billing")
    copy = f"one.{topic}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": RETENTION_MS})
    admin.create_topics([new])[topic].result(WAIT_S)
    produce(bootstrap, topic, 0)
    with mirror(tmp_path, bootstrap, target.bootstrap, topic, group) as running:

        def until_copied(count: int) -> None:
            expected = written(bootstrap, topic, count)
            until(
                lambda: (
                    partitions_of(target.bootstrap, copy) == PARTITIONS and contents(target.bootstrap, copy) == expected
                ),
                f"the records in {copy}\n{running.log()}",
                PATIENCE_S,
            )

        def until_offsets_are_copied() -> None:
            ends = commit_ends(bootstrap, topic, group)
            until(
                lambda: committed(target.bootstrap, copy, group) == ends,
                f"the offsets {ends} of the group\n{running.log()}",
                PATIENCE_S,
            )

        until_copied(RECORDS)
        resource = ConfigResource(ConfigResource.Type.TOPIC, copy)
        there = AdminClient({"bootstrap.servers": target.bootstrap, "log_level": 0})
        assert there.describe_configs([resource])[resource].result(WAIT_S)["retention.ms"].value == RETENTION_MS
        until_offsets_are_copied()
        produce(bootstrap, topic, RECORDS)
        until_copied(2 * RECORDS)
        until_offsets_are_copied()
        # It continues after a stop where it was: no record is copied twice.
        running.stop()
        produce(bootstrap, topic, 2 * RECORDS)
        running.start()
        until_copied(3 * RECORDS)
        until_offsets_are_copied()


def rules_of(client: Mapping[str, str]) -> set[tuple[str, str, AclOperation]]:
    """Return topic, principal and operation of each rule about a topic, with these settings of librdkafka."""
    admin = AdminClient({**client, "log_level": "0"})
    wanted = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    found = admin.describe_acls(wanted).result(WAIT_S)
    return {(rule.name, rule.principal, rule.operation) for rule in found}


MIRROR_USER = "mirror"
PASSWORDS = {name: f"secret-of-{name}" for name in ("broker", MIRROR_USER)}


def secured_client(broker: SecuredBroker, certificates: Certificates) -> dict[str, str]:
    """Return the settings of librdkafka."""
    return {
        "bootstrap.servers": broker.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca_file,
        "sasl.mechanism": "PLAIN",
        "sasl.username": MIRROR_USER,
        "sasl.password": PASSWORDS[MIRROR_USER],
    }


def secured_cluster(name: str, certificates: Certificates) -> dict[str, str]:
    """Return MirrorMaker's settings of a cluster."""
    entry = login("plain.PlainLoginModule", username=MIRROR_USER, password=PASSWORDS[MIRROR_USER])
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca_file,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": entry,
    }
    return {f"{name}.{key}": text for key, text in settings.items()}


def test_rules_of_readers_are_copied_over_sasl_ssl(tmp_path: pathlib.Path, certificates: Certificates) -> None:
    """`sync.topic.acls.enabled`: those who may read a topic may read its copy, and only MirrorMaker writes to it. The
    records are copied by the same connections, which authenticate at both clusters."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{MIRROR_USER};User:broker",
    }
    overrides = {
        **secured_cluster("one", certificates),
        **secured_cluster("two", certificates),
        "sync.topic.acls.enabled": "true",
        "sync.topic.acls.interval.seconds": "1",
        "emit.checkpoints.enabled": "false",
        "emit.heartbeats.enabled": "false",
    }
    source, target = (
        SecuredBroker(tmp_path / name, certificates, PASSWORDS, settings) for name in ("source", "target")
    )
    with source, target:
        client = secured_client(source, certificates)
        admin = AdminClient({**client, "log_level": "0"})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(WAIT_S)
        rules = [
            AclBinding(
                ResourceType.TOPIC,
                "orders",
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for user, operation in (
                ("anna", AclOperation.READ),
                ("bob", AclOperation.ALL),
                ("carl", AclOperation.WRITE),
            )
        ]
        for made in admin.create_acls(rules).values():
            made.result(WAIT_S)
        producer = Producer({**client, "log_level": "0"})
        producer.produce("orders", "value", partition=0)
        assert producer.flush(WAIT_S) == 0
        addresses = source.address("SASL_SSL"), target.address("SASL_SSL")
        with mirror(tmp_path, *addresses, "orders", "billing", overrides) as running:
            copies = secured_client(target, certificates)
            readers = {("one.orders", f"User:{user}", AclOperation.READ) for user in ("anna", "bob")}
            until(
                lambda: rules_of(copies) == readers,
                f"the rules of the copy\n{running.log()}",
                PATIENCE_S,
            )
            until(lambda: first_value(copies, "one.orders") == b"value", f"the record\n{running.log()}", PATIENCE_S)
        assert [name for name, password in PASSWORDS.items() if password in source.log() + target.log()] == []


def first_value(client: Mapping[str, str], topic: str) -> bytes | None:
    """Return the first record's value in partition 0; None while there is none."""
    consumer = Consumer({**client, "group.id": "reader", "enable.auto.commit": "false", "log_level": "0"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(5)
        return None if message is None or message.error() else message.value()
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    running = ApacheKafka(folder, folder / "data", None, 0, {**settings, "transaction.state.log.num.partitions": "2"})
    yield running
    running.kill()


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path / "cluster", overrides=REPLICATED) as running:
        yield running


def test_both_ways_between_apache_kafka_and_gregor_exactly_once(
    cluster: GregorCluster, kafka: ApacheKafka, unique: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    """One topic from Apache Kafka to gregor, another back, by a process that is killed on the way, while a broker of
    gregor that leads a partition of the copy is killed, too."""
    bootstrap = cluster.bootstrap
    topic, back, group = unique("orders"), unique("replies"), unique("billing")
    for server, name in ((kafka.bootstrap, topic), (bootstrap, back)):
        admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
        admin.create_topics([NewTopic(name, PARTITIONS, -1)])[name].result(WAIT_S)
        produce(server, name, 0)
    overrides = {
        "two->one.enabled": "true",
        "two->one.topics": back,
        "two->one.groups": group,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
        **{f"{name}.exactly.once.source.support": "enabled" for name in ("one", "two")},
    }
    with mirror(tmp_path, kafka.bootstrap, bootstrap, topic, group, overrides) as running:
        ways = (
            (kafka.bootstrap, topic, bootstrap, f"one.{topic}"),
            (bootstrap, back, kafka.bootstrap, f"two.{back}"),
        )

        def until_copied(count: int) -> None:
            for source, name, target, copy in ways:
                expected = written(source, name, count)
                until(
                    lambda target=target, copy=copy, expected=expected: (  # type: ignore[misc]
                        partitions_of(target, copy) == PARTITIONS and contents(target, copy) == expected
                    ),
                    f"the records in {copy}",
                    PATIENCE_S,
                )

        def until_offsets_are_copied() -> None:
            """The group continues behind the last record, which is elsewhere in the copy: there are markers in it."""
            for source, name, _, _ in ways:
                commit_ends(source, name, group)
            for _, _, target, copy in ways:
                expected = ends_of_records(target, copy)
                until(
                    lambda target=target, copy=copy, expected=expected: (  # type: ignore[misc]
                        committed(target, copy, group) == expected
                    ),
                    f"the offsets {expected} of the group in {copy}\n{running.log()}",
                    PATIENCE_S,
                )

        until_copied(RECORDS)
        until_offsets_are_copied()
        for server, name in ((kafka.bootstrap, topic), (bootstrap, back)):
            produce(server, name, RECORDS)
        running.kill()
        running.start()
        leader = cluster.until_led(f"one.{topic}")
        cluster.kill(leader)
        until_copied(2 * RECORDS)
        for server, name in ((kafka.bootstrap, topic), (bootstrap, back)):
            produce(server, name, 2 * RECORDS)
        cluster.start(leader)
        until_copied(3 * RECORDS)
        until_offsets_are_copied()
    # The markers of transactions are between the records.
    for target, copy in ((bootstrap, f"one.{topic}"), (kafka.bootstrap, f"two.{back}")):
        consumer = reading(target)
        parts = [TopicPartition(copy, number) for number in range(PARTITIONS)]
        assert sum(consumer.get_watermark_offsets(part, WAIT_S)[1] for part in parts) > 3 * RECORDS
        consumer.close()
