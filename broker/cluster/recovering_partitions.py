"""Recovering partitions: logs that are checked after a crash; the controller's requests about them wait until then.

The other partitions are served meanwhile; a client of a recovering one gets NOT_LEADER_OR_FOLLOWER and retries. The
controller does not wait either: its requests are answered without the recovering partitions, and these are reported to
`on_late_answer` when their logs are loaded. A controller on another broker is not reached that way: `must_be_asked`
says whether it has to ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.replication.controller.requests import answered_with

if TYPE_CHECKING:
    from gregor.replication.channels.messages import BrokerRequest, BrokerResponse
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.log.log import Log


class RecoveringPartitions:
    """One broker's. `is_loading(topic, partition)` says which they are."""

    def __init__(self, replicas: ReplicaManager, is_loading: Callable[[str, int], bool]) -> None:
        self.on_late_answer: list[Callable[[BrokerRequest, BrokerResponse], None]] = []
        self.must_be_asked = False
        """Whether a log was deleted or could not be served since the controller was answered without it."""
        self._replicas = replicas
        self._is_loading = is_loading
        # The controller's last request about each of them, as a request about it alone.
        self._kept: dict[TopicPartition, LeaderAndIsrRequest | StopReplicaRequest] = {}

    def hold_back(self, request: BrokerRequest) -> BrokerRequest:
        """The request without the partitions that are recovering, for which it is kept. The settings of its topics must
        be known: from now on a log may be served as soon as it is loaded, and with another topic's settings it would
        accept acks=all from one replica, and delete what is to be compacted."""
        if isinstance(request, LeaderAndIsrRequest):
            return self._roles_of_loaded(request)
        if isinstance(request, StopReplicaRequest):
            return self._stops_of_loaded(request)
        return request

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

    def loaded(self, log: Log, broker_epoch: int) -> None:
        """The log can be served: apply the controller's last request about it, unless it was sent to a life of this
        broker before `broker_epoch`."""
        self._catch_up(TopicPartition(log.topic, log.partition), broker_epoch)

    def all_loaded(self, broker_epoch: int) -> None:
        """The logs that are left could not be loaded: the requests about them fail, and the controller learns it."""
        for key in list(self._kept):
            self._catch_up(key, broker_epoch)

    def _catch_up(self, key: TopicPartition, broker_epoch: int) -> None:
        request = self._kept.pop(key, None)
        if request is None or 0 <= request.broker_epoch < broker_epoch:
            return  # no request since this broker registered anew: others have the partition now
        response: BrokerResponse
        if isinstance(request, LeaderAndIsrRequest):
            response = run_all(self._replicas.apply(request))
            self.must_be_asked |= not answered_with(ErrorCode.NONE, request, response)
        else:
            response = run_all(self._replicas.stop(request))
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
