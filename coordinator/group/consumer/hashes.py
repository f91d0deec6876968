"""The hash of the topics that a group subscribes to, by which it notices a change of them (KIP-1101)."""

from collections.abc import Iterable

from gregor.coordinator.group.consumer.metadata_hash import group_hash, topic_hash
from gregor.coordinator.ports import TopicView


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
