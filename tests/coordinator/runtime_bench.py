"""A runtime with a shard that does next to nothing, a log in memory and a clock that moves on command."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gregor.broker.jobs.turns import LoopGate
from gregor.coordinator.ports import ShardContext
from gregor.coordinator.result import Record, Result
from gregor.coordinator.runtime import CoordinatorRuntime, RecordFormat, RuntimeSettings
from gregor.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from gregor.protocol.turns import Steps
from tests.coordinator.machinery import START_MS, MemoryLog, SkippingLoop

COMMIT_TIMEOUT_MS = 5_000


class ListShard:
    """Hard state is the list of what was replayed."""

    def __init__(self, context: ShardContext, timers_to_start: list[str]) -> None:
        self.context = context
        self.timers = context.timers
        self.timers_to_start = timers_to_start
        self.replayed: list[tuple[int, str, int]] = []
        self.loaded_at: list[int] = []
        self.fired: list[tuple[str, int]] = []
        self.unloaded: list[ErrorCode] = []

    def replay(self, record: Record, offset: int, producer_id: int = -1) -> None:
        self.replayed.append((offset, record.key, producer_id))

    def replay_end_of_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.replayed.append((-1, "commit" if commit else "abort", producer_id))

    def on_loaded(self, now_ms: int) -> Steps[None]:
        for name in self.timers_to_start:
            self.timers.schedule(name, 0, partial(self.fire, name))
            yield None
        self.loaded_at.append(now_ms)

    def fire(self, name: str, now_ms: int) -> Result:
        self.fired.append((name, len(self.loaded_at)))
        return Result(records=[Record(name, None)])

    def on_unloaded(self, error: ErrorCode) -> None:
        self.unloaded.append(error)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    if record.key == "too long":
        raise ValueError("too long")
    return record.key.encode(), record.value


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    if key is None:
        raise MalformedMessage("no key")
    return None if key == b"unknown" else Record(key.decode(), value)


class Bench:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.loop = SkippingLoop()
        self.log = MemoryLog()
        self.shards: list[ListShard] = []
        self.timers_to_start: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.runtime: CoordinatorRuntime[ListShard] = CoordinatorRuntime(
            self._make_shard,
            RecordFormat(encode, decode, lambda key: key != b"dependent"),
            self.log,
            self.log,
            lambda: START_MS + round(self.loop.now_s * 1000),
            LoopGate(self.clock),
            RuntimeSettings("topic", COMMIT_TIMEOUT_MS, load_buffer_bytes=1_000),
        )

    def _make_shard(self, context: ShardContext) -> ListShard:
        self.shards.append(ListShard(context, self.timers_to_start))
        return self.shards[-1]

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.close()
        self.settle()
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.exception()  # else it is logged as never retrieved
        self.loop.close()

    def settle(self, ms: int = 0) -> None:
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def elect(self, partition: int = 0, epoch: int = 0) -> asyncio.Task[None] | None:
        async def elect() -> asyncio.Task[None] | None:
            return self.runtime.elect(partition, epoch)

        return self.loop.run_until_complete(elect())

    def load(self, partition: int = 0, epoch: int = 0) -> ListShard:
        self.elect(partition, epoch)
        self.settle(1)
        return self.runtime.shard(partition)

    def load_what_is_not_committed(self) -> None:
        """Append a record, which is not committed until `log.commit()`, and load the partition again."""
        self.load()
        self.log.held = True
        self.write("a")
        self.runtime.resign(0)
        self.load()

    def start(self, operation: Callable[[ListShard, int], Result], partition: int = 0) -> "asyncio.Task[Any]":
        task = self.loop.create_task(self.runtime.run(partition, operation))
        self.tasks.append(task)
        self.settle()
        return task

    def write(self, *keys: str, response: object = "done", **result: Any) -> "asyncio.Task[Any]":
        return self.start(lambda _shard, _now: Result(response, [Record(key, None) for key in keys], **result))


def code_of(task: "asyncio.Task[Any]") -> ErrorCode:
    error = task.exception()
    assert isinstance(error, KafkaError)
    return error.code
