"""Producers that cost next to nothing: batches made beforehand, many connections in one thread.

Idempotent, as clients are by default: each producer has one partition, and of its batch only the sequence and with it
the checksum change from request to request. acks=all.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import struct
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import crc32c

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    ResponseHeader,
)
from gregor.protocol.records.batch import build_batch
from tests.support.wire import RawConnection, request_bytes

VERSION = 11
"""The newest version of Produce that Apache Kafka 3.9.1 serves."""
CORRELATION_ID = 8
"""Where it stands in a request frame."""
CRC, CRC_BEGINS, BASE_SEQUENCE = 17, 21, 53
"""Where they stand in a batch."""
RECORD_BYTES = 1000


class Found(NamedTuple):
    """The result of a run."""

    requests: int
    size_bytes: int
    """The size of all batches."""
    seconds: float
    times_ms: list[float]
    """The time of each request, from its sending to its answer; in order."""

    def percentile_ms(self, share: float) -> float:
        return self.times_ms[min(len(self.times_ms) - 1, int(share * len(self.times_ms)))]

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times_ms)


class Socket(Protocol):
    """A socket that does not block; `send` and `recv` raise BlockingIOError."""

    def fileno(self) -> int: ...
    def send(self, data: memoryview, /) -> int: ...
    def recv(self, size_bytes: int, /) -> bytes: ...
    def close(self) -> None: ...


class Refused(Exception):
    """A broker refused a batch."""


class Producer:
    """One connection that keeps `window` requests under way to one partition. `run` runs several together."""

    def __init__(
        self, port: int, topic: str, partition: int, batch_bytes: int, window: int, sock: Socket | None = None
    ) -> None:
        """`sock` is a connection that exists, else one in clear text is made; it does not block."""
        producer_id, producer_epoch = producer_identity(port)
        record = b"v" * min(RECORD_BYTES, batch_bytes)
        self._records = max(1, batch_bytes // len(record))
        batch = bytes(
            build_batch(
                [(None, record)] * self._records,
                timestamp_ms=int(time.time() * 1000),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=0,
            )
        )
        self.batch_bytes = len(batch)
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        self._frame = bytearray(request_bytes(request, VERSION, 0))
        self._batch_at = self._frame.index(batch)
        # An answer without an error begins like this: one topic by its name, one partition by its number.
        self._good = b"".join(
            (b"\0\x02", bytes([len(topic) + 1]), topic.encode(), b"\x02", struct.pack(">ih", partition, 0))
        )
        self._window = window
        self._sent_at: deque[float] = deque()
        self._number = 0
        self._sequence = 0
        self._left = memoryview(b"")
        self._received = bytearray()
        self.socket = plain_socket(port) if sock is None else sock

    @property
    def under_way(self) -> int:
        return len(self._sent_at)

    def send(self, begin_more: bool = True) -> bool:
        """Send the rest of a request and new ones until `window` are under way; return False if the socket is full."""
        while self._send_rest():
            if not begin_more or len(self._sent_at) >= self._window:
                return True
            self._next_frame()
            self._sent_at.append(time.perf_counter())
        return False

    def _send_rest(self) -> bool:
        try:
            while self._left:
                self._left = self._left[self.socket.send(self._left) :]
        except BlockingIOError:
            return False
        return True

    def _next_frame(self) -> None:
        frame, at = self._frame, self._batch_at
        self._number += 1
        struct.pack_into(">i", frame, CORRELATION_ID, self._number)
        struct.pack_into(">i", frame, at + BASE_SEQUENCE, self._sequence)
        with memoryview(frame)[at + CRC_BEGINS : at + self.batch_bytes] as checked:
            struct.pack_into(">I", frame, at + CRC, crc32c.crc32c(checked))
        self._sequence = (self._sequence + self._records) & 0x7FFFFFFF
        self._left = memoryview(frame)

    def receive(self, times_ms: list[float]) -> int:
        """Receive the available bytes and return the number of answers. Raise Refused for an error."""
        try:
            part = self.socket.recv(65536)
        except BlockingIOError:  # bytes of TLS that hold none of a response
            return 0
        if not part:
            raise Refused("the connection was closed")
        received = self._received
        received += part
        answers = 0
        while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            if not received.startswith(self._good, 8):
                raise Refused(explain(bytes(received[4 : 4 + size])))
            del received[: 4 + size]
            times_ms.append((time.perf_counter() - self._sent_at.popleft()) * 1000)
            answers += 1
        return answers

    def close(self) -> None:
        self.socket.close()


def plain_socket(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


def producer_identity(port: int) -> tuple[int, int]:
    """Return a producer id and its epoch. A new broker may first have to fetch a block of ids from its controller."""
    deadline = time.monotonic() + 30
    while True:
        with RawConnection(port) as connection:
            given = connection.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        if not given.error_code:
            return given.producer_id, given.producer_epoch
        if given.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
            raise Refused(f"no producer id: error {given.error_code}")
        time.sleep(0.05)


def explain(answer: bytes) -> str:
    _, position = ResponseHeader.decode(answer, 1)
    message, _ = ProduceResponse.decode(answer, VERSION, position)
    return f"errors {[part.error_code for topic in message.responses for part in topic.partition_responses]}"


def run(producers: Iterable[Producer], seconds: float) -> Found:
    """Run all producers for some seconds.

    Requests that are under way at the end are still awaited, within the measured time.
    """
    times_ms: list[float] = []
    size_bytes = 0
    with selectors.DefaultSelector() as selector:
        busy: set[Producer] = set(producers)
        for producer in busy:
            selector.register(producer.socket, selectors.EVENT_READ, producer)
        begin = time.perf_counter()
        end = begin + seconds

        def go_on(producer: Producer) -> None:
            sent = producer.send(time.perf_counter() < end)
            events = selectors.EVENT_READ if sent else selectors.EVENT_READ | selectors.EVENT_WRITE
            if selector.get_key(producer.socket).events != events:
                selector.modify(producer.socket, events, producer)

        for producer in busy:
            go_on(producer)
        while busy:
            for key, events in selector.select(30) or _nothing_came():
                producer = key.data
                if events & selectors.EVENT_READ:
                    size_bytes += producer.receive(times_ms) * producer.batch_bytes
                go_on(producer)
                if not producer.under_way:
                    selector.unregister(producer.socket)
                    busy.discard(producer)
        took = time.perf_counter() - begin
    return Found(len(times_ms), size_bytes, took, sorted(times_ms))


def _nothing_came() -> list[tuple[selectors.SelectorKey, int]]:
    raise Refused("no answer for 30 s")


def leaders(port: int, topic: str) -> dict[int, int]:
    """Port of the leader of each partition that has one, as the broker at `port` knows it."""
    asked = [MetadataRequest.MetadataRequestTopic(name=topic)]
    with RawConnection(port) as connection:
        answer = connection.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
    ports = {broker.node_id: broker.port for broker in answer.brokers}
    return {
        part.partition_index: ports[part.leader_id]
        for part in answer.topics[0].partitions
        if part.leader_id in ports and not answer.topics[0].error_code
    }


def load(port: int, topic: str, *, count: int, batch_bytes: int, window: int, seconds: float) -> Found:
    """`count` producers, spread over the partitions of the topic."""
    found = leaders(port, topic)
    places = sorted(found)
    producers: list[Producer] = []
    try:
        for number in range(count):
            partition = places[number % len(places)]
            producers.append(Producer(found[partition], topic, partition, batch_bytes, window))
        return run(producers, seconds)
    finally:
        for producer in producers:
            producer.close()
