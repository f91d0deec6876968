"""Partition folders that the metadata does not know become topics again.

Only for a single node's own store, where the data folder is that of an Apache Kafka broker, or the store's file was
lost. (In a cluster an unknown folder is a deleted topic's, and must not come back.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.ids import ZERO_UUID, Uuid, random_uuid
from gregor.protocol.topic_names import CLUSTER_METADATA_TOPIC, name_problem
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create, MetadataStore, Operation, Set
from gregor.replication.store.nodes import PartitionState, ReplicaAssignment, TopicAssignment

if TYPE_CHECKING:
    from gregor.storage.log.state import LogOffsets

# Their settings are part of what makes them work; Kafka gives them at creation.
INTERNAL_TOPIC_CONFIGS: Mapping[str, Mapping[str, str]] = {
    name: {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    for name in ("__consumer_offsets", "__transaction_state")
}

_log = logging.getLogger(__name__)


class FoundLog(Protocol):
    """The part of gregor.storage.log.log.Log that nodes are made from."""

    topic: str
    partition: int
    topic_id: Uuid

    @property
    def offsets(self) -> LogOffsets: ...

    def latest_epoch(self) -> int | None: ...


async def adopt(store: MetadataStore, broker_id: int, logs: Iterable[FoundLog], gate: Gate) -> list[TopicPartition]:
    """Make nodes for all partitions found on disk that have none; returns these. Called before the election.

    A folder whose topic id is not that of the known topic of its name is ignored: it belongs to a deleted topic.
    """
    by_topic: dict[str, dict[int, FoundLog]] = {}
    for log in logs:
        by_topic.setdefault(log.topic, {})[log.partition] = log
    adopted: list[TopicPartition] = []
    turns = gate.turns()
    for name, found in sorted(by_topic.items()):
        if name == CLUSTER_METADATA_TOPIC or name_problem(name) is not None:
            continue
        await turns.next()
        node = await store.get(nodes.topic_path(name))
        known = None if node is None else gate.start(nodes.decode_topic(name, node[0]))
        if isinstance(known, Awaitable):
            known = await known
        news = sorted(found.keys() - (known.partitions.keys() if known is not None else set()))
        if not news:
            continue
        ids = {log.topic_id for log in found.values()} - {ZERO_UUID}
        if known is not None and ids - {known.topic_id}:
            _log.warning("Folders of another topic called %s are left alone: %s", name, news)
            continue
        topic_id = known.topic_id if known is not None else min(ids, default=random_uuid())
        # Partitions below the highest that are not here lay on other brokers: they start empty.
        count = max(max(found), max(known.partitions, default=-1) if known is not None else -1) + 1
        partitions = dict(known.partitions) if known is not None else {}
        for index in range(count):
            partitions.setdefault(index, ReplicaAssignment((broker_id,)))
        data = nodes.encode_topic(TopicAssignment(topic_id, partitions))
        operations: list[Operation]
        if node is None:
            compacted = any(log.offsets.cleaned_offset is not None for log in found.values())
            operations = await _topic_config(store, name, compacted)
            operations.append(Create(nodes.topic_path(name), data))
        else:
            operations = [Set(nodes.topic_path(name), data, node[1].version)]
        if await store.exists(nodes.partitions_path(name)) is None:
            operations.append(Create(nodes.partitions_path(name)))
        for index in news:
            # Clients refuse a leader with an older epoch than they have seen. An epoch later than the log's would be
            # ahead of the metadata of an Apache Kafka that is given the folder again, and its leader epochs would not
            # fit.
            epoch = found[index].latest_epoch() or 0
            state = PartitionState(broker_id, epoch, (broker_id,), nodes.INITIAL_CONTROLLER_EPOCH)
            operations.append(Create(nodes.partition_path(name, index)))
            operations.append(Create(nodes.state_path(name, index), nodes.encode_state(state)))
        await store.multi(operations)
        adopted.extend(TopicPartition(name, index) for index in news)
    return adopted


async def _topic_config(store: MetadataStore, name: str, compacted: bool) -> list[Operation]:
    """Return the write of a topic's settings. They are not in its folders, but whether it was compacted is, and it must
    stay so: deletion by age instead would lose records that are kept without limit."""
    path = nodes.config_path("topics", name)
    if await store.exists(path) is not None:
        return []
    config = INTERNAL_TOPIC_CONFIGS.get(name, {"cleanup.policy": "compact"} if compacted else {})
    return [Create(path, nodes.encode_config(config))]
