"""Elections that clients request (ElectLeaders, KIP-183, KIP-460): which ones are needed, and their results.

Pure functions of the controller context before and after the decision.
"""

from __future__ import annotations

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster


def election_refusal(cluster: Cluster, key: TopicPartition, unclean: bool) -> KafkaError | None:
    """Return why no election is held for this partition; None if one is needed.

    A preferred election is needed where another replica than the first leads, an unclean one where no replica leads."""
    topic, partition = cluster.topics.get(key[0]), cluster.partition(key)
    if topic is None or partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {key[0]}-{key[1]}")
    if topic.deleting or topic.deletion_queued:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {key[0]} is being deleted")
    if _is_led(cluster, key, unclean):
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "")
    return None


def election_result(cluster: Cluster, key: TopicPartition, unclean: bool) -> int | KafkaError:
    """Return the leader that a needed election has brought, or why it has brought none."""
    partition = cluster.partition(key)
    if partition is not None and partition.state is not None and _is_led(cluster, key, unclean):
        return partition.state.leader
    if unclean:
        return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {key[0]}-{key[1]} is alive")
    return KafkaError(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        f"the preferred replica of {key[0]}-{key[1]} is not alive or not in sync",
    )


def _is_led(cluster: Cluster, key: TopicPartition, unclean: bool) -> bool:
    partition = cluster.partition(key)
    if partition is None or partition.state is None:
        return False
    leader = partition.state.leader
    return leader in cluster.alive(key, partition) if unclean else leader == partition.assignment.replicas[0]
