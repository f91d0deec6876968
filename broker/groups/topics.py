"""The topics of the cluster as the group coordinator sees them (TopicView), from this broker's metadata image.

The coordinator is notified of topics that are new, deleted, or have other partitions, replicas or racks: the
assignments of groups depend on these and on nothing else of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from gregor.coordinator.ports import TopicInfo
from gregor.protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from gregor.replication.partition.metadata_image import MetadataImage, TopicState

TopicsListener = Callable[[Collection[str] | None], None]
"""Receives the names of topics; None stands for all topics."""


class ClusterTopics:
    """Implements TopicView. It subscribes to the image itself.

    The rack of a broker is remembered while the broker is away: the image has live brokers only, and a restart of one
    must not change the assignments of groups."""

    def __init__(self, image: MetadataImage) -> None:
        self.on_changed: list[TopicsListener] = []
        self._image = image
        self._racks: dict[int, str | None] = {}
        self._rack_epoch = 0
        """Grows with each change of racks."""
        self._found: dict[str, tuple[TopicState, int, TopicInfo]] = {}
        image.on_topics_moved.append(self._moved)
        image.on_update.append(self._updated)

    def names(self) -> Collection[str]:
        return self._image.names()

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic; None also for one without an id, which only a cluster of Kafka before 2.8 has."""
        state = self._image.topic(name)
        if state is None or state.topic_id == ZERO_UUID:
            return None
        known = self._found.get(name)
        if known is not None and known[0] is state and known[1] == self._rack_epoch:
            return known[2]
        info = TopicInfo(state.topic_id, len(state.partitions), self._racks_of(state))
        self._found[name] = state, self._rack_epoch, info
        return info

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._image.topic_name(topic_id)

    def _racks_of(self, state: TopicState) -> tuple[tuple[str, ...], ...]:
        if not any(self._racks.values()):
            return ()
        return tuple(
            tuple(rack for replica in state.partitions[index].replicas if (rack := self._racks.get(replica)))
            for index in sorted(state.partitions)
        )

    def _moved(self, names: Collection[str]) -> None:
        for name in names:
            if self._image.topic(name) is None:
                self._found.pop(name, None)
        self._notify(None if self._learn_racks() else names)

    def _updated(self) -> None:
        if self._learn_racks():
            self._notify(None)

    def _learn_racks(self) -> bool:
        """Return whether a broker that hosts replicas may be in another rack than before."""
        changed = False
        for broker_id, broker in self._image.brokers.items():
            if self._racks.get(broker_id) != broker.rack:
                changed = True
            self._racks[broker_id] = broker.rack
        self._rack_epoch += changed
        return changed

    def _notify(self, names: Collection[str] | None) -> None:
        for listener in self.on_changed:
            listener(names)
