"""Responses to Metadata requests about many partitions: joined from encoded pieces, in steps, and stored.

The response about all topics of a broker with 10,000 partitions has 300 KB and costs 60 ms of work. Here a topic is
encoded in steps (protocol.turns), and its bytes are stored until the topic changes; an equal request then costs one
dictionary access for each topic.

The general encoder makes the pieces: a response with only one topic (or with one topic and only some partitions) is
encoded, and the bytes around it, of known length, are removed.

    around the topics:      brokers, cluster id, controller id | topics | operations, error code, tags
    around the partitions:  error code, name, id, is internal | partitions | operations, tags
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.net.responses import EncodedResponse
from gregor.protocol.codec.primitives import write_uvarint
from gregor.protocol.messages import MetadataResponse
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.protocol.turns import Steps
    from gregor.replication.partition.metadata_image import TopicState

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition
Answered = Callable[["TopicState", Iterable[int]], Topic]
"""Makes the answer for a topic, with the named partitions only."""

FLEXIBLE_FROM = 9
PARTITIONS_PER_PIECE = 60
"""These are encoded in one step: some 0.4 ms of work, and few enough for a length field of one byte."""
_KINDS_KEPT = 4

_MARK = 0x7A6F_1D2E
_NAME = "\x02a name of no topic's own\x03"


class _Layout(NamedTuple):
    """Positions in a response of one version that has no brokers, no cluster id and no topic's name."""

    length_bytes: int
    topics_at: int
    after_topics: int
    partitions_at: int
    after_partitions: int


@cache
def layout(version: int) -> _Layout:
    """Return the layout, found in an encoded response with marks at the first topic and the first partition."""
    length_bytes = 1 if version >= FLEXIBLE_FROM else 4
    name_length_bytes = 1 if version >= FLEXIBLE_FROM else 2
    empty = MetadataResponse().encode(version)
    named = MetadataResponse(topics=[Topic(name=_NAME)]).encode(version)
    # A topic begins with its error code and its name, a partition with its error code and its index.
    topics_at = named.index(_NAME.encode()) - name_length_bytes - 2 - length_bytes
    after_topics = len(empty) - topics_at - length_bytes
    nameless = MetadataResponse(topics=[Topic(name="")]).encode(version)
    marked = MetadataResponse(topics=[Topic(name="", partitions=[Partition(partition_index=_MARK)])]).encode(version)
    partitions_at = marked.index(_MARK.to_bytes(4)) - 2 - length_bytes
    after_partitions = len(nameless) - after_topics - partitions_at - length_bytes
    return _Layout(length_bytes, topics_at, after_topics, partitions_at, after_partitions)


def encoded_answer(response: MetadataResponse, topics: bytes, count: int, version: int) -> EncodedResponse:
    """`response`, which has no topics, with `count` encoded ones in place."""
    found = layout(version)
    around = response.encode(version)
    at = len(around) - found.after_topics
    head = bytearray(around[: at - found.length_bytes])
    _write_length(head, count, version)
    return EncodedResponse([bytes(head), topics, around[at:]])


def encoded_topic(state: TopicState, answered: Answered, version: int) -> Steps[bytes]:
    """One topic of an answer."""
    indexes = sorted(state.partitions)
    if len(indexes) <= PARTITIONS_PER_PIECE:
        yield None
        return _topic(answered(state, indexes), version)
    found = layout(version)
    around = _topic(answered(state, ()), version)
    at = len(around) - found.after_partitions
    out = bytearray(around[: at - found.length_bytes])
    _write_length(out, len(indexes), version)
    for begin in range(0, len(indexes), PARTITIONS_PER_PIECE):
        part = answered(state, indexes[begin : begin + PARTITIONS_PER_PIECE]).replaced(name="")
        data = MetadataResponse(topics=[part]).encode(version)
        out += data[found.partitions_at + found.length_bytes : len(data) - found.after_topics - found.after_partitions]
        yield None
    out += around[at:]
    return bytes(out)


def _topic(topic: Topic, version: int) -> bytes:
    found = layout(version)
    data = MetadataResponse(topics=[topic]).encode(version)
    return data[found.topics_at + found.length_bytes : len(data) - found.after_topics]


def _write_length(out: bytearray, count: int, version: int) -> None:
    if version >= FLEXIBLE_FROM:
        write_uvarint(out, count + 1)
    else:
        out += count.to_bytes(4)


class EncodedTopics:
    """The encoded topics of the last requests. A TopicState is replaced, never changed: the bytes of the same object
    are the same."""

    def __init__(self) -> None:
        self._kinds: dict[object, dict[str, tuple[TopicState, bytes]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def collect(
        self, topics: Sequence[TopicState | Topic], answered: Answered, version: int, kind: object, topics_count: int
    ) -> Steps[bytes]:
        """Return the bytes of these topics, one after the other. `kind` is all that a topic's answer depends on besides
        the topic and the version; `topics_count`, the number of all topics, is about the number that is stored."""
        key = version, kind
        known = self._kinds.pop(key, {})
        if len(known) > 2 * topics_count + len(topics):
            known.clear()  # most of them are deleted
        while len(self._kinds) >= _KINDS_KEPT:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[key] = known
        parts: list[bytes] = []
        for count, topic in enumerate(topics, 1):
            if isinstance(topic, Topic):
                parts.append(_topic(topic, version))
            elif (found := known.get(topic.name)) is not None and found[0] is topic:
                parts.append(found[1])
            else:
                data = yield from encoded_topic(topic, answered, version)
                known[topic.name] = topic, data
                parts.append(data)
            if not count % ITEMS_PER_STEP:
                yield None
        return b"".join(parts)
