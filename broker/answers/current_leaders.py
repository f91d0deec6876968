"""The leader of a partition, in responses to a client that has sent a request to another broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.errors import ErrorCode
from gregor.replication.partition.partition import NO_LEADER

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext, MetadataContext

LeaderT = TypeVar("LeaderT")
NodeT = TypeVar("NodeT")


def current_leader(broker: DataContext, topic: str, index: int, make: type[LeaderT]) -> LeaderT:
    """Return the partition's leader and leader epoch as far as this broker knows them, else -1.

    A new leader is known to the replica first, as the controller sends LeaderAndIsr before UpdateMetadata.
    """
    state = broker.metadata.partition(topic, index)
    replica = broker.replicas.get(topic, index)
    fields: dict[str, Any] = {}
    if (
        replica is not None
        and replica.leader_id != NO_LEADER
        and (state is None or replica.leader_epoch > state.leader_epoch)
    ):
        fields = {"leader_id": replica.leader_id, "leader_epoch": replica.leader_epoch}
    elif state is not None:
        fields = {"leader_id": state.leader, "leader_epoch": state.leader_epoch}
    return make(**fields)


def why_absent(broker: MetadataContext, topic: str, index: int) -> ErrorCode:
    """Return why this broker has no replica of a partition: others have it, or it does not exist."""
    if broker.metadata.partition(topic, index) is not None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def node_endpoints(broker: MetadataContext, call: Call, leader_ids: Iterable[int], make: type[NodeT]) -> list[NodeT]:
    """Return the addresses of brokers on the listener that the client is connected to."""
    nodes = []
    for broker_id in sorted(set(leader_ids)):
        endpoint = broker.endpoint_of(broker_id, call)
        if endpoint is not None:
            fields: dict[str, Any] = {
                "node_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": endpoint.rack,
            }
            nodes.append(make(**fields))
    return nodes
