"""Metadata, every version: all topics or some, by name or id, creation on first use. After Kafka's KafkaApis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.broker.answers.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from gregor.broker.handlers import k03_metadata
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteTopicsRequest, MetadataRequest, MetadataResponse
from tests.broker.harness import Harness

VERSIONS = range(14)
NAMED = MetadataRequest.MetadataRequestTopic


@pytest.fixture(scope="module")
def known(harness: Harness) -> bytes:
    """The id of a topic "known" with three partitions."""
    return harness.create_topic("known", partitions=3)


@pytest.fixture
def creation_off(harness: Harness) -> Iterator[None]:
    with harness.settings(auto_create_topics_enable="false"):
        yield


def ask(harness: Harness, version: int, *names: str, create: bool = False, **fields: Any) -> MetadataResponse:
    request = MetadataRequest(topics=[NAMED(name=name) for name in names], **fields)
    request.allow_auto_topic_creation = create if version >= 4 else True
    answer: MetadataResponse = harness.ask(request, version)
    return answer


def codes(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_and_the_cluster(harness: Harness, known: bytes, version: int) -> None:
    response = ask(harness, version, "known")
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (0, "localhost", 9092, None)
    if version >= 1:
        assert response.controller_id == 0
    if version >= 2:
        assert response.cluster_id == harness.broker.cluster_id
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "known", False)
    assert topic.topic_id == (known if version >= 10 else bytes(16))
    assert [part.partition_index for part in topic.partitions] == [0, 1, 2]
    for part in topic.partitions:
        assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 0, [0], [0])
        assert part.leader_epoch == (0 if version >= 7 else -1)
        assert part.offline_replicas == []
    assert topic.topic_authorized_operations == NOT_REQUESTED
    assert response.cluster_authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("version", VERSIONS)
def test_null_asks_for_all_and_an_empty_list_for_none(harness: Harness, known: bytes, version: int) -> None:
    names = {topic.name for topic in harness.broker.metadata.topics()}
    assert set(codes(ask(harness, version))) == (names if version == 0 else set())
    if version >= 1:
        response = harness.ask(MetadataRequest(topics=None), version)
        assert {topic.name for topic in response.topics} == names
        assert not any(topic.error_code for topic in response.topics)


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_told_to_those_who_ask(harness: Harness, known: bytes, version: int) -> None:
    cluster = {"include_cluster_authorized_operations": True} if version <= 10 else {}
    response = ask(harness, version, "known", include_topic_authorized_operations=True, **cluster)
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert response.cluster_authorized_operations == (CLUSTER_OPERATIONS if cluster else NOT_REQUESTED)


@pytest.mark.parametrize("version", range(4, 14))
def test_nothing_is_created_unless_the_client_agrees(harness: Harness, known: bytes, version: int) -> None:
    response = ask(harness, version, "known", "not-yet", "not/legal", "")
    assert codes(response) == {
        "known": 0,
        "not-yet": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert harness.broker.metadata.topic("not-yet") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created_on_first_use_and_told_at_once(harness: Harness, topic: str, version: int) -> None:
    response = ask(harness, version, topic, "not/legal", create=True)
    assert codes(response) == {topic: 0, "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [part.leader_id for part in response.topics[0].partitions] == [0] * harness.config["num.partitions"]
    harness.produce(topic, b"x")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_deleted_topic_is_gone_for_the_first_who_asks_and_made_anew(
    harness: Harness, topic: str, version: int
) -> None:
    (before,) = ask(harness, version, topic, create=True).topics
    for _ in range(2):
        harness.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)
        (gone,) = ask(harness, version, topic, create=True).topics
        assert (gone.error_code, gone.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        (again,) = ask(harness, version, topic, create=True).topics
        assert (again.error_code, len(again.partitions)) == (0, len(before.partitions))


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_created_where_the_broker_forbids_it(harness: Harness, creation_off: None, version: int) -> None:
    response = ask(harness, version, "never", "not/legal", create=True)
    assert codes(response) == {
        "never": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_many_clients_create_a_topic_once(harness: Harness, topic: str) -> None:
    request = MetadataRequest(topics=[NAMED(name=topic)])
    asked = [harness.begin(request, 12) for _ in range(5)]
    answers = harness.run(asyncio.gather(*asked))
    assert [answer.topics[0].error_code for answer in answers] == [0] * 5
    assert len({answer.topics[0].topic_id for answer in answers}) == 1


def test_of_many_unknown_topics_some_are_created_each_time(
    harness: Harness, known: bytes, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k03_metadata, "CREATED_AT_ONCE", 3)
    names = [f"{topic}-{number}" for number in range(8)]
    # Illegal names, existing topics and repeated names do not count towards the limit of created topics.
    asked = ["known", "no/topic", names[0], *names]
    for created in (3, 6, 8):
        answer = codes(ask(harness, 9, *asked, create=True))
        assert answer.pop("no/topic") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert answer.pop("known") == 0
        assert list(answer) == names
        assert list(answer.values()) == [0] * created + [ErrorCode.LEADER_NOT_AVAILABLE] * (8 - created)


def test_creations_end_with_the_time_of_the_request(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k03_metadata, "MAX_CREATION_S", 0.0)
    monkeypatch.setattr(k03_metadata, "CREATIONS_IN_PARALLEL", 2)
    names = [f"{topic}-{number}" for number in range(5)]
    answer = codes(ask(harness, 9, *names, create=True))
    assert list(answer.values()) == [0] * 2 + [ErrorCode.LEADER_NOT_AVAILABLE] * 3


def test_a_client_that_leaves_does_not_take_the_topic_along(harness: Harness, topic: str) -> None:
    request = MetadataRequest(topics=[NAMED(name=topic)])
    leaving, staying = harness.begin(request, 12, turns=1), harness.begin(request, 12, turns=1)
    leaving.cancel()
    assert harness.run(staying).topics[0].error_code == 0
    assert leaving.cancelled()


def test_internal_topics_are_marked_and_created(harness: Harness) -> None:
    response = ask(harness, 12, "__consumer_offsets", "__transaction_state", create=True)
    found = {topic.name: topic for topic in response.topics}
    assert all(topic.is_internal for topic in found.values())
    assert len(found["__consumer_offsets"].partitions) == 2
    assert [topic.error_code for topic in response.topics] == [0, 0]
    overrides = harness.broker.topic_configs.overrides("__consumer_offsets")
    assert (overrides["cleanup.policy"], overrides["segment.bytes"]) == ("compact", "104857600")


@pytest.mark.parametrize("version", [12, 13])
def test_by_id(harness: Harness, known: bytes, version: int) -> None:
    absent = b"\x07" * 16
    response = harness.ask(MetadataRequest(topics=[NAMED(name=None, topic_id=one) for one in (known, absent)]), version)
    found = {topic.topic_id: topic for topic in response.topics}
    assert (found[known].name, found[known].error_code, len(found[known].partitions)) == ("known", 0, 3)
    assert (found[absent].name, found[absent].error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [12, 13])
def test_names_are_ignored_beside_an_id(harness: Harness, known: bytes, version: int) -> None:
    absent = b"\x07" * 16
    wanted = [NAMED(name="not-created"), NAMED(name=None, topic_id=known), NAMED(name="other", topic_id=absent)]
    response = harness.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), version)
    assert codes(response) == {"known": 0, None: ErrorCode.UNKNOWN_TOPIC_ID}
    assert harness.broker.metadata.topic("not-created") is None


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_have_ids_in_their_form_only(harness: Harness, known: bytes, version: int) -> None:
    for wanted in (NAMED(name=None, topic_id=known), NAMED(name=None), NAMED(name="known", topic_id=known)):
        response = harness.ask(MetadataRequest(topics=[wanted]), version)
        assert codes(response) == {wanted.name or "": ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_whose_leader_is_gone(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    state = harness.broker.metadata.topic(topic)
    assert state is not None
    state.partitions[0] = state.partitions[0]._replace(leader=5, replicas=[5, 0], isr=[5])
    (part,) = ask(harness, version, topic).topics[0].partitions
    assert (part.error_code, part.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert part.offline_replicas == ([5] if version >= 5 else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_that_is_gone(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    state = harness.broker.metadata.topic(topic)
    assert state is not None
    state.partitions[0] = state.partitions[0]._replace(leader=0, replicas=[5, 0], isr=[0, 5])
    (part,) = ask(harness, version, topic).topics[0].partitions
    if version:
        assert (part.error_code, part.leader_id) == (ErrorCode.NONE, 0)
        assert (part.replica_nodes, part.isr_nodes) == ([5, 0], [0, 5])
    else:
        assert (part.error_code, part.leader_id) == (ErrorCode.REPLICA_NOT_AVAILABLE, 0)
        assert (part.replica_nodes, part.isr_nodes) == ([0], [0])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_of_a_listener_that_the_leader_lacks(harness: Harness, known: bytes, version: int) -> None:
    harness.connection.listener = "INTERNAL"
    try:
        response = ask(harness, version, "known")
    finally:
        harness.connection.listener = "PLAINTEXT"
    expected = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert {(part.error_code, part.leader_id) for part in response.topics[0].partitions} == {(expected, -1)}
    assert response.brokers == []


def test_a_replica_on_a_failed_disk_is_offline_though_its_broker_lives(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    state = harness.broker.metadata.topic(topic)
    assert state is not None
    state.partitions[0] = state.partitions[0]._replace(leader=-1, offline_replicas=[0])
    (part,) = ask(harness, 12, topic).topics[0].partitions
    assert (part.error_code, part.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, [0])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_named_twice_is_answered_once(harness: Harness, known: bytes, version: int) -> None:
    response = ask(harness, version, "known", "known")
    assert [topic.name for topic in response.topics].count("known") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_many_partitions_are_answered_as_few_are(
    harness: Harness, known: bytes, creation_off: None, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers() -> list[MetadataResponse]:
        everything = harness.ask(MetadataRequest(topics=None if version else []), version)
        return [everything, ask(harness, version, "known", "unknown"), ask(harness, version, "known")]

    few = answers()
    monkeypatch.setattr("gregor.broker.handlers.k03_metadata.MANY_PARTITIONS", 0)
    assert answers() == few
    assert answers() == few
