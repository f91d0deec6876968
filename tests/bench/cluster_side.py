"""Three brokers of one kind on a ZooKeeper of their own, and the measurements of them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import MetadataRequest, MetadataResponse, ProduceRequest
from gregor.protocol.records.batch import build_batch
from tests.bench.figures import TICKS_PER_S, create_topics, memory_mb
from tests.bench.raw_load import VERSION, leaders
from tests.support.mixed_cluster import KAFKA, MixedCluster
from tests.support.wire import RawConnection

BROKERS = 3
KAFKA_JVM = (
    *("-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
"""The same as in Apache Kafka's own start script."""
SETTINGS = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "offsets.topic.num.partitions": "50",
}
"""Apache Kafka's defaults where the tests have smaller ones. gregor ignores those that it does not use."""
LIMIT_S = 240.0
BATCH = 100


def processor_s(pid: int) -> float:
    """Processor time of a process and all that came of it, ended ones too."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15]) / TICKS_PER_S
    return own + sum(processor_s(child) for child in children(pid))


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/children") as names:
            found += map(int, names.read().split())
    return found


class Failover(NamedTuple):
    """When a broker was killed, in seconds since 1970; the seconds from then on; and how many of them follow the end
    of its session in ZooKeeper."""

    killed_s: float
    total_s: float
    beyond_s: float
    beside_s: float
    """As `total_s`, for the topic beside it."""


class Side:
    """A context manager: ZooKeeper runs, the brokers not yet."""

    def __init__(
        self,
        folder: pathlib.Path,
        kind: str,
        overrides: dict[str, str] | None = None,
        *,
        kinds: Sequence[str] | None = None,
        tick_ms: int = 500,
    ) -> None:
        """`kinds`: of the brokers one by one, instead of three of one kind. `tick_ms`: of ZooKeeper."""
        self.kind = kind
        settings = {**(SETTINGS if kind == KAFKA else {}), **(overrides or {})}
        self.cluster = MixedCluster(folder, kinds or [kind] * BROKERS, settings, jvm=KAFKA_JVM, tick_ms=tick_ms)

    def __enter__(self) -> Side:
        begin = time.monotonic()
        self.cluster.__enter__()
        self.zookeeper_s = time.monotonic() - begin
        return self

    def __exit__(self, *exception: object) -> None:
        self.cluster.__exit__(None, None, None)

    # -- all processes -------------------------------------------------------------------------------------------

    def running(self) -> list[int]:
        """Numbers of the brokers that have not been killed."""
        processes = [broker.process for broker in self.cluster.brokers]
        return [number for number, process in enumerate(processes) if process is not None and process.poll() is None]

    def processor_s(self) -> float:
        return sum(processor_s(self.cluster.brokers[number].pid) for number in self.running())

    def zookeeper_processor_s(self) -> float:
        return processor_s(self.cluster.zookeeper.pid)

    def memory_mb(self) -> float:
        pids = [self.cluster.brokers[number].pid for number in self.running()]
        return sum(memory_mb(one) for pid in pids for one in (pid, *children(pid)))

    def port(self, number: int | None = None) -> int:
        """Return the port of that broker, or of any broker that runs."""
        return self.cluster.brokers[self.running()[0] if number is None else number].port

    # -- topics --------------------------------------------------------------------------------------------------

    def start(self) -> float:
        """Return the seconds until a topic of three replicas exists and a record is written that all of them have."""
        begin = time.monotonic()
        for broker in self.cluster.brokers:
            broker.start(wait_until_ready=False)
        self.keep_trying(lambda: self.create("first", 1))
        self.keep_trying(lambda: self.write("first", {0: self.leaders("first")[0]}) == {0})
        return time.monotonic() - begin

    def keep_trying(self, attempt: Callable[[], object], pause_s: float = 0.02) -> None:
        """Repeat the attempt until it neither fails nor returns something false."""
        deadline = time.monotonic() + LIMIT_S
        last: Exception | None = None
        while time.monotonic() < deadline:
            for broker in self.cluster.brokers:
                if broker.process is not None and broker.process.poll() not in (None, -9):
                    raise RuntimeError(f"a broker of {self.kind} has ended:\n{broker.log()[-2000:]}")
            try:
                if attempt():
                    return
            except (OSError, MalformedMessage, AssertionError, KeyError) as failure:
                last = failure
            time.sleep(pause_s)
        raise RuntimeError(f"{self.kind}: in vain for {LIMIT_S:.0f} s: {last}")

    def create(self, topic: str, partitions: int) -> bool:
        """Create the topic over the controller; return False if not all brokers are known or there is no controller."""
        with RawConnection(self.port()) as connection:
            found = self.metadata(connection, topic)
        if not found.topics[0].error_code:  # of an attempt whose answer was lost
            return True
        ports = {broker.node_id: broker.port for broker in found.brokers}
        if len(ports) < len(self.running()) or found.controller_id not in ports:
            return False
        with RawConnection(ports[found.controller_id]) as connection:
            connection.socket.settimeout(LIMIT_S)
            create_topics(connection, [topic], partitions, replication_factor=len(ports))
        return True

    def metadata(self, connection: RawConnection, topic: str) -> MetadataResponse:
        asked = [MetadataRequest.MetadataRequestTopic(name=topic)]
        answer: MetadataResponse = connection.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
        return answer

    def leaders(self, topic: str, number: int | None = None) -> dict[int, int]:
        return leaders(self.port(number), topic)

    def wait_until_whole(self, topic: str, partitions: int) -> float:
        """Seconds until every running broker knows all partitions with a leader and all their replicas in sync."""
        begin = time.monotonic()

        def whole(number: int) -> bool:
            with RawConnection(self.port(number)) as connection:
                connection.socket.settimeout(LIMIT_S)
                parts = self.metadata(connection, topic).topics[0].partitions
            return len(parts) == partitions and all(
                part.leader_id >= 0 and len(part.isr_nodes) == BROKERS for part in parts
            )

        for number in self.running():
            self.keep_trying(lambda number=number: whole(number), 0.05)  # type: ignore[misc]
        return time.monotonic() - begin

    def write(self, topic: str, places: dict[int, int]) -> set[int]:
        """A record to each of these partitions, at these ports; returns where all in-sync replicas have it."""
        written: set[int] = set()
        for port in set(places.values()):
            there = [partition for partition, leader in places.items() if leader == port]
            with RawConnection(port) as connection:
                connection.socket.settimeout(60)
                answer = connection.ask(a_record_each(topic, there), VERSION)
            parts = answer.responses[0].partition_responses
            written |= {part.index for part in parts if not part.error_code}
        return written

    # -- failover ------------------------------------------------------------------------------------------------

    def failover(self, topic: str, killed: int, *, restart: bool = False, beside: str = "") -> Failover:
        """Kill a broker with SIGKILL; `restart` starts it again at once. Return the times until every partition has
        accepted a record again that all in-sync replicas have; of a topic `beside` this one, too."""
        others = set(self.leaders(beside)) if beside else set()
        others_s: list[float] = []
        places = self.leaders(topic)
        dead_port = self.port(killed)
        survivors = {self.port(number) for number in self.running()} - {dead_port}
        ended: list[float] = []
        path = f"/brokers/ids/{killed}"
        assert self.cluster.store.exists(path, watch=lambda _: ended.append(time.monotonic()))
        self.cluster.brokers[killed].kill()
        begin, killed_s = time.monotonic(), time.time()
        if restart:
            self.cluster.brokers[killed].start(wait_until_ready=False)
        # Partitions that keep their leader wait until the dead follower is out of the in-sync replicas.
        kept = [
            threading.Thread(target=self.write_all, args=(topic, {p for p in places if places[p] == port}))
            for port in survivors
        ]
        if others:

            def write_beside() -> None:
                self.write_all(beside, others)
                others_s.append(time.monotonic() - begin)

            kept.append(threading.Thread(target=write_beside))
        for thread in kept:
            thread.start()
        led = {partition for partition in places if places[partition] == dead_port}
        # A broker that is back may lead again.
        self.write_all(topic, led, -1 if restart else dead_port)
        for thread in kept:
            thread.join()
        end = time.monotonic()
        return Failover(killed_s, end - begin, end - (ended[0] if ended else end), sum(others_s))

    def write_all(self, topic: str, pending: set[int], dead_port: int = -1) -> None:
        """Write a record to each of these partitions, of which the broker at `dead_port` leads none any more."""

        def attempt() -> bool:
            places = {p: port for p, port in self.leaders(topic).items() if p in pending and port != dead_port}
            pending.difference_update(self.write(topic, places))
            return not pending

        self.keep_trying(attempt)


def a_record_each(topic: str, partitions: list[int]) -> ProduceRequest:
    batch = bytes(build_batch([(None, b"v" * BATCH)], timestamp_ms=int(time.time() * 1000)))
    data = [ProduceRequest.PartitionProduceData(index=partition, records=batch) for partition in partitions]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
