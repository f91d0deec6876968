"""The hash of the topics that a group subscribes to, recorded with its epoch (KIP-1101).

The group is assigned anew when the hash changes: with a topic that appears or disappears, its partitions, and the racks
of their replicas. The hash is that of Apache Kafka 4.3 (group-coordinator's Utils.computeTopicHash, computeGroupHash),
so that a group which it wrote begins no epoch here. It is XXH3 with 64 bits over a stream of values as hash4j writes
them: numbers are little-endian, a string is its UTF-16 code units and, after them, their number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from xxhash import xxh3_64_digest

from gregor.coordinator.ports import TopicInfo, TopicView

NO_HASH = 0
"""The hash of no topics, and of a group whose topics are not known yet."""

_MAGIC = b"\0"
_DIGEST = struct.Struct(">q")
_LONG = struct.Struct("<q")
_INT = struct.Struct("<i")
_CODE_UNIT_BYTES = 2


def topic_hash(name: str, topic: TopicInfo) -> int:
    """Return the hash of one topic, an int64."""
    # The id is two numbers, the more significant one first.
    parts = [_MAGIC, topic.topic_id[7::-1], topic.topic_id[:7:-1], _string(name), _INT.pack(topic.partition_count)]
    for partition in range(topic.partition_count):
        parts.append(_INT.pack(partition))
        if partition < len(topic.racks):
            for rack in sorted(topic.racks[partition], key=_in_java):
                parts += _INT.pack(_length(rack)), _string(rack)
    return _int64(b"".join(parts))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return the hash of the topics of a group, in the order of their names, which are not a part of it: an int64."""
    if not topic_hashes:
        return NO_HASH
    names = sorted(topic_hashes, key=_in_java)
    return _int64(b"".join(_LONG.pack(topic_hashes[name]) for name in names))


class TopicHashes:
    """Remembers the hash of each topic until the topic changes."""

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self._known: dict[str, int] = {}

    def of(self, names: Iterable[str]) -> int:
        """The hash of these topics; those that do not exist are left out."""
        hashes: dict[str, int] = {}
        for name in names:
            known = self._known.get(name)
            if known is None:
                topic = self._topics.find(name)
                if topic is None:
                    continue
                known = self._known[name] = topic_hash(name, topic)
            hashes[name] = known
        return group_hash(hashes)

    def forget(self, names: Iterable[str] | None) -> None:
        """Topics changed; None: perhaps all."""
        if names is None:
            self._known.clear()
        else:
            for name in names:
                self._known.pop(name, None)


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _INT.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // _CODE_UNIT_BYTES


def _in_java(text: str) -> bytes:
    """Return a key that sorts strings as Java does: by their code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _int64(data: bytes) -> int:
    value: int = _DIGEST.unpack(xxh3_64_digest(data))[0]
    return value
