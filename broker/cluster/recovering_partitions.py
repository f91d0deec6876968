"""Partitions whose logs are still being checked after a crash: the controller's word about them is kept until they are.

The others are served meanwhile; a client of a late one is told NOT_LEADER_OR_FOLLOWER and comes back. The controller
does not wait either: its requests are answered without the late partitions, and these are reported to
`on_late_answer` when their logs are there. A controller on another broker is not reached that way: `must_be_asked` says
whether it has to ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate, run_all
from gregor.replication.controller.requests import answered_with
from gregor.replication.partition.controller_request_handler import LocalBroker

if TYPE_CHECKING:
    from gregor.replication.channels.messages import BrokerRequest, BrokerResponse
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.topic_configs import TopicConfigs
    from gregor.storage.log.log import Log


class LatePartitions(LocalBroker):
    """A LocalBroker that can be spoken to before all logs are loaded. `is_loading(topic, partition)` says of which."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        configs: TopicConfigs,
        gate: Gate,
        is_loading: Callable[[str, int], bool],
    ) -> None:
        super().__init__(replicas, image, configs, gate)
        self.on_late_answer: list[Callable[[BrokerRequest, BrokerResponse], None]] = []
        self.must_be_asked = False
        """Whether a log was deleted or could not be served since the controller was answered without it."""
        self._late_replicas = replicas
        self._late_configs = configs
        self._is_loading = is_loading
        # What the controller said last of each late partition, as a request about it alone.
        self._kept: dict[TopicPartition, LeaderAndIsrRequest | StopReplicaRequest] = {}

    async def _obey(self, request: BrokerRequest) -> BrokerResponse:
        if isinstance(request, LeaderAndIsrRequest):
            # Before anything is kept, because from then on a log may be served as soon as it is loaded: with another
            # topic's settings, it would take acks=all from one replica, and delete what is to be compacted.
            await self._late_configs.ensure(topic.topic_name for topic in request.topic_states)
            request = self._roles_of_loaded(request)
        elif isinstance(request, StopReplicaRequest):
            request = self._stops_of_loaded(request)
        return await super()._obey(request)

    def _roles_of_loaded(self, request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
        topics = []
        for topic in request.topic_states:
            now = []
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if self._is_loading(*key):
                    self._kept[key] = _with_topics(request, [_with_states(topic, [state])])
                else:
                    now.append(state)
            # A topic without partitions stays in: its settings are read before its logs are opened.
            topics.append(topic if len(now) == len(topic.partition_states) else _with_states(topic, now))
        return _with_topics(request, topics)

    def _stops_of_loaded(self, request: StopReplicaRequest) -> StopReplicaRequest:
        topics = []
        for topic in request.topic_states:
            now = []
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if self._is_loading(*key):
                    self._kept[key] = _with_stops(request, [_with_stopped(topic, [state])])
                else:
                    now.append(state)
            if now:
                topics.append(_with_stopped(topic, now))
        return _with_stops(request, topics)

    def loaded(self, log: Log) -> None:
        """The log can be served: do what the controller has said about it meanwhile."""
        self._catch_up(TopicPartition(log.topic, log.partition))

    def all_loaded(self) -> None:
        """What is left could not be loaded: the controller's word about it fails, and it is told so."""
        for key in list(self._kept):
            self._catch_up(key)

    def _catch_up(self, key: TopicPartition) -> None:
        request = self._kept.pop(key, None)
        if request is None or 0 <= request.broker_epoch < self.broker_epoch:
            return  # nothing was said since this broker registered anew: others have the partition now
        response: BrokerResponse
        if isinstance(request, LeaderAndIsrRequest):
            response = run_all(self._late_replicas.apply(request))
            self.must_be_asked |= not answered_with(ErrorCode.NONE, request, response)
        else:
            response = run_all(self._late_replicas.stop(request))
            self.must_be_asked = True
        for listener in self.on_late_answer:
            listener(request, response)


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


def _with_stops(
    request: StopReplicaRequest, topics: list[StopReplicaRequest.StopReplicaTopicState]
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=request.controller_id,
        is_kraft_controller=request.is_kraft_controller,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=topics,
    )


def _with_stopped(
    topic: StopReplicaRequest.StopReplicaTopicState, states: list[StopReplicaRequest.StopReplicaPartitionState]
) -> StopReplicaRequest.StopReplicaTopicState:
    return StopReplicaRequest.StopReplicaTopicState(topic_name=topic.topic_name, partition_states=states)
