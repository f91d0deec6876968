"""Sends the ISR changes that leaders propose to the controller, and applies its decisions to the partitions.

By AlterPartition (KIP-497): all pending changes are in one request, those that are made meanwhile in the next. To a
controller without that API (Apache Kafka before 2.7) the leader announces the change by a node under
/isr_change_notification, after it has written the partition's state node itself.

A proposal is repeated until the controller has decided, or has returned an error that only newer metadata can resolve,
or until such metadata has made it void. An unexpected error leaves open whether the controller has made the change:
therefore the proposal is repeated then, too, and never withdrawn, as the larger of both sets must count until the
decision is known. Rules: Kafka's AlterPartitionManager and Partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.channels.controller_channel import RETRY_DELAY_S
from gregor.replication.store.metadata_store import BadVersion, MetadataStore, NoNode, StoreError
from gregor.replication.store.nodes import (
    ISR_CHANGE_PREFIX,
    NodeFormatError,
    PartitionState,
    decode_state,
    encode_partition_list,
    encode_state,
    state_path,
)

if TYPE_CHECKING:
    from gregor.replication.channels.controller_channel import ControllerChannel
    from gregor.replication.partition.partition import Partition

MAX_PARTITIONS = 500
"""In one request: to encode more would keep other work from the loop for too long."""
MAX_ERRORS_LOGGED = 10
NOTICE_DELAY_S = 1.0
"""How long written changes are gathered before the controller is notified of them."""

# AlterPartition
NAMES_UNTIL = 1
EPOCHS_FROM = 3
UNDONE = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller has not made the change and will not make it."""
AWAITING_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller has newer metadata, which it sends to this broker: until then the maximal ISR counts."""


_log = logging.getLogger(__name__)


class _AlterPartition(NamedTuple):
    """A proposed ISR of one partition, and the epochs in which it was proposed."""

    partition: Partition
    isr: list[int]
    leader_epoch: int
    partition_epoch: int
    member_epochs: dict[int, int]
    """The followers' broker epochs when it was made: a follower that has restarted since may have lost records, and the
    controller must see that the proposal is about its earlier registration."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.partition)

    @property
    def is_current(self) -> bool:
        """Whether this is still the partition's proposal, in the same epochs."""
        partition = self.partition
        return (
            partition.in_sync.proposed_isr is self.isr
            and partition.leader_epoch == self.leader_epoch
            and partition.partition_epoch == self.partition_epoch
        )


