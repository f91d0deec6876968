"""Recovering partitions: logs that are checked after a crash; the controller's requests about them wait until then.

The other partitions are served meanwhile; a client of a recovering one gets NOT_LEADER_OR_FOLLOWER and retries. The
controller does not wait either: its requests are answered without the recovering partitions, and the responses about
these go to `on_deferred_response` when their logs are loaded. A controller on another broker does not receive them:
`must_notify_controller` is true if it has to be notified, so that it sends its requests again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.replication.controller.requests import answered_with

if TYPE_CHECKING:
    from gregor.replication.channels.messages import BrokerRequest, BrokerResponse
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.log.log import Log


RequestAboutReplicas = LeaderAndIsrRequest | StopReplicaRequest


class _Kept(NamedTuple):
    """A partition's part of a request."""

    request: RequestAboutReplicas
    topic: Any
    state: Any

    def alone(self) -> RequestAboutReplicas:
        """Return the request about this partition alone."""
        topic = self.topic.replaced(partition_states=[self.state])
        return self.request.replaced(topic_states=[topic])


class RecoveringPartitions:
    """Keeps the requests about the partitions of one broker for which `is_loading(topic, partition)` holds."""

    def __init__(self, replicas: ReplicaManager, is_loading: Callable[[str, int], bool]) -> None:
        self.on_deferred_response: list[Callable[[BrokerRequest, BrokerResponse], None]] = []
        self.must_notify_controller = False
        """Whether a log was deleted or could not be served since the controller was answered without it."""
        self._replicas = replicas
        self._is_loading = is_loading
        # The part of the controller's last request about each of them.
        self._kept: dict[TopicPartition, _Kept] = {}

    def hold_back(self, request: BrokerRequest) -> BrokerRequest:
        """Return the request without the partitions that are recovering, for which it is kept. The settings of its
        topics must be known: from now on a log may be served as soon as it is loaded, and with another topic's settings
        it would accept acks=all from one replica, and delete what is to be compacted."""
        if not isinstance(request, RequestAboutReplicas):
            return request
        topics = []
        for topic in request.topic_states:
            ready = []
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if self._is_loading(*key):
                    self._kept[key] = _Kept(request, topic, state)
                else:
                    ready.append(state)
            # A topic without partitions stays in: its settings are read before its logs are opened.
            whole = len(ready) == len(topic.partition_states)
            topics.append(topic if whole else topic.replaced(partition_states=ready))
        return request.replaced(topic_states=topics)

    def loaded(self, log: Log, min_request_epoch: int) -> None:
        """Apply the controller's last request about a log that can be served from now on, unless the request was sent
        to a registration of this broker before `min_request_epoch`."""
        self._catch_up(TopicPartition(log.topic, log.partition), min_request_epoch)

    def all_loaded(self, min_request_epoch: int) -> None:
        """Apply the requests about the logs that could not be loaded: they fail, and the controller receives that."""
        for key in list(self._kept):
            self._catch_up(key, min_request_epoch)

    def _catch_up(self, key: TopicPartition, min_request_epoch: int) -> None:
        kept = self._kept.pop(key, None)
        if kept is None or 0 <= kept.request.broker_epoch < min_request_epoch:
            return  # no request since the session ended: other brokers may have the partition now
        request = kept.alone()
        response: BrokerResponse
        if isinstance(request, LeaderAndIsrRequest):
            response = run_all(self._replicas.apply(request))
            self.must_notify_controller |= not answered_with(ErrorCode.NONE, request, response)
        else:
            response = run_all(self._replicas.stop(request))
            self.must_notify_controller = True
        for listener in self.on_deferred_response:
            listener(request, response)
