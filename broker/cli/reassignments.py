"""The reassignments that are under way, for the commands that count the replicas of partitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gregor.broker.cli.client import REQUEST_TIMEOUT_S
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient, check_code
from gregor.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from gregor.protocol.topic_partition import TopicPartitionKey


class Reassignment(NamedTuple):
    """The replicas of a partition that is being moved, and those of them that are being added and removed."""

    replicas: Collection[int]
    adding: Collection[int]
    removing: Collection[int]

    def is_in_progress(self, replicas: Collection[int]) -> bool:
        """Return whether it has not ended by the time at which the metadata shows these replicas."""
        return not {*self.adding, *self.removing}.isdisjoint(replicas)


def replication_factor(replicas: Collection[int], reassignment: Reassignment | None) -> int:
    """Return the number of replicas, as kafka-topics.sh: without those that a reassignment in progress is adding."""
    if reassignment is not None and reassignment.is_in_progress(replicas):
        return len(reassignment.replicas) - len(reassignment.adding)
    return len(replicas)


def list_reassignments(client: WireClient) -> dict[TopicPartitionKey, Reassignment]:
    """Return the reassignments by partition; none where the cluster does not describe them to this client."""
    request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_TIMEOUT_S * 500), topics=None)
    try:
        answer: ListPartitionReassignmentsResponse = client.send(
            request, client.controller_id if client.controller_id >= 0 else None
        )
        check_code(answer.error_code, answer.error_message)
    except CommandError:
        return {}
    return {
        (topic.name, part.partition_index): Reassignment(part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    }
