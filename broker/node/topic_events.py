"""Changes of leaders, topics and settings, which the coordinators, logs and settings of a broker follow."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.topic_configs import TopicConfigs


class Coordinator(Protocol):
    """A coordinator whose state is in the partitions of an internal topic."""

    def on_elected(self, partition: int, leader_epoch: int) -> object: ...
    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None: ...
    def on_partition_count(self, count: int) -> None: ...


class TopicEvents:
    """Passes changes of `replicas`, `image` and `configs` on; it subscribes to them itself."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        configs: TopicConfigs,
        groups: GroupCoordinator,
        transactions: Coordinator,
    ) -> None:
        self._image = image
        self._configs = configs
        self._groups = groups
        self._coordinators: dict[str, Coordinator] = {
            GROUP_METADATA_TOPIC: groups,
            TRANSACTION_STATE_TOPIC: transactions,
        }
        replicas.on_leadership.append(self._leaders_changed)
        replicas.on_stopped.append(self._stopped)
        configs.on_topics_changed.append(replicas.settings_changed)
        image.on_topics_moved.append(self._topics_moved)

    def _leaders_changed(self, leaders: list[Partition], followers: list[Partition]) -> None:
        for partition in leaders:
            if (coordinator := self._coordinators.get(partition.topic)) is not None:
                coordinator.on_elected(partition.partition, partition.leader_epoch)
        for partition in followers:
            if (coordinator := self._coordinators.get(partition.topic)) is not None:
                coordinator.on_resigned(partition.partition, partition.leader_epoch)

    def _stopped(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            if (coordinator := self._coordinators.get(partition.topic)) is not None:
                coordinator.on_resigned(partition.partition)

    def _topics_moved(self, topics: Collection[str]) -> None:
        gone = frozenset(name for name in topics if self._image.topic(name) is None)
        if gone:
            self._groups.on_topics_deleted(gone)
            for name in gone:
                self._configs.forget(name)
        for topic, coordinator in self._coordinators.items():
            if topic in topics and (count := self._image.partition_count(topic)):
                coordinator.on_partition_count(count)
