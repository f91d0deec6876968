"""Bytes that no client sends, and peers that mean harm, against a real broker process."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import selectors
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from crc32c import crc32c

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from gregor.protocol.records.batch import RECORD_BATCH_OVERHEAD, RecordBatch, build_batch
from gregor.protocol.sync_client import ConnectionEnded
from tests.compat.records import until
from tests.support.processes import BrokerProcess
from tests.support.wire import TIMEOUT_S, RawConnection, memory_kb, request_bytes

pytestmark = pytest.mark.slow

GROWTH_LIMIT_KB = 100 * 1024
FRAME_LIMIT = 100 * 1024 * 1024
FLOOD_S = float(os.environ.get("GREGOR_FLOOD_S", "5"))
NEVER_IN_TIME_MS = int(3 * TIMEOUT_S * 1000)
MAX_IDLE_MS = 700


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for these tests alone, so that their effects do not disturb others."""
    with BrokerProcess(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture
def connect(server: BrokerProcess) -> Iterator[Callable[[], RawConnection]]:
    opened: list[RawConnection] = []

    def make() -> RawConnection:
        opened.append(RawConnection(server.port))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture(autouse=True)
def unharmed(server: BrokerProcess) -> Iterator[None]:
    """After each test the broker still serves, and has not grown much."""
    before = memory_kb(server.pid)
    yield
    with RawConnection(server.port) as connection:
        assert connection.ask(MetadataRequest(topics=[]), 9).brokers[0].port == server.port
    assert memory_kb(server.pid) - before <= GROWTH_LIMIT_KB
    assert "Traceback" not in server.log()


def wait_for_log(server: BrokerProcess, text: str) -> None:
    until(lambda: text in server.log(), f"{text!r} in the log")


def make_topic(connection: RawConnection, name: str, **configs: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    [answer] = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics
    assert answer.error_code == ErrorCode.NONE, answer


def produce_request(topic: str, records: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])],
    )


def fetch_request(topic: str, offset: int, max_wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


def append(connection: RawConnection, topic: str, records: bytes | bytearray, version: int = 9) -> Any:
    """The partition's answer to a produce request."""
    return connection.ask(produce_request(topic, records), version).responses[0].partition_responses[0]


def end_offset(connection: RawConnection, topic: str) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])])
    offset: int = connection.ask(asked, 5).topics[0].partitions[0].offset
    return offset


# ---- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", FRAME_LIMIT + 1),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
        # Metadata, version 1, of 2,147,483,647 topics; the same number in a compact array of version 9.
        struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 0x7FFFFFFF),
        struct.pack(">ihhih", 16, ApiKey.METADATA, 9, 1, -1) + b"\x00\xff\xff\xff\xff\x0f",
        # A client id that is longer than its frame.
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 30_000),
        # Produce: the frame is complete, but the length of its records field is a gigabyte.
        struct.pack(">ihhihhhiihbiii", 37, ApiKey.PRODUCE, 3, 1, -1, -1, -1, 1000, 1, 1, 116, 1, 0, 1 << 30),
    ],
    ids=[
        "negative-length",
        "too-long",
        "two-gigabytes",
        "empty-frame",
        "three-bytes",
        "http",
        "tls",
        "unknown-key",
        "unknown-version",
        "giant-array",
        "giant-compact-array",
        "client-id-beyond-the-frame",
        "records-beyond-the-frame",
    ],
)
def test_a_malformed_request_ends_its_connection(
    server: BrokerProcess, connect: Callable[[], RawConnection], data: bytes
) -> None:
    connection = connect()
    connection.send_bytes(data)
    assert connection.wait_for_end() == b""
    wait_for_log(server, connection.name)


