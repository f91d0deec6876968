"""The markers that end transactions: written here into the partitions that this broker leads, sent for the others.

A marker is sent to the leader of each partition until it is written there, wherever the leadership moves meanwhile, as
Kafka's TransactionMarkerChannelManager does: to another broker by WriteTxnMarkers, with the markers of all transactions
that wait for the same broker. A partition without a place in the metadata was deleted with its topic, and needs none.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gregor.broker.cluster.peer_queue import PeerQueues
from gregor.broker.log import logger
from gregor.coordinator.txn.ports import Markers
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP
from gregor.replication.channels.controller_channel import RETRY_DELAY_S

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.records.control import EndTransaction
    from gregor.replication.channels.peer import Peer, PeerError
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager

WRITTEN_AT_ONCE = 16
"""Partitions of one marker that are written in the same turn of the loop."""
LOGGED_EVERY_S = 30.0

_NEEDLESS = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition cannot hold records of transactions, so it holds none of this one."""
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer coordinator, or a newer epoch of the producer, has ended the transaction."""
_GROUP_ERRORS = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""Errors of a group coordinator, for which a transaction coordinator gets NOT_LEADER_OR_FOLLOWER."""

Written = Callable[[ErrorCode], None]


class TransactionalGroups(Protocol):
    """The group coordinator: it appends the markers of the offsets that transactions commit."""

    def end_transaction(self, partition: int, marker: EndTransaction) -> Deferred[bool]: ...


class LocalMarkers:
    """Writes markers into the partitions that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: TransactionalGroups,
        clock_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock_ms = clock_ms

    def write(self, marker: EndTransaction, topic: str, partition: int, written: Written) -> None:
        """Append a marker, and call `written` with NONE once it is committed, or with the error. The call may come
        before this returns."""
        if topic == GROUP_METADATA_TOPIC:
            self._groups.end_transaction(partition, marker).then(partial(_commits_ended, written))
            return
        replica = self._replicas.get(topic, partition)
        if replica is None:
            written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        try:
            info = replica.append_marker(marker, self._clock_ms())
        except KafkaError as error:
            written(error.code)
            return
        replica.leadership.when_committed(info.last_offset + 1, written)


def _commits_ended(written: Written, outcome: Deferred[bool]) -> None:
    error = outcome.error
    if error is None:
        written(ErrorCode.NONE)
    elif isinstance(error, KafkaError) and error.code not in _GROUP_ERRORS:
        written(error.code)
    else:
        written(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class _Pending:
    """A marker, and the partitions that do not have it yet."""

    __slots__ = ("marker", "outcome")

    def __init__(self, marker: EndTransaction, partitions: Iterable[TopicPartition]) -> None:
        self.marker = marker
        self.outcome = Markers(partitions)


class _Errand(NamedTuple):
    """Some partitions of a marker, all of which one other broker leads."""

    pending: _Pending
    partitions: list[TopicPartition]


class TransactionMarkers:
    """Implements the coordinator's port MarkerSender."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        local: LocalMarkers,
        background: Background,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        self._config = config
        self._image = image
        self._local = local
        self._background = background
        self._queues: PeerQueues[_Errand] = PeerQueues(
            config, image, background, "transaction-markers", self._exchange, self._not_sent, security=security
        )
        self._stuck: dict[TopicPartition, deque[_Pending]] = {}
        """The markers that each partition lacks after an attempt that failed."""
        self._timer: asyncio.TimerHandle | None = None
        self._logged_s: dict[str, float] = {}  # by reason
        self._closed = False
        image.on_update.append(self._retry_at_once)

    def send(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> Markers:
        """Write a marker into partitions, and complete the Deferred once all of them have it. It fails with KafkaError
        where the coordinator is fenced; to cancel it ends the attempts."""
        pending = _Pending(marker, partitions)
        if not partitions:
            pending.outcome.complete(None)
        elif len(partitions) <= WRITTEN_AT_ONCE:
            self._route(pending, sorted(partitions))  # not in the order of hashes: a simulated run can be repeated
        else:
            self._background.spawn(self._route_in_turns(pending, sorted(partitions)))
        return pending.outcome

    def close(self) -> None:
        """End all attempts: the broker stops."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._stuck.clear()
        self._queues.close()

    # -- the way to each partition -----------------------------------------------------------------------------------

    async def _route_in_turns(self, pending: _Pending, partitions: list[TopicPartition]) -> None:
        turns = self._background.gate.turns()
        for first in range(0, len(partitions), WRITTEN_AT_ONCE):
            self._route(pending, partitions[first : first + WRITTEN_AT_ONCE])
            await turns.next()

    def _route(self, pending: _Pending, partitions: Iterable[TopicPartition]) -> None:
        remote: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            if pending.outcome.done:
                return
            state = self._image.partition(*one)
            if state is not None and state.leader == self._config.broker_id:
                self._local.write(pending.marker, *one, partial(self._decided, pending, one))
            elif state is not None:
                remote.setdefault(state.leader, []).append(one)
            elif self._knows_all_topics():
                logger.info("%s-%d does not exist any more, and needs no end of a transaction", *one)
                self._decided(pending, one, ErrorCode.NONE)
            else:
                self._delay(pending, [one])
        for leader, ones in remote.items():
            if not self._queues.add(leader, _Errand(pending, ones)):
                self._delay(pending, ones)

    def _knows_all_topics(self) -> bool:
        """Whether a topic that the image lacks is deleted. A broker may be elected as coordinator before its image is
        complete, and an image that is waited for too long counts as complete: then it lacks the coordinators' topic,
        too."""
        return self._image.is_informed and self._image.topic(TRANSACTION_STATE_TOPIC) is not None

    def _decided(self, pending: _Pending, partition: TopicPartition, error: ErrorCode) -> None:
        refused = error and error not in _NEEDLESS and error not in _FENCED
        if not refused and partition in self._stuck:
            self._background.spawn(self._route_stuck(partition, self._stuck.pop(partition)))
        if pending.outcome.done:
            return
        if refused:
            self._log(partition, f"its leader answers {error.name}")
            self._delay(pending, [partition])
        elif error in _FENCED:
            marker = pending.marker
            text = f"producer {marker.producer_id} epoch {marker.producer_epoch}: {partition.topic}-"
            pending.outcome.fail(KafkaError(error, f"{text}{partition.partition} refuses the end of its transaction"))
        else:
            pending.outcome.is_written(partition)

    # -- later attempts ----------------------------------------------------------------------------------------------

    def _delay(self, pending: _Pending, partitions: Iterable[TopicPartition]) -> None:
        """Leave a marker to later attempts. Each of those is one marker for each partition, and all others follow once
        that is written: a partition without a leader may lack the markers of thousands of transactions."""
        if self._closed:
            return
        for one in partitions:
            self._stuck.setdefault(one, deque()).append(pending)
        self._schedule_retry()

    def _schedule_retry(self) -> None:
        if self._timer is None and self._stuck:
            self._timer = asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._retry)

    def _retry_at_once(self) -> None:
        """Retry after other work that is due: the metadata has changed, and may name other leaders."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(0, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._background.spawn(self._route_one_each())

    async def _route_one_each(self) -> None:
        turns = self._background.gate.turns()
        try:
            for partition in list(self._stuck):
                await turns.next()
                pending = self._next_stuck(partition)
                if pending is not None:
                    self._route(pending, [partition])
        finally:
            self._schedule_retry()

    def _next_stuck(self, partition: TopicPartition) -> _Pending | None:
        """Remove the marker that has waited for longest; None if there is none, or if many of cancelled transactions
        precede it."""
        waiting = self._stuck.get(partition, deque())
        pending: _Pending | None = None
        for _ in range(min(len(waiting), ITEMS_PER_STEP)):
            pending = waiting.popleft()
            if not pending.outcome.done:
                break
            pending = None
        if not waiting:
            self._stuck.pop(partition, None)
        return pending

    async def _route_stuck(self, partition: TopicPartition, waiting: Iterable[_Pending]) -> None:
        turns = self._background.gate.turns()
        for pending in waiting:
            await turns.next()
            self._route(pending, [partition])

    def _log(self, partition: TopicPartition, why: str) -> None:
        """Log a failure once in a while: it may come for many partitions, many times a second."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s.get(why, -math.inf) > LOGGED_EVERY_S:
            self._logged_s[why] = now_s
            logger.info(
                "%s-%d has no end of a transaction yet: %s; the marker is sent again until it is written",
                *partition,
                why,
            )

    # -- other brokers -----------------------------------------------------------------------------------------------

    async def _exchange(self, peer: Peer, errands: list[_Errand]) -> None:
        errands = [errand for errand in errands if not errand.pending.outcome.done]
        if not errands:
            return
        request = WriteTxnMarkersRequest(markers=[_writable(errand) for errand in errands])
        response: WriteTxnMarkersResponse = await peer.send(request)
        errors = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        turns = self._background.gate.turns()
        for errand in errands:
            await turns.next()
            producer_id = errand.pending.marker.producer_id
            for one in errand.partitions:
                # A marker that the response lacks was not written, as far as is known.
                code = errors.get((producer_id, *one), ErrorCode.UNKNOWN_SERVER_ERROR)
                self._decided(errand.pending, one, ErrorCode(code))

    def _not_sent(self, errands: list[_Errand], error: PeerError) -> None:
        for pending, partitions in errands:
            if not pending.outcome.done:
                self._log(partitions[0], f"its leader cannot be reached: {error}")
                self._delay(pending, partitions)


def _writable(errand: _Errand) -> WriteTxnMarkersRequest.WritableTxnMarker:
    marker = errand.pending.marker
    topics: dict[str, WriteTxnMarkersRequest.WritableTxnMarkerTopic] = {}
    for name, index in errand.partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name)
        topic.partition_indexes.append(index)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=list(topics.values()),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
