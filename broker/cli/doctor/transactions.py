"""The check of `gregor doctor` for transactions that hold the last stable offset of partitions back.

Only partitions whose last stable offset is below the high watermark have one, so that two ListOffsets requests to each
leader limit the search, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gregor.broker.cli.doctor.checks import Finding, Level, some_partitions
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.transactions.hanging import confirm_open, query_coordinators, without_coordinator
from gregor.broker.cli.transactions.producers import (
    OpenTransaction,
    describe_producers,
    name_of,
    open_transactions,
)
from gregor.broker.cli.transactions.transactional_ids import Description
from gregor.broker.cli.wire import WireClient
from gregor.protocol.messages import ListOffsetsRequest, MetadataResponse
from gregor.protocol.topic_partition import TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
CONSUMER = -1
"""The replica id of a client; a follower's request has no isolation level."""
ISOLATION_FROM = 2
"""The version of ListOffsets that has the isolation level."""

OVERDUE_MS = 30_000
"""A coordinator aborts transactions that exceed their timeout every
transaction.abort.timed.out.transaction.cleanup.interval.ms, by default 10 s, and then writes their markers."""


class Held(NamedTuple):
    """An open transaction in a partition whose last stable offset it may hold back."""

    transaction: OpenTransaction
    waiting: int
    """The number of offsets between the last stable offset and the high watermark of the partition."""
    transactional_id: str | None
    description: Description | None
    """The transaction at its coordinator; None if no coordinator is going to end it in this partition."""


def observe_transactions(client: WireClient, metadata: MetadataResponse, mute: Collection[int]) -> list[Held]:
    """Return the open transactions that committed records wait for, of all leaders that are not `mute`.

    Raise CommandError if a broker does not support the requests.
    """
    leaders = {
        TopicPartition(str(topic.name), part.partition_index): part.leader_id
        for topic in metadata.topics
        for part in topic.partitions
        if part.leader_id in client.brokers and part.leader_id not in mute
    }
    waiting = _held_back(client, leaders)
    brokers = {partition: leaders[partition] for partition in waiting}
    producers, _ = describe_producers(client, brokers)
    candidates = open_transactions(producers)
    known = query_coordinators(client, candidates)
    suspects = without_coordinator(candidates, known)
    confirmed = {one.identity for one in confirm_open(client, suspects, brokers)}
    ended = {one.identity for one in suspects} - confirmed
    return [
        Held(
            one,
            waiting[one.partition],
            known.ids.get(one.producer.producer_id),
            known.description_of(one),
        )
        for one in candidates
        if one.identity not in ended
    ]


def _held_back(client: WireClient, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the partitions whose last stable offset is below the high watermark, with the distance."""
    found = {}
    for leader in sorted(set(leaders.values())):
        partitions = sorted(partition for partition, other in leaders.items() if other == leader)
        with suppress(CommandError):  # other checks report a leader that does not answer
            if client.version(ListOffsetsRequest, leader) < ISOLATION_FROM:
                continue
            # In this order, so that a record between the two requests does not seem to wait.
            marks = _ends(client, leader, partitions, READ_UNCOMMITTED)
            stable = _ends(client, leader, partitions, READ_COMMITTED)
            for partition, offset in stable.items():
                if offset < marks.get(partition, offset):
                    found[partition] = marks[partition] - offset
    return found


def _ends(
    client: WireClient, leader: int, partitions: Sequence[TopicPartition], isolation_level: int
) -> dict[TopicPartition, int]:
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for topic, index in partitions:
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        topics.setdefault(topic, ListOffsetsRequest.ListOffsetsTopic(name=topic)).partitions.append(part)
    request = ListOffsetsRequest(replica_id=CONSUMER, isolation_level=isolation_level, topics=list(topics.values()))
    return {
        TopicPartition(topic.name, part.partition_index): part.offset
        for topic in client.send(request, leader).topics
        for part in topic.partitions
        if not part.error_code
    }


def check_transactions(held: Sequence[Held], now_ms: int) -> list[Finding]:
    """Report transactions that no coordinator is going to end, and those that exceed their timeout."""
    found = []
    for group in _by_producer(held):
        orphans = [one for one in group if one.description is None]
        overdue = [one for one in group if one.description is not None and _is_overdue(one.description, now_ms)]
        if orphans:
            found.append(_without_coordinator(orphans, now_ms))
        if overdue:
            found.append(_overdue(overdue, now_ms))
    if found:
        return found
    count = len({one.transaction.producer.producer_id for one in held})
    return [Finding(Level.OK, f"no transaction hangs ({count} open)")]


def _by_producer(held: Sequence[Held]) -> list[list[Held]]:
    groups: dict[int, list[Held]] = {}
    for one in held:
        groups.setdefault(one.transaction.producer.producer_id, []).append(one)
    return list(groups.values())


def _is_overdue(description: Description, now_ms: int) -> bool:
    return description.start_ms >= 0 and now_ms - description.start_ms > description.timeout_ms + OVERDUE_MS


def _without_coordinator(held: Sequence[Held], now_ms: int) -> Finding:
    last_ms = max(one.transaction.producer.last_timestamp for one in held)
    topic, partition = held[0].transaction.partition
    text = (
        f"the transaction of {_producer(held[0])} hangs: no coordinator is going to end it. Its last record is "
        f"{_age(now_ms - last_ms)} old. {_effect(held)}"
    )
    remedy = (
        f"`gregor transactions abort --topic {topic} --partition {partition} --start-offset "
        f"{held[0].transaction.producer.start_offset}` aborts it there"
    )
    if len(held) > 1:
        remedy += "; `gregor transactions describe-producers` shows the offsets in the other partitions"
    return Finding(Level.WRONG, text, remedy)


def _overdue(held: Sequence[Held], now_ms: int) -> Finding:
    description = held[0].description
    assert description is not None
    text = (
        f"the transaction of {_producer(held[0])} has been {description.state} for "
        f"{_age(now_ms - description.start_ms)}, its timeout is {_age(description.timeout_ms)}. {_effect(held)}"
    )
    remedy = (
        f"see the log of its coordinator, broker {description.coordinator_id}; `gregor transactions "
        f"forceTerminateTransaction --transactionalId {description.transactional_id}` aborts it"
    )
    return Finding(Level.WRONG, text, remedy)


def _producer(held: Held) -> str:
    producer = held.transaction.producer
    ids = f"producer {producer.producer_id}, epoch {producer.producer_epoch}"
    if producer.client:
        ids += f", client {producer.client}"
    return ids if held.transactional_id is None else f"transactional id '{held.transactional_id}' ({ids})"


def _effect(held: Sequence[Held]) -> str:
    names = some_partitions([name_of(one.transaction.partition) for one in held])
    return (
        f"Consumers with isolation.level=read_committed wait for {sum(one.waiting for one in held)} offsets of {names}"
    )


def _age(duration_ms: int) -> str:
    seconds = max(0, duration_ms) // 1000
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 172_800 else f"{seconds // 86_400} days"


def examine_transactions(
    client: WireClient, metadata: MetadataResponse, mute: Collection[int], now_ms: int
) -> list[Finding]:
    """Observe and check the transactions of a cluster."""
    try:
        return check_transactions(observe_transactions(client, metadata, mute), now_ms)
    except CommandError as error:
        text = f"transactions hold records back, but could not be checked: {str(error).rstrip('.')}"
        return [Finding(Level.NOTE, text, "repeat this command when the coordinators of all transactions are up")]
