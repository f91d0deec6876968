"""Loads over TLS, which cost the client as little as raw_load does: batches made beforehand, OpenSSL without copies.

    produce   producers with `--window` requests under way each: MB/s, requests/s, and the broker's processor time
    fetch     two connections that each read a filled partition again and again: MB/s, and the broker's processor time
    open      connections that are opened at the same time, each with a handshake and one request: seconds

The client does not verify the certificate: its own work is the same beside each broker, and is not what is measured.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import socket
import ssl
import sys
import time

from gregor.protocol.messages import FetchRequest, ProduceRequest
from gregor.protocol.records.batch import build_batch
from tests.bench.figures import create_topics, delete_topics, processor_s, produce_request
from tests.bench.raw_load import RECORD_BYTES, VERSION, Producer, run
from tests.support.wire import RawConnection, request_bytes

FETCH_VERSION = 12
FETCH_BYTES = 1024 * 1024
"""The default of max.partition.fetch.bytes."""
FETCHERS = 2
FILL_BYTES = 128 * 1024 * 1024
OPENED_TOGETHER = 16
RECEIVE_BYTES = 1 << 20
API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain)


class EncryptedSocket:
    """A socket that does not block, for `Producer`."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._socket = connect(port, context)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def recv(self, size_bytes: int) -> bytes:
        try:
            received = self._socket.recv(size_bytes)
            while self._socket.pending():
                received += self._socket.recv(size_bytes)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        return received

    def close(self) -> None:
        self._socket.close()


def produce(given: argparse.Namespace) -> str:
    context = client_context()
    producers = [
        Producer(
            given.port,
            given.topic,
            partition,
            given.batch_bytes,
            given.window,
            EncryptedSocket(given.tls_port, context) if given.tls_port else None,
        )
        for partition in range(given.producers)
    ]
    try:
        before_s = processor_s(given.pid)
        found = run(producers, given.milliseconds / 1000)
        used_s = processor_s(given.pid) - before_s
    finally:
        for producer in producers:
            producer.close()
    return (
        f"{found.size_bytes / 1e6 / found.seconds:.1f} MB/s, {found.requests_per_s:.0f} requests/s, "
        f"{used_s * 1e9 / found.size_bytes:.3f} s/GB, {used_s * 1e6 / found.requests:.2f} us/request, "
        f"99th {found.percentile_ms(0.99):.2f} ms"
    )


def fetch(given: argparse.Namespace) -> str:
    """Fetch from the begin of the partition to its end, again and again."""
    records = max(1, given.batch_bytes // RECORD_BYTES)
    batch = bytes(build_batch([(None, b"v" * RECORD_BYTES)] * records, timestamp_ms=int(time.time() * 1000)))
    batches = max(8, FILL_BYTES // len(batch))
    fill(given.port, given.topic, batch, batches)
    at_once = max(1, given.fetch_bytes // len(batch))
    offsets = range(1, (batches - at_once) * records, at_once * records)  # behind the record of `wait_until_writable`
    frames = [fetch_frame(given.topic, offset, given.fetch_bytes) for offset in offsets]
    context = client_context()

    def read() -> tuple[int, int]:
        """Return the number of requests and the bytes of their responses."""
        with connect(given.tls_port, context) if given.tls_port else plain(given.port) as connection:
            buffer = memoryview(bytearray(2 * RECEIVE_BYTES))
            end_s, number, received = time.monotonic() + given.milliseconds / 1000, 0, 0
            while time.monotonic() < end_s:
                connection.sendall(frames[number % len(frames)])
                received += receive_frame(connection, buffer)
                number += 1
        return number, received

    with concurrent.futures.ThreadPoolExecutor(FETCHERS) as threads:
        before_s, begin_s = processor_s(given.pid), time.perf_counter()
        found = [one.result() for one in [threads.submit(read) for _ in range(FETCHERS)]]
        took_s, used_s = time.perf_counter() - begin_s, processor_s(given.pid) - before_s
    requests, size_bytes = (sum(counts) for counts in zip(*found, strict=True))
    return (
        f"{size_bytes / 1e6 / took_s:.1f} MB/s, {used_s * 1e9 / size_bytes:.3f} s/GB, "
        f"{used_s * 1e6 / requests:.2f} us/request"
    )


def wait_until_writable(connection: RawConnection, topic: str, partitions: int) -> None:
    """Write a record to each partition. A broker names the leaders of a new topic before it accepts records."""
    end_s = time.monotonic() + 60
    for partition in range(partitions):
        while connection.ask(produce_request(topic, partition), VERSION).responses[0].partition_responses[0].error_code:
            assert time.monotonic() < end_s, f"partition {partition} of {topic} accepts no records"
            time.sleep(0.05)


def fill(port: int, topic: str, batch: bytes, batches: int) -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    with RawConnection(port) as connection:
        for _ in range(batches):
            answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0


def plain(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def fetch_frame(topic: str, offset: int, size_bytes: int) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * FETCH_BYTES,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    return request_bytes(request, FETCH_VERSION, 7)


def receive_frame(connection: socket.socket, buffer: memoryview) -> int:
    """Receive a response and return its size, which must be that of records."""
    end, size = 0, 4
    while end < size:
        got = connection.recv_into(buffer[end:])
        if not got:
            raise ConnectionError("the connection was closed")
        end += got
        if size == 4 and end >= 4:
            size += int.from_bytes(buffer[:4], "big")
    assert size > 10_000, f"a fetch has a response of {size} bytes"
    return size


def open_connections(given: argparse.Namespace) -> str:
    context = client_context()

    def open_some(count: int) -> list[socket.socket]:
        return [open_one() for _ in range(count)]

    def open_one() -> socket.socket:
        connection = connect(given.tls_port, context) if given.tls_port else plain(given.port)
        connection.sendall(API_VERSIONS)
        assert len(connection.recv(4096)) > 100
        return connection

    with concurrent.futures.ThreadPoolExecutor(OPENED_TOGETHER) as threads:
        shares = [len(range(number, given.connections, OPENED_TOGETHER)) for number in range(OPENED_TOGETHER)]
        before_s, begin_s = processor_s(given.pid), time.perf_counter()
        opened = [one for part in threads.map(open_some, shares) for one in part]
        took_s, used_s = time.perf_counter() - begin_s, processor_s(given.pid) - before_s
    for connection in opened:
        connection.close()
    return f"{len(opened)} connections in {took_s:.3f} s, {used_s * 1e3 / len(opened):.3f} ms/connection"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", choices=("produce", "fetch", "open"))
    parser.add_argument("--bootstrap", required=True, help="of a listener in clear text, which makes the topic")
    parser.add_argument("--tls-port", type=int, default=0, help="0: measure the listener in clear text")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--topic", default="tls", help="made, and deleted afterwards")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--batch-bytes", type=int, default=16_000)
    parser.add_argument("--fetch-bytes", type=int, default=FETCH_BYTES, help="of each request's partition")
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--milliseconds", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=500)
    given = parser.parse_args(arguments)
    given.port = int(given.bootstrap.rpartition(":")[2])
    if given.load == "open":
        print(open_connections(given))
        return 0
    with RawConnection(given.port) as connection:
        create_topics(connection, [given.topic], given.producers, {"max.message.bytes": "2000000"})
        wait_until_writable(connection, given.topic, given.producers)
        try:
            print(produce(given) if given.load == "produce" else fetch(given))
        finally:
            delete_topics(connection, [given.topic])
    return 0


if __name__ == "__main__":
    sys.exit(main())
