"""The connection to another broker: to one that responds as it should, and to one that violates the protocol."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.messages import (
    AlterPartitionRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    LeaderAndIsrRequest,
    MetadataRequest,
    MetadataResponse,
    ResponseHeader,
)
from gregor.protocol.turns import Gate
from gregor.replication.channels import peer as peer_module
from gregor.replication.channels.peer import Peer, PeerError
from tests.replication.fakes import on_loop
from tests.support.loop_clock import standing_clock

Answer = Callable[[int, int, int], bytes | None]
VERSIONS = {1: (0, 17), 3: (1, 9), 18: (0, 3)}


def frame(correlation_id: int, body: bytes, flexible: bool = False) -> bytes:
    head = ResponseHeader(correlation_id=correlation_id).encode(1 if flexible else 0)
    return struct.pack(">i", len(head) + len(body)) + head + body


def versions_answer(correlation_id: int) -> bytes:
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in VERSIONS.items()
    ]
    return frame(correlation_id, ApiVersionsResponse(api_keys=keys).encode(0))


@asynccontextmanager
async def broker(
    answer: Answer, piece_bytes: int = 1 << 20, timeout_ms: int = 5_000, gate: Gate | None = None
) -> AsyncIterator[tuple[Peer, list[tuple[int, int]]]]:
    """A peer of a broker that answers (key, version, correlation id) with these bytes; None ends the connection."""
    asked: list[tuple[int, int]] = []
    served: set[asyncio.Task[Any] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                key, version, correlation_id = struct.unpack_from(">hhi", data)
                asked.append((key, version))
                said = versions_answer(correlation_id) if key == 18 else answer(key, version, correlation_id)
                if said is None:
                    break
                for at in range(0, len(said), piece_bytes):
                    writer.write(said[at : at + piece_bytes])
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    peer = Peer(host, port, "test", timeout_ms, gate or LoopGate())
    try:
        yield peer, asked
    finally:
        peer.close()
        server.close()
        await server.wait_closed()
        if served:
            await asyncio.wait([task for task in served if task is not None], timeout=30)


def metadata(key: int, version: int, correlation_id: int) -> bytes:
    return frame(correlation_id, MetadataResponse(controller_id=7).encode(version), version >= 9)


@on_loop
async def test_the_newest_common_version_over_one_connection() -> None:
    async with broker(metadata) as (peer, asked):
        for _ in range(3):
            assert (await peer.send(MetadataRequest())).controller_id == 7
        assert asked == [(18, 0), (3, 9), (3, 9), (3, 9)]
        with pytest.raises(PeerError, match="LEADER_AND_ISR"):
            await peer.send(LeaderAndIsrRequest())


@on_loop
async def test_connection_that_ended_while_it_was_idle_is_made_anew() -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection
    protocols: list[Any] = []

    async def connect_and_note(*args: Any) -> Any:
        found = await connect(*args)
        protocols.append(found[1])
        return found

    loop.create_connection = connect_and_note  # type: ignore[method-assign,assignment]

    async with broker(metadata) as (peer, asked):
        await peer.send(MetadataRequest())
        protocols[0].connection_lost(None)
        assert (await peer.send(MetadataRequest())).controller_id == 7
        protocols[1].connection_lost(None)
        assert await peer.offered(3) == (1, 9)
        assert [key for key, _ in asked] == [18, 3, 18, 3, 18]


@on_loop
async def test_what_is_offered_is_known_before_anything_is_asked() -> None:
    async with broker(metadata) as (peer, asked):
        assert [await peer.offered(key) for key in (3, 4, 18)] == [(1, 9), None, (0, 3)]
        assert (await peer.send(MetadataRequest(), newest=5)).controller_id == 7
        assert asked == [(18, 0), (3, 5)]
    with pytest.raises(PeerError):
        await peer.offered(3)


@pytest.mark.parametrize("piece_bytes", [1, 1000, 1 << 20])
@on_loop
async def test_answers_larger_than_the_buffer_in_pieces(piece_bytes: int) -> None:
    records = bytes(range(256)) * (16 if piece_bytes == 1 else 4000)

    def fetched(key: int, version: int, correlation_id: int) -> bytes:
        data = FetchResponse.PartitionData(partition_index=1, records=records)
        topic = FetchResponse.FetchableTopicResponse(partitions=[data])
        return frame(correlation_id, FetchResponse(responses=[topic]).encode(version), version >= 12)

    async with broker(fetched, piece_bytes) as (peer, _):
        for _ in range(2):
            answer = await peer.send(FetchRequest())
            found = answer.responses[0].partitions[0].records
            assert isinstance(found, memoryview)
            assert found == records


@pytest.mark.parametrize("over_bytes", [-1, 0, 1, peer_module.MIN_BUFFER_BYTES])
def test_an_answer_may_end_where_the_buffer_does(over_bytes: int) -> None:
    """uvloop gets the buffer once more after the last byte, and fails if it is empty."""
    whole_bytes = peer_module.MIN_BUFFER_BYTES + over_bytes

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        def with_records(size_bytes: int) -> bytes:
            data = FetchResponse.PartitionData(records=bytes(size_bytes))
            topic = FetchResponse.FetchableTopicResponse(partitions=[data])
            return frame(correlation_id, FetchResponse(responses=[topic]).encode(version))

        return with_records(whole_bytes - len(with_records(0)))

    async def ask() -> None:
        async with broker(answer) as (peer, asked):
            for _ in range(3):
                assert len((await peer.send(FetchRequest(), 11)).responses[0].partitions[0].records) > 65_000
            # All over one connection.
            assert [key for key, _ in asked] == [18, 1, 1, 1]

    uvloop.run(ask())


@on_loop
async def test_a_large_buffer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "KEPT_BUFFER_BYTES", 100_000)

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        data = FetchResponse.PartitionData(records=bytes(sizes.pop()))
        topic = FetchResponse.FetchableTopicResponse(partitions=[data])
        return frame(correlation_id, FetchResponse(responses=[topic]).encode(version))

    sizes = [10, 150_000, 80_000, 90_000]  # the last first
    async with broker(answer) as (peer, _):
        # Records are views of the connection's buffer.
        buffers = [(await peer.send(FetchRequest(), 11)).responses[0].partitions[0].records.obj for _ in range(4)]
    assert buffers[0] is buffers[1] is not buffers[2]
    assert len(buffers[2]) > 100_000
    assert len(buffers[3]) == peer_module.MIN_BUFFER_BYTES


def silence(key: int, version: int, correlation_id: int) -> bytes:
    return b""


BAD: dict[str, tuple[Answer, str]] = {
    "closed": (lambda *_: None, "closed the connection"),
    "wrong request": (lambda key, version, number: metadata(key, version, number + 1), "answers request"),
    "too much": (lambda key, version, number: metadata(key, version, number) + b"x", "without a request"),
    "huge": (lambda *_: struct.pack(">i", 2**31 - 1), "announces"),
    "malformed": (lambda key, version, number: frame(number, b"\xff" * 9, True), "MetadataResponse"),
    "empty": (lambda *_: struct.pack(">i", 0), "."),
}


@pytest.mark.parametrize("case", BAD)
@on_loop
async def test_what_goes_wrong_is_said_and_the_next_request_connects_anew(case: str) -> None:
    answer, message = BAD[case]
    good = []

    async with broker(lambda *asked: metadata(*asked) if good else answer(*asked)) as (peer, asked):
        with pytest.raises(PeerError, match=message) as raised:
            await peer.send(MetadataRequest())
        assert str(raised.value).startswith("127.0.0.1:")
        good.append(True)
        assert (await peer.send(MetadataRequest())).controller_id == 7
        assert asked == [(18, 0), (3, 9)] * 2


@on_loop
async def test_no_answer_in_time() -> None:
    async with broker(silence, timeout_ms=50) as (peer, _):
        with pytest.raises(PeerError, match=r"no answer within 0\.05 s"):
            await peer.send(MetadataRequest())


@on_loop
async def test_a_request_that_was_given_up_is_not_delivered_later() -> None:
    """The broker does not read while the request waits, as if the link were cut: most of it is still on this host."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        peer = Peer(*server.getsockname(), "test", 300, LoopGate())
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="n" * 30_000)] * 2)
        with standing_clock(loop):
            asking = asyncio.create_task(peer.send(request))
            connection, _ = await loop.sock_accept(server)
            await loop.sock_sendall(connection, versions_answer(await request_id(connection)))
            received = len(await loop.sock_recv(connection, 1))
            assert received, "the request is under way"
        with connection:
            with pytest.raises(PeerError, match="no answer within 0"):
                await asking
            with pytest.raises(ConnectionResetError):
                while chunk := await loop.sock_recv(connection, 100_000):
                    received += len(chunk)
            assert received < 60_000


