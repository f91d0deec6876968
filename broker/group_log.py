"""`__consumer_offsets` as the group coordinator's log: its partitions are ordinary replicas of this broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.internal_topics import GROUP_METADATA_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.records import build_batch, iter_batches

if TYPE_CHECKING:
    from replication.partition import Partition
    from replication.replica_manager import ReplicaManager

ALL_IN_SYNC = -1


class GroupLog:
    """The coordinator's ports LogWriter and LogLoader over the replica manager."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """One batch; returns the offset after it. Raises KafkaError when nothing was appended."""
        replica = self._leader(partition)
        now_ms = int(time.time() * 1000)
        batch = build_batch(records, timestamp_ms=now_ms)
        return replica.append(batch, now_ms, ALL_IN_SYNC, from_client=False).last_offset + 1

    def when_committed(self, partition: int, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._leader(partition).when_committed(offset, callback)

    def bounds(self, partition: int) -> tuple[int, int]:
        replica = self._leader(partition)
        return replica.log_start_offset, replica.log_end_offset

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes | memoryview:
        """Whole batches from the one that holds `offset`; empty at the log's end."""
        log = self._leader(partition).log
        if log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        piece = log.read(offset, max_bytes, log.log_end_offset)
        try:
            data = memoryview(piece.read()) if piece.size_bytes else memoryview(b"")
        finally:
            piece.release()
        return data[: sum(batch.size_bytes for batch in iter_batches(data))]

    def _leader(self, partition: int) -> Partition:
        replica = self._replicas.get(GROUP_METADATA_TOPIC, partition)
        if replica is None or not replica.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica
