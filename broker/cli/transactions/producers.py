"""The producers of partitions, and the transactions that are open there (DescribeProducers)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gregor.broker.answers.producer_clients import clients_in
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    MetadataRequest,
    MetadataResponse,
)
from gregor.protocol.topic_partition import TopicPartition

PARTITIONS_PER_REQUEST = 500
"""As in Kafka's tool, so that a broker with many partitions is not held up by one request."""

NO_TRANSACTION = -1
"""The start offset of a producer without an open transaction."""


class ProducerState(NamedTuple):
    """One producer of a partition; -1 for what the broker does not know."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    start_offset: int
    client: str = ""
    """Client id and address of a producer with an open transaction, if the broker is gregor and knows them."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerState

    @property
    def identity(self) -> tuple[TopicPartition, int, int]:
        """Return the fields that distinguish it from all other transactions."""
        return self.partition, self.producer.producer_id, self.producer.start_offset


Producers = dict[TopicPartition, list[ProducerState]]
Refusals = dict[TopicPartition, BrokerRefusal]


def partition_leaders(
    client: WireClient, topic: str | None, partition: int | None = None, broker_id: int | None = None
) -> dict[TopicPartition, int]:
    """Return the partitions of a topic, or of all topics, with the broker to send requests about them to.

    That broker is the leader, or `broker_id`, which restricts the result to its replicas. Raise BrokerRefusal if the
    topic does not exist.
    """
    wanted = None if topic is None else [MetadataRequest.MetadataRequestTopic(name=topic)]
    metadata: MetadataResponse = client.send(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    found: dict[TopicPartition, int] = {}
    for one in metadata.topics:
        if one.error_code:
            check_code(one.error_code, f"topic {one.name} cannot be described")
        for part in one.partitions:
            if broker_id is not None and broker_id not in part.replica_nodes:
                continue
            if partition in (None, part.partition_index):
                leader = part.leader_id if broker_id is None else broker_id
                found[TopicPartition(str(one.name), part.partition_index)] = leader
    return found


def describe_producers(client: WireClient, brokers: Mapping[TopicPartition, int]) -> tuple[Producers, Refusals]:
    """Return the producers of each partition, from the broker given for it, and the refusals of the others."""
    found: Producers = {}
    refused: Refusals = {}
    for broker_id in sorted(set(brokers.values())):
        partitions = sorted(partition for partition, other in brokers.items() if other == broker_id)
        if broker_id not in client.brokers:
            cause = f"broker {broker_id} is not alive" if broker_id >= 0 else "the partition has no leader"
            gone = BrokerRefusal(ErrorCode.LEADER_NOT_AVAILABLE, cause)
            refused.update(dict.fromkeys(partitions, gone))
            continue
        for batch in _batches(partitions):
            topics: dict[str, DescribeProducersRequest.TopicRequest] = {}
            for topic, index in batch:
                one = topics.setdefault(topic, DescribeProducersRequest.TopicRequest(name=topic))
                one.partition_indexes.append(index)
            response = client.send(DescribeProducersRequest(topics=list(topics.values())), broker_id)
            for described in response.topics:
                for part in described.partitions:
                    partition = TopicPartition(described.name, part.partition_index)
                    if part.error_code:
                        refused[partition] = BrokerRefusal(part.error_code, part.error_message)
                    else:
                        clients = clients_in(part.error_message)
                        found[partition] = [
                            _state(one, clients.get(one.producer_id, "")) for one in part.active_producers
                        ]
    return found, refused


def _batches(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        yield partitions[start : start + PARTITIONS_PER_REQUEST]


def _state(one: DescribeProducersResponse.ProducerState, client: str) -> ProducerState:
    return ProducerState(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        coordinator_epoch=one.coordinator_epoch,
        last_sequence=one.last_sequence,
        last_timestamp=one.last_timestamp,
        start_offset=one.current_txn_start_offset,
        client=client,
    )


def open_transactions(producers: Mapping[TopicPartition, Iterable[ProducerState]]) -> list[OpenTransaction]:
    """Return the open transactions of these producers, by partition and offset."""
    found = [
        OpenTransaction(partition, producer)
        for partition, states in producers.items()
        for producer in states
        if producer.start_offset >= 0
    ]
    return sorted(found, key=lambda one: (one.partition, one.producer.start_offset))


def name_of(partition: TopicPartition) -> str:
    """Return the name of a partition as users write it."""
    return f"{partition.topic}-{partition.partition}"
