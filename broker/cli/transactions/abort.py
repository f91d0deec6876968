"""`gregor transactions abort`: writes an abort marker into one partition (WriteTxnMarkers to its leader)."""

from __future__ import annotations

from typing import NamedTuple

from gregor.broker.cli.coordinators import when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.transactions.producers import (
    describe_producers,
    name_of,
    open_transactions,
    partition_leaders,
)
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code, known_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from gregor.protocol.topic_partition import TopicPartition

LEADER_MOVES = frozenset([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE])

_CAUSES = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the partition has a newer epoch of the producer than {epoch}",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a coordinator of a newer epoch than {coordinator_epoch} has ended a "
    "transaction of the producer",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the marker of a transaction needs CLUSTER_ACTION on the cluster",
}


class Marker(NamedTuple):
    """The transaction to abort in a partition (Kafka's AbortTransactionSpec)."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @classmethod
    def of(cls, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> Marker:
        """Return the marker for a coordinator epoch of which -1 means: no transaction of the producer has ended yet.

        Its lowest value, 0, fences no coordinator.
        """
        return cls(partition, producer_id, producer_epoch, max(coordinator_epoch, 0))


def leader_of(client: WireClient, partition: TopicPartition) -> int:
    """Return the leader of a partition; raise BrokerRefusal if there is none."""
    leader = partition_leaders(client, *partition).get(partition)
    if leader is None:
        raise BrokerRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name_of(partition)} does not exist")
    if leader not in client.brokers:
        client.refresh()
    if leader not in client.brokers:
        raise BrokerRefusal(ErrorCode.LEADER_NOT_AVAILABLE, f"{name_of(partition)} has no leader")
    return leader


def find_marker(client: WireClient, partition: TopicPartition, start_offset: int) -> Marker:
    """Return the marker for the transaction that is open from this offset on; raise CommandError if there is none."""

    def attempt() -> Marker:
        found, refused = describe_producers(client, {partition: leader_of(client, partition)})
        for refusal in refused.values():
            raise refusal
        for one in open_transactions(found):
            if one.producer.start_offset == start_offset:
                producer = one.producer
                return Marker.of(partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
        raise CommandError(
            f"no transaction of {name_of(partition)} is open from offset {start_offset} on. `gregor transactions "
            f"describe-producers --topic {partition.topic} --partition {partition.partition}` shows the open ones."
        )

    return when_ready(attempt, LEADER_MOVES)


def abort(client: WireClient, marker: Marker) -> None:
    """Write the abort marker; raise BrokerRefusal if the leader refuses it."""

    def attempt() -> None:
        partition = marker.partition
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(
            name=partition.topic, partition_indexes=[partition.partition]
        )
        written = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=marker.coordinator_epoch,
        )
        response = client.send(WriteTxnMarkersRequest(markers=[written]), leader_of(client, partition))
        code = _code_of(response)
        check_code(code, _cause(code, marker))

    when_ready(attempt, LEADER_MOVES)


def _code_of(response: WriteTxnMarkersResponse) -> int:
    (result,) = response.markers
    (topic,) = result.topics
    (part,) = topic.partitions
    return int(part.error_code)


def _cause(code: int, marker: Marker) -> str:
    cause = _CAUSES.get(known_code(code), "the leader refuses the marker")
    cause = cause.format(epoch=marker.producer_epoch, coordinator_epoch=marker.coordinator_epoch)
    return f"the transaction of producer {marker.producer_id} in {name_of(marker.partition)} was not aborted: {cause}"
