"""Requests about many partitions in pieces, and the older forms of their answers.

An operation of a shard cannot be interrupted; between the pieces other work proceeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from gregor.coordinator.group.offsets import NO_LEADER_EPOCH, NO_OFFSET
from gregor.protocol.messages import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from gregor.protocol.turns import ITEMS_PER_STEP, Turns

PARTITIONS_PER_FETCH = 256
PARTITIONS_PER_COMMIT = 300
"""They are written as one batch; each costs some 5 to 12 us."""

_Partition = OffsetFetchResponse.OffsetFetchResponsePartition
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic


# --- commit


def is_one_piece(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> bool:
    """Return whether the request is committed as a whole."""
    topics = request.topics
    return (
        len(topics) <= PARTITIONS_PER_COMMIT and sum(len(topic.partitions) for topic in topics) <= PARTITIONS_PER_COMMIT
    )


async def commit_in_pieces(request: Any, commit: Callable[[Any], Awaitable[Any]], turns: Turns) -> list[Any]:
    """Commit PARTITIONS_PER_COMMIT partitions of a topic at a time; return the topics of the answer. Each piece is
    answered for itself."""
    topics = []
    for topic in request.topics:
        answered = None
        for first in range(0, max(1, len(topic.partitions)), PARTITIONS_PER_COMMIT):
            some = topic.replaced(partitions=topic.partitions[first : first + PARTITIONS_PER_COMMIT])
            part = (await commit(request.replaced(topics=[some]))).topics[0]
            if answered is None:
                answered = part
                topics.append(part)
            else:
                answered.partitions.extend(part.partitions)
            await turns.next()
    return topics


# --- fetch


def fetch_pieces(
    wanted: OffsetFetchRequest.OffsetFetchRequestGroup,
) -> Iterator[OffsetFetchRequest.OffsetFetchRequestGroup]:
    """The same question in several of PARTITIONS_PER_FETCH, a topic without partitions counting as one; at least one.
    Only the first topic of a piece can be one of which a part was in the piece before."""
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] = []
    room = PARTITIONS_PER_FETCH
    for topic in wanted.topics or ():
        indexes = topic.partition_indexes
        first = 0
        while first < len(indexes) or not first:
            some = indexes[first : first + room] if first or len(indexes) > room else indexes
            part = OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic.name, topic_id=topic.topic_id, partition_indexes=some
            )
            topics.append(part)
            first += max(1, len(some))
            room -= max(1, len(some))
            if room <= 0:
                yield about(wanted, topics)
                topics, room = [], PARTITIONS_PER_FETCH
    if topics or not wanted.topics:
        yield about(wanted, topics)


def about(
    wanted: OffsetFetchRequest.OffsetFetchRequestGroup, topics: list[OffsetFetchRequest.OffsetFetchRequestTopics]
) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    """The same question of the same member about other topics."""
    return wanted.replaced(topics=topics)


async def for_one_group(
    wanted: OffsetFetchRequest.OffsetFetchRequestGroup,
    fetched: OffsetFetchResponse.OffsetFetchResponseGroup,
    version: int,
    turns: Turns,
) -> OffsetFetchResponse:
    """The form of v1 to v7. v1 has no error for the group: every partition gets it."""
    if fetched.error_code and version < 2:
        return OffsetFetchResponse(
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=[
                        _Partition(
                            partition_index=index,
                            committed_offset=NO_OFFSET,
                            committed_leader_epoch=NO_LEADER_EPOCH,
                            metadata="",
                            error_code=fetched.error_code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in wanted.topics or ()
            ]
        )
    topics = []
    for topic in fetched.topics:
        await turns.next()
        partitions = []
        for number, partition in enumerate(topic.partitions, 1):
            partitions.append(
                _Partition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
            )
            if not number % ITEMS_PER_STEP:
                await turns.next()
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(error_code=fetched.error_code, topics=topics)
