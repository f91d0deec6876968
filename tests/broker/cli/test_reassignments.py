"""gregor.broker.cli.reassignments: which replicas are being moved, and how many a partition has meanwhile."""

from __future__ import annotations

import pytest

from gregor.broker.cli.reassignments import Reassignment, list_reassignments, replication_factor
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from tests.broker.cli.fake_client import FakeClient

Answer = ListPartitionReassignmentsResponse
MOVE = Reassignment([1, 2, 3, 4], [3, 4], [1, 2])


@pytest.mark.parametrize(
    ("replicas", "reassignment", "count"),
    [
        ([1, 2], None, 2),
        ([1, 2, 3, 4], MOVE, 2),
        ([1, 2, 3], Reassignment([1, 2, 3], [3], []), 2),
        ([1, 2, 3], Reassignment([1, 2, 3], [], [3]), 3),
        ([5, 6, 7], MOVE, 3),  # it has ended since
    ],
)
def test_added_replicas_do_not_count(replicas: list[int], reassignment: Reassignment | None, count: int) -> None:
    assert replication_factor(replicas, reassignment) == count


def test_the_controller_lists_all_reassignments() -> None:
    part = Answer.OngoingPartitionReassignment(
        partition_index=3, replicas=[1, 2, 3, 4], adding_replicas=[3, 4], removing_replicas=[1, 2]
    )
    answer = Answer(topics=[Answer.OngoingTopicReassignment(name="t", partitions=[part])])
    client = FakeClient({ListPartitionReassignmentsRequest: lambda _request, _node: answer})
    assert list_reassignments(client) == {("t", 3): MOVE}
    ((request, node_id),) = client.sent
    assert isinstance(request, ListPartitionReassignmentsRequest)
    assert (request.topics, node_id) == (None, 1)


def test_a_cluster_that_does_not_list_them_has_none() -> None:
    refused = Answer(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    client = FakeClient({ListPartitionReassignmentsRequest: lambda _request, _node: refused})
    assert list_reassignments(client) == {}