def test_random_bytes(server: BrokerProcess, connect: Callable[[], RawConnection]) -> None:
    chance = random.Random(20240229)
    for _ in range(60):
        connection = connect()
        data = chance.randbytes(chance.randrange(1, 3000))
        if chance.random() < 0.7:  # a frame that is believable from outside, of an API that exists
            head = struct.pack(">hhi", chance.randrange(62), chance.randrange(10), 7)
            data = struct.pack(">i", len(head) + len(data)) + head + data
        connection.send_bytes(data)
        connection.socket.shutdown(socket.SHUT_WR)
        connection.wait_for_end()
        connection.close()


def test_a_flipped_byte_in_a_real_request(server: BrokerProcess, connect: Callable[[], RawConnection]) -> None:
    chance = random.Random(4)
    make_topic(connect(), "flipped")
    batch = build_batch([(b"k", b"v" * 100)], timestamp_ms=int(time.time() * 1000))
    for _ in range(80):
        frame = bytearray(request_bytes(produce_request("flipped", batch), 9, 1))
        frame[chance.randrange(4, len(frame))] ^= 1 << chance.randrange(8)
        connection = connect()
        connection.send_bytes(bytes(frame))
        connection.socket.shutdown(socket.SHUT_WR)
        connection.wait_for_end()
        connection.close()


def test_half_a_frame_and_then_the_end(server: BrokerProcess, connect: Callable[[], RawConnection]) -> None:
    for size in (1, 3, 4, 5, 13, 4000, 300_000):
        connection = connect()
        frame = struct.pack(">ihhih", 400_000, ApiKey.PRODUCE, 9, 1, -1) + bytes(400_000 - 10)
        connection.send_bytes(frame[:size])
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.wait_for_end() == b""


def test_a_request_in_single_bytes(connect: Callable[[], RawConnection]) -> None:
    connection = connect()
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    for byte in request_bytes(request, 3, 1):
        connection.send_bytes(bytes([byte]))
    connection.expect(1, ApiKey.API_VERSIONS, 3)
    correlation_id, answer = connection.receive()
    assert correlation_id == 1 and answer.error_code == ErrorCode.NONE


def test_an_unknown_version_of_api_versions_is_answered(connect: Callable[[], RawConnection]) -> None:
    # KIP-511: the answer has the form of version 0 and names the served versions.
    connection = connect()
    connection.send_bytes(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 7, -1))
    connection.expect(7, ApiKey.API_VERSIONS, 0)
    correlation_id, answer = connection.receive()
    assert correlation_id == 7 and answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(entry.api_key, entry.min_version) for entry in answer.api_keys] == [(ApiKey.API_VERSIONS, 0)]
    assert connection.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


# ---- records -------------------------------------------------------------------------------------------------------


def test_bad_batches_are_refused_and_the_connection_lives(connect: Callable[[], RawConnection]) -> None:
    connection = connect()
    make_topic(connection, "bad-batches")
    now_ms = int(time.time() * 1000)
    good = build_batch([(b"k", b"v" * 50)], timestamp_ms=now_ms)
    assert append(connection, "bad-batches", good).error_code == ErrorCode.NONE

    def changed(position: int, data: bytes) -> bytearray:
        batch = bytearray(good)
        batch[position : position + len(data)] = data
        return batch

    cases: list[tuple[ErrorCode, bytes | bytearray]] = [
        (ErrorCode.CORRUPT_MESSAGE, changed(len(good) - 1, b"\xff")),
        (ErrorCode.CORRUPT_MESSAGE, changed(17, b"\x00\x00\x00\x00")),
        (ErrorCode.INVALID_RECORD, good[:30]),
        (ErrorCode.INVALID_RECORD, changed(8, struct.pack(">i", 0x7FFFFFFF))),
        (ErrorCode.CORRUPT_MESSAGE, changed(8, struct.pack(">i", -12))),
        (ErrorCode.INVALID_RECORD, bytes(good) + bytes(good)),
        (ErrorCode.INVALID_RECORD, build_batch([(b"k", b"v")], control=True, timestamp_ms=now_ms)),
        (ErrorCode.INVALID_TIMESTAMP, build_batch([(b"k", b"v")], timestamp_ms=now_ms + 10**9)),
    ]
    for number, (code, batch) in enumerate(cases):
        answer = append(connection, "bad-batches", batch)
        assert (number, answer.error_code, answer.base_offset) == (number, code, -1)
    assert append(connection, "bad-batches", good).base_offset == 1
    assert end_offset(connection, "bad-batches") == 2


