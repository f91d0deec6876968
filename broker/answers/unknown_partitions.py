"""Commits of offsets of partitions that do not exist are refused beside those of the others, a topic in one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gregor.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from gregor.protocol.turns import Turns
    from gregor.replication.partition.metadata_image import MetadataImage


async def separate_unknown(
    topics: Iterable[Any],
    metadata: MetadataImage,
    turns: Turns,
    *,
    by_id: bool,
    topic_answer: Callable[..., Any],
    partition_answer: Callable[..., Any],
) -> tuple[list[Any], list[Any]]:
    """Return the topics of a request with those partitions that exist, by name, and the answers for the others."""
    known = []
    refused = []
    for topic in topics:
        await turns.next()
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_id:
            name = metadata.topic_name(topic.topic_id)
            topic = topic.replaced(name=name or "")
            error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else error
        count = metadata.partition_count(topic.name)
        present = []
        unknown = []
        for part in topic.partitions:
            await turns.next()
            if 0 <= part.partition_index < count:
                present.append(part)
            else:
                unknown.append(partition_answer(partition_index=part.partition_index, error_code=error))
        if unknown:
            refused.append(topic_answer(name=topic.name, topic_id=topic.topic_id, partitions=unknown))
            topic = topic.replaced(partitions=present)
        if topic.partitions:
            known.append(topic)
    return known, refused


def with_refused(answers: list[Any], refused: Iterable[Any]) -> list[Any]:
    """Add the refused partitions to the answers of their topics. A topic of an unknown id has no name, and an answer of
    its own."""
    by_name = {answered.name: answered for answered in answers}
    for one in refused:
        answered = by_name.get(one.name)
        if answered is not None:
            answered.partitions.extend(one.partitions)
        else:
            answers.append(one)
    return answers
