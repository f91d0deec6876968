"""This broker's image of the cluster: live brokers, topics, leaders of partitions. Built from UpdateMetadata requests.

Every broker answers Metadata requests from its own image, also the controller. Leader -2 in an update means that the
topic is being deleted (Kafka's LeaderDuringDelete): the partition leaves the image.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.messages import UpdateMetadataResponse
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.protocol.messages import UpdateMetadataRequest

LEADER_DURING_DELETE = -2
NO_CONTROLLER = -1
_MAX_DELETED_NAMES = 1000
"""The names of the topics deleted last are remembered, up to this number."""


class Endpoint(NamedTuple):
    host: str
    port: int
    security_protocol: int


class LiveBroker(NamedTuple):
    id: int
    endpoints: dict[str, Endpoint]
    """By listener name."""
    rack: str | None


class PartitionState(NamedTuple):
    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    offline_replicas: list[int]


class TopicState:
    """A topic with its partitions by index. It never changes once it is in the image: an update replaces it."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, partitions: dict[int, PartitionState]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class MetadataImage:
    """`version` grows with every update: data derived from the image is out of date under another version."""

    def __init__(self) -> None:
        self.version = 0
        self.expects_topics = False
        """There are topics that the controller has not sent yet: its first update may hold the live brokers alone."""
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.brokers: dict[int, LiveBroker] = {}
        self.on_update: list[Callable[[], None]] = []
        self.on_topics_moved: list[Callable[[Collection[str]], None]] = []
        """Called before `on_update` with the topics that are new, deleted, or have other partitions or replicas."""
        self._topics: dict[str, TopicState] = {}
        self._names: dict[Uuid, str] = {}
        self._deleted: dict[str, None] = {}

    def expect_topics(self, expected: bool) -> None:
        """Set whether the image is incomplete until the controller has sent topics."""
        self.expects_topics = expected

    @property
    def is_informed(self) -> bool:
        """Whether the controller has sent this broker the metadata of the cluster."""
        return bool(self.version) and not self.expects_topics

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def pop_deleted(self, name: str) -> bool:
        """Whether a topic of this name was deleted lately; True once after each deletion."""
        return self._deleted.pop(name, self) is None

    @property
    def topics_count(self) -> int:
        return len(self._topics)

    def names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self._topics)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def topics(self) -> Iterator[TopicState]:
        """Yield all topics by name, as they are when the iteration begins."""
        topics = self._topics.copy()
        for name in sorted(topics):
            yield topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self._topics.get(topic)
        return None if state is None else state.partitions.get(index)

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions, 0 for an unknown topic."""
        state = self._topics.get(topic)
        return 0 if state is None else len(state.partitions)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def apply(self, request: UpdateMetadataRequest) -> Steps[UpdateMetadataResponse]:
        """Apply an update, which has all live brokers and the partitions that have changed.

        The image stays as it is before the last step. No other update may be applied in between.
        """
        if request.controller_epoch < self.controller_epoch:
            return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        brokers = {
            broker.id: LiveBroker(
                broker.id,
                {
                    point.listener: Endpoint(point.host, point.port, point.security_protocol)
                    for point in broker.endpoints
                },
                broker.rack,
            )
            for broker in request.live_brokers
        }
        changed: dict[str, TopicState] = {}
        moved: set[str] = set()
        for topic in request.topic_states:
            state, is_moved = yield from self._updated(topic, changed.get(topic.topic_name))
            changed[topic.topic_name] = state
            if is_moved:
                moved.add(topic.topic_name)
            yield None
        self.controller_epoch = request.controller_epoch
        self.controller_id = request.controller_id
        self.brokers = brokers
        if changed:
            self.expects_topics = False
        self._replace(changed, moved)
        return UpdateMetadataResponse()

    def remove(self, topics: Collection[TopicState]) -> None:
        """Remove topics that no longer exist, though no update reported it. Those that an update has changed stay."""
        gone = [topic for topic in topics if self._topics.get(topic.name) is topic]
        if gone:
            self._replace({topic.name: TopicState(topic.name, topic.topic_id, {}) for topic in gone})

    def _replace(self, changed: dict[str, TopicState], moved: Collection[str] | None = None) -> None:
        """Put these topics into the image, where one without partitions is deleted, and call the listeners.

        `moved`: those that are new, deleted, or have other partitions or replicas; by default all."""
        for name, state in changed.items():
            self._forget(name)
            if not state.partitions:
                self._deleted[name] = None
                if len(self._deleted) > _MAX_DELETED_NAMES:
                    del self._deleted[next(iter(self._deleted))]
            else:
                self._deleted.pop(name, None)
                self._topics[name] = state
                if state.topic_id != ZERO_UUID:
                    self._names[state.topic_id] = name
        self.version += 1
        moved = changed.keys() if moved is None else moved
        if moved:
            for moved_listener in self.on_topics_moved:
                moved_listener(moved)
        for listener in self.on_update:
            listener()

    def _updated(
        self, update: UpdateMetadataRequest.UpdateMetadataTopicState, before: TopicState | None
    ) -> Steps[tuple[TopicState, bool]]:
        """Return a topic as it is after an update, and whether it has other partitions or replicas than before; without
        partitions it is deleted."""
        name, topic_id = update.topic_name, update.topic_id
        before = before or self._topics.get(name)
        is_known = before is not None
        if before is not None and topic_id not in (ZERO_UUID, before.topic_id) and before.topic_id != ZERO_UUID:
            before = None  # it is another topic of that name
        if before is not None and before.topic_id != ZERO_UUID:
            topic_id = before.topic_id
        partitions = {} if before is None else before.partitions.copy()
        moved = before is None
        for count, partition in enumerate(update.partition_states, 1):
            present = partitions.get(partition.partition_index)
            if partition.leader == LEADER_DURING_DELETE:
                moved |= partitions.pop(partition.partition_index, None) is not None
            else:
                moved |= present is None or present.replicas != partition.replicas
                partitions[partition.partition_index] = PartitionState(
                    partition.leader,
                    partition.leader_epoch,
                    partition.isr,
                    partition.replicas,
                    partition.offline_replicas,
                )
            if not count % ITEMS_PER_STEP:
                yield None
        return TopicState(name, topic_id, partitions), moved and (is_known or bool(partitions))

    def _forget(self, name: str) -> None:
        state = self._topics.pop(name, None)
        if state is not None:
            self._names.pop(state.topic_id, None)
