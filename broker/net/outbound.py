"""The sending side of a connection: responses through its transport, pieces of segment files in one of two ways.

A piece below `SENDFILE_MIN_BYTES` is read into a buffer that all connections share, and sent from there. That copies
once more than `os.sendfile`, and is cheaper for few bytes all the same, as sendfile sends 64 KB at a time and wakes a
peer that waits for each; a buffer for each response would cost twice as much as either, in page faults. Larger pieces,
of fetches of 10 MB, are sent by `os.sendfile`, for a quarter less processor time (docs/architecture/decisions.md).
Bytes that the socket does not accept are read again when there is room. Both ways send only bytes that are in the page
cache (RWF_NOWAIT; a cache probe); a thread reads the rest ahead, so that a cold segment delays its own reader and not
the event loop.

Waiting for room needs `add_writer`, which a loop refuses for a transport's own descriptor, so it is done on a
duplicate; the duplicate is closed before the transport is, or the peer would never see the end of the stream. The
transport's write limit is zero, so that it reports every moment in which it holds unsent bytes (`pause_writing`,
`resume_writing`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gregor.storage.fs.page_cache import CacheProbe, cache_probe

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background

JOINED_BELOW_BYTES = 128 * 1024
"""Pieces up to this size are sent in one write with the bytes before them."""

WINDOW_BYTES = 2 * 1024 * 1024
SENDFILE_MIN_BYTES = 2 * 1024 * 1024
_MIN_WINDOW_BYTES = 256 * 1024
_BURST_BYTES = 4 * 1024 * 1024
"""After this many bytes (some milliseconds) other work proceeds, even if the peer receives everything at once."""

_buffer = memoryview(bytearray(0))


def window() -> memoryview:
    """Return the shared buffer, which is made on first use: a broker without consumers does not need it."""
    global _buffer
    if not _buffer:
        _buffer = memoryview(bytearray(WINDOW_BYTES))
    return _buffer


def read_cached(descriptor: int, view: memoryview, position: int) -> int:
    """Read as preadv, but only from the page cache. Raises BlockingIOError if the first byte is not in it."""
    try:
        return os.preadv(descriptor, [view], position, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return os.preadv(descriptor, [view], position)  # a file system without RWF_NOWAIT


def read_and_close(descriptor: int, size_bytes: int, position: int) -> None:
    """Read the next bytes into the page cache, on a thread, and close the descriptor."""
    try:
        os.pread(descriptor, size_bytes, position)
    finally:
        os.close(descriptor)


class NotCached(Exception):
    """The next bytes of the file are not in memory."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


class _SendfileRefused(Exception):
    """The file system of the region has no sendfile."""


class FileRegion(Protocol):
    """A piece of a file that stays readable until `release()`."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def position(self) -> int: ...
    def fileno(self) -> int: ...
    def release(self) -> None: ...


Chunk = bytes | bytearray | FileRegion


def _read_small(region: FileRegion) -> bytes | None:
    """Return the region's bytes if they are few and in the page cache. None also if they cannot be read, an error that
    the usual way finds as well."""
    size = region.size_bytes
    if size > JOINED_BELOW_BYTES:
        return None
    view = (_buffer or window())[:size]
    try:
        return bytes(view) if read_cached(region.fileno(), view, region.position) == size else None
    except OSError:
        return None


def _nothing() -> None:
    return


class Outbound:
    """Sends chunks in order and keeps those for which the socket has no room. Belongs to the thread of the event loop.

    `blocked` is true while bytes wait for the peer to read; the connection then dispatches no further request.
    `on_drained` is called whenever that ends.
    """

    __slots__ = (
        "_background",
        "_cached_end",
        "_closed",
        "_duplicate",
        "_left",
        "_loop",
        "_on_drained",
        "_queue",
        "_read_ahead_end",
        "_region_sent",
        "_transport",
        "_transport_paused",
        "_watching",
        "_window_bytes",
        "blocked",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        background: Background,
        on_drained: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._background = background
        self._transport = transport
        self._on_drained = on_drained
        self._queue: deque[Chunk] = deque()
        self._region_sent = 0
        self._cached_end = 0
        self._read_ahead_end = 0
        self._window_bytes = WINDOW_BYTES
        self._duplicate: socket.socket | None = None
        self._watching = False
        self._transport_paused = False
        self._closed = False
        self._left: tuple[int, int, int] | None = None
        self.blocked = False
        self._limit_buffer()

    def _limit_buffer(self) -> None:
        self._transport.set_write_buffer_limits(high=0)

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send as much as the socket has room for. Regions are released once sent, or when the connection ends."""
        if len(chunks) == 1 and not (self.blocked or self._closed):
            chunk = chunks[0]
            if isinstance(chunk, (bytes, bytearray)):
                self._transport.write(chunk)
                return
        self._queue.extend(chunks)
        if self._closed:
            self._drop()
        elif not self.blocked:
            self._pump()

    def transport_paused(self) -> None:
        self.blocked = self._transport_paused = True

    def transport_resumed(self) -> None:
        self._transport_paused = False
        self._resume()

    def moved(self) -> bool:
        """Return whether the peer received any of the waiting bytes since the last call. Not for a closed
        connection."""
        before, self._left = self._left, (len(self._queue), self._region_sent, self._transport.get_write_buffer_size())
        return before != self._left

    def close(self) -> None:
        """Drop the unsent bytes, before the transport is closed. Idempotent."""
        self._closed = True
        self._on_drained = _nothing  # it refers to the connection: a cycle, which would be work for the collector
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

    def _resume(self) -> None:
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
            else:
                small = None if self._region_sent else _read_small(chunk)
                if small is not None:
                    parts.append(small)
                else:
                    self._write_before_region(parts, chunk)
                    parts = []
                    if self.blocked or not self._send_region(chunk):
                        return
                chunk.release()
                self._region_sent = self._cached_end = self._read_ahead_end = 0  # positions of this chunk's file
            queue.popleft()
        if parts:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _write_before_region(self, parts: list[bytes | bytearray], region: FileRegion) -> None:
        """Send the bytes before a region so that they wake the peer together with the bytes of the file: in one call
        with the first of these, where they leave through the buffer."""
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            first = self._read_first(region)
            sent = self._send_with_first(data, first, region) if first else self._socket().send(data, socket.MSG_MORE)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._transport.abort()
            return
        if sent < len(data):
            self._transport.write(data[sent:])

    def _read_first(self, region: FileRegion) -> memoryview | None:
        """Return the first bytes of a region that leaves through the buffer. None also if they cannot be read now,
        which the usual way finds as well."""
        if region.size_bytes >= SENDFILE_MIN_BYTES and cache_probe() is not None:
            return None
        view = window()[: min(self._window_bytes, region.size_bytes)]
        try:
            return view[: read_cached(region.fileno(), view, region.position)]
        except OSError:
            return None

    def _send_with_first(self, data: bytes | bytearray, first: memoryview, region: FileRegion) -> int:
        """Return how many of the bytes before the region are sent; `_region_sent` counts those of the region."""
        is_whole = len(first) == region.size_bytes
        sent = self._send_with_next(self._socket(), first, data, ends=is_whole) - len(data)
        if sent >= 0:
            self._region_sent = sent
            self._fit_window(sent, len(first))
        return len(data) + min(sent, 0)

    def _send_region(self, region: FileRegion) -> bool:
        """Return whether the whole region is sent; if not, `blocked` is set and the rest follows when there is room."""
        start, end = region.position, region.position + region.size_bytes
        position = start + self._region_sent
        burst_end = min(position + _BURST_BYTES, end)
        is_cached = cache_probe() if region.size_bytes >= SENDFILE_MIN_BYTES else None
        try:
            out = self._socket()
            source = region.fileno()
            while position < end:
                try:
                    if is_cached is None:
                        sent, offered = self._send_by_buffer(out, source, position, end)
                    else:
                        sent, offered = self._send_by_sendfile(out, source, position, burst_end, is_cached)
                except NotCached as missing:
                    self._wait_for_disk(source, missing.size_bytes, position)
                    return False
                except _SendfileRefused:
                    is_cached = None
                    continue
                if sent == 0:  # the file is shorter than the response's length field: the stream is broken
                    self._transport.abort()
                    return True
                position += sent
                self._region_sent = position - start
                if sent < offered or burst_end <= position < end:  # the socket is full, or others wait
                    raise BlockingIOError
        except BlockingIOError:
            self.blocked = True
            self._cached_end = 0  # the pages may have left memory when the peer reads again
            self._watch(True)
            return False
        except OSError:
            self._transport.abort()
        return True

    def _send_by_buffer(self, out: socket.socket, source: int, position: int, end: int) -> tuple[int, int]:
        """Return how many bytes were sent, and how many were offered to the socket: 0 at the end of the file. Raises
        BlockingIOError when the socket has no room, and NotCached."""
        view = window()[: min(self._window_bytes, end - position)]
        try:
            got = read_cached(source, view, position)
        except BlockingIOError:
            raise NotCached(len(view)) from None
        if got == 0:
            return 0, 0
        sent = self._send_with_next(out, view[:got], b"", ends=position + got == end)
        self._fit_window(sent, got)
        return sent, got

    def _fit_window(self, sent: int, read: int) -> None:
        """Read no more at once than the socket accepts, or the rest would have to be read again."""
        if sent < read:
            self._window_bytes = max(_MIN_WINDOW_BYTES, sent)
        else:
            self._window_bytes = min(WINDOW_BYTES, self._window_bytes * 2)

    def _send_with_next(self, out: socket.socket, view: memoryview, before: bytes | bytearray, *, ends: bool) -> int:
        """Send bytes of a region after those before it and, if the region ends with them, with the bytes queued behind
        it in one call: a response begins and ends with a few bytes that would cost a call and a packet of their own.
        Return how many of `before` and `view` are sent; the queue keeps what is left of those behind."""
        queue = self._queue
        behind = queue[1] if ends and len(queue) > 1 else b""
        if not isinstance(behind, (bytes, bytearray)):
            behind = b""
        if not before and not behind:
            return out.send(view)
        size_bytes = len(before) + len(view)
        sent = out.sendmsg([before, view, behind])
        sent_behind = sent - size_bytes
        if sent_behind <= 0:
            return sent
        if sent_behind < len(behind):
            queue[1] = behind[sent_behind:]
        else:
            del queue[1]
        return size_bytes

    def _send_by_sendfile(
        self, out: socket.socket, source: int, position: int, end: int, is_cached: CacheProbe
    ) -> tuple[int, int]:
        """Send as `_send_by_buffer`. Bytes that were read ahead are sent without a probe: some file systems keep
        nothing in the page cache. Raises _SendfileRefused, too."""
        sendable_end = min(end, max(self._cached_end, self._read_ahead_end))
        if position >= sendable_end:
            sendable_end = end
            if not is_cached(source, position, end - position):
                if end > os.fstat(source).st_size:
                    return 0, 0
                raise NotCached(min(WINDOW_BYTES, end - position))
            self._cached_end = end
        offered = sendable_end - position
        try:
            return os.sendfile(out.fileno(), source, position, offered), offered
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS):  # a file system without it
                raise _SendfileRefused from None
            raise

    def _wait_for_disk(self, source: int, size_bytes: int, position: int) -> None:
        self.blocked = True
        self._watch(False)
        self._read_ahead_end = position + size_bytes
        # The region may be released before a thread is free.
        self._background.spawn(self._fetch(os.dup(source), size_bytes, position))

    async def _fetch(self, descriptor: int, size_bytes: int, position: int) -> None:
        try:
            await self._background.read_ahead(read_and_close, descriptor, size_bytes, position)
        except (OSError, MemoryError):
            self._transport.abort()  # the disk cannot deliver the announced bytes
        else:
            if not self._transport_paused:
                self._resume()

    def _socket(self) -> socket.socket:
        if self._duplicate is None:
            opened: socket.socket | None = self._transport.get_extra_info("socket")
            if opened is None:  # uvloop has none of a connection that has ended
                raise ConnectionResetError("the connection has ended")
            self._duplicate = socket.socket(fileno=os.dup(opened.fileno()))
        return self._duplicate

    def _watch(self, on: bool) -> None:
        if on != self._watching and self._duplicate is not None:
            self._watching = on
            if on:
                self._loop.add_writer(self._duplicate.fileno(), self._writable)
            else:
                self._loop.remove_writer(self._duplicate.fileno())

    def _writable(self) -> None:
        # The writer stays registered until the region is sent: to remove and add it again costs as much as a send.
        self._resume()
        if not self.blocked or self._transport_paused:
            self._watch(False)
