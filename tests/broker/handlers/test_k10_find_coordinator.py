"""FindCoordinator, every version: the coordinators of groups and of transactional ids."""

from __future__ import annotations

import pytest

from gregor.broker.cluster.auto_topics import TopicCreator
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest
from tests.broker.harness import Harness, running

VERSIONS = range(7)
GROUP, TRANSACTION, SHARE = range(3)

Found = tuple[ErrorCode, int, str, int]
HERE: Found = (ErrorCode.NONE, 0, "localhost", 9092)


def nowhere(error: ErrorCode) -> Found:
    return error, -1, "", -1


def find(harness: Harness, version: int, *keys: str, kind: int = GROUP) -> dict[str, Found]:
    request = (
        FindCoordinatorRequest(coordinator_keys=list(keys)) if version >= 4 else FindCoordinatorRequest(key=keys[0])
    )
    if version >= 1:
        request.key_type = kind
    response: FindCoordinatorResponse = harness.ask(request, version)
    if version < 4:
        return {keys[0]: (ErrorCode(response.error_code), response.node_id, response.host, response.port)}
    return {one.key: (ErrorCode(one.error_code), one.node_id, one.host, one.port) for one in response.coordinators}


@pytest.mark.parametrize("version", VERSIONS)
def test_groups(harness: Harness, version: int) -> None:
    assert find(harness, version, "g") == {"g": HERE}
    assert find(harness, version, "") == {"": HERE}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_message_of_a_success_is_that_of_apache_kafka(harness: Harness, version: int) -> None:
    many = version >= 4
    request = FindCoordinatorRequest(coordinator_keys=["g"]) if many else FindCoordinatorRequest(key="g")
    response = harness.ask(request, version)
    found = response.coordinators[0] if many else response
    assert (found.error_code, found.error_message) == (0, "NONE" if 1 <= version < 4 else "")


def test_asking_makes_the_topic_and_its_coordinators_are_ready(harness: Harness) -> None:
    find(harness, 0, "g")
    response = harness.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")]), 9)
    assert [part.leader_id for part in response.topics[0].partitions] == [0, 0]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_many_keys(harness: Harness, version: int) -> None:
    names = [f"g{number}" for number in range(20)]
    assert find(harness, version, *names) == dict.fromkeys(names, HERE)
    assert find(harness, version) == {}


@pytest.mark.parametrize("version", range(1, 7))
def test_transactional_ids(harness: Harness, version: int) -> None:
    assert find(harness, version, "t", kind=TRANSACTION) == {"t": HERE}


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("kind", [SHARE, 9, -1])
def test_other_coordinators(harness: Harness, version: int, kind: int) -> None:
    assert find(harness, version, "x", kind=kind) == {"x": nowhere(ErrorCode.INVALID_REQUEST)}


def test_clients_come_back_when_the_topic_cannot_be_made(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"offsets_topic_num_partitions": "20000"}
    with running(tmp_path_factory.mktemp("node"), **settings) as harness:
        for version in VERSIONS:
            assert find(harness, version, "g") == {"g": nowhere(ErrorCode.COORDINATOR_NOT_AVAILABLE)}
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE.retriable


def test_creation_that_fails_is_tried_once_for_all_keys(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[str] = []

    async def create(_self: TopicCreator, name: str) -> None:
        created.append(name)
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no controller")

    monkeypatch.setattr(TopicCreator, "create", create)
    with running(tmp_path_factory.mktemp("node")) as harness:
        keys = [f"id-{number}" for number in range(5)]
        assert find(harness, 4, *keys, kind=TRANSACTION) == dict.fromkeys(
            keys, nowhere(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
    assert created == ["__transaction_state"]


def test_a_client_of_a_listener_that_the_broker_lacks(harness: Harness) -> None:
    find(harness, 0, "g")
    harness.connection.listener = "INTERNAL"
    try:
        assert find(harness, 6, "g") == {"g": nowhere(ErrorCode.COORDINATOR_NOT_AVAILABLE)}
    finally:
        harness.connection.listener = "PLAINTEXT"
