"""The active controller's responses to brokers: AlterPartition, ControlledShutdown, AllocateProducerIds.

A broker that is not the controller answers NOT_CONTROLLER. Semantics: Kafka's KafkaController.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.alter_partition import ANY_EPOCH, AlterPartition, refusal
from gregor.replication.controller.events import AlterPartitionReceived, ShutdownAnnounced
from gregor.replication.store.metadata_store import StoreError
from gregor.replication.store.nodes import NodeFormatError
from gregor.replication.store.producer_id_blocks import claim_block
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.replication.channels.messages import ControllerRequest, ControllerResponse
    from gregor.replication.controller.context import Cluster
    from gregor.replication.controller.events import Step
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.store.metadata_store import MetadataStore
    from gregor.replication.store.nodes import PartitionState

UNKNOWN_BROKER_EPOCH = -1
# AlterPartition
TOPIC_IDS_FROM = 2
EPOCHS_FROM = 3

_log = logging.getLogger(__name__)

_Topic = AlterPartitionResponse.TopicData
_Partition = AlterPartitionResponse.PartitionData


class ControllerAnswers:
    """Handles the requests of brokers. The methods never raise: errors are codes in the responses."""

    def __init__(self, controller: ControllerLoop, store: MetadataStore) -> None:
        self._controller = controller
        self._store = store

    @property
    def is_active(self) -> bool:
        """Return whether this broker is the controller."""
        return self._controller.is_active

    async def answer(self, request: ControllerRequest, version: int) -> ControllerResponse:
        if isinstance(request, AlterPartitionRequest):
            return await self.alter_partition(request, version)
        if isinstance(request, ControlledShutdownRequest):
            return await self.controlled_shutdown(request)
        return await self.allocate_producer_ids(request)

    # -- AlterPartition --------------------------------------------------------------------------------------------

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Grant in-sync sets. By the version, topics are given by name or id, brokers with or without epochs."""

        async def work(cluster: Cluster, step: Step) -> AlterPartitionResponse:
            broker = cluster.brokers.get(request.broker_id)
            if broker is None or broker.epoch != request.broker_epoch:
                return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            names = _names(cluster, request, version)
            granted: dict[TopicPartition, PartitionState] = {}
            errors: dict[TopicPartition, ErrorCode] = {}
            turns = self._controller.gate.turns()
            for topic, name in zip(request.topics, names, strict=True):
                for partition in topic.partitions:
                    if name is None:
                        continue
                    await turns.next()
                    key = TopicPartition(name, partition.partition_index)
                    requested = _requested(request, partition, version)
                    error = refusal(cluster, key, requested)
                    if error is None:
                        granted[key] = requested.state(cluster.epoch)
                    elif error == ErrorCode.INELIGIBLE_REPLICA and version < TOPIC_IDS_FROM:
                        errors[key] = ErrorCode.OPERATION_NOT_ATTEMPTED
                    else:
                        errors[key] = error
            after = await step(AlterPartitionReceived(granted)) if granted else cluster
            if after is None:
                # The context was outdated. The broker sends its request again, and a newer one decides.
                return AlterPartitionResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            return AlterPartitionResponse(
                topics=[
                    _topic_response(after, topic, name, errors)
                    for topic, name in zip(request.topics, names, strict=True)
                ]
            )

        try:
            return await TimeLimit().within(partial(self._controller.in_turn, work))
        except KafkaError as error:
            return AlterPartitionResponse(error_code=error.code)

    # -- ControlledShutdown ----------------------------------------------------------------------------------------

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move the leadership away from a broker that stops; the response lists what no other replica can lead."""

        async def work(cluster: Cluster, step: Step) -> ControlledShutdownResponse:
            broker = cluster.brokers.get(request.broker_id)
            if broker is None:
                return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
            if request.broker_epoch != UNKNOWN_BROKER_EPOCH and request.broker_epoch < broker.epoch:
                return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            after = await step(ShutdownAnnounced(request.broker_id))
            if after is None:
                return ControlledShutdownResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            remaining = [
                ControlledShutdownResponse.RemainingPartition(topic_name=name, partition_index=index)
                for (name, index), topic, partition in after.partitions()
                if partition.state is not None
                and partition.state.leader == request.broker_id
                and len(partition.assignment.replicas) > 1
                and not topic.deleting
            ]
            return ControlledShutdownResponse(remaining_partitions=remaining)

        if not self._store.is_connected:
            # Nothing can be written now, and a broker that stops must not wait until it can.
            return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
        try:
            return await TimeLimit().within(partial(self._controller.in_turn, work))
        except KafkaError as error:
            return ControlledShutdownResponse(error_code=error.code)

    # -- AllocateProducerIds ---------------------------------------------------------------------------------------

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """Claim a block of producer ids for a broker."""
        cluster = self._controller.cluster
        error = ErrorCode.NONE
        if cluster is None:
            error = ErrorCode.NOT_CONTROLLER
        elif (broker := cluster.brokers.get(request.broker_id)) is None:
            error = ErrorCode.BROKER_ID_NOT_REGISTERED
        elif broker.epoch != request.broker_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        if error:
            return AllocateProducerIdsResponse(error_code=error)
        try:
            block = await TimeLimit().within(partial(claim_block, self._store, request.broker_id))
        except (StoreError, NodeFormatError, KafkaError):
            _log.exception("No producer ids for broker %d", request.broker_id)
            return AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return AllocateProducerIdsResponse(
            producer_id_start=block.first_id, producer_id_len=block.last_id - block.first_id + 1
        )


def _names(cluster: Cluster, request: AlterPartitionRequest, version: int) -> list[str | None]:
    """Return the name of each topic of the request, None for an unknown id."""
    if version < TOPIC_IDS_FROM:
        return [topic.topic_name for topic in request.topics]
    by_id = {topic.topic_id: name for name, topic in cluster.topics.items() if topic.topic_id != ZERO_UUID}
    return [by_id.get(topic.topic_id) for topic in request.topics]


def _requested(
    request: AlterPartitionRequest, wanted: AlterPartitionRequest.PartitionData, version: int
) -> AlterPartition:
    if version < EPOCHS_FROM:
        isr = tuple((broker_id, ANY_EPOCH) for broker_id in wanted.new_isr)
    else:
        isr = tuple((broker.broker_id, broker.broker_epoch) for broker in wanted.new_isr_with_epochs)
    recovering = wanted.leader_recovery_state == 1
    return AlterPartition(request.broker_id, wanted.leader_epoch, wanted.partition_epoch, isr, recovering)


def _topic_response(
    cluster: Cluster, topic: AlterPartitionRequest.TopicData, name: str | None, errors: dict[TopicPartition, ErrorCode]
) -> _Topic:
    partitions = [
        _partition_response(cluster, name, partition.partition_index, errors) for partition in topic.partitions
    ]
    return _Topic(topic_name=name or "", topic_id=topic.topic_id, partitions=partitions)


def _partition_response(
    cluster: Cluster, name: str | None, index: int, errors: dict[TopicPartition, ErrorCode]
) -> _Partition:
    if name is None:
        return _Partition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    key = TopicPartition(name, index)
    error = errors.get(key, ErrorCode.NONE)
    if error:
        return _Partition(partition_index=index, error_code=error)
    known = cluster.partition(key)
    if known is None or known.state is None:
        return _Partition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = known.state
    return _Partition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.recovering),
        partition_epoch=known.version,
    )
