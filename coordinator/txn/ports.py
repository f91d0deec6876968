"""The seams of the transaction coordinator besides those of every coordinator: producer ids and markers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from gregor.protocol.deferred import Deferred
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_partition import TopicPartition

ProducerIds = Callable[[], Awaitable[int]]
"""Returns a producer id that no other producer of the cluster has had. Raises KafkaError."""


class Markers(Deferred[None]):
    """The markers of one transaction: complete once no partition is `outstanding`."""

    __slots__ = ("outstanding",)

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        super().__init__()
        self.outstanding = set(partitions)

    def is_written(self, partition: TopicPartition) -> None:
        """Note that a partition has its marker, or needs none."""
        self.outstanding.discard(partition)
        if not self.outstanding:
            self.complete(None)


class MarkerSender(Protocol):
    """Has the leaders of partitions write the end of a transaction."""

    def send(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> Markers:
        """Complete once every partition has the marker or its topic no longer exists; retried without end.

        Fails with KafkaError when this coordinator is fenced: another one ends the transaction. May complete at once.
        Cancelled when the coordinator resigns.
        """
