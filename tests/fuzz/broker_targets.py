"""The target of all targets: a whole broker, whose connections get broken requests. No handler may trip over one."""

from __future__ import annotations

import asyncio
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from gregor.broker.net.connection import Connection
from gregor.broker.registry import Entry, load_handlers
from gregor.protocol.ids import ZERO_UUID
from tests.broker.handlers.test_any_values import Maker
from tests.broker.harness import FakeTransport, Harness
from tests.fuzz.runner import Seed, Target
from tests.support.wire import request_bytes

INPUTS_PER_BROKER = 150
TURNS = 12
"""Of the loop, for one request: what waits longer is left by its client."""


def targets() -> list[Target]:
    brokers = Brokers()
    return [Target("brokers", brokers.receive, broker_seeds, (), weight=2, mend=mend_frame, close=brokers.close)]


@cache
def broker_seeds() -> list[Seed]:
    """Requests of every API and version that is served, with names and ids that the broker knows."""
    maker = Maker(Random(4723), ZERO_UUID)
    return [
        (None, request_bytes(maker.request(key, version), version, 7, "fuzz"))
        for key, entry in load_handlers().items()
        for version in range(entry.min_version, entry.max_version + 1)
        for _ in range(3)
    ]


def mend_frame(context: None, data: bytearray) -> None:
    """The size of the frame."""
    data[:4] = max(0, len(data) - 4).to_bytes(4)


class Watched(Connection):
    """Keeps the error of a handler that failed, which a connection only logs."""

    error: BaseException | None = None

    def _failed(self, entry: Entry, version: int, error: BaseException) -> None:
        error.add_note(f"{entry.key.name} version {version}")
        self.error = error
        super()._failed(entry, version, error)


class Brokers:
    """A broker that is begun anew now and then, on an empty folder."""

    def __init__(self) -> None:
        self._harness: Harness | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._left = 0
        self._lost: list[BaseException] = []

    def _broker(self) -> Harness:
        if self._harness is None or self._left == 0:
            self.close()
            memory = Path("/dev/shm")
            self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
            self._harness = Harness(Path(self._folder.name) / "data", gregor_metrics_listener="0").start()
            self._harness.loop.set_exception_handler(self._lost_error)
            self._harness.create_topic("known", partitions=2)
            self._left = INPUTS_PER_BROKER
        self._left -= 1
        return self._harness

    def close(self) -> None:
        if self._harness is not None:
            self._harness.stop()
            self._harness = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _lost_error(self, loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        self._lost.append(told.get("exception") or RuntimeError(told["message"]))

    def receive(self, context: None, data: bytes) -> None:
        """Check that a request gets a response, none, or the end of the connection; the broker itself never fails."""
        harness = self._broker()
        connection, transport = Watched(harness.broker, "PLAINTEXT"), FakeTransport()

        async def feed() -> None:
            connection.connection_made(transport)
            taken = 0
            while taken < len(data) and transport.reading and not transport.aborted:
                view = connection.get_buffer(65536)
                piece = data[taken : taken + len(view)]
                view[: len(piece)] = piece
                connection.buffer_updated(len(piece))
                taken += len(piece)

        harness.run(feed())  # long work runs on the loop
        harness.turn(TURNS)
        connection.connection_lost(None)
        harness.turn(1)
        error = connection.error or (self._lost[0] if self._lost else None)
        self._lost.clear()
        if error is not None:
            raise error
