"""What leaves a connection: bytes through its transport, long pieces of segment files straight from file to socket.

`os.sendfile` works beside a uvloop transport as long as the transport holds no unsent bytes of its own: its write limit
is set to zero so that it reports every such moment (`pause_writing`, `resume_writing`). Waiting for room needs
`add_writer`, which a loop refuses for a transport's own descriptor, so it is done on a duplicate; the duplicate is
closed before the transport is, or the peer would never see the end of the stream.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

SENDFILE_FROM_BYTES = 128 * 1024
"""Below this, reading and one write are cheaper than a second system call and a second packet."""


class FileRegion(Protocol):
    """A piece of a file that stays readable until `release()`."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def position(self) -> int: ...
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def release(self) -> None: ...


Chunk = bytes | bytearray | FileRegion


class Outbound:
    """Sends chunks in order and keeps what the socket does not take yet. To be used on the loop's thread only.

    `blocked` is true while something waits for the peer to read; the connection then takes up no further request.
    `on_drained` is called whenever that ends.
    """

    __slots__ = (
        "_closed",
        "_duplicate",
        "_loop",
        "_on_drained",
        "_queue",
        "_region_sent",
        "_transport",
        "_watching",
        "blocked",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, on_drained: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._on_drained = on_drained
        self._queue: deque[Chunk] = deque()
        self._region_sent = 0
        self._duplicate: socket.socket | None = None
        self._watching = False
        self._closed = False
        self.blocked = False
        transport.set_write_buffer_limits(high=0)

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send as much as the socket takes now. Regions are released once sent, or when the connection ends."""
        self._queue.extend(chunks)
        if self._closed:
            self._drop()
        elif not self.blocked:
            self._pump()

    def transport_paused(self) -> None:
        self.blocked = True

    def transport_resumed(self) -> None:
        self._go_on()

    def close(self) -> None:
        """Drop what was not sent. Comes before the transport's own close. Idempotent."""
        self._closed = True
        self._drop()
        if self._duplicate is not None:
            self._watch(False)
            self._duplicate.close()
            self._duplicate = None

    def _drop(self) -> None:
        for chunk in self._queue:
            if not isinstance(chunk, (bytes, bytearray)):
                chunk.release()
        self._queue.clear()

    def _go_on(self) -> None:
        self.blocked = False
        if not self._closed:
            self._pump()
            if not self.blocked:
                self._on_drained()

    def _pump(self) -> None:
        queue = self._queue
        parts: list[bytes | bytearray] = []
        while queue and not self.blocked:
            chunk = queue[0]
            if isinstance(chunk, (bytes, bytearray)):
                parts.append(chunk)
            elif chunk.size_bytes < SENDFILE_FROM_BYTES:
                parts.append(chunk.read())
                chunk.release()
            else:
                self._write(parts, more=True)
                parts = []
                if self.blocked or not self._send_region(chunk):
                    return
                chunk.release()
                self._region_sent = 0
            queue.popleft()
        self._write(parts, more=False)

    def _write(self, parts: list[bytes | bytearray], more: bool) -> None:
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if more:
            # The peer is woken once, by the file's bytes, and not for a response header alone.
            try:
                sent = self._socket().send(data, socket.MSG_MORE)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._transport.abort()
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._transport.write(data)

    def _send_region(self, region: FileRegion) -> bool:
        """Returns whether the region is out; if not, `blocked` is set and its rest follows when there is room."""
        position, end = region.position + self._region_sent, region.position + region.size_bytes
        try:
            out = self._socket().fileno()
            source = region.fileno()
            while position < end:
                sent = os.sendfile(out, source, position, end - position)
                if sent == 0:  # the file is shorter than the answer's length field says: the stream cannot be mended
                    self._transport.abort()
                    break
                position += sent
        except BlockingIOError:
            self._region_sent = position - region.position
            self.blocked = True
            self._watch(True)
            return False
        except OSError:
            self._transport.abort()
        return True

    def _socket(self) -> socket.socket:
        if self._duplicate is None:
            self._duplicate = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
        return self._duplicate

    def _watch(self, on: bool) -> None:
        if on != self._watching and self._duplicate is not None:
            self._watching = on
            if on:
                self._loop.add_writer(self._duplicate.fileno(), self._writable)
            else:
                self._loop.remove_writer(self._duplicate.fileno())

    def _writable(self) -> None:
        self._watch(False)
        self._go_on()
