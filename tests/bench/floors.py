"""The least that a broker's requests can cost: the same loads against servers that only move the bytes, in turns.

    make bench-floors                                        five rounds, about a minute
    make bench-floors ARGS="--rounds 9 --only fetch"

Prints the processor time of the serving process, in the kernel too, as the median over the rounds: for each request of
100 B, and for each GB of larger ones; and the rate beside it. The client is one connection with five requests in flight
(fetches: one), and discards what it receives.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from gregor.protocol.messages import FetchRequest
from gregor.protocol.records.batch import build_batch
from tests.bench import rested_memory
from tests.bench.figures import create_topics, processor_s, produce_request
from tests.bench.floor_servers import FRAME, PLACE
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection, request_bytes

ROOT = pathlib.Path(__file__).resolve().parents[2]
MB = 1_000_000
FILE_MB = 300
HEAD_BYTES = len(build_batch([(None, bytes(MB))], timestamp_ms=1_000_000_000_000)) - MB
"""Of a batch of one record of 1 MB."""
KINDS = {"produce": ("append", "loop"), "fetch": ("sendfile", "buffer")}


class Cost(NamedTuple):
    """Of one request, on average."""

    processor_us: float
    wall_us: float


class Case(NamedTuple):
    """One load: its requests for the broker, and those for the servers of a floor, which are sent round and round."""

    name: str
    floors: tuple[str, ...]
    size_bytes: int
    count: int
    in_flight: int
    broker: list[bytes]
    floor: list[bytes]


def produce_case(size_bytes: int, count: int) -> Case:
    frame = request_bytes(produce_request("appended", 0, size_bytes), 9, 7)
    return Case(f"produce {size_bytes} B", KINDS["produce"], size_bytes, count, 5, [frame], [frame])


def fetch_case(megabytes: int) -> Case:
    """Fetches that go through the file from its beginning; its batches are of one record of 1 MB."""
    offsets = range(0, FILE_MB - megabytes + 1, megabytes)
    size_bytes = megabytes * MB
    return Case(
        f"fetch {megabytes} MB",
        KINDS["fetch"],
        size_bytes,
        2 * len(offsets),
        1,
        [fetch_frame(offset, size_bytes) for offset in offsets],
        [FRAME.pack(PLACE.size) + PLACE.pack(offset * MB, size_bytes) for offset in offsets],
    )


def fetch_frame(offset: int, size_bytes: int) -> bytes:
    limit = size_bytes + size_bytes // MB * HEAD_BYTES
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    topic = FetchRequest.FetchTopic(topic="fetched", partitions=[partition])
    request = FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=limit, session_epoch=-1, topics=[topic]
    )
    return request_bytes(request, 12, 7)


def measure(pid: int, port: int, frames: list[bytes], case: Case) -> Cost:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = Answers(connection)
        exchange(connection, answers, frames, max(5, case.count // 10), case)
        before_s, begin = processor_s(pid), time.perf_counter()
        exchange(connection, answers, frames, case.count, case)
        spent_s, took_s = processor_s(pid) - before_s, time.perf_counter() - begin
    return Cost(spent_s / case.count * 1e6, took_s / case.count * 1e6)


class Answers:
    """Receives frames and discards them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(MB))
        self._head = bytearray()

    def receive(self) -> int:
        """Return the size of the next answer in bytes."""
        while len(self._head) < FRAME.size:
            self._head += self._part(FRAME.size - len(self._head))
        size_bytes = left = int(FRAME.unpack(self._head)[0])
        self._head.clear()
        while left:
            left -= len(self._part(left))
        return size_bytes

    def _part(self, size_bytes: int) -> memoryview:
        count = self._connection.recv_into(self._buffer[:size_bytes])
        assert count, "the connection was closed"
        return self._buffer[:count]


def exchange(connection: socket.socket, answers: Answers, frames: list[bytes], count: int, case: Case) -> None:
    sent = 0
    for received in range(count):
        while sent < min(count, received + case.in_flight):
            connection.sendall(frames[sent % len(frames)])
            sent += 1
        size_bytes = answers.receive()
        if case.floors is KINDS["fetch"]:
            assert 0 <= size_bytes - case.size_bytes < 2000, f"{case.name}: an answer of {size_bytes} B"


@contextmanager
def floor_server(kind: str, path: pathlib.Path) -> Iterator[tuple[int, int]]:
    """Run a server; (its process, its port)."""
    command = [sys.executable, "-m", "tests.bench.floor_servers", kind, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def fill_topics(port: int, path: pathlib.Path) -> None:
    """Make the topics, and the file for the servers of the floors."""
    with RawConnection(port) as connection:
        create_topics(connection, ["appended", "fetched"], 1, {"max.message.bytes": str(2 * MB)})
        request = produce_request("fetched", 0, MB)
        for _ in range(FILE_MB):
            answer = connection.ask(request, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    with path.open("wb") as file:
        for _ in range(FILE_MB):
            file.write(b"v" * MB)


def run(folder: pathlib.Path, cases: list[Case], rounds: int) -> Iterator[tuple[Case, str, Cost]]:
    """Measure the cases by each server in turns; yield the medians. The appended bytes are deleted at the end
    only; the counts of the cases bound them."""
    data = folder / "file"
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder))
        fill_topics(broker.port, data)
        servers = {
            kind: stack.enter_context(floor_server(kind, data if kinds is KINDS["fetch"] else folder / kind))
            for kinds in KINDS.values()
            for kind in kinds
        }
        for case in cases:
            found: dict[str, list[Cost]] = {}
            for _ in range(rounds):
                for kind in case.floors:
                    found.setdefault(kind, []).append(measure(*servers[kind], case.floor, case))
                found.setdefault("gregor", []).append(measure(broker.pid, broker.port, case.broker, case))
            for kind, costs in found.items():
                yield case, kind, Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def line(case: Case, kind: str, cost: Cost) -> str:
    if case.size_bytes < MB // 100:
        figures = f"{cost.processor_us:7.1f} us for each request, {1e6 / cost.wall_us:8,.0f} requests/s"
    else:
        figures = f"{cost.processor_us * 1e3 / case.size_bytes:7.2f} s/GB, {case.size_bytes / cost.wall_us:8,.0f} MB/s"
    return f"{case.name:18} {kind:9} {figures}"


CASES = [
    produce_case(100, 20_000),
    produce_case(16_000, 3000),
    produce_case(900_000, 60),
    fetch_case(1),
    fetch_case(10),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    given = parser.parse_args()
    rested_memory.report()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-floors-"))
    try:
        for case, kind, cost in run(folder, [case for case in CASES if given.only in case.name], given.rounds):
            print(line(case, kind, cost), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