async def request_id(connection: socket.socket) -> int:
    """Read the head of one small request and return its correlation id."""
    data = b""
    while len(data) < 12 or len(data) < 4 + int.from_bytes(data[:4]):
        chunk = await asyncio.get_running_loop().sock_recv(connection, 1000)
        assert chunk, "the peer has closed the connection"
        data += chunk
    return int.from_bytes(data[8:12])


@on_loop
async def test_an_answer_is_under_way_from_its_first_bytes_on() -> None:
    async with broker(lambda key, version, number: frame(number, bytes(1000))[:10]) as (peer, _):
        assert not peer.is_answering
        asking = asyncio.create_task(peer.send(MetadataRequest()))
        async with asyncio.timeout(30):
            while not peer.is_answering:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        peer.close()
        assert not peer.is_answering
        with pytest.raises(PeerError):
            await asking


@on_loop
async def test_nobody_there() -> None:
    async with broker(silence) as (peer, _):
        address = peer.address
    with pytest.raises(PeerError):
        await Peer(*address, "test", 1000, LoopGate()).send(MetadataRequest())


def test_a_connection_that_ends_before_it_is_used() -> None:
    """A broker that stops closes what it has just accepted; the transport of uvloop has no socket then."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def connect_and_lose(*args: Any) -> Any:
            found: Any = await connect(*args)
            ended = loop.create_future()
            found[1].send(b"", ended.cancel, ended.set_result)
            found[0].abort()
            await ended
            return found

        async with broker(metadata) as (peer, _):
            loop.create_connection = connect_and_lose
            with pytest.raises(PeerError, match="closed the connection"):
                await peer.offered(3)
            loop.create_connection = connect
            assert await peer.offered(3) == (1, 9)

    asyncio.run(run())
    uvloop.run(run())


@pytest.mark.parametrize("reached", [False, True])
@pytest.mark.parametrize("end", ["close", "cancel"])
@on_loop
async def test_nobody_waits_for_a_connection_that_is_not_wanted_any_more(reached: bool, end: str) -> None:
    """The other broker may have another address by now, and the old one may not respond for a long time."""
    loop = asyncio.get_running_loop()
    connect = loop.create_connection
    transports: list[asyncio.BaseTransport] = []
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> Any:
        found: Any = await connect(*args)
        transports.append(found[0])
        begun.set()
        await goes_on.wait()
        return found

    async with broker(metadata) as (peer, _):
        loop.create_connection = slow  # type: ignore[method-assign,assignment]
        task = asyncio.ensure_future(peer.send(MetadataRequest()))
        await begun.wait()
        if reached:
            goes_on.set()
            await asyncio.sleep(0)  # the connection is open, and the peer does not use it yet
        if end == "close":
            peer.close()
            with pytest.raises(PeerError, match="not wanted"):
                await task
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        if reached:
            await asyncio.sleep(0)
            assert transports[0].is_closing()
        loop.create_connection = connect  # type: ignore[method-assign]
        assert (await peer.send(MetadataRequest())).controller_id == 7
        transports[0].close()


@on_loop
async def test_a_cancelled_request_leaves_no_answer_behind() -> None:
    slow = []

    async with broker(lambda *asked: b"" if not slow else metadata(*asked)) as (peer, _):
        task = asyncio.ensure_future(peer.send(MetadataRequest()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        slow.append(True)
        assert (await peer.send(MetadataRequest())).controller_id == 7


@on_loop
async def test_a_long_request_whose_connection_is_closed_while_it_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERSIONS, AlterPartitionRequest.API_KEY, (0, 3))
    gate = LoopGate()
    async with broker(metadata, gate=gate) as (peer, asked):
        await peer.send(MetadataRequest())
        other = asyncio.ensure_future(gate.wait())  # so that the request waits
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(peer.send(AlterPartitionRequest()))
        asyncio.get_running_loop().call_soon(peer.close)
        with pytest.raises(PeerError, match="not wanted any more"):
            await waiting
        await other
        assert asked == [(18, 0), (3, 9)]


@on_loop
async def test_a_conversation_over_a_lost_connection_leaves_nothing_behind() -> None:
    """Once its timer fired long after, and the event loop reported an exception that was never retrieved."""
    complaints: list[object] = []
    protocols: list[asyncio.BaseProtocol] = []
    timers: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    connect, call_later = loop.create_connection, loop.call_later

    async def connect_and_note(*args: Any) -> Any:
        found: Any = await connect(*args)
        protocols.append(found[1])
        return found

    def call_later_and_note(*args: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*args))
        return timers[-1]

    loop.set_exception_handler(lambda _, context: complaints.append(context))
    loop.create_connection = connect_and_note  # type: ignore[method-assign,assignment]
    async with broker(metadata) as (peer, _):
        await peer.send(MetadataRequest())
        protocols[0].connection_lost(ConnectionResetError("gone"))
        loop.call_later = call_later_and_note  # type: ignore[method-assign,assignment]
        with pytest.raises(PeerError, match="gone"):
            await peer.converse(MetadataRequest(), 9, lambda answer: None)
        loop.call_later = call_later  # type: ignore[method-assign]
        assert [timer.cancelled() for timer in timers] == [True]
        gc.collect()
    assert complaints == []


@on_loop
async def test_one_question_follows_from_the_answer_before() -> None:
    async with broker(metadata) as (peer, asked):
        seen: list[int] = []

        def following(answer: MetadataResponse) -> MetadataRequest | None:
            seen.append(answer.controller_id)
            return MetadataRequest() if len(seen) < 5 else None

        await peer.converse(MetadataRequest(), 8, following)
        assert seen == [7] * 5
        assert asked == [(18, 0)] + [(3, 8)] * 5
        assert (await peer.send(MetadataRequest())).controller_id == 7
        await peer.converse(MetadataRequest(), 9, lambda answer: None)
        assert asked[6:] == [(3, 9)] * 2


@on_loop
async def test_a_conversation_ends_with_what_goes_wrong_in_it() -> None:
    def fails(_answer: MetadataResponse) -> MetadataRequest | None:
        raise ValueError("a bug")

    answers = [metadata(3, 9, 1), metadata(3, 9, 1), None, b"\0\0\0\6\0\0\0\1\0\0"]
    async with broker(lambda key, version, correlation_id: answers.pop(0)) as (peer, _):
        with pytest.raises(ValueError, match="a bug"):
            await peer.converse(MetadataRequest(), 9, fails)
        # The second answer has the number of the first.
        with pytest.raises(PeerError, match="answers request 1, not 2"):
            answers.insert(0, metadata(3, 9, 1))
            await peer.converse(MetadataRequest(), 9, lambda answer: MetadataRequest())
        for _ in range(2):
            with pytest.raises(PeerError):
                await peer.converse(MetadataRequest(), 9, lambda answer: None)


@on_loop
async def test_a_conversation_waits_for_each_answer_so_long() -> None:
    gone = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readexactly(4)
            writer.write(versions_answer(1))
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(silence, "127.0.0.1", 0)
    peer = Peer(*server.sockets[0].getsockname()[:2], "test", 100, LoopGate())
    with pytest.raises(PeerError, match=r"no answer within 0\.1 s"):
        await peer.converse(MetadataRequest(), 9, lambda answer: None)
    await gone.wait()
    server.close()
    await server.wait_closed()
