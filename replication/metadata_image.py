"""What this broker knows of the cluster: live brokers, topics, who leads what. Built from UpdateMetadata requests.

Every broker answers metadata requests from its own image, also the controller. Leader -2 in an update means that the
topic is being deleted (Kafka's LeaderDuringDelete): the partition leaves the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID, Uuid
from protocol.messages import UpdateMetadataResponse

if TYPE_CHECKING:
    from protocol.messages import UpdateMetadataRequest

LEADER_DURING_DELETE = -2
NO_CONTROLLER = -1


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
    """A topic with its partitions by index."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionState] = {}


class MetadataImage:
    """`version` grows with every update, so that whoever derives something from the image knows when to do so again."""

    def __init__(self) -> None:
        self.version = 0
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.brokers: dict[int, LiveBroker] = {}
        self.on_update: list[Callable[[], None]] = []
        self._topics: dict[str, TopicState] = {}
        self._names: dict[Uuid, str] = {}

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def topics(self) -> Iterator[TopicState]:
        """All topics, by name."""
        for name in sorted(self._topics):
            yield self._topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self._topics.get(topic)
        return None if state is None else state.partitions.get(index)

    def partition_count(self, topic: str) -> int:
        """0 for a topic that is not known."""
        state = self._topics.get(topic)
        return 0 if state is None else len(state.partitions)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def apply(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Take an update over: the list of live brokers whole, of the partitions those it names."""
        if request.controller_epoch < self.controller_epoch:
            return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        self.controller_id = request.controller_id
        self.brokers = {
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
        for topic in request.topic_states:
            self._apply_topic(topic)
        self.version += 1
        for listener in self.on_update:
            listener()
        return UpdateMetadataResponse()

    def _apply_topic(self, update: UpdateMetadataRequest.UpdateMetadataTopicState) -> None:
        state = self._topics.get(update.topic_name)
        if state is None or (update.topic_id != ZERO_UUID and state.topic_id not in (ZERO_UUID, update.topic_id)):
            self._forget(update.topic_name)
            state = self._topics[update.topic_name] = TopicState(update.topic_name, update.topic_id)
        elif state.topic_id == ZERO_UUID:
            state.topic_id = update.topic_id
        if state.topic_id != ZERO_UUID:
            self._names[state.topic_id] = state.name
        for partition in update.partition_states:
            if partition.leader == LEADER_DURING_DELETE:
                state.partitions.pop(partition.partition_index, None)
            else:
                state.partitions[partition.partition_index] = PartitionState(
                    partition.leader,
                    partition.leader_epoch,
                    partition.isr,
                    partition.replicas,
                    partition.offline_replicas,
                )
        if not state.partitions:
            self._forget(state.name)

    def _forget(self, name: str) -> None:
        state = self._topics.pop(name, None)
        if state is not None:
            self._names.pop(state.topic_id, None)
