"""The topics that appeared while this broker runs, and when: the history of rebalances names new topics as causes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.protocol.ids import Uuid
    from gregor.replication.partition.metadata_image import MetadataImage

MAX_TOPICS = 1_000
"""The ones that appeared last are remembered."""
STARTING_MS = 5_000
"""After a start the metadata arrive in several updates: what comes in this time is not new."""


class TopicBirths:
    """Implements the coordinator's port TopicFacts over the metadata image."""

    def __init__(self, image: MetadataImage, clock_ms: Callable[[], int]) -> None:
        self._image = image
        self._clock_ms = clock_ms
        self._informed_ms: int | None = None
        self._known: set[str] = set()
        self._created: dict[str, int] = {}
        image.on_topics_moved.append(self._topics_moved)

    def partition_count(self, topic: str) -> int:
        """Number of partitions, 0 for a topic that does not exist."""
        return self._image.partition_count(topic)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The topic with this id."""
        return self._image.topic_name(topic_id)

    def created_ms(self, topic: str) -> int | None:
        """When the topic appeared, if it did while this broker runs."""
        return self._created.get(topic)

    def _topics_moved(self, topics: Collection[str]) -> None:
        known, now_ms = self._known, self._clock_ms()
        if self._informed_ms is None:
            self._informed_ms = now_ms
        is_running = now_ms - self._informed_ms > STARTING_MS
        for name in topics:
            if self._image.topic(name) is None:
                known.discard(name)
            elif name not in known:
                known.add(name)
                if is_running:
                    self._created.pop(name, None)
                    self._created[name] = now_ms
        while len(self._created) > MAX_TOPICS:
            del self._created[next(iter(self._created))]
