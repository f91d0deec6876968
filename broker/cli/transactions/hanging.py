"""Hanging transactions: open in a partition, although no coordinator is going to end them (KIP-664).

A coordinator knows the partitions of a transaction until their markers are written. A transaction that is open in a
partition that its coordinator does not list gets no marker, and holds the last stable offset of the partition back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gregor.broker.cli.transactions.producers import (
    OpenTransaction,
    Producers,
    describe_producers,
    open_transactions,
)
from gregor.broker.cli.transactions.transactional_ids import Description, describe_known, list_transactions
from gregor.broker.cli.wire import WireClient
from gregor.protocol.topic_partition import TopicPartition


class Known(NamedTuple):
    """The transactions of some producers, as their coordinators have them."""

    ids: Mapping[int, str]
    """The transactional id of each producer id that a coordinator knows."""
    descriptions: Mapping[str, Description]

    def description_of(self, one: OpenTransaction) -> Description | None:
        """Return the transaction of its producer, if it has this partition; None if no marker is going to come."""
        description = self.descriptions.get(self.ids.get(one.producer.producer_id, ""))
        return description if description is not None and one.partition in description.partitions else None


def idle_longer_than(candidates: Iterable[OpenTransaction], limit_ms: int, now_ms: int) -> list[OpenTransaction]:
    """Return the open transactions whose producer's last record is older than this."""
    return [one for one in candidates if now_ms - one.producer.last_timestamp > limit_ms]


def query_coordinators(client: WireClient, candidates: Collection[OpenTransaction]) -> Known:
    """Query the coordinators for the producers of open transactions."""
    producer_ids = {one.producer.producer_id for one in candidates}
    if not producer_ids:
        return Known({}, {})
    listings = list_transactions(client, producer_ids=producer_ids)
    ids = {one.producer_id: one.transactional_id for one in listings if one.producer_id in producer_ids}
    return Known(ids, describe_known(client, ids.values()))


def without_coordinator(candidates: Iterable[OpenTransaction], known: Known) -> list[OpenTransaction]:
    """Return the transactions that no coordinator is going to end in their partition."""
    return [one for one in candidates if known.description_of(one) is None]


def confirm_open(
    client: WireClient, suspects: Collection[OpenTransaction], brokers: Mapping[TopicPartition, int]
) -> list[OpenTransaction]:
    """Return those that are still open after the coordinators were queried.

    A coordinator forgets a partition once its marker is written. A transaction that ended between the two queries
    therefore seems to hang, but is no longer open.
    """
    again: Producers
    again, _ = describe_producers(client, {one.partition: brokers[one.partition] for one in suspects})
    still = {one.identity for one in open_transactions(again)}
    return [one for one in suspects if one.identity in still]
