"""The hash of the topics that a group subscribes to, recorded with its epoch (KIP-1101).

The group is assigned anew when the hash changes: with a topic that appears or disappears, its partitions, and the racks
of their replicas. Only the coordinator compares hashes that coordinators have written, so the hash is not Apache
Kafka's (XXH3, by Utils.computeTopicHash and computeGroupHash), but it has the same input.
"""

import struct
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from gregor.coordinator.ports import TopicInfo, TopicView

NO_HASH = 0
"""The hash of no topics, and of a group whose topics are not known yet."""

_HASH = struct.Struct(">q")
_COUNT = struct.Struct(">i")


def topic_hash(name: str, topic: TopicInfo) -> int:
    """Return the hash of one topic, an int64."""
    parts = [topic.topic_id, _text(name), _COUNT.pack(topic.partition_count)]
    for partition, racks in enumerate(topic.racks):
        parts.append(_COUNT.pack(partition))
        parts.append(_COUNT.pack(len(racks)))
        parts += map(_text, sorted(racks))
    return _int64(b"".join(parts))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return the hash of the topics of a group, by their names: an int64."""
    if not topic_hashes:
        return NO_HASH
    return _int64(b"".join(_text(name) + _HASH.pack(topic_hashes[name]) for name in sorted(topic_hashes)))


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


def _text(text: str) -> bytes:
    # The length before it keeps two neighbours apart.
    encoded = text.encode("utf-8", "surrogatepass")
    return _COUNT.pack(len(encoded)) + encoded


def _int64(data: bytes) -> int:
    value: int = _HASH.unpack(blake2b(data, digest_size=_HASH.size).digest())[0]
    # Zero means that the topics are not known.
    return value or 1
