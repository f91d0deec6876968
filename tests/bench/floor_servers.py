"""Servers that do the least that a broker must do for a request, and nothing else (tests.bench.floors).

    python -m tests.bench.floor_servers KIND FILE

Prints its port and serves one connection after the other. A frame is its size in four bytes and as many bytes.

    append      a blocking loop receives a frame, appends it to the file and sends ANSWER
    loop        the same behind a protocol of uvloop, as the broker receives
    sendfile    a frame is a position and a size; the answer is its head, then these bytes of the file by sendfile
    buffer      the same by reading into one buffer and sending it
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import cast

FRAME = struct.Struct(">i")
PLACE = struct.Struct(">qi")
ANSWER = FRAME.pack(60) + bytes(60)
"""As long as the response to a produce request for one partition."""
BUFFER_BYTES = 2 * 1024 * 1024


def main() -> None:
    kind, path = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        if kind == "loop":
            import uvloop

            uvloop.run(serve_by_loop(server, path))
        by_kind = {"append": append, "sendfile": send_file, "buffer": send_buffer}
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                by_kind[kind](connection, path)


class Frames:
    """Cuts received bytes into frames, in one buffer that is used again and again."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER_BYTES))
        self.end = 0

    def received(self, size_bytes: int, handle: Callable[[memoryview], None]) -> None:
        self.end += size_bytes
        start = 0
        while self.end - start >= FRAME.size:
            stop = start + FRAME.size + FRAME.unpack_from(self.view, start)[0]
            if stop > self.end:
                break
            handle(self.view[start + FRAME.size : stop])
            start = stop
        if start:
            rest = bytes(self.view[start : self.end])
            self.view[: len(rest)] = rest
            self.end = len(rest)


def append(connection: socket.socket, path: str) -> None:
    frames, descriptor = Frames(), os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(frame: memoryview) -> None:
        os.write(descriptor, frame)
        connection.sendall(ANSWER)

    while size_bytes := connection.recv_into(frames.view[frames.end :]):
        frames.received(size_bytes, handle)
    os.close(descriptor)


class AppendProtocol(asyncio.BufferedProtocol):
    def __init__(self, path: str) -> None:
        self._frames = Frames()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._frames.view[self._frames.end :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._frames.received(size_bytes, self._handle)

    def _handle(self, frame: memoryview) -> None:
        os.write(self._descriptor, frame)
        self._transport.write(ANSWER)

    def connection_lost(self, _error: Exception | None) -> None:
        os.close(self._descriptor)


async def serve_by_loop(server: socket.socket, path: str) -> None:
    listening = await asyncio.get_running_loop().create_server(lambda: AppendProtocol(path), sock=server)
    await listening.serve_forever()


def send_file(connection: socket.socket, path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)

    def send(position: int, end: int) -> None:
        while position < end:
            position += os.sendfile(connection.fileno(), descriptor, position, end - position)

    answer_places(connection, send)
    os.close(descriptor)


def send_buffer(connection: socket.socket, path: str) -> None:
    descriptor, buffer = os.open(path, os.O_RDONLY), memoryview(bytearray(BUFFER_BYTES))

    def send(position: int, end: int) -> None:
        while position < end:
            size_bytes = os.preadv(descriptor, [buffer[: end - position]], position)
            connection.sendall(buffer[:size_bytes])
            position += size_bytes

    answer_places(connection, send)
    os.close(descriptor)


def answer_places(connection: socket.socket, send: Callable[[int, int], None]) -> None:
    frames = Frames()

    def handle(frame: memoryview) -> None:
        position, size_bytes = PLACE.unpack(frame)
        connection.send(FRAME.pack(size_bytes + 60) + bytes(60), socket.MSG_MORE)
        send(position, position + size_bytes)

    while size_bytes := connection.recv_into(frames.view[frames.end :]):
        frames.received(size_bytes, handle)


if __name__ == "__main__":
    main()