def zeros_in_gzip(total_bytes: int) -> bytes:
    """Return a small gzip file of many zeros: its members are all the same."""
    member = gzip.compress(bytes(16 * 1024 * 1024), 9)
    return member * (total_bytes // (16 * 1024 * 1024))


def bomb_in_a_message_set(total_bytes: int) -> bytes:
    """A compressed wrapper of magic 1, as Produce version 2 carries it."""
    value = zeros_in_gzip(total_bytes)
    body = struct.pack(">bbqi", 1, 1, int(time.time() * 1000), -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def bomb_in_a_batch(total_bytes: int) -> bytearray:
    """A batch whose one record is all zeros for a gigabyte, if its compressed body is believed."""
    batch = build_batch([(b"k", b"v")], compression=1, timestamp_ms=int(time.time() * 1000))
    batch[RECORD_BATCH_OVERHEAD:] = zeros_in_gzip(total_bytes)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    assert RecordBatch(batch).crc_ok()
    return batch


@pytest.mark.parametrize("kind", ["message-set", "compacted-topic"])
def test_a_decompression_bomb_where_the_broker_must_look_inside(
    server: BrokerProcess, connect: Callable[[], RawConnection], kind: str
) -> None:
    connection = connect()
    topic = f"bomb-{kind}"
    limits = {"max_message_bytes": str(8 << 20)}
    if kind == "message-set":
        make_topic(connection, topic, **limits)
        answer = append(connection, topic, bomb_in_a_message_set(1 << 30), version=2)
    else:
        make_topic(connection, topic, cleanup_policy="compact", **limits)
        answer = append(connection, topic, bomb_in_a_batch(1 << 30))
    assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert end_offset(connection, topic) == 0


def test_a_bomb_where_the_broker_need_not_look_costs_nothing(
    server: BrokerProcess, connect: Callable[[], RawConnection]
) -> None:
    connection = connect()
    make_topic(connection, "unopened", max_message_bytes=str(8 << 20))
    assert append(connection, "unopened", bomb_in_a_batch(1 << 30)).error_code == ErrorCode.NONE


# ---- order and limits ----------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(connect: Callable[[], RawConnection]) -> None:
    connection = connect()
    make_topic(connection, "pipelined")
    batch = build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000))
    sent: list[tuple[int, str]] = []
    for number in range(40):
        sent.append((connection.send(produce_request("pipelined", batch), 9), "produce"))
        # At the end of the log: waits for its full time, unless a later produce were to overtake it.
        if number in (5, 25):
            sent.append((connection.send(fetch_request("pipelined", number + 1, 300), 12), "fetch"))
        if number % 3 == 0:
            sent.append((connection.send(MetadataRequest(topics=[]), 9), "metadata"))
            sent.append((connection.send(ApiVersionsRequest(), 2), "versions"))
    offsets = []
    for expected, kind in sent:
        correlation_id, answer = connection.receive()
        assert correlation_id == expected
        if kind == "produce":
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(40))


def test_a_long_poll_delays_nobody_else(connect: Callable[[], RawConnection]) -> None:
    waiting, other = connect(), connect()
    make_topic(other, "quiet")
    wanted = waiting.send(fetch_request("quiet", 0, NEVER_IN_TIME_MS), 12)
    assert not waiting.answered()
    for _ in range(20):
        assert other.ask(MetadataRequest(topics=[]), 9).brokers
    assert not waiting.answered()
    batch = build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000))
    assert append(other, "quiet", batch).base_offset == 0
    correlation_id, answer = waiting.receive()
    assert correlation_id == wanted
    assert len(answer.responses[0].partitions[0].records) == len(batch)


