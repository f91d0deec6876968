"""Stand-ins for this package's neighbours: a log that only counts, a clock moved by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from gregor.protocol.errors import ErrorCode, KafkaError


@dataclass
class CountingLog:
    """A log whose records are the bytes it is given: appending b"abc" moves the end by three."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    topic_id: bytes = bytes(16)
    min_insync_replicas: int = 1
    epochs: list[tuple[int, int]] = field(default_factory=list)
    refuse: KafkaError | None = None
    awaited: dict[int, tuple[int, int]] = field(default_factory=dict)
    led_since_ms: int | None = None
    configured: Any = None
    is_moved: bool = False

    def configure(self, config: Any) -> None:
        self.configured = config

    def await_sequence(self, producer_id: int, epoch: int, sequence: int) -> None:
        self.awaited[producer_id] = epoch, sequence

    def begin_to_lead(self, since_ms: int | None, *, knows_all: bool) -> None:
        self.awaited.clear()
        self.led_since_ms = since_ms

    def note_move(self) -> None:
        self.is_moved = True

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.is_moved = True

    def restore_high_watermark(self, offset: int) -> None:
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)

    @property
    def offsets(self) -> CountingLog:
        """It has no parts to share them with."""
        return self

    @property
    def producers(self) -> CountingLog:
        """As `offsets`."""
        return self

    @property
    def config(self) -> Any:
        return SimpleNamespace(min_insync_replicas=self.min_insync_replicas)

    def append_as_leader(self, records: bytes, leader_epoch: int, now_ms: int, *, from_client: bool = True) -> Any:
        if self.refuse is not None:
            raise self.refuse
        first = self.log_end_offset
        self.log_end_offset += len(records)
        return SimpleNamespace(first_offset=first, last_offset=self.log_end_offset - 1, from_client=from_client)

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool = True, waits_for_disk: bool = True
    ) -> Any:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return range(offset, max(offset, min(offset + max_bytes, upper_offset)))

    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.append((epoch, start_offset))

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        known = [epoch for epoch, _ in self.epochs if epoch <= leader_epoch]
        if not known or leader_epoch > self.epochs[-1][0]:
            return -1, -1
        later = [start for epoch, start in self.epochs if epoch > leader_epoch]
        return known[-1], later[0] if later else self.log_end_offset


class HandClock:
    """Milliseconds that pass only by `sleep`."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms

    def sleep(self, ms: int) -> None:
        self.now_ms += ms


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @functools.wraps(test)
    def runner(*args: Any, **kwargs: Any) -> None:
        async def body() -> None:
            await test(*args, **kwargs)

        asyncio.run(body())

    return runner


class CountingLogs:
    """A LogManager of CountingLogs."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], CountingLog] = {}
        self.failed: dict[tuple[str, int], Exception] = {}

    def get(self, topic: str, partition: int) -> CountingLog | None:
        return self.logs.get((topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: bytes, config: Any, *, is_new: bool = True
    ) -> CountingLog:
        if (topic, partition) in self.failed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return self.logs.setdefault((topic, partition), CountingLog(topic_id=topic_id))

    def remove(self, topic: str, partition: int) -> str:
        del self.logs[topic, partition]
        return f"{topic}-{partition}.0-delete"
