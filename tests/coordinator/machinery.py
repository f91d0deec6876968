"""A coordinator of any kind with a log in memory, a clock that only moves on command, and pending requests."""

import asyncio
import selectors
import struct
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from gregor.coordinator.result import Producer
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import build_batch, iter_batches
from gregor.protocol.records.control import EndTransaction

START_MS = 1_700_000_000_000
R = TypeVar("R")
C = TypeVar("C", bound="CoordinatorContext[Any]")


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a number: instead of waiting for a timer it jumps to it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        return self.now_s


class _SkippingSelector(selectors.EpollSelector):
    def __init__(self, loop: SkippingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits, nothing is scheduled")
        self._loop.now_s += max(timeout, 0.0)
        return super().select(0)


class MemoryLog:
    """The partitions of `__consumer_offsets`, as writer and loader."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.end: dict[int, int] = {}
        self.high_watermark: dict[int, int] = {}
        self.held = False
        self.failures: list[ErrorCode] = []
        self.appends = 0
        self.guards: list[object] = []
        self.verified: list[bool] = []
        self.waiting: list[tuple[int, int, Callable[[ErrorCode], None]]] = []
        self.load_gate: asyncio.Event | None = None
        self.load_error: Exception | None = None
        self.outdated = False

    # LogWriter

    def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], producer: Producer | None = None
    ) -> int:
        if producer is None:
            return self._append(partition, records)
        self.guards.append(producer.guard)
        self.verified.append(producer.verified)
        return self._append(
            partition,
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )

    def append_batch(self, partition: int, batch: bytearray) -> int:
        if self.failures:
            raise KafkaError(self.failures.pop(0))
        self.appends += 1
        placed = bytearray(batch)
        struct.pack_into(">q", placed, 0, self.end.get(partition, 0))
        self.add_batch(partition, bytes(placed))
        if not self.held:
            self.commit()
        return self.end[partition]

    def commits_at_once(self, partition: int) -> bool:
        return not self.held

    def append_marker(self, partition: int, marker: EndTransaction) -> int:
        """Key: version int16, type int16; value: version int16, coordinator epoch int32."""
        return self._append(
            partition,
            [(struct.pack(">hh", 0, int(marker.commit)), struct.pack(">hi", 0, marker.coordinator_epoch))],
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
        )

    def _append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]], **header: Any) -> int:
        if self.failures:
            raise KafkaError(self.failures.pop(0))
        self.appends += 1
        first = self.end.get(partition, 0)
        batch = build_batch(list(records), base_offset=first, timestamp_ms=START_MS, **header)
        self.add_batch(partition, bytes(batch))
        if not self.held:
            self.commit()
        return self.end[partition]

    def when_committed(self, partition: int, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        if self.high_watermark.get(partition, 0) >= offset:
            callback(ErrorCode.NONE)
        else:
            self.waiting.append((partition, offset, callback))

    def is_committed(self, partition: int, offset: int) -> bool:
        return self.high_watermark.get(partition, 0) >= offset

    # LogLoader

    def bounds(self, partition: int) -> tuple[int, int]:
        if self.load_error is not None:
            raise self.load_error
        return 0, self.end.get(partition, 0)

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        if self.load_gate is not None:
            await self.load_gate.wait()
        data = b""
        for batch in self.batches.get(partition, []):
            if next(iter_batches(batch)).next_offset > offset and (not data or len(data) + len(batch) <= max_bytes):
                data += batch
        return data

    def may_be_outdated(self) -> bool:
        return self.outdated

    # what a test does

    def add_batch(self, partition: int, batch: bytes) -> None:
        self.batches.setdefault(partition, []).append(batch)
        self.end[partition] = next(iter_batches(batch)).next_offset

    def commit(self) -> None:
        self.high_watermark.update(self.end)
        waiting, self.waiting = self.waiting, []
        for _, _, callback in waiting:
            callback(ErrorCode.NONE)

    def lose_uncommitted(self) -> None:
        """Remove the records that the next leader of a partition does not have."""
        self.waiting.clear()
        for partition, batches in self.batches.items():
            end = self.high_watermark.get(partition, 0)
            self.batches[partition] = [data for data in batches if next(iter_batches(data)).next_offset <= end]
            self.end[partition] = end

    def records(self, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
        return [
            (record.key, record.value)
            for data in self.batches.get(partition, [])
            for batch in iter_batches(data)
            for record in batch.records()
        ]


class Call(Generic[R]):
    """A request that was sent; its response may be there or not."""

    def __init__(self, task: "asyncio.Task[R]") -> None:
        self._task = task

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def response(self) -> R:
        assert self._task.done(), "no response yet"
        return self._task.result()

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)  # type: ignore[attr-defined]


class Coordinator(Protocol):
    """A coordinator of any kind, as the broker runs it."""

    def on_elected(self, partition: int, leader_epoch: int) -> object: ...
    def on_resigned(self, partition: int) -> None: ...
    def close(self) -> None: ...


CoordinatorT = TypeVar("CoordinatorT", bound=Coordinator)


class CoordinatorContext(Generic[CoordinatorT]):
    """A coordinator, and the verbs that move its world: `hold` and `commit` (records stay uncommitted, are committed),
    `fail` (the next append fails), `sleep` (time passes, timers fire), `restart` (another coordinator loads the same
    log)."""

    def __init__(self, partition_count: int, leader_epoch: int = 0, *, load: bool = True) -> None:
        self.loop = SkippingLoop()
        self.log = MemoryLog()
        self.partition_count = partition_count
        self.leader_epoch = leader_epoch
        self._calls: list[asyncio.Task[Any]] = []
        self.coordinator = self._make()
        if load:
            self.elect()

    def _make(self) -> CoordinatorT:
        raise NotImplementedError

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.close()
        self.settle()
        for task in self._calls:
            task.cancel()
        self.settle()
        self.loop.close()

    # --- time and log

    def now_ms(self) -> int:
        return START_MS + round(self.loop.now_s * 1000)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(work)

    def settle(self) -> None:
        for _ in range(4):
            self.run(asyncio.sleep(0))

    def sleep(self, ms: int) -> None:
        self.run(asyncio.sleep(ms / 1000))
        self.settle()

    def hold(self) -> None:
        self.log.held = True

    def commit(self) -> None:
        self.log.held = False
        self.log.commit()
        self.settle()

    def fail(self, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        self.log.failures.append(code)

    def elect(self, epoch: int | None = None, *, settle_ms: int = 1) -> None:
        for partition in range(self.partition_count):
            self.start_load(partition, epoch)
        self.sleep(settle_ms)

    def start_load(self, partition: int = 0, epoch: int | None = None) -> None:
        async def start() -> None:
            self.coordinator.on_elected(partition, self.leader_epoch if epoch is None else epoch)

        self.run(start())

    def resign(self, partition: int | None = None) -> None:
        """One partition, or all."""
        for one in range(self.partition_count) if partition is None else [partition]:
            self.coordinator.on_resigned(one)
        self.settle()

    def restart(self) -> None:
        self.resign()
        self.leader_epoch += 1
        self.coordinator = self._make()
        self.elect()

    # --- requests

    def call(self, work: Awaitable[R]) -> Call[R]:
        return self._call(lambda: work)

    def begin(self, start: Callable[[], R | Deferred[R]]) -> Call[R]:
        """As `call`, of a function that returns a response or the Deferred of one."""
        return self._call(start)

    async def wait(self, pending: Deferred[R]) -> R:
        return await outcome_of(pending, self.loop.create_future())

    def _call(self, start: Callable[[], R | Awaitable[R] | Deferred[R]]) -> Call[R]:
        async def answered() -> R:
            started = start()
            if isinstance(started, Deferred):
                return await self.wait(started)
            return await started if isinstance(started, Awaitable) else started

        task = self.loop.create_task(answered())
        self._calls.append(task)
        self.settle()
        return Call(task)
