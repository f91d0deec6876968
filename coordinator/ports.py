"""The seams of a coordinator: a log to append to, a log to load from, timers, topics, and the state machine between.

The broker implements the first two over its replicas of the internal topic; the runtime implements the third over the
event loop. Tests implement all three in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from gregor.coordinator.result import Producer, Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.turns import Steps

ValueT = TypeVar("ValueT")

TimedOperation = Callable[[int], Result]
"""Runs when its time has come, with the wall clock in ms; its records are appended like those of a request."""


class LogWriter(Protocol):
    """Appends to the partitions of the internal topic that this broker leads."""

    def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], producer: Producer | None = None
    ) -> int:
        """Append one batch of (key, value); returns the offset after its last record.

        With a `producer` the batch is part of its transaction. Raises KafkaError when nothing was appended: no longer
        leader, too few replicas in sync, disk error, batch too large, producer fenced, transaction not verified.
        """

    def append_batch(self, partition: int, batch: bytearray) -> int:
        """Append a batch of the format of `append`, whose base offset is 0; return the offset after its last record.
        The caller may change the batch afterwards. Raises KafkaError as `append`."""

    def commits_at_once(self, partition: int) -> bool:
        """Return whether records are committed once they are appended: there is no other replica."""

    def append_marker(self, partition: int, marker: EndTransaction) -> int:
        """Append the marker that ends a transaction; returns the offset after it. Raises KafkaError as `append`, and
        TRANSACTION_COORDINATOR_FENCED.
        """

    def when_committed(self, partition: int, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once: NONE when all below `offset` is committed (at once if it is), else why it never will be.

        May raise KafkaError instead.
        """

    def is_committed(self, partition: int, offset: int) -> bool:
        """Return whether `when_committed` would call back at once, with NONE."""


class LogLoader(Protocol):
    """Reads a partition of the internal topic from its start, after an election."""

    def bounds(self, partition: int) -> tuple[int, int]:
        """Log start offset and log end offset. Raises KafkaError."""

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes | bytearray | memoryview:
        """Whole record batches, the first of which holds `offset` or is the next one; at least one batch.

        Empty means that there is no more. Not bounded by the high watermark. Raises KafkaError.
        """

    def may_be_outdated(self) -> bool:
        """Return whether another broker may lead the partitions by now without this one's knowledge."""


class Timers(Protocol):
    """One-shot timers of one shard, by key. Measured on a clock that does not jump with the wall clock.

    Scheduling a key again replaces its operation and deadline. That is cheap when the deadline only moves away, which
    is what every heartbeat does.
    """

    def schedule(self, key: Hashable, delay_ms: int, operation: TimedOperation) -> None: ...

    def restart(self, key: Hashable, delay_ms: int) -> bool:
        """Schedule a timer again with the operation that it has; False if that needs `schedule`."""

    def cancel(self, key: Hashable) -> None: ...


class ShardContext(Protocol):
    """The runtime, as one shard sees it."""

    @property
    def timers(self) -> Timers: ...

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the shard's partition."""

    def submit(self, operation: TimedOperation) -> None:
        """Run an operation without a response: at once, or after the load or the operation that runs now."""

    def outcome_of(self, awaitable: Awaitable[ValueT]) -> Deferred[ValueT]:
        """Await a value that comes from outside. The Deferred is cancelled when the shard is unloaded."""


class Shard(Protocol):
    """The state machine of one partition, as the runtime sees it."""

    def replay(self, record: Record, offset: int, producer_id: int = ...) -> None:
        """Apply a record that is in the log: the only way hard state changes."""

    def replay_end_of_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker that is in the log."""

    def on_loaded(self, now_ms: int) -> Steps[None]:
        """All that is in the log has been replayed: start timers."""

    def on_unloaded(self, error: ErrorCode) -> None:
        """Fail the parked requests; the shard is not used any more."""


class TopicInfo(NamedTuple):
    """A topic of the cluster. `racks` has, by partition, that of each replica that has one; empty where none has."""

    topic_id: Uuid
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


class TopicView(Protocol):
    """The topics of the cluster as this broker knows them now. Reading it does no work worth mentioning."""

    def names(self) -> Collection[str]:
        """The names of all topics, internal ones too."""

    def find(self, name: str) -> TopicInfo | None: ...

    def name_of(self, topic_id: Uuid) -> str | None: ...


class NoTopics:
    """Implements TopicView for a cluster without topics."""

    def names(self) -> Collection[str]:
        return ()

    def find(self, name: str) -> TopicInfo | None:
        return None

    def name_of(self, topic_id: Uuid) -> str | None:
        return None


NO_TOPICS: TopicView = NoTopics()