class AlterPartitionManager:
    """The pending changes of all partitions that this broker leads."""

    def __init__(
        self,
        broker_id: int,
        link: ControllerChannel,
        store: MetadataStore,
        broker_epoch: Callable[[], int],
        clock_ms: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        gate: Gate,
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's present registration; `spawn` runs a coroutine as a task
        until the broker stops."""
        self._broker_id = broker_id
        self._link = link
        self._store = store
        self._broker_epoch = broker_epoch
        self._clock_ms = clock_ms
        self._spawn = spawn
        self._gate = gate
        self._pending: dict[TopicPartition, _AlterPartition] = {}
        self._running = False
        self._written: dict[TopicPartition, None] = {}
        """Changes written to state nodes of which the controller has not been notified yet."""
        self._last_logged = ""

    def submit(self, partition: Partition) -> None:
        """Send the ISR that the partition has proposed (`InSyncReplicas.propose`)."""
        isr = partition.in_sync.proposed_isr
        if isr is None:
            return
        epochs = {
            broker_id: partition.in_sync.broker_epoch(broker_id) for broker_id in isr if broker_id != self._broker_id
        }
        change = _AlterPartition(partition, isr, partition.leader_epoch, partition.partition_epoch, epochs)
        self._pending[change.key] = change
        if not self._running:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._pending:
                changes = self._next_changes()
                if changes and not await self._send(changes):
                    await asyncio.sleep(RETRY_DELAY_S)
        finally:
            self._running = False

    def _next_changes(self) -> list[_AlterPartition]:
        changes: list[_AlterPartition] = []
        for key, one in list(self._pending.items()):
            if len(changes) == MAX_PARTITIONS:
                break
            if one.is_current:
                changes.append(one)
            else:
                del self._pending[key]  # newer metadata has made it void
        return changes

    async def _send(self, changes: list[_AlterPartition]) -> bool:
        """Send changes, and apply the decisions. False where some must be repeated after a pause."""
        try:
            offered = await self._link.offered(ApiKey.ALTER_PARTITION)
            if offered is None:
                return await self._write_all(changes)
            version = min(offered[1], AlterPartitionRequest.MAX_VERSION)
            if any(one.partition.topic_id == ZERO_UUID for one in changes):
                version = min(version, NAMES_UNTIL)
            response: AlterPartitionResponse = await self._link.send(self._request(changes, version), version)
        except (OSError, StoreError) as error:
            self._log_once(f"In-sync replicas cannot be altered, the controller is not reached: {error}")
            return False
        except Exception as error:  # a defect: the changes must not be lost with this task
            self._log_defect(changes, error)
            return False
        if response.error_code:
            self._log_once(f"In-sync replicas cannot be altered, the controller answers: error {response.error_code}")
            return False
        return await self._apply(changes, response)

    def _log_once(self, text: str, defect: Exception | None = None) -> None:
        """Log a failure once in a row: it may come many times a second."""
        if text != self._last_logged:
            self._last_logged = text
            _log.log(logging.INFO if defect is None else logging.ERROR, "%s", text, exc_info=defect)

    def _log_defect(self, changes: list[_AlterPartition], error: Exception) -> None:
        names = ", ".join(f"{one.partition.topic}-{one.partition.partition}" for one in changes[:MAX_ERRORS_LOGGED])
        if len(changes) > MAX_ERRORS_LOGGED:
            names += f" and {len(changes) - MAX_ERRORS_LOGGED} more"
        self._log_once(
            f"The in-sync replicas of {names} could not be altered because of an unexpected error, and those that the"
            f" controller has not decided are requested again: {error!r}",
            error,
        )

    # -- by AlterPartition -----------------------------------------------------------------------------------------

    def _request(self, changes: list[_AlterPartition], version: int) -> AlterPartitionRequest:
        topics: dict[str, AlterPartitionRequest.TopicData] = {}
        for one in changes:
            partition = one.partition
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = AlterPartitionRequest.TopicData(
                    topic_name=partition.topic, topic_id=partition.topic_id
                )
            data = AlterPartitionRequest.PartitionData(
                partition_index=partition.partition, leader_epoch=one.leader_epoch, partition_epoch=one.partition_epoch
            )
            if version < EPOCHS_FROM:
                data.new_isr = one.isr
            else:
                data.new_isr_with_epochs = [self._member(one, broker_id) for broker_id in one.isr]
            topic.partitions.append(data)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _member(self, one: _AlterPartition, broker_id: int) -> AlterPartitionRequest.BrokerState:
        epoch = self._broker_epoch() if broker_id == self._broker_id else one.member_epochs[broker_id]
        return AlterPartitionRequest.BrokerState(broker_id=broker_id, broker_epoch=epoch)

    async def _apply(self, changes: list[_AlterPartition], response: AlterPartitionResponse) -> bool:
        names = {one.partition.topic_id: one.partition.topic for one in changes}
        decisions = {
            (topic.topic_name or names.get(topic.topic_id, ""), partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        all_decided = True
        errors = 0
        failed: list[_AlterPartition] = []
        defect: Exception | None = None
        turns = self._gate.turns()
        for one in changes:
            await turns.next()
            decision = decisions.get(one.key)
            if not one.is_current:
                continue
            if decision is not None and decision.error_code and decision.error_code not in UNDONE:
                errors += 1
                if errors <= MAX_ERRORS_LOGGED:
                    _log.info(
                        "The in-sync replicas %s of %s-%d are refused: error %d", one.isr, *one.key, decision.error_code
                    )
            try:
                is_decided = decision is not None and self._decided(one, decision)
            except Exception as error:  # a defect: the decisions about the other partitions must not be lost with it
                is_decided, defect = False, error
                failed.append(one)
            if not is_decided:
                all_decided = False
                self._pending[one.key] = self._pending.pop(one.key, one)  # after the others
            elif self._pending.get(one.key) is one:
                del self._pending[one.key]
        if errors > MAX_ERRORS_LOGGED:
            _log.info("The in-sync replicas of %d more partitions are refused", errors - MAX_ERRORS_LOGGED)
        if defect is None:
            self._last_logged = ""
        else:
            self._log_defect(failed, defect)
        return all_decided

    def _decided(self, one: _AlterPartition, decision: AlterPartitionResponse.PartitionData) -> bool:
        """Apply a decision to its partition. False where the proposal must be repeated."""
        partition = one.partition
        if decision.error_code in UNDONE:
            partition.leadership.isr_refused(self._clock_ms())
        elif decision.error_code:
            return decision.error_code in AWAITING_METADATA
        elif decision.leader_epoch == partition.leader_epoch:
            partition.isr_decided(list(decision.isr), decision.partition_epoch, self._clock_ms())
        return True

    # -- by the state node -----------------------------------------------------------------------------------------

    async def _write_all(self, changes: list[_AlterPartition]) -> bool:
        for one in changes:
            version = await self._write(one)
            if one.is_current and self._pending.get(one.key) is one:
                del self._pending[one.key]
                if version is not None:
                    one.partition.isr_decided(one.isr, version, self._clock_ms())
            if version is not None:
                if not self._written:
                    self._spawn(self._notify_controller())
                self._written[one.key] = None
        return True

    async def _write(self, one: _AlterPartition) -> int | None:
        """Write a partition's state node. Returns its new version, None if another broker has changed it."""
        partition = one.partition
        path = state_path(*one.key)
        state = PartitionState(self._broker_id, one.leader_epoch, tuple(one.isr), partition.controller_epoch)
        try:
            return (await self._store.set(path, encode_state(state), one.partition_epoch)).version
        except NoNode:
            return None
        except BadVersion:
            # Perhaps by this broker's own write, whose response was lost.
            node = await self._store.get(path)
            try:
                return node[1].version if node is not None and decode_state(node[0]) == state else None
            except NodeFormatError:
                return None

    async def _notify_controller(self) -> None:
        while self._written:
            await asyncio.sleep(NOTICE_DELAY_S)
            keys = list(self._written)
            try:
                await self._store.create(ISR_CHANGE_PREFIX, encode_partition_list(keys), sequential=True)
            except StoreError as error:
                _log.info("In-sync replicas cannot be altered, the metadata store is not reached: %s", error)
                continue
            for key in keys:
                self._written.pop(key, None)
