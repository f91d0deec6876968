"""How a broker carries many partitions and many connections: time, memory, descriptors, stalls of its event loop.

    make bench-scale                                10,000 partitions, 5,000 connections
    make bench-scale ARGS="--partitions 1000 --connections 500"

Wall-clock figures mean something on a quiet machine only. Ends with exit code 1 if a limit was missed.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time
import timeit
import urllib.request
from collections.abc import Callable, Iterator

from gregor.broker.fetch.sessions import FetchContext, FetchSessions
from gregor.protocol.messages import OffsetCommitRequest
from gregor.replication.traffic import TopicTraffic
from tests.bench import rested_memory
from tests.bench.figures import (
    Figure,
    Load,
    all_topics,
    allow_descriptors,
    another_client,
    create_topics,
    delete_topics,
    descriptors,
    fill,
    idle_connections,
    in_turns,
    memory_mb,
    processor_s,
    produce_p50_us,
    stall_figures,
    wait_until_led,
    write_to_all,
)
from tests.bench.groups import prepare
from tests.support.ports import free_port
from tests.support.processes import BrokerProcess
from tests.support.stolen_time import StolenTime
from tests.support.wire import RawConnection

ROOT = pathlib.Path(__file__).resolve().parents[2]

TOPICS = 10
FULL_PARTITIONS = 10_000
FULL_CONNECTIONS = 5_000
SCRAPE_INTERVAL_S = 5
SETTINGS = {"offsets.topic.num.partitions": "1"}
FEW_DESCRIPTORS = 4096
"""A usual limit of a process (`ulimit -n`). Storage leaves room for 1,000 connections within it."""
IDLE_MB = 33.0
"""The memory of a broker without topics, which is added to the share of a limit for smaller counts."""


def partitions(folder: pathlib.Path, count: int, *, requests: int = 2000, idle_s: float = 10) -> Iterator[Figure]:
    """Make `count` partitions, use them, restart, kill, delete. Beside them, another broker has ten partitions."""
    share = count / FULL_PARTITIONS
    names = [f"wide-{number}" for number in range(TOPICS)]
    places = [(name, index) for name in names for index in range(count // TOPICS)]
    random.Random(1).shuffle(places)
    broker = BrokerProcess(folder, SETTINGS)
    alone = BrokerProcess(folder / "alone", SETTINGS)
    stolen = StolenTime()
    broker.start()
    alone.start()
    try:
        with RawConnection(broker.port) as connection, RawConnection(alone.port) as to_alone:
            narrow = [("narrow", index) for index in range(10)]
            for each in (connection, to_alone):
                create_topics(each, ["narrow"], 10)
                produce_p50_us(each, narrow, requests // 4)

            begin, before_s = time.monotonic(), processor_s(broker.pid)
            for name in names:
                create_topics(connection, [name], count // TOPICS)
            yield Figure(f"making {count} partitions", time.monotonic() - begin, "s")
            yield Figure("  processor time", processor_s(broker.pid) - before_s, "s")
            for _ in range(3):
                begin = time.monotonic()
                answer = all_topics(connection)
                took_ms = (time.monotonic() - begin) * 1000
            assert sum(len(topic.partitions) for topic in answer.topics) >= count
            yield Figure("full metadata answer, to a client in Python", took_ms, "ms")
            yield from stall_figures(broker, stolen, "making them and describing them all")

            produce_p50_us(connection, places, count)  # every segment has something
            ten = Load(alone.pid, to_alone, narrow)
            p50, processor_time = in_turns(Load(broker.pid, connection, narrow), ten, requests)
            yield Figure(f"produce p50 to 10 of {count + 10} partitions, over that with 10", p50, "", 1.3)
            yield Figure("  processor time", processor_time, "")
            p50, processor_time = in_turns(Load(broker.pid, connection, places), ten, requests)
            yield Figure("produce p50 to all of them in turn, over that with 10", p50, "")
            yield Figure("  processor time", processor_time, "", 1.5)
            alone.stop()
            yield Figure("memory", memory_mb(broker.pid), "MB", IDLE_MB + share * (600 - IDLE_MB))
            yield Figure("descriptors", descriptors(broker.pid), "fd")
            before_s = processor_s(broker.pid)
            time.sleep(idle_s)
            yield Figure("idle processor time", (processor_s(broker.pid) - before_s) / idle_s * 100, "%", 5)
            yield from stall_figures(broker, stolen, "until here, with 1 produce request at a time")

        begin = time.monotonic()
        broker.stop()
        yield Figure("clean stop", time.monotonic() - begin, "s", max(10, 20 * share))
    finally:
        broker.kill()
        alone.kill()
    yield from few_descriptors(folder, places, requests)
    yield from started_again(folder, names, count)


class FewDescriptors(BrokerProcess):
    """A broker that may have `FEW_DESCRIPTORS`."""

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {FEW_DESCRIPTORS} && exec "$@"', "sh", *super().command()]


def few_descriptors(folder: pathlib.Path, places: list[tuple[str, int]], requests: int) -> Iterator[Figure]:
    """Start on a data folder that was closed; most appends to all partitions in turn must open their file first."""
    count = len(places)
    broker = FewDescriptors(folder, SETTINGS)
    begin = time.monotonic()
    broker.start()
    try:
        with RawConnection(broker.port) as connection:
            wait_until_led(connection, count)
            yield Figure("start after it, all partitions led", time.monotonic() - begin, "s", 10)
            yield Figure("  processor time", processor_s(broker.pid), "s")
            yield Figure("  memory", memory_mb(broker.pid), "MB", IDLE_MB + count / FULL_PARTITIONS * (600 - IDLE_MB))
            every, ten = Load(broker.pid, connection, places), Load(broker.pid, connection, places[:10])
            write_to_all(connection, places)
            p50, processor_time = in_turns(every, ten, requests)
            within = f"with ulimit -n {FEW_DESCRIPTORS}"
            yield Figure(f"produce p50 to all in turn, over 10, {within}", p50, "")
            yield Figure("  processor time", processor_time, "")
            yield Figure(f"descriptors {within}", descriptors(broker.pid), "fd", FEW_DESCRIPTORS - 1000)
    finally:
        broker.kill()


def started_again(folder: pathlib.Path, names: list[str], count: int) -> Iterator[Figure]:
    """Start on the data folder of a broker that was killed, and delete topics of it."""
    broker = BrokerProcess(folder, SETTINGS)
    try:
        begin, stolen = time.monotonic(), StolenTime()
        broker.start()
        with RawConnection(broker.port) as connection:
            wait_until_led(connection, count)
            yield Figure("start after kill -9, all partitions led", time.monotonic() - begin, "s", 30)
            yield from stall_figures(broker, stolen, "recovering them behind the first answers")
            begin = time.monotonic()
            delete_topics(connection, names[:3])
            yield Figure(f"deleting {3 * count // TOPICS} partitions", time.monotonic() - begin, "s")
            yield from stall_figures(broker, stolen, "and deleting")
    finally:
        broker.kill()


def connections(folder: pathlib.Path, count: int) -> Iterator[Figure]:
    """Open `count` connections, let them idle, close them, and again."""
    allow_descriptors(count + 200)
    broker = BrokerProcess(folder, {"offsets.topic.num.partitions": "1"})
    stolen = StolenTime()
    broker.start()
    try:
        before_mb = memory_mb(broker.pid)
        yield Figure("idle memory", before_mb, "MB")
        begin, before_s = time.monotonic(), processor_s(broker.pid)
        with idle_connections(broker.port, count):
            yield Figure(f"opening {count} connections, each with a request", time.monotonic() - begin, "s")
            yield Figure("  processor time", processor_s(broker.pid) - before_s, "s")
            found_mb = memory_mb(broker.pid)
            limit_mb = IDLE_MB + count / FULL_CONNECTIONS * (200 - IDLE_MB)
            yield Figure(f"memory with {count} idle connections", found_mb, "MB", limit_mb)
            yield Figure("  for each", (found_mb - before_mb) * 1024 / count, "KB")
            before_s = processor_s(broker.pid)
            time.sleep(5)
            yield Figure("idle processor time", (processor_s(broker.pid) - before_s) / 5 * 100, "%", 5)
        deadline = time.monotonic() + 30
        while descriptors(broker.pid) > 100 and time.monotonic() < deadline:
            time.sleep(0.05)
        yield Figure("descriptors after they left", descriptors(broker.pid), "fd", 100)
        # The same number again: memory that the first left behind is used again, if nothing keeps it.
        for _ in range(3):
            with idle_connections(broker.port, count):
                again_mb = memory_mb(broker.pid)
        yield Figure("memory the fourth time, over the first", again_mb / found_mb, "", 1.3)
        yield from stall_figures(broker, stolen, "a hundred that come at once among them", None)
    finally:
        broker.kill()


def others_served(folder: pathlib.Path, megabytes: int) -> Iterator[Figure]:
    """Stalls, and how long another client waits, during retention, compaction and the recovery of other partitions."""
    settings = {
        "log.retention.check.interval.ms": "200",
        "log.cleaner.backoff.ms": "100",
        "log.segment.delete.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    small = {"segment.bytes": str(1024 * 1024)}
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    broker = BrokerProcess(folder, settings)
    stolen = StolenTime()
    broker.start()
    try:
        with RawConnection(broker.port) as connection:
            for during, topic, configs in (
                ("retention", "retained", {**small, "retention.bytes": "1"}),
                ("compaction, too", "compacted", {**small, **compacted}),
            ):
                create_topics(connection, [topic], 4, configs)
                with another_client(broker) as answers:
                    fill(connection, topic, 4, megabytes)
                    time.sleep(2 + megabytes / 50)
                yield Figure(f"longest answer to another client, {during}", max(answers), "ms")
                yield from stall_figures(broker, stolen, during)
            create_topics(connection, ["kept"], 40)
            fill(connection, "kept", 40, megabytes / 2, record_bytes=60)
        broker.kill()
        begin, stolen = time.monotonic(), StolenTime()
        broker.start()
        with RawConnection(broker.port) as connection, another_client(broker) as answers:
            wait_until_led(connection, 48)
            recovery_s = time.monotonic() - begin
            time.sleep(0.1)
        yield Figure(f"start after kill -9, {megabytes / 2:g} MB in batches of 130 B to check", recovery_s, "s")
        yield Figure("longest answer to another client, recovery", max(answers), "ms")
        yield from stall_figures(broker, stolen, "recovery of other partitions")
    finally:
        broker.kill()


def counters() -> Iterator[Figure]:
    """The counters that a produce and a fetch add to, by themselves; a fetch outside of a session leaves its positions,
    too."""
    traffic, sessions, rounds = TopicTraffic(), FetchSessions(slots=0), 500_000
    connection, without_session = object(), FetchContext((), None, incremental=False)

    def fetched() -> None:
        traffic.fetch_requests += 1
        traffic.bytes_out += 16_384

    def fetched_without_session() -> None:
        traffic.fetch_requests += 1
        traffic.bytes_out += 16_384
        sessions.note_client("client", connection, without_session, 0)

    for what, count in (
        ("produce", lambda: traffic.appended(1, 100)),
        ("fetch", fetched),
        ("fetch without a session", fetched_without_session),
    ):
        busy_s = timeit.timeit(count, timer=time.process_time, number=rounds)
        yield Figure(f"counters of a {what}, with a call", busy_s / rounds * 1e6, "us", 0.5)


def scrapes(
    folder: pathlib.Path, topics: int, each: int, *, count: int = 20, lagging: bool = False
) -> Iterator[Figure]:
    """Make `topics` with `each` partitions, scrape the metrics `count` times while records come in. `lagging`: a group
    is behind in each partition."""
    share = topics * each / FULL_PARTITIONS
    port = free_port()
    broker = BrokerProcess(
        folder, {"offsets.topic.num.partitions": "1", "gregor.metrics.listener": f"127.0.0.1:{port}"}
    )
    names = [f"scraped-{number}" for number in range(topics)]
    stolen = StolenTime()
    broker.start()
    try:
        with RawConnection(broker.port) as connection:
            for first in range(0, topics, 1000):
                create_topics(connection, names[first : first + 1000], each)
            yield from stall_figures(broker, stolen, "making them, before the first scrape")
            places = [(name, index) for name in names for index in range(each)]
            if lagging:
                write_to_all(connection, places)
                commit_start(connection, names, each)
            spent_s = size_bytes = 0.0
            for number in range(count):
                produce_p50_us(connection, places[number * 100 % len(places) :][:100], 100)
                before_s = processor_s(broker.pid)
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                    size_bytes = len(answer.read())
                spent_s += processor_s(broker.pid) - before_s
            what = f"scrape of {topics} topics with {topics * each} {'lagging ' if lagging else ''}partitions"
            yield Figure(f"{what}, each 5 s", spent_s / count / SCRAPE_INTERVAL_S * 100, "%", 2 * share)
            yield Figure("  size", size_bytes / 1e6, "MB")
            yield from stall_figures(broker, stolen, "making and scraping them")
    finally:
        broker.kill()


def commit_start(connection: RawConnection, topics: list[str], partitions: int) -> None:
    """Commit the offset 0 of each partition, as a group without members."""
    prepare(connection, topics[0], ["behind"])
    committed = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=0)
        for index in range(partitions)
    ]
    for name in topics:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=committed)
        answer = connection.ask(OffsetCommitRequest(group_id="behind", topics=[topic]), 8)
        assert {part.error_code for part in answer.topics[0].partitions} == {0}


def report(figures: Iterator[Figure], missed: list[Figure]) -> None:
    for figure in figures:
        print(figure, flush=True)
        if figure.missed:
            missed.append(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=FULL_PARTITIONS)
    parser.add_argument("--connections", type=int, default=FULL_CONNECTIONS)
    parser.add_argument("--megabytes", type=int, default=200, help="to be retained, compacted, recovered (200)")
    parser.add_argument(
        "--only",
        choices=["partitions", "connections", "counters", "scrapes", "scrapes-topics", "scrapes-lag", "others"],
        help="one part of it",
    )
    given = parser.parse_args()
    parts: dict[str, Callable[[pathlib.Path], Iterator[Figure]]] = {
        "partitions": lambda folder: partitions(folder, given.partitions),
        "connections": lambda folder: connections(folder, given.connections),
        "counters": lambda _folder: counters(),
        "scrapes": lambda folder: scrapes(folder, TOPICS, given.partitions // TOPICS),
        "scrapes-topics": lambda folder: scrapes(folder, given.partitions, 1),
        "scrapes-lag": lambda folder: scrapes(folder, TOPICS, given.partitions // TOPICS, lagging=True),
        "others": lambda folder: others_served(folder, given.megabytes),
    }
    missed: list[Figure] = []
    rested_memory.report()
    for name, part in parts.items():
        if given.only in (None, name):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-scale-"))
            print(f"-- {name}", flush=True)
            try:
                report(part(folder), missed)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    rested_memory.report()
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
