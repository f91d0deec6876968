"""How long another client of the broker waits while Spark reads a topic, against without."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from gregor.protocol.messages import FetchRequest
from tests.bench.figures import Figure, create_topics, produce_request, repeated
from tests.bench.spark.data import Kind, fill
from tests.bench.spark.session import read_all
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection

TOPIC = "others"
PACE_S = 0.002
ALONE = "nothing"
MAX_GROWTH = 1.3


def produce_and_fetch(connection: RawConnection) -> None:
    """Produce a record and fetch it."""
    answer = connection.ask(produce_request(TOPIC, 0), 9)
    part = answer.responses[0].partition_responses[0]
    assert part.error_code == 0
    fetched = connection.ask(_fetch(part.base_offset), 11)
    assert fetched.responses[0].partitions[0].records


def _fetch(offset: int) -> FetchRequest:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    topic = FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1_000_000, topics=[topic])


def p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def others(session: Any, broker: BrokerProcess, records: int, rounds: int) -> Iterator[Figure]:
    """Measure without a reader, and beside each way to read."""
    fill(broker.port, "busy", Kind(1000, 0), max(100, records // 10))
    with RawConnection(broker.port) as connection:
        create_topics(connection, [TOPIC], 1)
    modes = ("files", "wire", "kafka")
    for mode in modes:
        read_all(session, mode, broker.bootstrap, "busy")
    found: dict[str, list[float]] = {side: [] for side in (ALONE, *modes)}
    for _ in range(rounds):
        for side in [*found, *reversed(found)]:
            with repeated(broker.port, PACE_S, produce_and_fetch) as times:
                _load(lambda side=side: read_all(session, side, broker.bootstrap, "busy"), side)
            found[side].append(p99(times))
    alone_ms = statistics.median(found[ALONE])
    yield Figure("99th percentile of produce and fetch, without a reader", alone_ms, "ms")
    for mode in modes:
        beside_ms = statistics.median(found[mode])
        reader = "the connector" if mode == "kafka" else mode
        yield Figure(f"  while {reader} reads", beside_ms, "ms")
        yield Figure("  over that without", beside_ms / alone_ms, "", MAX_GROWTH if mode == "files" else None)


def _load(read: Callable[[], None], side: str, seconds: float = 3.0) -> None:
    """Read for some seconds, or wait as long."""
    until = time.monotonic() + seconds
    for _ in itertools.count():
        if side == ALONE:
            time.sleep(seconds)
        else:
            read()
        if time.monotonic() >= until:
            return
