"""`__consumer_offsets` as the group coordinator's log: its partitions are ordinary replicas of this broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import build_batch, iter_batches
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from gregor.storage.fs.cached_reads import NotCached

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.log.log import LogSlice

ALL_IN_SYNC = -1
READ_BYTES = 256 * 1024
"""A piece of small batches of this size is walked through without holding the event loop up."""
MAX_FETCHES = 64


class GroupLog:
    """Implements the coordinator's ports LogWriter and LogLoader over the replica manager."""

    def __init__(self, replicas: ReplicaManager, background: Background) -> None:
        self._replicas = replicas
        self._background = background

    def append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append one batch and return the offset after it. Raises KafkaError when nothing was appended."""
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
        """Read whole batches from the one that holds `offset` on; empty at the log's end. Not more than READ_BYTES at a
        time, but for a larger batch; a thread waits for the disk.
        """
        piece = await self._find(partition, offset, min(max_bytes, READ_BYTES))
        try:
            if not piece.size_bytes:
                return b""
            data = memoryview(await self._background.read(piece.read))
        finally:
            piece.release()
        return data[: sum(batch.size_bytes for batch in iter_batches(data))]

    async def _find(self, partition: int, offset: int, max_bytes: int) -> LogSlice:
        for attempt in range(MAX_FETCHES + 1):
            log = self._leader(partition).log
            if log is None:
                break
            try:
                return log.read(offset, max_bytes, log.log_end_offset, waits_for_disk=attempt == MAX_FETCHES)
            except NotCached as missing:
                with suppress(OSError):  # the next read raises it again, as a KafkaError
                    await self._background.read(missing.fetcher())
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _leader(self, partition: int) -> Partition:
        replica = self._replicas.get(GROUP_METADATA_TOPIC, partition)
        if replica is None or not replica.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica
