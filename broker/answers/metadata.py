"""Answers to Metadata requests about many partitions: put together from encoded pieces, in steps, and kept.

All topics of a broker with 10,000 partitions are 300 KB of answer and 60 ms of work. Here a topic's bytes are encoded
in steps (protocol.turns) and kept while the topic stays as it is; an equal request then costs a look-up for each topic.

The general encoder makes the pieces: an answer that holds nothing but one topic (or one topic nothing but some
partitions) is encoded, and what stands around it, of known length, is cut off.

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
"""What a topic is answered with, of its partitions only those named."""

FLEXIBLE_FROM = 9
PARTITIONS_PER_PIECE = 60
"""They are encoded in one step: some 0.4 ms of work, and few enough for a length field of one byte."""
_KINDS_KEPT = 4

_MARK = 0x7A6F_1D2E
_NAME = "\x02a name of no topic's own\x03"


class _Layout(NamedTuple):
    """Bytes of an answer in one version, where it has neither brokers nor a cluster id nor a topic's name."""

    length_bytes: int
    topics_at: int
    after_topics: int
    partitions_at: int
    after_partitions: int


@cache
def layout(version: int) -> _Layout:
    """Found out from an encoded answer that is marked where the first topic and the first partition stand."""
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
        part = answered(state, indexes[begin : begin + PARTITIONS_PER_PIECE])
        part.name = ""
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
    """The encoded topics of the questions that were asked last. A TopicState is replaced, never changed: as long as it
    is the same object, so are its bytes."""

    def __init__(self) -> None:
        self._kinds: dict[object, dict[str, tuple[TopicState, bytes]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def collect(
        self, topics: Sequence[TopicState | Topic], answered: Answered, version: int, kind: object, topics_count: int
    ) -> Steps[bytes]:
        """The bytes of these topics, one after the other. `kind` is all that a topic's answer depends on besides the
        topic and the version; `topics_count` is how many topics there are, and so about how many are kept."""
        key = version, kind
        known = self._kinds.pop(key, {})
        if len(known) > 2 * topics_count + len(topics):
            known.clear()  # most of them are gone
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
