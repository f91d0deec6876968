"""The event loop's side of a worker process of the broker: lines of JSON in both directions."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from contextlib import suppress
from typing import Any

LINE_BYTES = 64 * 1024


class WorkerDied(Exception):
    """The process ended in the middle of a job."""


class _Protocol(SubprocessStreamProtocol):
    """Completes a future when the process has ended, and another when all pipes to it are closed, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, line_bytes: int) -> None:
        super().__init__(limit=line_bytes, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.gone.done():
            self.gone.set_result(None)


class WorkerProcess:
    """Runs a module of gregor in a process that its first use starts. For one caller at a time.

    A caller that stops between a message and its answer, for any reason, must close the process.
    """

    def __init__(self, module: str, line_bytes: int = LINE_BYTES) -> None:
        """`line_bytes`: the longest line that the process sends."""
        self._module = module
        self._line_bytes = line_bytes
        self._process: Process | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._protocol: _Protocol | None = None
        self._starting: asyncio.Task[Process] | None = None
        self._ending: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process if it does not run. Raises OSError."""
        if self._process is None:
            # A start that is cancelled half way must not leave a process without an owner.
            if self._starting is None:
                self._starting = asyncio.create_task(self._start())
            self._process = await asyncio.shield(self._starting)

    async def send(self, **message: Any) -> None:
        """Send one message. Raises WorkerDied."""
        assert self._process is not None
        stdin = self._process.stdin
        assert stdin is not None
        if stdin.is_closing():  # uvloop's raises something else
            await self._fail()
        try:
            stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            await self._fail()

    async def receive(self) -> Any:
        """Return the next message of the process. Raises WorkerDied."""
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line.endswith(b"\n"):
            await self._fail()
        return json.loads(line)

    async def receive_bytes(self, size_bytes: int) -> bytes:
        """Return this many bytes, which follow a line. Raises WorkerDied."""
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        try:
            return await stdout.readexactly(size_bytes)
        except asyncio.IncompleteReadError:
            await self._fail()
            raise

    async def close(self) -> None:
        """End the process, whatever it does. A caller that is cancelled in it, or a second one, can wait for the same
        end."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _fail(self) -> None:
        assert self._transport is not None
        assert self._protocol is not None
        await self._protocol.exited
        raise WorkerDied(f"the worker ended with status {self._transport.get_returncode()}")

    async def _start(self) -> Process:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop, self._line_bytes),
            *(sys.executable, "-P", "-m", self._module),
            stdin=PIPE,
            stdout=PIPE,
            stderr=None,
        )
        self._transport, self._protocol = transport, protocol
        return Process(transport, protocol, loop)

    async def _end(self) -> None:
        if self._starting is not None and self._process is None:
            with suppress(OSError):
                self._process = await self._starting
        if self._transport is not None and self._protocol is not None:
            with suppress(ProcessLookupError):
                self._transport.kill()
            await self._protocol.exited
            # Its last output may never be read, and a pipe that is not empty stays open.
            self._transport.close()
            await self._protocol.gone
        self._process = self._transport = self._protocol = self._starting = self._ending = None
