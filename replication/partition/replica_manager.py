"""All partition replicas of this broker, and the changes that the controller's requests make to them.

The controller sends LeaderAndIsr and StopReplica (Kafka 3.9, ZooKeeper mode) to every broker, this one included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse, StopReplicaRequest, StopReplicaResponse
from gregor.protocol.topic_partition import TopicPartition, TopicPartitionKey
from gregor.protocol.turns import Call, Steps, WalkableDict
from gregor.replication.partition.partition import DEFAULT_LAG_TIME_MAX_MS, Partition
from gregor.replication.traffic import Traffic
from gregor.storage.folders.log_table import NewPartition

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.log.log import Log

# Leader epochs of StopReplica that stand for no epoch (Kafka's LeaderAndIsr).
EPOCH_UNKNOWN = -1
EPOCH_DURING_DELETE = -2

REFUSED_LATELY_MS = 30_000
MAX_REFUSED = 1000
"""Producers that are remembered for a partition."""

NOTIFIED_AT_A_TIME = 50
"""Partitions of which the listeners are notified in one step."""

MIN_NEW_FOLDERS = 16
MAX_NEW_FOLDERS = 64
"""The numbers of partitions for which a thread makes the folders: to hand over fewer costs as much as some of them."""

LeadershipListener = Callable[[list[Partition], list[Partition]], None]
StopListener = Callable[[list[Partition]], None]

_log = logging.getLogger(__name__)


class ReplicaManager:
    """The table of partitions.

    `generation` grows with every change of leadership, every move to another data folder and every deletion: a cached
    Partition is valid in the generation in which it was found.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        topic_config: Callable[[str], LogConfig],
        clock_ms: Callable[[], int],
        *,
        lag_time_max_ms: int = DEFAULT_LAG_TIME_MAX_MS,
        is_alive: Callable[[int], bool] = lambda _broker_id: True,
        folder_removed: Callable[[str], None] = lambda _folder: None,
    ) -> None:
        """`folder_removed` is called with each renamed folder of a deleted partition, to be unlinked off the loop."""
        self.broker_id = broker_id
        self.partitions: WalkableDict[TopicPartitionKey, Partition] = WalkableDict()
        self.by_topic_id: dict[tuple[Uuid, int], Partition] = {}
        self.generation = 0
        self.controller_epoch = 0
        self.may_be_outdated = False
        """Whether other brokers may lead partitions of which this one is still the leader by what it knows."""
        self.traffic = Traffic()
        # (new leaders, new followers) after each LeaderAndIsr, NOTIFIED_AT_A_TIME; the stopped after each StopReplica.
        self.on_leadership: list[LeadershipListener] = []
        self.on_stopped: list[StopListener] = []
        self.on_log_moved: list[Callable[[Partition], None]] = []
        self._suspended: set[TopicPartitionKey] = set()
        self._refused: dict[TopicPartitionKey, dict[int, tuple[int, int, int]]] = {}
        """By partition and producer id: epoch and sequence of the first batch refused lately, and when."""
        self._logs = logs
        self._topic_config = topic_config
        self._clock_ms = clock_ms
        self._lag_time_max_ms = lag_time_max_ms
        self._is_alive = is_alive
        self._folder_removed = folder_removed

    def get(self, topic: str, partition: int) -> Partition | None:
        return self.partitions.get((topic, partition))

    def has(self, topic: str, partition: int) -> bool:
        """Return whether the controller has assigned this partition to this broker since the start. Only then does its
        log have its topic's settings; until then it has the broker's defaults."""
        return (topic, partition) in self.partitions

    def get_by_id(self, topic_id: Uuid, partition: int) -> Partition | None:
        return self.by_topic_id.get((topic_id, partition))

    # -- LeaderAndIsr ------------------------------------------------------------------------------------------

    def apply(self, request: LeaderAndIsrRequest) -> Steps[LeaderAndIsrResponse]:
        """Make this broker leader or follower of partitions. Errors are in the response, none is raised.

        A step for each partition: to create a log costs several system calls. No other request of the controller may
        be applied in between.
        """
        if request.controller_epoch < self.controller_epoch:
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        leaders: list[Partition] = []
        followers: list[Partition] = []
        topics = []
        now_ms = self._clock_ms()
        ahead = FoldersAhead(self._logs, self.broker_id, request)
        try:
            for topic_state in request.topic_states:
                name, topic_id = topic_state.topic_name, topic_state.topic_id
                errors = []
                for state in topic_state.partition_states:
                    if (call := ahead.call_before(name, state)) is not None:
                        yield call
                    error = self._apply_one(name, topic_id, state, now_ms, leaders, followers)
                    errors.append(
                        LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                            partition_index=state.partition_index, error_code=error
                        )
                    )
                    self.generation += 1
                    yield None
                topics.append(LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors))
            while len(leaders) > NOTIFIED_AT_A_TIME or len(followers) > NOTIFIED_AT_A_TIME:
                first = leaders[:NOTIFIED_AT_A_TIME], followers[:NOTIFIED_AT_A_TIME]
                del leaders[:NOTIFIED_AT_A_TIME], followers[:NOTIFIED_AT_A_TIME]
                self._notify_of_roles(*first)
                yield None
        finally:
            # Also if this ends half way, as when the controller of this process resigns: the next repeats the changes
            # that were not made, but the listeners would never be notified of those that were.
            self._notify_of_roles(leaders, followers)
            ahead.close()
        return LeaderAndIsrResponse(topics=topics)

    def _notify_of_roles(self, leaders: list[Partition], followers: list[Partition]) -> None:
        if leaders or followers:
            for listener in self.on_leadership:
                listener(leaders, followers)

    def _apply_one(
        self,
        topic: str,
        topic_id: Uuid,
        state: LeaderAndIsrRequest.LeaderAndIsrPartitionState,
        now_ms: int,
        leaders: list[Partition],
        followers: list[Partition],
    ) -> ErrorCode:
        key = (topic, state.partition_index)
        partition = self.partitions.get(key)
        if key in self._logs.failed:
            if partition is None:
                self._add(topic, state.partition_index, topic_id).offline(ErrorCode.KAFKA_STORAGE_ERROR)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if key in self._suspended and not self._is_last_in_sync(state):
            return ErrorCode.KAFKA_STORAGE_ERROR
        known_id = partition.topic_id if partition is not None else self._stored_topic_id(key)
        if ZERO_UUID not in (topic_id, known_id) and topic_id != known_id:
            _log_other_topic(key, topic_id, known_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        # A known epoch was applied already, except where no log could be opened then.
        if partition is not None and (
            state.leader_epoch < partition.leader_epoch
            or (state.leader_epoch == partition.leader_epoch and partition.log is not None)
        ):
            if state.leader_epoch < partition.leader_epoch or not self._accept_topic_id(partition, topic_id):
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if not partition.is_leader:
                followers.append(partition)  # it is fetched by its topic id from now on
            return ErrorCode.NONE
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition is None:
            partition = self._add(topic, state.partition_index, topic_id if topic_id != ZERO_UUID else known_id)
        else:
            self._accept_topic_id(partition, topic_id)
        reopened = partition.log is None
        if reopened:
            try:
                self._open_log(partition, state.is_new)
            except KafkaError as error:
                _log.error("%s-%d cannot be opened: %s", *key, error)
                partition.offline(error.code)
                return error.code
        if state.leader == self.broker_id:
            try:
                newly_leader = partition.become_leader(state, now_ms)
            except KafkaError as error:
                # A failure of its disk is no failure of the other partitions in the request.
                _log.error("%s-%d cannot be led: %s", *key, error)
                self.take_offline([key], error.code)
                return error.code
            self._suspended.discard(key)
            if newly_leader:
                self._await_refused(key, partition, now_ms)
                leaders.append(partition)
        elif partition.become_follower(state) or reopened:
            followers.append(partition)
        return ErrorCode.NONE

    def note_refused(self, key: TopicPartitionKey, producer_id: int, epoch: int, sequence: int) -> None:
        """Note a producer's batch that was refused, as this broker does not lead the partition, too few are in sync, or
        the batch could not be written.

        All of this may change before the producer's next request is handled, which it sent after that batch: the next
        batch must not be appended before the refused one.
        """
        partition, now_ms = self.partitions.get(key), self._clock_ms()
        if partition is not None and partition.is_leader and partition.log is not None:
            partition.log.producers.await_sequence(producer_id, epoch, sequence)
        elif self._logs.get(*key) is not None:
            noted = self._refused.setdefault(key, {})
            known_epoch, _, at_ms = noted.get(producer_id, (-1, 0, 0))
            if known_epoch != epoch or now_ms - at_ms > REFUSED_LATELY_MS:
                if len(noted) >= MAX_REFUSED:
                    noted.clear()
                noted[producer_id] = epoch, sequence, now_ms

    def _await_refused(self, key: TopicPartitionKey, partition: Partition, now_ms: int) -> None:
        log = partition.log
        assert log is not None
        since_ms = now_ms if partition.leader_epoch and len(partition.replicas) > 1 else None
        log.producers.begin_to_lead(since_ms, knows_all=log.log_start_offset == 0)
        for producer_id, (epoch, sequence, at_ms) in self._refused.pop(key, {}).items():
            if now_ms - at_ms <= REFUSED_LATELY_MS:
                log.producers.await_sequence(producer_id, epoch, sequence)

    def _accept_topic_id(self, partition: Partition, topic_id: Uuid) -> bool:
        """Give a partition the topic id that a controller has assigned since. False if it has one."""
        if not partition.accept_topic_id(topic_id):
            return False
        self.by_topic_id[topic_id, partition.partition] = partition
        return True

    def _stored_topic_id(self, key: TopicPartitionKey) -> Uuid:
        log = self._logs.get(*key)
        return ZERO_UUID if log is None else log.topic_id

    def _add(self, topic: str, index: int, topic_id: Uuid) -> Partition:
        partition = Partition(
            topic,
            index,
            topic_id,
            self.broker_id,
            lag_time_max_ms=self._lag_time_max_ms,
            is_alive=self._is_alive,
            traffic=self.traffic.replica_added(topic),
        )
        self.partitions[topic, index] = partition
        if topic_id != ZERO_UUID:
            self.by_topic_id[topic_id, index] = partition
        return partition

    def _open_log(self, partition: Partition, is_new: bool) -> None:
        config = self._topic_config(partition.topic)
        log = self._logs.get_or_create(partition.topic, partition.partition, partition.topic_id, config, is_new=is_new)
        partition.use_log(log)

    # -- disks ---------------------------------------------------------------------------------------------------

    def disk_failed(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Stop serving the partitions of a failed disk: requests for them get KAFKA_STORAGE_ERROR, delayed ones too.

        The controller learns it from the response to its next LeaderAndIsr (see `registration.announce_disk_event`).
        """
        self.take_offline(keys, ErrorCode.KAFKA_STORAGE_ERROR)

    def suspend(self, keys: Iterable[TopicPartitionKey]) -> list[TopicPartitionKey]:
        """Stop serving replicas where other brokers can serve them; returns these. It lasts until `resume`, or until
        the controller elects this broker as the last one in sync.

        Of a partition that this broker leads, another replica must be in sync. Clients get NOT_LEADER_OR_FOLLOWER, so
        that they find the new leader; the controller learns it as in `disk_failed`.
        """
        suspended = [key for key in keys if self._is_held_by_others(key)]
        self._suspended.update(suspended)
        self.take_offline(suspended, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return suspended

    def resume(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Accept the controller's requests for these again."""
        self._suspended.difference_update(keys)

    def _is_held_by_others(self, key: TopicPartitionKey) -> bool:
        partition = self.partitions.get(key)
        if partition is None or partition.log is None:
            return False
        return len(partition.isr) > 1 if partition.is_leader else True

    def _is_last_in_sync(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> bool:
        """Return whether this broker is elected as the only one in sync. Then it serves reads, though its disk is full:
        those of the brokers that it left the partition to are full, too."""
        return state.leader == self.broker_id and state.isr == [self.broker_id]

    def take_offline(self, keys: Iterable[TopicPartitionKey], error: ErrorCode) -> None:
        """Stop serving these until the controller assigns them a role again. Delayed requests get `error`."""
        lost = [partition for key in keys if (partition := self.partitions.get(key)) is not None]
        self.generation += 1
        for partition in lost:
            partition.offline(error)
        self._notify_of_stops(lost)

    def suspect_other_leaders(self, possible: bool) -> None:
        """Note whether other brokers may lead partitions by now without this one's knowledge."""
        self.may_be_outdated = possible

    def resign(self, keys: Iterable[TopicPartitionKey]) -> Steps[None]:
        """Stop serving partitions that other brokers may lead by now."""
        left = list(keys)
        for start in range(0, len(left), NOTIFIED_AT_A_TIME):
            self.take_offline(left[start : start + NOTIFIED_AT_A_TIME], ErrorCode.NOT_LEADER_OR_FOLLOWER)
            yield None

    def follow_controller(self, epoch: int) -> None:
        """Refuse the requests of earlier controllers from now on, by their epoch."""
        self.controller_epoch = epoch

    def settings_changed(self, topics: Collection[str]) -> Iterator[None]:
        """Configure the logs of these topics, a step for each partition, and make produce routes void that were made
        under other settings. Replicas that are not served now are included: what retention may delete on a full disk,
        where they are suspended, is decided by these settings."""
        for (topic, index), _ in self.partitions.walk():
            if topic in topics and (log := self._logs.get(topic, index)) is not None:
                log.configure(self._topic_config(topic))
            yield
        self.generation += 1

    def log_moved(self, log: Log) -> None:
        """Replace a partition's log by its copy in another data folder; all else stays."""
        partition = self.partitions.get((log.topic, log.partition))
        if partition is not None and partition.log is not None:
            partition.use_log(log)
            self.generation += 1
            for listener in self.on_log_moved:
                listener(partition)

    # -- StopReplica -------------------------------------------------------------------------------------------

    def stop(self, request: StopReplicaRequest) -> Steps[StopReplicaResponse]:
        """Stop serving replicas, and delete those that the request marks. Errors and steps are as in `apply`."""
        if request.controller_epoch < self.controller_epoch:
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        stopped: list[Partition] = []
        errors = []
        try:
            for topic_state in request.topic_states:
                for state in topic_state.partition_states:
                    error = self._stop_one(topic_state.topic_name, state, stopped)
                    errors.append(
                        StopReplicaResponse.StopReplicaPartitionError(
                            topic_name=topic_state.topic_name, partition_index=state.partition_index, error_code=error
                        )
                    )
                    self.generation += 1
                    yield None
            while len(stopped) > NOTIFIED_AT_A_TIME:
                first = stopped[:NOTIFIED_AT_A_TIME]
                del stopped[:NOTIFIED_AT_A_TIME]
                self._notify_of_stops(first)
                yield None
        finally:
            self._notify_of_stops(stopped)
        return StopReplicaResponse(partition_errors=errors)

    def _notify_of_stops(self, stopped: list[Partition]) -> None:
        if stopped:
            for listener in self.on_stopped:
                listener(stopped)

    def _stop_one(
        self, topic: str, state: StopReplicaRequest.StopReplicaPartitionState, stopped: list[Partition]
    ) -> ErrorCode:
        key = (topic, state.partition_index)
        if state.delete_partition and key in self._logs.failed:
            # The folder cannot be removed now: the controller must repeat the deletion after the next start.
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partitions.get(key)
        if partition is not None:
            if 0 <= state.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if state.delete_partition:
                del self.partitions[key]
                self.traffic.replica_removed(topic)
                self._refused.pop(key, None)
                self.by_topic_id.pop((partition.topic_id, partition.partition), None)
                partition.offline(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                partition.offline()
            stopped.append(partition)
        # A log without a partition: the topic was deleted while this broker was down.
        if state.delete_partition and self._logs.get(*key) is not None:
            try:
                self._folder_removed(self._logs.remove(*key))
            except KafkaError as error:
                _log.error("%s-%d cannot be deleted: %s", *key, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


class FoldersAhead:
    """The folders of the many partitions that one LeaderAndIsr creates: a thread makes them in groups, each before its
    logs are created. The file system's journal may keep a caller waiting for longer than the event loop may wait."""

    def __init__(self, logs: LogManager, broker_id: int, request: LeaderAndIsrRequest) -> None:
        self._logs = logs
        self._broker_id = broker_id
        self._coming = _new_partitions(logs, broker_id, request)
        self._left = 0
        self._planned = False

    def call_before(self, topic: str, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> Call | None:
        """Return the call that must be made before this partition is created, if there is one."""
        if not _is_new(self._logs, self._broker_id, topic, state):
            return None
        call = None
        if self._left <= 0:
            group = list(islice(self._coming, MAX_NEW_FOLDERS))
            self._left = len(group)
            if len(group) >= MIN_NEW_FOLDERS:
                self._planned = True
                call = self._logs.plan_folders(group)
        self._left -= 1
        return call

    def close(self) -> None:
        """Remove what was made in vain."""
        if self._planned:
            self._logs.discard_folders()


def _new_partitions(logs: LogManager, broker_id: int, request: LeaderAndIsrRequest) -> Iterator[NewPartition]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            if _is_new(logs, broker_id, topic.topic_name, state):
                key = TopicPartition(topic.topic_name, state.partition_index)
                yield NewPartition(key, topic.topic_id, state.leader_epoch if state.leader == broker_id else -1)


def _is_new(
    logs: LogManager, broker_id: int, topic: str, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState
) -> bool:
    key = (topic, state.partition_index)
    known = logs.get(*key) is not None or key in logs.failed
    return state.is_new and not known and broker_id in state.replicas


def _log_other_topic(key: TopicPartitionKey, requested_id: Uuid, known_id: Uuid) -> None:
    _log.error(
        "%s-%d: the controller's request is refused: it has topic id %s, the log of this broker %s. If the topic was"
        " deleted and created anew: stop this broker, move the folder of the log out of log.dirs and start it; the"
        " replica then fetches the records of the new topic",
        *key,
        requested_id.hex(),
        known_id.hex(),
    )
