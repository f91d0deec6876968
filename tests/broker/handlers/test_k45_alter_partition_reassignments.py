"""AlterPartitionReassignments on one broker: an assignment that exists is accepted, an impossible one is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from gregor.replication.store.nodes import ReplicaAssignment
from tests.broker.harness import Harness

_Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
_Partition = AlterPartitionReassignmentsRequest.ReassignablePartition

ME = 0


def reassign(
    harness: Harness, version: int, name: str, *wanted: tuple[int, Sequence[int] | None], keep_factor: bool = False
) -> AlterPartitionReassignmentsResponse:
    partitions = [
        _Partition(partition_index=index, replicas=None if ids is None else list(ids)) for index, ids in wanted
    ]
    request = AlterPartitionReassignmentsRequest(topics=[_Topic(name=name, partitions=partitions)])
    if keep_factor:
        request.allow_replication_factor_change = False
    response: AlterPartitionReassignmentsResponse = harness.ask(request, version)
    return response


def codes(response: AlterPartitionReassignmentsResponse) -> list[tuple[str, int, ErrorCode]]:
    assert (response.error_code, response.error_message) == (0, None)
    return [
        (topic.name, part.partition_index, ErrorCode(part.error_code))
        for topic in response.responses
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(2))
def test_replicas_that_stay_where_they_are(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, partitions=2)
    answer = reassign(harness, version, topic, (1, [ME]), (0, [ME]))
    assert codes(answer) == [(topic, 1, ErrorCode.NONE), (topic, 0, ErrorCode.NONE)]
    assert [part.error_message for part in answer.responses[0].partitions] == [None, None]


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("index", "replicas", "error"),
    [
        (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (0, [7], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [ME, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [ME, ME], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (9, [ME], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (9, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, [ME], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refusals(
    harness: Harness, topic: str, version: int, index: int, replicas: list[int] | None, error: ErrorCode
) -> None:
    harness.create_topic(topic, partitions=2)
    answer = reassign(harness, version, topic, (index, replicas), (1, [ME]))
    assert codes(answer) == [(topic, index, error), (topic, 1, ErrorCode.NONE)]
    assert answer.responses[0].partitions[0].error_message


def test_an_absent_topic(harness: Harness) -> None:
    assert codes(reassign(harness, 1, "absent", (0, [ME]))) == [("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_fewer_replicas_where_their_number_is_to_stay(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    controller = harness.node.controller
    assert controller is not None and controller.cluster is not None
    known = controller.cluster.topics[topic]
    two = known.partitions[0]._replace(assignment=ReplicaAssignment((ME, 7)))
    topics = {**controller.cluster.topics, topic: known._replace(partitions={0: two})}
    monkeypatch.setattr(controller, "cluster", controller.cluster._replace(topics=topics))

    strict = reassign(harness, 1, topic, (0, [ME]), keep_factor=True)
    assert strict.allow_replication_factor_change is False
    assert codes(strict) == [(topic, 0, ErrorCode.INVALID_REPLICATION_FACTOR)]
    assert codes(reassign(harness, 1, topic, (0, [ME]))) == [(topic, 0, ErrorCode.NONE)]
    assert controller.cluster.topics[topic].partitions[0].assignment == ReplicaAssignment((ME,))


def test_of_two_plans_for_a_partition_the_last_counts(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    assert codes(reassign(harness, 1, topic, (0, [7]), (0, [ME]))) == [(topic, 0, ErrorCode.NONE)]


def test_another_broker_is_the_controller(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic(topic)
    monkeypatch.setattr(harness.node.controller, "cluster", None)
    answer = reassign(harness, 1, topic, (0, [ME]))
    assert (answer.error_code, answer.responses) == (ErrorCode.NOT_CONTROLLER, [])
