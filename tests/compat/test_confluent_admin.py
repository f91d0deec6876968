"""confluent-kafka (librdkafka): administration of topics and configs."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.confluent import NewTopicFactory, Unique, code_of, described_topics, produce
from tests.compat.records import WAIT_S, assorted, until

pytestmark = [pytest.mark.compat, pytest.mark.slow]


def test_topics_are_created_described_grown_and_deleted(admin: AdminClient, unique: Unique) -> None:
    topic = unique("admin")
    new = NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})
    assert code_of(admin.create_topics([new], validate_only=True)[topic]) is None
    assert topic not in admin.list_topics(timeout=WAIT_S).topics
    assert code_of(admin.create_topics([new])[topic]) is None
    [described] = described_topics(admin, [topic])
    assert described.name == topic and not described.is_internal
    assert [entry.id for entry in described.partitions] == [0, 1]
    [node] = described.partitions[0].replicas
    assert described.partitions[0].leader.id == node.id == described.partitions[0].isr[0].id
    assert f"127.0.0.1:{node.port}" == f"{node.host}:{node.port}"
    assert code_of(admin.create_topics([new])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code_of(admin.create_partitions([NewPartitions(topic, 5)])[topic]) is None
    assert len(described_topics(admin, [topic])[0].partitions) == 5
    assert code_of(admin.create_partitions([NewPartitions(topic, 5)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.delete_topics([topic])[topic]) is None
    assert described_topics(admin, [topic])[0].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert code_of(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    # The name is free again, and the new topic is another one.
    assert code_of(admin.create_topics([new])[topic]) is None
    found: list[Any] = []

    def described_again() -> bool:
        found[:] = described_topics(admin, [topic])
        return found[0].error is None

    until(described_again, "the new topic in the metadata")
    assert str(found[0].topic_id) != str(described.topic_id)
    assert len(found[0].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("not a name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-replicas", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"retention.mss": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-replica", 1, replica_assignment=[[77]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=["name", "long-name", "replicas", "config-key", "config-value", "assignment"],
)
def test_a_bad_topic_is_refused(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert code_of(admin.create_topics([topic])[topic.topic]) == code
    assert topic.topic not in admin.list_topics(timeout=WAIT_S).topics


def test_topic_configs_change_by_all_four_operations(admin: AdminClient, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def alter(*entries: tuple[str, AlterConfigOpType, str | None]) -> int | None:
        changed = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in entries
            ],
        )
        return code_of(admin.incremental_alter_configs([changed])[resource])

    def current(name: str) -> tuple[str | None, ConfigSource]:
        entry = admin.describe_configs([resource])[resource].result(WAIT_S)[name]
        return entry.value, ConfigSource(entry.source)

    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    append, subtract = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
    on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert current("retention.ms") == ("1000000", on_topic)
    assert current("cleanup.policy") == ("delete", ConfigSource.DEFAULT_CONFIG)
    assert alter(("retention.ms", set_, "2000000"), ("segment.bytes", set_, "1048576")) is None
    assert current("retention.ms") == ("2000000", on_topic)
    assert current("segment.bytes") == ("1048576", on_topic)
    assert alter(("retention.ms", delete, None)) is None
    assert current("retention.ms")[0] == "604800000"
    assert current("segment.bytes") == ("1048576", on_topic), "what was not named stays"
    assert alter(("cleanup.policy", append, "compact")) is None
    assert current("cleanup.policy") == ("delete,compact", on_topic)
    assert alter(("cleanup.policy", subtract, "delete")) is None
    assert current("cleanup.policy") == ("compact", on_topic)
    assert alter(("cleanup.policy", append, "shred")) == KafkaError.INVALID_CONFIG
    assert alter(("retention.ms", append, "1")) == KafkaError.INVALID_CONFIG
    assert alter(("segment.bytes", set_, "-5")) == KafkaError.INVALID_CONFIG
    assert alter(("no.such.key", set_, "1")) == KafkaError.INVALID_CONFIG
    assert current("cleanup.policy") == ("compact", on_topic)


def test_configs_of_the_broker_and_of_missing_topics(admin: AdminClient, unique: Unique) -> None:
    [broker_id] = admin.list_topics(timeout=WAIT_S).brokers
    broker = ConfigResource(ResourceType.BROKER, str(broker_id))
    found = admin.describe_configs([broker])[broker].result(WAIT_S)
    assert found["listeners"].value.startswith("PLAINTEXT://127.0.0.1:")
    assert found["log.dirs"].is_read_only and not found["log.retention.ms"].is_read_only
    assert found["log.retention.hours"].value == "168"
    missing = ConfigResource(ResourceType.TOPIC, unique("missing"))
    assert code_of(admin.describe_configs([missing])[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_offsets_are_listed(bootstrap: str, new_topic: NewTopicFactory, admin: AdminClient) -> None:
    topic, sent = new_topic(), assorted(9)
    produce(bootstrap, topic, sent[:4])
    # The greatest timestamp is not that of the last record.
    newest = sent[8]._replace(timestamp_ms=sent[8].timestamp_ms + 1000)
    produce(bootstrap, topic, [newest])
    produce(bootstrap, topic, sent[4:8])
    partition = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        asked = admin.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        result = asked[partition].result(WAIT_S)
        return result.offset, result.timestamp

    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 9
    assert listed(OffsetSpec.max_timestamp()) == (4, newest.timestamp_ms)
    assert listed(OffsetSpec.for_timestamp(sent[2].timestamp_ms)) == (2, sent[2].timestamp_ms)
    assert listed(OffsetSpec.for_timestamp(sent[3].timestamp_ms + 1)) == (4, newest.timestamp_ms)


def test_the_cluster_is_described(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(WAIT_S)
    [node] = cluster.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert cluster.controller.id == node.id
    assert len(cluster.cluster_id) == 22
