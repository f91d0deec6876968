"""How changes of in-sync sets that leaders want travel to the controller, and its word back into the partitions.

By AlterPartition (KIP-497): what is wanted goes in one request, and what comes up meanwhile in the next. Where the
controller does not know that (Apache Kafka before 2.7) the leader writes the partition's state node itself, and tells
the controller by a node under /isr_change_notification.

A partition is asked about again until the controller has decided, or said what only newer metadata can mend, or until
such metadata came in between and made the proposal void. Rules: Kafka's AlterPartitionManager and Partition.
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
"""So many are asked about in one request: more would keep the loop from others for too long."""
REFUSALS_NAMED = 10
NOTICE_DELAY_S = 1.0
"""So long changes that were written are gathered before the controller is told of them."""

# AlterPartition
NAMES_UNTIL = 1
EPOCHS_FROM = 3
UNDONE = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller says that the change was not made and will not be."""
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
"""Something is newer at the controller than here, and on its way: the larger set counts until it comes."""


_log = logging.getLogger(__name__)


class _Wanted(NamedTuple):
    """A proposal, as it is asked for until it is decided."""

    partition: Partition
    isr: list[int]
    leader_epoch: int
    partition_epoch: int
    member_epochs: dict[int, int]
    """The followers' broker epochs when it was made: who has started anew since may lack what made it fit, and the
    controller must see that it is another life that was meant."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.partition)

    @property
    def stands(self) -> bool:
        """Whether the partition still wants just this."""
        partition = self.partition
        return (
            partition.in_sync.proposed_isr is self.isr
            and partition.leader_epoch == self.leader_epoch
            and partition.partition_epoch == self.partition_epoch
        )


class AlterPartitionManager:
    """`submit` takes a partition that has just proposed a set (InSyncReplicas.propose)."""

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
        """`broker_epoch` tells the epoch of this broker's present registration; `spawn` runs a coroutine for as long as
        the broker lives."""
        self._broker_id = broker_id
        self._link = link
        self._store = store
        self._broker_epoch = broker_epoch
        self._clock_ms = clock_ms
        self._spawn = spawn
        self._gate = gate
        self._pending: dict[TopicPartition, _Wanted] = {}
        self._running = False
        self._written: dict[TopicPartition, None] = {}  # the controller is still to be told
        self._said = ""

    def submit(self, partition: Partition) -> None:
        isr = partition.in_sync.proposed_isr
        if isr is None:
            return
        epochs = {
            broker_id: partition.in_sync.broker_epoch(broker_id) for broker_id in isr if broker_id != self._broker_id
        }
        wanted = _Wanted(partition, isr, partition.leader_epoch, partition.partition_epoch, epochs)
        self._pending[wanted.key] = wanted
        if not self._running:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._pending:
                wanted = self._next_wanted()
                if wanted and not await self._try(wanted):
                    await asyncio.sleep(RETRY_DELAY_S)
        finally:
            self._running = False

    def _next_wanted(self) -> list[_Wanted]:
        wanted: list[_Wanted] = []
        for key, one in list(self._pending.items()):
            if len(wanted) == MAX_PARTITIONS:
                break
            if one.stands:
                wanted.append(one)
            else:
                del self._pending[key]  # newer metadata came
        return wanted

    async def _try(self, wanted: list[_Wanted]) -> bool:
        """Whether the controller took the request; False: try again after a while."""
        try:
            offered = await self._link.offered(ApiKey.ALTER_PARTITION)
            if offered is None:
                return await self._write_all(wanted)
            version = min(offered[1], AlterPartitionRequest.MAX_VERSION)
            if any(one.partition.topic_id == ZERO_UUID for one in wanted):
                version = min(version, NAMES_UNTIL)
            answer: AlterPartitionResponse = await self._link.send(self._request(wanted, version), version)
        except (OSError, StoreError) as error:
            self._log_once(f"In-sync replicas cannot be altered, the controller is not reached: {error}")
            return False
        if answer.error_code:
            self._log_once(f"In-sync replicas cannot be altered, the controller answers: error {answer.error_code}")
            return False
        self._said = ""
        return await self._take(wanted, answer)

    def _log_once(self, text: str) -> None:
        """It is tried many times a second."""
        if text != self._said:
            self._said = text
            _log.info("%s", text)

    # -- by AlterPartition -----------------------------------------------------------------------------------------

    def _request(self, wanted: list[_Wanted], version: int) -> AlterPartitionRequest:
        topics: dict[str, AlterPartitionRequest.TopicData] = {}
        for one in wanted:
            partition = one.partition
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = AlterPartitionRequest.TopicData(
                    topic_name=partition.topic, topic_id=partition.topic_id
                )
            asked = AlterPartitionRequest.PartitionData(
                partition_index=partition.partition, leader_epoch=one.leader_epoch, partition_epoch=one.partition_epoch
            )
            if version < EPOCHS_FROM:
                asked.new_isr = one.isr
            else:
                asked.new_isr_with_epochs = [self._member(one, broker_id) for broker_id in one.isr]
            topic.partitions.append(asked)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _member(self, one: _Wanted, broker_id: int) -> AlterPartitionRequest.BrokerState:
        epoch = self._broker_epoch() if broker_id == self._broker_id else one.member_epochs[broker_id]
        return AlterPartitionRequest.BrokerState(broker_id=broker_id, broker_epoch=epoch)

    async def _take(self, wanted: list[_Wanted], answer: AlterPartitionResponse) -> bool:
        names = {one.partition.topic_id: one.partition.topic for one in wanted}
        answers = {
            (topic.topic_name or names.get(topic.topic_id, ""), partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }
        all_decided = True
        refused = 0
        turns = self._gate.turns()
        for one in wanted:
            await turns.next()
            said = answers.get(one.key)
            if not one.stands:
                continue
            if said is not None and said.error_code and said.error_code not in UNDONE:
                refused += 1
                if refused <= REFUSALS_NAMED:
                    _log.info(
                        "The in-sync replicas %s of %s-%d are refused: error %d", one.isr, *one.key, said.error_code
                    )
            if said is None or not self._decided(one, said):
                all_decided = False
                self._pending[one.key] = self._pending.pop(one.key, one)  # behind the others
            elif self._pending.get(one.key) is one:
                del self._pending[one.key]
        if refused > REFUSALS_NAMED:
            _log.info("The in-sync replicas of %d more partitions are refused", refused - REFUSALS_NAMED)
        return all_decided

    def _decided(self, one: _Wanted, said: AlterPartitionResponse.PartitionData) -> bool:
        partition = one.partition
        if said.error_code in UNDONE:
            partition.isr_refused(self._clock_ms())
        elif said.error_code:
            return said.error_code in AWAITING_METADATA
        elif said.leader_epoch == partition.leader_epoch:
            partition.isr_decided(list(said.isr), said.partition_epoch, self._clock_ms())
        return True

    # -- by the state node -----------------------------------------------------------------------------------------

    async def _write_all(self, wanted: list[_Wanted]) -> bool:
        for one in wanted:
            version = await self._write(one)
            if one.stands and self._pending.get(one.key) is one:
                del self._pending[one.key]
                if version is not None:
                    one.partition.isr_decided(one.isr, version, self._clock_ms())
            if version is not None:
                if not self._written:
                    self._spawn(self._tell())
                self._written[one.key] = None
        return True

    async def _write(self, one: _Wanted) -> int | None:
        """The node's new version; None if it is not as this leader knows it."""
        partition = one.partition
        path = state_path(*one.key)
        state = PartitionState(self._broker_id, one.leader_epoch, tuple(one.isr), partition.controller_epoch)
        try:
            return (await self._store.set(path, encode_state(state), one.partition_epoch)).version
        except NoNode:
            return None
        except BadVersion:
            # Perhaps our own write, whose answer was lost.
            node = await self._store.get(path)
            try:
                return node[1].version if node is not None and decode_state(node[0]) == state else None
            except NodeFormatError:
                return None

    async def _tell(self) -> None:
        while self._written:
            await asyncio.sleep(NOTICE_DELAY_S)
            told = list(self._written)
            try:
                await self._store.create(ISR_CHANGE_PREFIX, encode_partition_list(told), sequential=True)
            except StoreError as error:
                _log.info("In-sync replicas cannot be altered, the metadata store is not reached: %s", error)
                continue
            for key in told:
                self._written.pop(key, None)
