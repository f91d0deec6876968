"""Figures of a broker process as seen from outside: memory, descriptors, processor time, stalls, response times."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gregor.broker.admin_socket.address import socket_path
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from gregor.protocol.records.batch import build_batch
from tests.support.processes import BrokerProcess
from tests.support.stolen_time import StolenTime
from tests.support.wire import RawConnection, memory_kb

MAX_STALL_MS = 10
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    """One line of the report. `limit` and `minimum` are the bounds of the value; None: there is none."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    minimum: float | None = None

    @property
    def missed(self) -> bool:
        above = self.limit is not None and self.value > self.limit
        return above or (self.minimum is not None and self.value < self.minimum)

    def __str__(self) -> str:
        bounds = [f"at most {self.limit:g}"] if self.limit is not None else []
        bounds += [f"at least {self.minimum:g}"] if self.minimum is not None else []
        limit = f"  ({', '.join(bounds)}{', MISSED' if self.missed else ''})" if bounds else ""
        return f"{self.name:58} {self.value:10.2f} {self.unit:3}{limit}"


def processor_s(pid: int) -> float:
    """Processor time of all threads, in the kernel too, to the nanosecond: a tick of `/proc/PID/stat` is 10 ms long.

    The clock's number is Linux's own: the complement of the pid, and in the lower three bits CPUCLOCK_SCHED (2).
    """
    return time.clock_gettime((~pid << 3) | 2)


def allow_descriptors(count: int) -> None:
    """Let this process, and those that it starts, have so many descriptors, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count), hard))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_mb(pid: int) -> float:
    return memory_kb(pid) / 1024


def stalls(broker: BrokerProcess) -> dict[str, Any]:
    """The broker's own measure, since its start: longest_ms, longest_busy_ms, at_least_ms."""
    with (
        socket_path(broker.overrides["log.dirs"].partition(",")[0]) as path,
        socket.socket(socket.AF_UNIX) as connection,
    ):
        connection.connect(path)
        connection.sendall(b'{"command": "stalls"}\n')
        answer: dict[str, Any] = json.loads(connection.makefile().readline())["total"]
    return answer


def stall_figures(
    broker: BrokerProcess, stolen: StolenTime, during: str, limit_ms: float | None = MAX_STALL_MS
) -> list[Figure]:
    """Return the longest stall since the broker's start, which `stolen` measures from, too.

    The part on the processor is held against the limit; the whole, which counts what else a busy machine did meanwhile,
    where next to nothing of the machine's time was stolen.
    """
    found = stalls(broker)
    return [
        Figure(f"longest stall, {during}", found["longest_ms"], "ms", limit_ms if stolen.allows_wall_time() else None),
        Figure("  of it on the processor", found["longest_busy_ms"], "ms", limit_ms),
        Figure("  the machine's stolen time meanwhile", stolen.share() * 100, "%"),
    ]


def create_topics(
    connection: RawConnection,
    names: list[str],
    partitions: int,
    configs: dict[str, str] | None = None,
    replication_factor: int = 1,
) -> None:
    settings = [
        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
    ]
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=settings
        )
        for name in names
    ]
    answer = connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=600_000), 7)
    errors = {topic.error_code for topic in answer.topics}
    assert errors == {0}, errors


def delete_topics(connection: RawConnection, names: list[str]) -> None:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    answer = connection.ask(DeleteTopicsRequest(topics=topics, timeout_ms=600_000), 6)
    errors = {topic.error_code for topic in answer.responses}
    assert errors == {0}, errors


def all_topics(connection: RawConnection) -> MetadataResponse:
    answer: MetadataResponse = connection.ask(MetadataRequest(topics=None), 12)
    return answer


def led_partitions(answer: MetadataResponse) -> int:
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


def produce_request(topic: str, partition: int, size_bytes: int = 100) -> ProduceRequest:
    """One batch of one record, of just now."""
    records = bytes(build_batch([(None, b"v" * size_bytes)], timestamp_ms=int(time.time() * 1000)))
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )


def produce_p50_us(connection: RawConnection, places: list[tuple[str, int]], requests: int) -> float:
    """Median time of an answer, one request after the other, round these partitions."""
    times = []
    for number in range(requests):
        request = produce_request(*places[number % len(places)])
        begin = time.perf_counter()
        answer = connection.ask(request, 9)
        times.append(time.perf_counter() - begin)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return statistics.median(times) * 1e6


