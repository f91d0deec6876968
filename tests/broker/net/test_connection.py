"""net.connection: requests in however the bytes are cut, answers in order, the end of those who misbehave."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from gregor.broker.jobs.turns import LoopGate
from gregor.broker.net.connection import Connection
from gregor.broker.net.inbound import MIN_PROGRESS_BYTES
from gregor.broker.net.receive_buffers import SHARED_BYTES, BufferPool, ReceiveBudget
from gregor.broker.net.request_turns import EarlyRequests, RequestTurns
from gregor.broker.net.route_slots import RouteSlots
from gregor.broker.registry import Entry
from gregor.broker.request_log.log import RequestLog
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    RequestHeader,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.support.loop_clock import standing_clock

MAX_REQUEST = 100 * 1024 * 1024
# As much of the longest request as a connection may hold before it has to reserve more memory.
LONG_FRAME = struct.pack(">ihhi", MAX_REQUEST, 12, 4, 1) + bytes(SHARED_BYTES - 12)


class FakeTransport(asyncio.Transport):
    """Accepts everything, or nothing while `full`."""

    def __init__(self, host: str = "10.0.0.9") -> None:
        super().__init__({"peername": (host, 5555), "sockname": ("10.0.0.1", 9092)})
        self.written, self.unsent_bytes = bytearray(), 0
        self.reading, self.aborted, self.full = True, False, False
        self.connection: Connection | None = None

    def write(self, data: Any) -> None:
        assert not self.aborted, "written after the end"
        self.written += data
        if self.full:
            assert self.connection is not None
            self.connection.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.aborted = True

    close = abort


class Connections:
    def __init__(self) -> None:
        self.open: list[Connection] = []
        self.refusal: str | None = None
        self.wait_s: float | None = 0.0
        self.queued, self.max_queued = 0, 500

    def count_queued(self, change: int) -> None:
        self.queued += change

    def left(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        connection.finish()

    def delay_s(self, listener: str, now_s: float) -> float | None:
        return self.wait_s

    def add(self, connection: Connection) -> str | None:
        self.open.append(connection)
        return self.refusal

    def discard(self, connection: Connection) -> None:
        if connection in self.open:
            self.open.remove(connection)


class Harness:
    """A connection with fake surroundings. Heartbeat answers at once; SyncGroup when the test lets it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: int = -1, request_log: Any = None) -> None:
        self.parked: list[asyncio.Future[SyncGroupResponse]] = []
        self.seen: list[str] = []
        self.connections = Connections()
        entries = [
            Entry(ApiKey.API_VERSIONS, 0, 4, self.api_versions, False),
            Entry(ApiKey.HEARTBEAT, 0, 4, self.heartbeat, False),
            Entry(ApiKey.SYNC_GROUP, 0, 5, self.sync_group, False),
            Entry(ApiKey.LEAVE_GROUP, 0, 5, self.explode, False),
        ]
        gate = LoopGate()
        self.broker: Any = SimpleNamespace(
            **dict.fromkeys(("authorizer", "security", "quotas", "background")),
            request_log=request_log,
            buffers=BufferPool(),
            receive_budget=ReceiveBudget(budget),
            route_slots=RouteSlots(),
            request_turns=RequestTurns(loop, gate, loop.create_task),
            early_requests=EarlyRequests(are_held=False),
            loop=loop,
            max_request_bytes=MAX_REQUEST,
            handlers={entry.key.value: entry for entry in entries},
            connections=self.connections,
            replicas=SimpleNamespace(generation=0),
            gate=gate,
        )
        self.transports: dict[Connection, FakeTransport] = {}
        self.transport, self.connection = self.connect()

    def connect(self) -> tuple[FakeTransport, Connection]:
        transport = FakeTransport()
        connection = transport.connection = Connection(self.broker, "PLAINTEXT")
        self.transports[connection] = transport
        connection.connection_made(transport)
        return transport, connection

    def api_versions(self, broker: Any, request: ApiVersionsRequest, call: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse()

    def heartbeat(self, broker: Any, request: HeartbeatRequest, call: Any) -> HeartbeatResponse:
        self.seen.append(request.group_id)
        return HeartbeatResponse(throttle_time_ms=len(request.group_id))

    def sync_group(self, broker: Any, request: SyncGroupRequest, call: Any) -> asyncio.Future[SyncGroupResponse]:
        self.parked.append(broker.loop.create_future())
        return self.parked[-1]

    async def explode(self, broker: Any, request: Any, call: Any) -> Any:
        raise RuntimeError("a bug")

    def send(self, data: bytes, connection: Connection | None = None) -> int:
        """Deliver bytes as a loop would, as long as the connection reads; return the number of bytes delivered."""
        connection = connection or self.connection
        transport = self.transports[connection]
        taken = 0
        while taken < len(data) and transport.reading and not transport.aborted:
            view = connection.get_buffer(65536)
            piece = data[taken : taken + len(view)]
            view[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            taken += len(piece)
        return taken

    def answers(self) -> list[int]:
        """Return the correlation ids of the written answers, in order."""
        ids, data = [], bytes(self.transport.written)
        while data:
            size, correlation_id = struct.unpack_from(">ii", data)
            ids.append(correlation_id)
            data = data[4 + size :]
        return ids


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(params=[None, RequestLog], ids=["plain", "logged"])
def harness(loop: asyncio.AbstractEventLoop, request: pytest.FixtureRequest) -> Harness:
    return Harness(loop, request_log=request.param and request.param(loop))


def turn(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(4):
        loop.run_until_complete(asyncio.sleep(0))


def frame(message: Any, version: int, correlation_id: int, client_id: str | None = "me") -> bytes:
    out = bytearray(4)
    header = RequestHeader(
        request_api_key=message.API_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    header.encode_into(out, 2 if version >= message.FLEXIBLE_FROM else 1)
    message.encode_into(out, version)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def heartbeat(correlation_id: int, group: str = "g") -> bytes:
    return frame(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4, correlation_id)


def sync_group(correlation_id: int) -> bytes:
    return frame(SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), 5, correlation_id)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50, 10_000])
def test_requests_are_answered_however_the_bytes_are_cut(harness: Harness, step: int) -> None:
    stream = b"".join(heartbeat(number, "g" * number) for number in range(1, 9))
    for begin in range(0, len(stream), step):
        harness.send(stream[begin : begin + step])
    assert harness.answers() == list(range(1, 9))
    assert harness.seen == ["g" * number for number in range(1, 9)]
    assert harness.connection.get_buffer(-1) is harness.broker.buffers.shared_view


def test_a_long_request_goes_through_an_owned_buffer_that_is_given_back(harness: Harness) -> None:
    group = "x" * 30_000
    stream = heartbeat(1, group) * 20
    harness.send(stream)
    assert harness.seen == [group] * 20
    assert harness.connection.get_buffer(-1) is harness.broker.buffers.shared_view
    assert harness.broker.receive_budget.waiting == 0


def test_a_waiting_request_holds_back_the_ones_behind_it_on_its_connection_only(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    other_transport, other = harness.connect()
    harness.send(sync_group(1) + heartbeat(2) + heartbeat(3)[:9])
    assert harness.answers() == []
    assert not harness.transport.reading
    harness.send(heartbeat(7), other)
    assert other_transport.written
    harness.parked[0].set_result(SyncGroupResponse())
    turn(loop)
    assert harness.answers() == [1, 2]
    assert harness.transport.reading
    harness.send(heartbeat(3)[9:])
    assert harness.answers() == [1, 2, 3]


def test_where_enough_requests_wait_no_more_are_read(harness: Harness, loop: asyncio.AbstractEventLoop) -> None:
    """queued.max.requests=1: one request waits behind one at work, so no other connection reads a second one."""
    harness.connections.max_queued = 1
    early_transport, early = harness.connect()
    late_transport, late = harness.connect()
    free_transport, free = harness.connect()
    harness.send(sync_group(1), early)
    assert early_transport.reading
    harness.send(sync_group(2) + heartbeat(3))
    assert harness.connections.queued == 1
    harness.send(sync_group(4), late)
    assert (early_transport.reading, late_transport.reading, free_transport.reading) == (True, False, True)
    harness.send(heartbeat(5), free)
    assert free_transport.written and free_transport.reading
    harness.parked[2].set_result(SyncGroupResponse())
    turn(loop)
    assert late_transport.written and late_transport.reading
    harness.parked[1].set_result(SyncGroupResponse())
    turn(loop)
    assert (harness.connections.queued, harness.answers()) == (0, [2, 3])


def test_a_connection_that_ends_leaves_the_queue(harness: Harness) -> None:
    harness.send(sync_group(1) + heartbeat(2))
    assert harness.connections.queued == 1
    harness.connection.connection_lost(None)
    assert harness.connections.queued == 0


def test_a_connection_that_comes_too_fast_is_not_read_for_a_while(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    harness.connections.wait_s = 0.005
    with standing_clock(loop):
        transport, connection = harness.connect()
        harness.send(heartbeat(1) + heartbeat(2), connection)
        turn(loop)
        assert not transport.reading
        assert not transport.written
    loop.run_until_complete(asyncio.sleep(0.01))
    assert transport.reading
    assert harness.seen == ["g", "g"]
    assert harness.connections.queued == 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_loops_read_too_early_what_comes_too_fast(new_loop: Any) -> None:
    """Loops start to read when `connection_made` has returned; uvloop does so even if reading was paused in it."""
    loop: asyncio.AbstractEventLoop = new_loop()
    harness = Harness(loop)
    harness.connections.wait_s = 0.02

    async def test() -> None:
        server = await loop.create_server(lambda: Connection(harness.broker, "PLAINTEXT"), "127.0.0.1", 0)
        begin = loop.time()
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(heartbeat(1))
        assert await reader.read(100)
        assert loop.time() - begin >= 0.01
        writer.close()
        server.close()
        await asyncio.sleep(0.01)

    try:
        loop.run_until_complete(asyncio.wait_for(test(), 30))
    finally:
        loop.close()


def test_a_client_that_leaves_cancels_its_waiting_request(harness: Harness, loop: asyncio.AbstractEventLoop) -> None:
    harness.send(sync_group(1))
    assert harness.connection.eof_received() is True  # or the loop would close it here and now
    assert harness.transport.aborted
    harness.connection.connection_lost(None)
    turn(loop)
    assert harness.parked[0].cancelled()
    assert harness.connections.open == []
    assert not harness.transport.written


@pytest.mark.parametrize("fails", [False, True])
def test_what_changes_something_goes_on_when_its_client_leaves(
    harness: Harness, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    done = []
    goes_on = asyncio.Event()

    async def delete(broker: Any, request: Any, call: Any) -> DeleteGroupsResponse:
        for name in request.groups_names:
            await goes_on.wait()
            done.append(name)
            if fails:
                raise RuntimeError("a bug")
        return DeleteGroupsResponse(results=[])

    kept: list[asyncio.Future[Any]] = []
    harness.broker.background = SimpleNamespace(keep=kept.append)
    key = ApiKey.DELETE_GROUPS
    harness.broker.handlers[key.value] = Entry(key, 0, 2, delete, changes=True)
    harness.send(frame(DeleteGroupsRequest(groups_names=["a", "b"]), 2, 1))
    harness.connection.connection_lost(None)
    turn(loop)
    goes_on.set()
    turn(loop)
    assert [task.done() for task in kept] == [True]
    assert done == (["a"] if fails else ["a", "b"])
    assert not harness.transport.written
    assert ("DELETE_GROUPS version 2 from 10.0.0.9:5555 failed" in caplog.text) is fails


def test_no_request_is_taken_up_while_the_peer_does_not_read(harness: Harness) -> None:
    harness.transport.full = True
    harness.send(heartbeat(1))
    harness.send(heartbeat(2))
    assert harness.answers() == [1]
    harness.transport.full = False
    harness.connection.resume_writing()
    assert harness.answers() == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", MAX_REQUEST + 1),
        struct.pack(">i", 3),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">ihhi", 10, 999, 0, 1) + b"\xff\xff",
        struct.pack(">ihhi", 10, 12, 99, 1) + b"\xff\xff",
        struct.pack(">ihhih", 10, 12, 0, 1, 500),
        struct.pack(">ihhih", 18, 12, 0, 1, -1) + struct.pack(">hih", 30000, 1, 0),
    ],
    ids=[
        "negative",
        "too large",
        "too small",
        "http",
        "tls",
        "unknown key",
        "unknown version",
        "lying id",
        "lying string",
    ],
)
def test_what_is_not_kafka_ends_the_connection_with_a_line_that_says_what_and_who(
    harness: Harness, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    harness.send(data)
    assert harness.transport.aborted
    assert harness.connections.open == []
    assert "10.0.0.9:5555" in caplog.text
    harness.connection.connection_lost(None)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(harness: Harness) -> None:
    harness.send(struct.pack(">ihhi", 10, 18, 77, 5) + b"\xff\xff")
    size, correlation_id = struct.unpack_from(">ii", harness.transport.written)
    answer, end = ApiVersionsResponse.decode(bytes(harness.transport.written), 0, 8)
    assert (size, correlation_id, end) == (len(harness.transport.written) - 4, 5, size + 4)
    assert answer.error_code == 35
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(18, 0, 4)]


def test_a_failing_handler_ends_its_connection_and_is_logged(
    harness: Harness, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    body = struct.pack(">hhih", 13, 0, 1, -1) + b"\x00\x01g\x00\x01m"
    harness.send(struct.pack(">i", len(body)) + body)
    turn(loop)
    assert harness.transport.aborted
    assert "a bug" in caplog.text


def test_a_refused_connection_is_closed(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop)
    harness.connections.refusal = "max.connections=1 are open"
    transport, connection = harness.connect()
    assert transport.aborted
    assert connection not in harness.connections.open


def test_long_frames_wait_for_memory_and_an_ordinary_one_does_not(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop, budget=64 * 1024 * 1024)
    greedy = [harness.connect() for _ in range(50)]
    for _, connection in greedy:
        harness.send(LONG_FRAME[:1000], connection)
    assert all(transport.reading for transport, _ in greedy)  # so few bytes are held without a reservation
    for _, connection in greedy:
        harness.send(LONG_FRAME[1000:], connection)
    reading = [transport for transport, _ in greedy if transport.reading]
    assert len(reading) == 1
    assert harness.send(heartbeat(1, "y" * 25_000) * 4) > SHARED_BYTES
    assert harness.answers() == [1] * 4
    greedy[0][1].connection_lost(None)
    assert [transport.reading for transport, _ in greedy[1:3]] == [True, False]


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_held_keeps_its_place_in_the_budget(loop: asyncio.AbstractEventLoop, leaves: bool) -> None:
    harness = Harness(loop, budget=200_000)

    def held(broker: Any, request: SyncGroupRequest, call: Any) -> asyncio.Future[SyncGroupResponse]:
        call.connection.hold()
        return harness.sync_group(broker, request, call)

    harness.broker.handlers[ApiKey.SYNC_GROUP.value] = Entry(ApiKey.SYNC_GROUP, 0, 5, held, True)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id="me", assignment=bytes(90_000))
    long_frame = frame(SyncGroupRequest(group_id="g", assignments=[assignment]), 3, 1)
    late_transport, late = harness.connect()
    assert harness.send(long_frame + heartbeat(2)) > len(long_frame)
    assert harness.send(long_frame, late) < len(long_frame)  # the first is still in memory
    assert not late_transport.reading
    if leaves:  # its request is handled all the same, and is in memory until then
        harness.connection.connection_lost(None)
        assert not late_transport.reading
    if not harness.parked[0].cancelled():
        harness.parked[0].set_result(SyncGroupResponse())
    harness.connection.end_hold()
    turn(loop)
    assert late_transport.reading
    late.connection_lost(None)
    assert harness.broker.receive_budget.used_bytes == 0
    assert harness.answers() == ([] if leaves else [1, 2])


def test_a_long_frame_of_an_unknown_api_is_refused_before_it_is_received(harness: Harness) -> None:
    harness.send(struct.pack(">ihhi", MAX_REQUEST, 1234, 0, 1) + bytes(100))
    assert harness.transport.aborted


@pytest.mark.parametrize("size", [MAX_REQUEST, 100_000])
def test_a_refused_frame_takes_no_place_in_the_budget(harness: Harness, size: int) -> None:
    for _ in range(3):
        transport, connection = harness.connect()
        harness.send(struct.pack(">ihhi", size, 1234, 0, 1) + bytes(100), connection)
        assert transport.aborted
        connection.connection_lost(None)
    assert harness.broker.receive_budget.waiting == 0
    assert harness.broker.receive_budget.used_bytes == 0


def test_sweeps_end_idle_connections_and_those_that_sit_on_memory(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop, budget=64 * 1024 * 1024)
    for _ in range(5):
        harness.connection.sweep(10, 2)
    harness.send(heartbeat(1))
    for _ in range(10):
        harness.connection.sweep(10, 2)
    assert not harness.transport.aborted
    harness.connection.sweep(10, 2)
    assert harness.transport.aborted

    holder_transport, holder = harness.connect()
    harness.send(LONG_FRAME, holder)
    for _ in range(5):
        holder.sweep(100, 2)
    assert not holder_transport.aborted  # no other connection waits for its memory
    waiter_transport, waiter = harness.connect()
    harness.send(LONG_FRAME, waiter)
    assert not waiter_transport.reading
    for _ in range(3):
        holder.sweep(100, 2)
    assert holder_transport.aborted
    assert waiter_transport.reading


def test_a_parked_request_is_not_idle(harness: Harness) -> None:
    harness.send(sync_group(1))
    for _ in range(50):
        harness.connection.sweep(10, 2)
    assert not harness.transport.aborted


def test_the_idle_time_begins_anew_when_a_parked_request_is_answered(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    harness.send(sync_group(1))
    for _ in range(50):
        harness.connection.sweep(10, 2)
    harness.parked[0].set_result(SyncGroupResponse())
    turn(loop)
    assert harness.answers() == [1]
    for _ in range(10):
        harness.connection.sweep(10, 2)
    assert not harness.transport.aborted
    harness.connection.sweep(10, 2)
    assert harness.transport.aborted


def test_a_peer_that_takes_its_answer_slowly_is_not_idle_and_one_that_takes_nothing_is(harness: Harness) -> None:
    harness.transport.full, harness.transport.unsent_bytes = True, 1000
    harness.send(heartbeat(1))
    for _ in range(50):
        harness.transport.unsent_bytes -= 1
        harness.connection.sweep(10, 2)
    assert not harness.transport.aborted
    for _ in range(11):
        harness.connection.sweep(10, 2)
    assert harness.transport.aborted


def test_a_trickle_does_not_keep_the_memory_that_others_wait_for(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop, budget=64 * 1024 * 1024)
    holder_transport, holder = harness.connect()
    harness.send(LONG_FRAME, holder)
    harness.send(LONG_FRAME, harness.connect()[1])
    for _ in range(5):
        harness.send(bytes(MIN_PROGRESS_BYTES), holder)
        holder.sweep(100, 2)
    assert not holder_transport.aborted
    for _ in range(3):
        harness.send(b"x", holder)
        holder.sweep(100, 2)
    assert holder_transport.aborted


def test_a_long_frame_behind_a_parked_request_takes_no_memory_from_others(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    harness.send(sync_group(1))
    harness.send(LONG_FRAME)
    assert not harness.transport.reading
    other_transport, other = harness.connect()
    harness.send(LONG_FRAME, other)
    assert other_transport.reading
    other.connection_lost(None)
    harness.parked[0].set_result(SyncGroupResponse())
    turn(loop)
    assert harness.answers() == [1]
    assert harness.transport.reading


def test_tricklers_keep_nobody_from_sending_requests_of_middling_size(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop, budget=64 * 1024 * 1024)
    for _ in range(200):
        harness.send(struct.pack(">ihhi", 1_900_000, 12, 4, 1) + bytes(2000), harness.connect()[1])
    stream = heartbeat(1, "g" * 30_000) * 3
    assert harness.send(stream) == len(stream)
    long = frame(
        HeartbeatRequest(group_id="x" * 32_700, generation_id=1, member_id="m" * 32_700, group_instance_id="i" * 500),
        4,
        2,
    )
    assert len(long) > SHARED_BYTES
    assert harness.send(long) == len(long)
    assert harness.answers() == [1, 1, 1, 2]
