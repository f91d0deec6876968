"""An internal topic as the log of its coordinator: the topic's partitions are ordinary replicas of this broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import build_batch, whole_batches_bytes
from gregor.storage.fs.cached_reads import NotCached

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.coordinator.result import Producer
    from gregor.protocol.records.control import EndTransaction
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.log.log import LogSlice
    from gregor.storage.producers.verification import VerificationGuard

ALL_IN_SYNC = -1
READ_BYTES = 256 * 1024
"""A piece of small batches of this size is walked through without holding the event loop up."""
MAX_FETCHES = 64


class CoordinatorLog:
    """Implements the coordinators' ports LogWriter and LogLoader over the replica manager."""

    def __init__(self, topic: str, replicas: ReplicaManager, background: Background) -> None:
        self._topic = topic
        self._replicas = replicas
        self._background = background

    def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], producer: Producer | None = None
    ) -> int:
        """Append one batch and return the offset after it. Raises KafkaError when nothing was appended."""
        replica = self._leader(partition)
        now_ms = int(time.time() * 1000)
        if producer is not None:
            return self._append_of_transaction(replica, records, producer, now_ms)
        batch = build_batch(records, timestamp_ms=now_ms)
        return replica.append(batch, now_ms, ALL_IN_SYNC, from_client=False).last_offset + 1

    def append_batch(self, partition: int, batch: bytearray) -> int:
        now_ms = int(time.time() * 1000)
        return self._leader(partition).append(batch, now_ms, ALL_IN_SYNC, from_client=False).last_offset + 1

    def commits_at_once(self, partition: int) -> bool:
        replica = self._replicas.get(self._topic, partition)
        return replica is not None and replica.commits_at_once

    def _append_of_transaction(
        self, replica: Partition, records: Sequence[tuple[bytes, bytes | None]], producer: Producer, now_ms: int
    ) -> int:
        batch = build_batch(
            records,
            timestamp_ms=now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
        if not producer.verified:
            return replica.append(batch, now_ms, ALL_IN_SYNC, from_client=False).last_offset + 1
        guard = cast("VerificationGuard | None", producer.guard)
        return replica.append_verified(batch, now_ms, ALL_IN_SYNC, guard, from_client=False).last_offset + 1

    def append_marker(self, partition: int, marker: EndTransaction) -> int:
        """Append the marker of a transaction and return the offset after it."""
        return self._leader(partition).append_marker(marker, int(time.time() * 1000)).last_offset + 1

    def when_committed(self, partition: int, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._leader(partition).leadership.when_committed(offset, callback)

    def is_committed(self, partition: int, offset: int) -> bool:
        replica = self._replicas.get(self._topic, partition)
        return replica is not None and replica.leadership.is_committed(offset)

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
        return data[: whole_batches_bytes(data)]

    def may_be_outdated(self) -> bool:
        return self._replicas.may_be_outdated

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
        replica = self._replicas.get(self._topic, partition)
        if replica is None or not replica.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica
