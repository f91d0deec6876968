"""net.outbound over a real socket pair: bytes and file pieces arrive whole and in order, however slow the reader."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import uvloop

from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.net import outbound
from gregor.broker.net.outbound import JOINED_BELOW_BYTES, SENDFILE_MIN_BYTES, WINDOW_BYTES, Outbound
from tests.broker.loop_lag import LoopLag, loop_lag_during
from tests.support.evicted import evict

# A burst of 4 MB needs 3 to 11 ms of processor time on two cores: above the 10 ms that hold elsewhere.
MAX_BURST_LAG_MS = 20


class Piece:
    def __init__(self, path: Path, position: int, size_bytes: int) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self.position = position
        self.size_bytes = size_bytes
        self.released = False

    def fileno(self) -> int:
        assert not self.released
        return self._fd

    def release(self) -> None:
        assert not self.released
        self.released = True
        os.close(self._fd)


class Server(asyncio.Protocol):
    def __init__(self) -> None:
        self.drained = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.background = Background(LoopGate())
        self.outbound = Outbound(asyncio.get_running_loop(), self.transport, self.background, self.on_drained)

    def on_drained(self) -> None:
        self.drained += 1

    def pause_writing(self) -> None:
        self.outbound.transport_paused()

    def resume_writing(self) -> None:
        self.outbound.transport_resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.outbound.close()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Server, socket.socket]]:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        sock.setblocking(False)
    _, server = await loop.connect_accepted_socket(Server, ours)
    try:
        yield server, theirs
    finally:
        server.outbound.close()
        server.transport.abort()
        theirs.close()
        await server.background.close()


def run(test: object) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)  # type: ignore[arg-type]


async def receive(sock: socket.socket, count: int, step: int = 65536) -> bytes:
    loop = asyncio.get_running_loop()
    got = bytearray()
    while len(got) < count:
        data = await asyncio.wait_for(loop.sock_recv(sock, step), 30)
        assert data, "the stream ended early"
        got += data
    return bytes(got)


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(random.Random(1).randbytes(1_000_000))
    return path


@pytest.mark.parametrize("size", [1, JOINED_BELOW_BYTES, JOINED_BELOW_BYTES + 1, 700_000])
def test_a_file_piece_between_bytes_arrives_whole_and_in_order(data_file: Path, size: int) -> None:
    async def test() -> None:
        async with connected() as (server, peer):
            pieces = [Piece(data_file, 1000, size), Piece(data_file, 7, size)]
            server.outbound.send([b"head", bytearray(b"er"), pieces[0], b"middle", pieces[1], b"tail"])
            server.outbound.send([b"next"])
            content = data_file.read_bytes()
            expected = b"header" + content[1000 : 1000 + size] + b"middle" + content[7 : 7 + size] + b"tailnext"
            assert await receive(peer, len(expected)) == expected
            assert all(piece.released for piece in pieces)
            assert not server.outbound.blocked

    run(test())


class _CountedSocket:
    """A socket that accepts `room` bytes in all, then no more until `room` is set again, and notes each call."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.calls: list[bytes] = []

    def sendmsg(self, buffers: list[bytes]) -> int:
        return self.send(b"".join(buffers))

    def send(self, data: bytes, flags: int = 0) -> int:
        if not self.room:
            raise BlockingIOError
        self.calls.append(bytes(data[: self.room]))
        self.room -= len(self.calls[-1])
        return len(self.calls[-1])


@pytest.mark.parametrize("kept", [0, 1, 4, 5, 200_004, 200_005, 200_006, 200_008])
def test_the_bytes_around_a_file_piece_leave_in_the_same_call(
    data_file: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kept` bytes at the end find no room in the first call."""

    async def test() -> None:
        async with connected() as (server, _):
            size, head, tail = 200_000, b"head", b"tail!"
            out = _CountedSocket(len(head) + size + len(tail) - kept)
            monkeypatch.setattr(Outbound, "_socket", lambda self: out)
            monkeypatch.setattr(Outbound, "_watch", lambda self, on: None)
            by_transport: list[bytes] = []
            monkeypatch.setattr(server.outbound, "_transport", _Transport(by_transport, out.calls))
            piece = Piece(data_file, 1000, size)
            server.outbound.send([head, piece, tail])
            assert piece.released == (kept <= len(tail))
            response = head + data_file.read_bytes()[1000 : 1000 + size] + tail
            if out.calls:
                assert out.calls[0] == response[: len(response) - kept]
            if piece.released:
                assert b"".join(by_transport) == tail[len(tail) - kept :]
            if server.outbound.blocked:
                out.room = size + len(tail)
                server.outbound.transport_resumed()
            assert b"".join(out.calls) == response
            assert piece.released and not server.outbound.blocked

    run(test())


@pytest.mark.parametrize("by_sendfile", [False, True])
def test_after_a_short_send_the_socket_is_not_tried_again_before_it_has_room(
    tmp_path: Path, by_sendfile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with connected() as (server, _):
            size, room = SENDFILE_MIN_BYTES + 1000, 300_000
            path = tmp_path / "large"
            path.write_bytes(bytes(size))
            tries: list[int] = []

            def send(self: Outbound, out: object, source: int, position: int, end: int, *_: object) -> tuple[int, int]:
                tries.append(position)
                return (room, end - position) if end - position > room else (end - position, end - position)

            monkeypatch.setattr(Outbound, "_send_by_sendfile" if by_sendfile else "_send_by_buffer", send)
            probe = (lambda *_: True) if by_sendfile else None
            monkeypatch.setattr(outbound, "cache_probe", lambda: probe)
            monkeypatch.setattr(Outbound, "_watch", lambda self, on: None)
            piece = Piece(path, 0, size)
            server.outbound.send([piece])
            assert tries == [0] and server.outbound.blocked
            while server.outbound.blocked:
                server.outbound.transport_resumed()
            assert tries == list(range(0, size, room)) and piece.released

    run(test())


class _Transport:
    """Notes what is written, and beside it in the list of all calls."""

    def __init__(self, written: list[bytes], calls: list[bytes]) -> None:
        self._notes = written, calls

    def write(self, data: bytes) -> None:
        for notes in self._notes:
            notes.append(bytes(data))


def test_random_traffic_to_a_slow_reader_is_what_was_sent(data_file: Path) -> None:
    async def test() -> None:
        rng = random.Random(5)
        content = data_file.read_bytes()
        async with connected() as (server, peer):
            expected = bytearray()
            pieces = []
            for _ in range(40):
                chunks: list[bytes | bytearray | Piece] = []
                for _ in range(rng.randrange(1, 4)):
                    size = rng.choice([1, 100, 30_000, 200_000])
                    position = rng.randrange(len(content) - size)
                    expected += content[position : position + size]
                    if rng.random() < 0.5:
                        chunks.append(content[position : position + size])
                    else:
                        chunks.append(Piece(data_file, position, size))
                        pieces.append(chunks[-1])
                server.outbound.send(chunks)  # type: ignore[arg-type]
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
            assert server.outbound.blocked
            assert await receive(peer, len(expected), 7000) == expected
            await asyncio.sleep(0)
            assert server.drained > 0
            assert all(isinstance(piece, Piece) and piece.released for piece in pieces)

    run(test())


def test_closing_releases_what_was_not_sent_and_the_peer_sees_the_end(data_file: Path) -> None:
    async def test() -> None:
        async with connected() as (server, peer):
            pieces = [Piece(data_file, 0, 900_000) for _ in range(3)]
            server.outbound.send(pieces)
            assert server.outbound.blocked
            server.outbound.close()
            server.transport.abort()
            late = Piece(data_file, 0, 10)
            server.outbound.send([late])
            assert all(piece.released for piece in [*pieces, late])
            loop = asyncio.get_running_loop()
            while await asyncio.wait_for(loop.sock_recv(peer, 1 << 20), 30):
                pass

    run(test())


def test_a_file_that_is_shorter_than_its_piece_ends_the_connection(data_file: Path) -> None:
    async def test() -> None:
        async with connected() as (server, peer):
            server.outbound.send([Piece(data_file, 900_000, 500_000)])
            loop = asyncio.get_running_loop()
            got = 0
            while data := await asyncio.wait_for(loop.sock_recv(peer, 1 << 20), 30):
                got += len(data)
            assert got <= 100_000

    run(test())


def test_a_disk_that_cannot_be_read_ends_the_connection(data_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, "a bad sector")

    async def test() -> None:
        async with connected() as (server, peer):
            monkeypatch.setattr(outbound, "read_cached", fail)
            server.outbound.send([b"head", Piece(data_file, 0, 500)])
            loop = asyncio.get_running_loop()
            while await asyncio.wait_for(loop.sock_recv(peer, 1 << 20), 30):
                pass

    run(test())


def test_a_peer_that_is_gone_does_no_harm(data_file: Path) -> None:
    async def test() -> None:
        async with connected() as (server, peer):
            peer.close()
            piece = Piece(data_file, 0, 500_000)
            server.outbound.send([b"x", piece])
            for _ in range(100):
                if server.lost:
                    break
                await asyncio.sleep(0.01)
            assert server.lost
            assert piece.released

    run(test())


@pytest.mark.parametrize("has_probe", [True, False])
def test_pieces_longer_than_the_window_and_the_burst_arrive_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_probe: bool
) -> None:
    if not has_probe:
        monkeypatch.setattr(outbound, "cache_probe", lambda: None)
    path = tmp_path / "segment"
    content = random.Random(2).randbytes(2 * WINDOW_BYTES) * 3
    path.write_bytes(content)

    async def test() -> None:
        async with connected() as (server, peer):
            piece = Piece(path, 5, len(content) - 5)
            server.outbound.send([b"x", piece, b"y"])
            assert await receive(peer, len(content) - 5 + 2, 1 << 20) == b"x" + content[5:] + b"y"
            assert piece.released

    run(test())


@pytest.mark.parametrize("size", [1000, 600_000])
@pytest.mark.parametrize("cached_bytes", [0, 300])
def test_what_is_not_cached_is_read_ahead_on_a_thread(
    data_file: Path, monkeypatch: pytest.MonkeyPatch, size: int, cached_bytes: int
) -> None:
    """The page cache is played: whether a real one has been dropped is the kernel's choice."""
    cached = {"until": 100 + cached_bytes}
    read_ahead = outbound.read_and_close
    threads = set()

    def read_cached(descriptor: int, view: memoryview, position: int) -> int:
        if position >= cached["until"]:
            raise BlockingIOError
        return os.preadv(descriptor, [view[: cached["until"] - position]], position)

    def reading_ahead(descriptor: int, size_bytes: int, position: int) -> None:
        threads.add(threading.current_thread())
        read_ahead(descriptor, size_bytes, position)
        cached["until"] = position + size_bytes

    monkeypatch.setattr(outbound, "read_cached", read_cached)
    monkeypatch.setattr(outbound, "read_and_close", reading_ahead)

    async def test() -> None:
        async with connected() as (server, peer):
            piece = Piece(data_file, 100, size)
            server.outbound.send([b"<", piece, b">"])
            assert server.outbound.blocked
            content = data_file.read_bytes()
            assert await receive(peer, size + 2) == b"<" + content[100 : 100 + size] + b">"
            assert piece.released
        assert threads
        assert threading.main_thread() not in threads

    run(test())


@pytest.mark.parametrize("cached_bytes", [0, 3_000_000])
@pytest.mark.parametrize("is_ever_cached", [True, False])
def test_large_piece_that_is_not_cached_is_read_ahead_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached_bytes: int, is_ever_cached: bool
) -> None:
    """Works also on a file system whose bytes the probe never finds."""
    path = tmp_path / "segment"
    content = random.Random(4).randbytes(SENDFILE_MIN_BYTES + 3_000_000)
    path.write_bytes(content)
    cached_end = cached_bytes
    read_ahead = outbound.read_and_close
    ahead: list[tuple[int, int]] = []

    def is_cached(descriptor: int, position: int, size_bytes: int) -> bool:
        return position + size_bytes <= cached_end

    def reading_ahead(descriptor: int, size_bytes: int, position: int) -> None:
        nonlocal cached_end
        assert threading.current_thread() is not threading.main_thread()
        read_ahead(descriptor, size_bytes, position)
        ahead.append((position, size_bytes))
        if is_ever_cached:
            cached_end = position + size_bytes

    monkeypatch.setattr(outbound, "cache_probe", lambda: is_cached)
    monkeypatch.setattr(outbound, "read_and_close", reading_ahead)

    async def test() -> None:
        async with connected() as (server, peer):
            piece = Piece(path, 0, len(content))
            server.outbound.send([b"<", piece, b">"])
            assert await receive(peer, len(content) + 2, 1 << 20) == b"<" + content + b">"
            assert piece.released

    run(test())
    assert ahead
    assert ahead[0][0] <= cached_bytes
    if is_ever_cached:
        assert all(position >= before + size for (before, size), (position, _) in pairwise(ahead)), "nothing twice"


@pytest.mark.parametrize("in_one_response", [True, False])
def test_small_piece_that_was_read_ahead_leaves_no_trace_in_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_response: bool
) -> None:
    """Positions belong to one file: a large piece of another must end where it ends."""
    tail, large = tmp_path / "tail", tmp_path / "large"
    tail.write_bytes(bytes(11_000_000) + b"t" * 1000)
    content = random.Random(5).randbytes(SENDFILE_MIN_BYTES + 9_000_000)
    large.write_bytes(content)
    size = SENDFILE_MIN_BYTES + 12_345  # no multiple of the bytes of one call
    preadv = os.preadv
    refused: list[int] = []

    def not_at_first(descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if position == 11_000_000 and flags and len(refused) < 2:
            refused.append(position)
            raise BlockingIOError
        return preadv(descriptor, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", not_at_first)

    async def test() -> None:
        async with connected() as (server, peer):
            pieces = [Piece(tail, 11_000_000, 1000), Piece(large, 0, size)]
            if in_one_response:
                server.outbound.send([*pieces, b">"])
            else:
                server.outbound.send(pieces[:1])
                assert await receive(peer, 1000) == b"t" * 1000
                server.outbound.send([pieces[1], b">"])
            expected = content[:size] + b">"
            assert await receive(peer, len(expected) + 1000 * in_one_response, 1 << 20) == (
                b"t" * 1000 * in_one_response + expected
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.get_running_loop().sock_recv(peer, 1), 0.05)

    run(test())
    assert len(refused) == 2


def test_file_system_without_sendfile_is_served_by_the_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment"
    content = random.Random(6).randbytes(SENDFILE_MIN_BYTES)
    path.write_bytes(content)

    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EINVAL, "no sendfile here")

    monkeypatch.setattr(os, "sendfile", refuse)

    async def test() -> None:
        async with connected() as (server, peer):
            server.outbound.send([Piece(path, 0, len(content)), b">"])
            assert await receive(peer, len(content) + 1, 1 << 20) == content + b">"

    run(test())


def test_large_piece_of_a_shorter_file_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(SENDFILE_MIN_BYTES))

    async def test() -> None:
        async with connected() as (server, peer):
            server.outbound.send([Piece(path, 0, SENDFILE_MIN_BYTES + 4_000_000)])
            loop = asyncio.get_running_loop()
            got = 0
            while data := await asyncio.wait_for(loop.sock_recv(peer, 1 << 20), 30):
                got += len(data)
            assert got <= SENDFILE_MIN_BYTES

    run(test())


def test_a_connection_that_ends_while_the_disk_is_read_does_no_harm(
    data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_cached(descriptor: int, view: memoryview, position: int) -> int:
        raise BlockingIOError

    read_ahead, is_closed = outbound.read_and_close, threading.Event()

    def reading_ahead(descriptor: int, size_bytes: int, position: int) -> None:
        is_closed.wait()
        read_ahead(descriptor, size_bytes, position)

    monkeypatch.setattr(outbound, "read_cached", never_cached)
    monkeypatch.setattr(outbound, "read_and_close", reading_ahead)

    async def test() -> None:
        async with connected() as (server, _):
            piece = Piece(data_file, 0, 500_000)
            server.outbound.send([piece])
            server.outbound.close()
            server.transport.abort()
            assert piece.released
            is_closed.set()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            assert len(tasks) == 1
            assert await asyncio.gather(*tasks) == [None]

    run(test())


@pytest.mark.slow
def test_an_evicted_file_holds_up_its_own_reader_alone(tmp_path: Path) -> None:
    """Send 24 MB that are in no memory, with the real kernel and disk, while the loop serves others meanwhile."""
    size = 24 << 20
    path = tmp_path / "cold"
    content = os.urandom(size)
    path.write_bytes(content)

    def receive_all(sock: socket.socket, got: bytearray) -> None:
        """Into memory that is there: to grow 24 MB would hold up the loop, whose interpreter is this thread's."""
        begin = 0
        while begin < size:
            begin += sock.recv_into(memoryview(got)[begin:])

    async def test() -> LoopLag:
        async with connected() as (server, peer):
            peer.setblocking(True)
            got = bytearray(size)
            if not evict(path):
                pytest.skip("files of this system cannot be taken out of memory")
            server.outbound.send([Piece(path, 0, size)])
            assert server.outbound.blocked
            arrives = asyncio.get_running_loop().run_in_executor(None, receive_all, peer, got)
            _, lag = await loop_lag_during(arrives)
            assert got == content
            return lag

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lag = runner.run(test())
    print(f"\n{size >> 20} MB off the disk: {lag}")
    assert lag.within(MAX_BURST_LAG_MS), lag