def write_to_all(connection: RawConnection, places: list[tuple[str, int]], timeout_s: float = 120) -> None:
    """Send a batch to each partition, again where its log is not open yet: the broker answers before it has opened
    all."""
    deadline = time.monotonic() + timeout_s
    for place in places:
        while error := connection.ask(produce_request(*place), 9).responses[0].partition_responses[0].error_code:
            assert time.monotonic() < deadline, f"{place} accepts no writes: {ErrorCode(error).name}"
            time.sleep(0.05)


class Load(NamedTuple):
    """Produce requests to one broker, one after the other, round some partitions."""

    pid: int
    connection: RawConnection
    places: list[tuple[str, int]]

    def measure(self, requests: int, first: int = 0) -> tuple[float, float]:
        """Return (median time of an answer in us, processor time of the broker in us for each request). `first` is the
        place where it begins."""
        begin = first % len(self.places)
        before_s = processor_s(self.pid)
        p50_us = produce_p50_us(self.connection, self.places[begin:] + self.places[:begin], requests)
        return p50_us, (processor_s(self.pid) - before_s) / requests * 1e6


def in_turns(measured: Load, base: Load, requests: int, rounds: int = 5) -> tuple[float, float]:
    """Return the response time and the processor time of `measured`, each as a multiple of that of `base`: the medians
    of pairs that run in turns, as the speed of a shared machine changes from one second to the next."""
    ratios = []
    for number in range(rounds):
        pair = base.measure(requests), measured.measure(requests, number * requests)
        ratios.append([load / ten for ten, load in zip(*pair, strict=True)])
    p50s, processor_times = zip(*ratios, strict=True)
    return statistics.median(p50s), statistics.median(processor_times)


def wait_until_led(connection: RawConnection, partitions: int, timeout_s: float = 120) -> float:
    """Seconds until so many partitions have a leader."""
    begin = time.monotonic()
    while led_partitions(all_topics(connection)) < partitions:
        assert time.monotonic() < begin + timeout_s, "partitions are still without a leader"
        time.sleep(0.05)
    return time.monotonic() - begin


@contextlib.contextmanager
def idle_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open `count` connections, each of which has sent one request and is idle afterwards."""
    request = b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"  # ApiVersions 0
    frame = len(request).to_bytes(4, "big") + request
    opened: list[socket.socket] = []
    try:
        for begin in range(0, count, 100):
            some = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(min(100, count - begin))]
            opened += some
            for connection in some:
                connection.sendall(frame)
            for connection in some:
                assert len(connection.recv(65536)) > 100
        yield opened
    finally:
        for connection in opened:
            connection.close()


def fill(connection: RawConnection, topic: str, partitions: int, megabytes: float, record_bytes: int = 1600) -> None:
    """One batch for each partition in a request: ten records whose keys come again and again, or a small one."""
    now_ms = int(time.time() * 1000)
    count = 10 if record_bytes > 100 else 1
    batches = [
        bytes(
            build_batch(
                [(b"%d" % key, b"v" * record_bytes) for key in range(begin, begin + count)], timestamp_ms=now_ms
            )
        )
        for begin in range(0, 500, count)
    ]
    for number in range(max(1, int(megabytes * 1e6 / len(batches[0]) / partitions))):
        records = batches[number % len(batches)]
        data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index in range(partitions)]
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
        answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
        assert {one.error_code for one in answer.responses[0].partition_responses} == {0}


@contextlib.contextmanager
def another_client(broker: BrokerProcess) -> Iterator[list[float]]:
    """Run a client that sends a request every few milliseconds; the list fills with its response times in ms."""
    with repeated(broker.port, 0.003, lambda connection: connection.ask(ApiVersionsRequest(), 2)) as times:
        yield times


@contextlib.contextmanager
def repeated(port: int, pause_s: float, exchange: Callable[[RawConnection], object]) -> Iterator[list[float]]:
    """Run a client that makes an exchange again and again; the list fills with the time of each in ms."""
    times: list[float] = []
    over = threading.Event()

    def run() -> None:
        with RawConnection(port) as connection:
            while not over.wait(pause_s):
                begin = time.perf_counter()
                exchange(connection)
                times.append((time.perf_counter() - begin) * 1000)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()
