"""ListPartitionReassignments: nothing moves on a single broker, unless the metadata has a reassignment."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from gregor.replication.store.nodes import ReplicaAssignment
from tests.broker.harness import Harness

_Wanted = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


def moving(harness: Harness, *wanted: tuple[str, list[int]]) -> ListPartitionReassignmentsResponse:
    topics = [_Wanted(name=name, partition_indexes=indexes) for name, indexes in wanted] or None
    response: ListPartitionReassignmentsResponse = harness.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    return response


def test_nothing_moves(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    for answer in (moving(harness), moving(harness, (topic, [0, 9]), ("absent", [0]))):
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


def test_what_moves_is_listed(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic(topic, partitions=3)
    controller = harness.node.controller
    assert controller is not None and controller.cluster is not None
    cluster = controller.cluster
    known = cluster.topics[topic]
    partitions = dict(known.partitions)
    for index in (0, 2):
        assignment = ReplicaAssignment((0, 5), adding=(5,), removing=(0,))
        partitions[index] = partitions[index]._replace(assignment=assignment)
    topics = {**cluster.topics, topic: known._replace(partitions=partitions)}
    monkeypatch.setattr(controller, "cluster", cluster._replace(topics=topics))

    def listed(answer: ListPartitionReassignmentsResponse) -> list[tuple[object, ...]]:
        return [
            (found.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
            for found in answer.topics
            for part in found.partitions
        ]

    rows = [(topic, index, [0, 5], [5], [0]) for index in (0, 2)]
    assert listed(moving(harness)) == rows
    assert listed(moving(harness, (topic, [1, 2]))) == rows[1:]


def test_another_broker_is_the_controller(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.node.controller, "cluster", None)
    assert moving(harness).error_code == ErrorCode.NOT_CONTROLLER