def test_a_failed_produce_without_acknowledgement_ends_the_connection(connect: Callable[[], RawConnection]) -> None:
    connection = connect()
    batch = build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000))
    connection.send(produce_request("no-such-topic-and-no-acks", batch, acks=0), 9)
    assert connection.wait_for_end() == b""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with limits that a test can reach."""
    limits = {
        "max.connections": "5",
        "connections.max.idle.ms": str(MAX_IDLE_MS),
        "socket.request.max.bytes": "50000",
        "message.max.bytes": "2000",
    }
    with BrokerProcess(tmp_path_factory.mktemp("limits"), limits) as running:
        yield running


def test_connections_above_the_limit_are_refused(small: BrokerProcess) -> None:
    # The broker may still count the connection by which the process was found to be ready.
    def all_connect() -> bool:
        opened = [RawConnection(small.port) for _ in range(5)]
        try:
            for connection in opened:
                connection.ask(ApiVersionsRequest(), 0)
            with RawConnection(small.port) as refused:
                refused.send_bytes(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1))
                assert refused.wait_for_end() == b""
            for connection in opened:
                assert connection.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        except ConnectionEnded:
            return False
        finally:
            for connection in opened:
                connection.close()
        return True

    until(all_connect, "five connections side by side")
    wait_for_log(small, "max.connections=5")

    def one_more() -> bool:
        with RawConnection(small.port) as connection:
            try:
                return bool(connection.ask(ApiVersionsRequest(), 0).api_keys)
            except ConnectionEnded:
                return False

    until(one_more, "a free place after the others left")


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(small: BrokerProcess) -> None:
    def kept_busy() -> bool:
        """Return False if the busy connection had to wait for this process for longer than the limit."""
        with RawConnection(small.port) as idle, RawConnection(small.port) as busy:
            begin_s = asked_s = time.monotonic()  # before the request: the broker may count from its receipt on
            idle.ask(ApiVersionsRequest(), 0)
            longest_s = 0.0
            try:
                while not idle.answered():
                    longest_s = max(longest_s, time.monotonic() - asked_s)
                    asked_s = time.monotonic()
                    assert busy.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
                    assert asked_s - begin_s < TIMEOUT_S, "the idle connection is open"
                    time.sleep(0.02)
                assert idle.wait_for_end() == b""
                assert time.monotonic() - begin_s > 0.9 * MAX_IDLE_MS / 1000
                # A request that waits is not idleness: the coordinator may hold it much longer.
                wanted = busy.send(fetch_request("waits", 0, 3 * MAX_IDLE_MS), 12)
                assert busy.receive()[0] == wanted
            except ConnectionEnded:
                assert max(longest_s, time.monotonic() - asked_s) > 0.5 * MAX_IDLE_MS / 1000, "it was not idle"
                return False
        return True

    with RawConnection(small.port) as connection:
        make_topic(connection, "waits")
        until(lambda: end_offset(connection, "waits") == 0, "the topic")
    until(kept_busy, "a connection that is kept busy")


def test_a_frame_and_a_message_above_their_limits(small: BrokerProcess) -> None:
    with RawConnection(small.port) as connection:
        batch = build_batch([(None, b"x" * 3000)], timestamp_ms=int(time.time() * 1000))
        make_topic(connection, "limited")
        assert append(connection, "limited", batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
        batch = build_batch([(None, b"x" * 60_000)], timestamp_ms=int(time.time() * 1000))
        connection.send(produce_request("limited", batch), 9)
        assert connection.wait_for_end() == b""


# ---- a flood -------------------------------------------------------------------------------------------------------


class Dribblers:
    """Connections that each announce a large produce frame and send little bits of it, from a thread."""

    def __init__(self, port: int, count: int, frame_bytes: int, bit_bytes: int = 1000) -> None:
        self._port, self._count, self._frame_bytes, self._bit = port, count, frame_bytes, bytes(bit_bytes)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent_bytes = 0

    def __enter__(self) -> Dribblers:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _open(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=TIMEOUT_S)
        made.setblocking(False)
        made.send(struct.pack(">ihhih", self._frame_bytes, ApiKey.PRODUCE, 9, 1, -1))
        return made

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(self._count):
                selector.register(self._open(), selectors.EVENT_WRITE)
            while not self._stop.wait(0.05):
                for key, _ in selector.select(0):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    try:
                        self.sent_bytes += sock.send(self._bit)
                    except BlockingIOError:
                        continue
                    except OSError:  # it was thrown out: a mean peer comes again
                        selector.unregister(sock)
                        sock.close()
                        selector.register(self._open(), selectors.EVENT_WRITE)
            for key in list(selector.get_map().values()):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                sock.close()


class GoodProducer:
    """Produces with acks=all and records the time until each acknowledgement."""

    def __init__(self, bootstrap: str, topic: str, value_bytes: int) -> None:
        self._topic, self._value = topic, bytes(value_bytes)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.max.bytes": 2_000_000})
        self.latencies_s: list[float] = []
        self.errors: list[KafkaError] = []

    def produce_one(self) -> None:
        start = time.monotonic()

        def report(error: KafkaError | None, _: object) -> None:
            if error is not None:
                self.errors.append(error)
            self.latencies_s.append(time.monotonic() - start)

        self._producer.produce(self._topic, self._value, partition=0, on_delivery=report)
        assert self._producer.flush(TIMEOUT_S) == 0, "the good producer is not served"


def flood(server: BrokerProcess, seconds: float, frame_bytes: int, value_bytes: int) -> tuple[int, GoodProducer]:
    """Return the largest growth of the broker's memory in KB, and a good producer that ran meanwhile."""
    with RawConnection(server.port) as connection:
        topic = f"flood-{time.time_ns()}"
        make_topic(connection, topic)
    good = GoodProducer(server.bootstrap, topic, value_bytes)
    for _ in range(20):
        good.produce_one()
    before = worst = memory_kb(server.pid)
    with Dribblers(server.port, 200, frame_bytes) as dribblers:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            good.produce_one()
            worst = max(worst, memory_kb(server.pid))
    assert dribblers.sent_bytes > 200 * 1000, "the flood was none"
    return worst - before, good


