"""Partitions whose logs are still being checked after a crash: the controller's word about them is kept until they are.

The others are served meanwhile; a client of a late one is told NOT_LEADER_OR_FOLLOWER and comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.messages import LeaderAndIsrRequest, StopReplicaRequest
from replication.local_broker import BrokerResponse, LocalBroker

if TYPE_CHECKING:
    from replication.controller_requests import BrokerRequest
    from replication.metadata_image import MetadataImage
    from replication.replica_manager import ReplicaManager
    from replication.topic_configs import TopicConfigs
    from storage.log import Log

Key = tuple[str, int]


class LatePartitions(LocalBroker):
    """A LocalBroker that can be spoken to before all logs are loaded. `is_loading(topic, partition)` says of which."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        configs: TopicConfigs,
        is_loading: Callable[[str, int], bool],
    ) -> None:
        super().__init__(replicas, image, configs)
        self._late_replicas = replicas
        self._is_loading = is_loading
        self._kept: dict[Key, LeaderAndIsrRequest] = {}
        self._loaded: dict[Key, asyncio.Event] = {}

    async def handle(self, request: BrokerRequest) -> BrokerResponse:
        if isinstance(request, LeaderAndIsrRequest):
            request = self._without_late(request)
        elif isinstance(request, StopReplicaRequest):
            for topic in request.topic_states:
                for state in topic.partition_states:
                    await self._until_loaded((topic.topic_name, state.partition_index))
        return await super().handle(request)

    def _without_late(self, request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
        topics = []
        for topic in request.topic_states:
            now = []
            for state in topic.partition_states:
                if self._is_loading(topic.topic_name, state.partition_index):
                    self._kept[topic.topic_name, state.partition_index] = _with_topics(
                        request, [_with_states(topic, [state])]
                    )
                else:
                    now.append(state)
            topics.append(topic if len(now) == len(topic.partition_states) else _with_states(topic, now))
        return _with_topics(request, topics)

    async def _until_loaded(self, key: Key) -> None:
        if self._is_loading(*key):
            await self._loaded.setdefault(key, asyncio.Event()).wait()

    def loaded(self, log: Log) -> None:
        """The log can be served: do what the controller has said about it meanwhile."""
        self._catch_up((log.topic, log.partition))

    def all_loaded(self) -> None:
        """What is left could not be loaded: the controller's word about it fails, and the log says so."""
        for key in [*self._kept, *self._loaded]:
            self._catch_up(key)

    def _catch_up(self, key: Key) -> None:
        request = self._kept.pop(key, None)
        if request is not None:
            self._late_replicas.apply(request)
        event = self._loaded.pop(key, None)
        if event is not None:
            event.set()


def _with_topics(
    request: LeaderAndIsrRequest, topics: list[LeaderAndIsrRequest.LeaderAndIsrTopicState]
) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=request.controller_id,
        is_kraft_controller=request.is_kraft_controller,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        type=request.type,
        topic_states=topics,
        live_leaders=request.live_leaders,
    )


def _with_states(
    topic: LeaderAndIsrRequest.LeaderAndIsrTopicState, states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
) -> LeaderAndIsrRequest.LeaderAndIsrTopicState:
    return LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=topic.topic_name, topic_id=topic.topic_id, partition_states=states
    )
