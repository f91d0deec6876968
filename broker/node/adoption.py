"""Partition folders that are not in the metadata: written by Apache Kafka, or the store's file was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.replication.store.adoption import adopt

if TYPE_CHECKING:
    from gregor.protocol.turns import Gate
    from gregor.replication.store.metadata_store import MetadataStore
    from gregor.storage.folders.manager import LogManager


class Adoption:
    """Registers such folders. Not in a cluster: their topic may have been deleted, or moved to other brokers."""

    def __init__(self, store: MetadataStore, logs: LogManager, broker_id: int, gate: Gate, *, in_cluster: bool) -> None:
        self._store = store
        self._logs = logs
        self._broker_id = broker_id
        self._gate = gate
        self._in_cluster = in_cluster
        self._is_over = False

    async def run(self) -> None:
        """Register the topics of the folders, once all logs are loaded."""
        adopted = 0
        if not self._in_cluster:
            adopted = len(await adopt(self._store, self._broker_id, list(self._logs.logs.values()), self._gate))
        self._is_over = True
        if adopted:
            logger.info("adopted %d partitions whose folders were not in the metadata", adopted)

    def is_reserved(self, topic: str) -> bool:
        """Return whether the topic may still be adopted, so that no other of this name can be created."""
        return not self._is_over and self._logs.has_topic(topic)
