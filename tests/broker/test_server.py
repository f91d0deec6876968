"""gregor.broker.server over real sockets, in the test's own loop: start, answers of any size, stop."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import socket
import sqlite3
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from gregor.broker import log
from gregor.broker.net import open_listeners
from gregor.broker.net.listening import bind
from gregor.broker.node.store import StartError
from gregor.broker.server import Server, started_unless_stopped
from gregor.broker.server import run as run_broker
from gregor.config.broker import BrokerConfig
from gregor.config.listeners import Listener
from gregor.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FetchResponse,
    MetadataRequest,
    ResponseHeader,
    response_class,
    response_header_version,
)
from gregor.protocol.records.batch import iter_batches
from gregor.replication.store import nodes
from tests.broker.harness import batch, bytes_of, fetch_request, produce_request, request_frame

ResultT = TypeVar("ResultT")


class Client:
    """Requests and answers over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: Any, version: int) -> Any:
        self.writer.write(request_frame(request, version))
        return await self.answer(request, version)

    async def answer(self, request: Any, version: int) -> Any:
        size = int.from_bytes(await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        _, position = ResponseHeader.decode(frame, response_header_version(request.API_KEY, version))
        response_of: Any = response_class(request.API_KEY)
        message, end = response_of.decode(frame, version, position)
        assert end == size
        return message


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """Runs a coroutine on a loop of either kind; what a server does to the collector is undone."""
    loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
    thresholds = gc.get_threshold()
    yield lambda work: loop.run_until_complete(asyncio.wait_for(work, 20))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class World:
    """A server and its clients; all closed at the end."""

    def __init__(self, folder: Path, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.config = BrokerConfig({"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", **given})
        self.server = Server(self.config)
        self.clients: list[Client] = []

    async def __aenter__(self) -> World:
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            client.writer.close()
        await self.server.stop()
        await asyncio.sleep(0.01)  # transports end in later turns of the loop

    async def client(self, index: int = 0) -> Client:
        _, host, port = self.server.info.listeners[index]
        client = Client(*await asyncio.open_connection(host, port, limit=64 * 1024 * 1024))
        self.clients.append(client)
        return client


async def with_topic(client: Client) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)


def test_the_first_answers_are_right_and_the_stop_is_clean(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path) as world:
            server = world.server
            _, host, port = server.info.listeners[0]
            client = await world.client()
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
            metadata = await client.ask(MetadataRequest(topics=None), 9)
            assert [(one.host, one.port) for one in metadata.brokers] == [(host, port)]
            assert (metadata.controller_id, metadata.cluster_id) == (0, server.info.cluster_id)
            await with_topic(client)
            await client.ask(produce_request("t", batch(b"x")), 9)
            assert not server.failed
        with pytest.raises(OSError, match="[Cc]onnect"):
            await world.client()

    run(test())
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_clients_see_the_stop(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path) as world:
            client = await world.client()
            await client.ask(ApiVersionsRequest(), 0)
            world.server.broker.connections.close_all()
            with suppress(ConnectionResetError):
                assert await client.reader.read() == b""

    run(test())


@pytest.mark.slow
def test_records_of_any_size_go_in_and_come_out(run: Any, tmp_path: Path) -> None:
    rng = random.Random(3)
    values = [rng.randbytes(size) for size in (1, 1000, 60_000, 70_000, 300_000, 900_000, 3_000_000, 200_000)]

    async def test() -> None:
        async with World(tmp_path, message_max_bytes="10000000") as world:
            client = await world.client()
            await with_topic(client)
            for offset, value in enumerate(values):
                response = await client.ask(produce_request("t", batch(value), acks=-1), 9)
                assert response.responses[0].partition_responses[0].base_offset == offset
            for max_bytes in (1, 100_000, 50_000_000):
                found: list[bytes | None] = []
                while len(found) < len(values):
                    request = fetch_request([("t", 0, len(found))], partition_max_bytes=max_bytes)
                    found += whole_values(await client.ask(request, 12))
                assert found == values

    run(test())


def whole_values(response: FetchResponse) -> list[bytes | None]:
    (data,) = response.responses[0].partitions
    return [record.value for found in iter_batches(bytes_of(data)) for record in found.records()]


@pytest.mark.slow
def test_a_reader_that_is_slow_gets_everything_and_keeps_nobody_waiting(run: Any, tmp_path: Path) -> None:
    value = random.Random(4).randbytes(900_000)

    async def test() -> None:
        async with World(tmp_path) as world:
            slow, quick = await world.client(), await world.client()
            await with_topic(quick)
            for _ in range(8):
                await quick.ask(produce_request("t", batch(value)), 9)
            big = fetch_request([("t", 0, 0)], partition_max_bytes=50_000_000)
            for _ in range(3):
                slow.writer.write(request_frame(big, 12))
            await asyncio.sleep(0.02)  # its socket is full by now
            answer = await quick.ask(produce_request("t", batch(b"x")), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            for _ in range(3):
                assert whole_values(await slow.answer(big, 12))[:8] == [value] * 8
            assert (await slow.ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test())


@pytest.mark.slow
def test_a_reader_that_leaves_in_the_middle_of_an_answer(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path) as world:
            client, leaving = await world.client(), await world.client()
            await with_topic(client)
            for _ in range(8):
                await client.ask(produce_request("t", batch(bytes(900_000))), 9)
            leaving.writer.write(request_frame(fetch_request([("t", 0, 0)], partition_max_bytes=50_000_000), 12))
            await leaving.reader.readexactly(100_000)
            leaving.writer.transport.abort()
            broker = world.server.broker
            for _ in range(500):
                if len(broker.connections) == 1:
                    break
                await asyncio.sleep(0.002)
            assert len(broker.connections) == 1
            assert (await client.ask(fetch_request([("t", 0, 0)]), 12)).error_code == 0
            log: Any = broker.logs.get("t", 0)
            assert not log.segments[0].log.held

    run(test())


def test_bursts_of_connections_find_room(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one above the backlog would be late by a second, when its client tries again."""

    bound: list[socket.socket] = []

    def noted(listener: Listener, config: BrokerConfig) -> list[socket.socket]:
        bound.extend(bind(listener, config))
        return list(bound)

    monkeypatch.setattr(open_listeners, "bind", noted)

    async def test() -> None:
        async with World(tmp_path):
            with socket.socket(fileno=os.dup(bound[0].fileno())) as listening:
                info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            # For a listening socket, Linux reports the backlog in the field tcpi_sacked.
            assert struct.unpack_from("I", info, 28)[0] >= 1000

    run(test())


def test_several_listeners(run: Any, tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    }

    async def test() -> None:
        async with World(tmp_path, **settings) as world:
            ports = [port for _, _, port in world.server.info.listeners]
            assert len(set(ports)) == 2
            for index, port in enumerate(ports):
                client = await world.client(index)
                assert [one.port for one in (await client.ask(MetadataRequest(topics=[]), 9)).brokers] == [port]

    run(test())


def test_a_stop_need_not_wait_for_the_start(run: Any, tmp_path: Path) -> None:
    """As while it waits for a ZooKeeper."""

    async def test() -> None:
        with socket.socket() as silent:  # accepts connections, and never answers
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            connect = f"127.0.0.1:{silent.getsockname()[1]}"
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(0.02, stop.set)
            waiting = Server(BrokerConfig({"log.dirs": str(tmp_path), "zookeeper.connect": connect}))
            assert not await asyncio.wait_for(started_unless_stopped(waiting, stop), 30)
        server = Server(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        assert await started_unless_stopped(server, asyncio.Event())
        await server.stop()
        with pytest.raises(StartError):
            await started_unless_stopped(Server(BrokerConfig({"log.dirs": "/proc/none"})), asyncio.Event())

    run(test())


def test_a_start_that_fails_leaves_nothing_behind(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path / "one") as world:
            _, _, port = world.server.info.listeners[0]
            with pytest.raises(OSError, match=str(port)):
                await World(tmp_path / "two", listeners=f"PLAINTEXT://127.0.0.1:{port}").__aenter__()
            with pytest.raises(StartError):
                await World(tmp_path / "one").__aenter__()
        for name in ("one", "two"):
            async with World(tmp_path / name, listeners=f"PLAINTEXT://127.0.0.1:{port}") as again:
                assert (await (await again.client()).ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test())


@pytest.mark.parametrize("path", [nodes.CLUSTER_ID, nodes.broker_path(0), nodes.CONTROLLER])
def test_a_metadata_store_that_fails_during_the_start_fails_the_broker(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the cluster is made, the broker is registered, and the controller is elected, which does not end the start
    itself."""

    class Connection(sqlite3.Connection):
        def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
            if path in [row[0] for row in rows]:
                raise sqlite3.OperationalError("disk I/O error")
            return super().executemany(statement, rows)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    monkeypatch.setattr(log, "configure", lambda **given: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda interval: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    before = threading.enumerate()  # brokers of other tests have stores, too
    try:
        assert run_broker(BrokerConfig(settings), on_ready=lambda info: pytest.fail("the start was over")) == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert not [thread for thread in threading.enumerate() if thread.name == "metadata-store" and thread not in before]
