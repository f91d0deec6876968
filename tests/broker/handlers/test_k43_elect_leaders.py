"""ElectLeaders, every version, on one broker: partitions that it leads need no election, others get no leader."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from tests.broker.harness import Harness

PREFERRED, UNCLEAN = 0, 1
Found = dict[tuple[str, int], ErrorCode]


def elect(
    harness: Harness, version: int, wanted: dict[str, list[int]] | None, kind: int = PREFERRED
) -> tuple[ErrorCode, Found]:
    """The error of the whole answer, and that of each partition."""
    make = ElectLeadersRequest.TopicPartitions
    topics = None if wanted is None else [make(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=30_000)
    if version >= 1:
        request.election_type = kind
    response: ElectLeadersResponse = harness.ask(request, version)
    results = {
        (topic.topic, part.partition_id): ErrorCode(part.error_code)
        for topic in response.replica_election_results
        for part in topic.partition_result
    }
    return ErrorCode(response.error_code), results


@pytest.mark.parametrize("version", range(3))
def test_who_leads_already_needs_no_election(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, partitions=2)
    for kind in (PREFERRED, UNCLEAN)[: 1 + version]:
        error, found = elect(harness, version, {topic: [0, 1, 2], "absent": [0]}, kind)
        assert error == ErrorCode.NONE
        assert found == {
            (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
            (topic, 1): ErrorCode.ELECTION_NOT_NEEDED,
            (topic, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


@pytest.mark.parametrize("version", range(3))
def test_of_all_partitions_only_those_with_news_are_answered(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    assert elect(harness, version, None) == (ErrorCode.NONE, {})


@pytest.mark.parametrize(
    ("kind", "error"),
    [(PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_nobody_can_lead_what_lies_on_a_failed_disk(
    harness: Harness, topic: str, kind: int, error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    controller = harness.node.controller
    assert controller is not None and controller.cluster is not None
    cluster = controller.cluster
    known = cluster.topics[topic]
    state = known.partitions[0].state
    assert state is not None
    partition = known.partitions[0]._replace(state=state._replace(leader=-1))
    topics = {**cluster.topics, topic: known._replace(partitions={0: partition})}
    monkeypatch.setattr(controller, "cluster", cluster._replace(topics=topics, failed=frozenset({(topic, 0, 0)})))
    assert elect(harness, 2, {topic: [0]}, kind) == (ErrorCode.NONE, {(topic, 0): error})
    assert elect(harness, 2, None, kind)[1][topic, 0] == error


@pytest.mark.parametrize("version", (1, 2))
def test_no_such_election(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    error, found = elect(harness, version, {topic: [0]}, kind=7)
    assert error == found[topic, 0] == ErrorCode.INVALID_REQUEST


def test_another_broker_is_the_controller(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic(topic)
    monkeypatch.setattr(harness.node.controller, "cluster", None)
    for version in range(3):
        error, found = elect(harness, version, {topic: [0]})
        assert error == ErrorCode.NONE
        assert found == {(topic, 0): ErrorCode.NOT_CONTROLLER}