@pytest.mark.compat
@pytest.mark.parametrize("frame_bytes", [100_000_000, 1_500_000], ids=["100MB", "1.5MB"])
def test_a_flood_of_unfinished_frames(server: BrokerProcess, frame_bytes: int) -> None:
    growth_kb, good = flood(server, FLOOD_S, frame_bytes, 70_000)
    assert growth_kb <= GROWTH_LIMIT_KB
    assert good.errors == []
    # Served all along, on a busy machine as well: some milliseconds each, on a quiet one.
    assert len(good.latencies_s) > 30
    assert max(good.latencies_s) < TIMEOUT_S / 3


@pytest.mark.parametrize("kind", ["metadata", "fetch"])
def test_peers_that_ask_and_never_read(server: BrokerProcess, connect: Callable[[], RawConnection], kind: str) -> None:
    topic = f"unread-{kind}"
    asking = connect()
    make_topic(asking, topic)
    batch = build_batch([(None, bytes(900_000))], timestamp_ms=int(time.time() * 1000))
    assert append(asking, topic, batch).error_code == ErrorCode.NONE
    request = fetch_request(topic, 0, 0) if kind == "fetch" else MetadataRequest(topics=None)
    frames = b"".join(request_bytes(request, 9, number) for number in range(300))
    before = memory_kb(server.pid)
    silent = [connect() for _ in range(50)]
    for connection in silent:
        connection.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.socket.send(frames)
    # All of it has arrived at the broker's sockets: memory that the broker holds now, it would never release.
    for _ in range(50):
        assert asking.ask(MetadataRequest(topics=[]), 9).brokers
        assert memory_kb(server.pid) - before <= GROWTH_LIMIT_KB
