"""The time for which writes stand still after a kill of a broker, of the cluster and of clients with default settings.

Each kill is SIGKILL of a broker that leads a third of the partitions, while two producers write all the time; every
second one is started again at once. The times begin at the kill. The cluster's own is that of a client without any
back-off: it requests metadata and writes, again and again, until every partition has accepted a record that all in-sync
replicas have. The time that librdkafka and the Java client need for their partitions, beyond the cluster's for the same
ones, is that of their own back-off and their own metadata requests.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError, Message, Producer

from gregor.protocol.messages import ElectLeadersRequest
from tests.bench.cluster_side import LIMIT_S, Side
from tests.support.kafka import java_command
from tests.support.mixed_cluster import GREGOR
from tests.support.processes import ROOT, clean_environment
from tests.support.wire import RawConnection

TOPIC, CLIENTS_TOPIC = "failover", "clients"
CLIENT_PARTITIONS = 6
RATE = 300
"""Records a second of each client, over all its partitions."""
KEYS = 60
OVERLAP_S = 0.1
"""An acknowledgement this long after a kill may be of a record that the broker had before; it is no end of the gap."""
SETTLE_S = 1.0
TICK_MS = 3000
"""A session lasts for 20 ticks at most."""
OVERRIDES = {"replica.lag.time.max.ms": "30000"}
"""The default: nothing but the end of its session removes a dead follower from the in-sync replicas in time."""
INDEXED_RECORDS = 40
"""So many records have an entry in the index (index.interval.bytes=4096)."""
LEADER, CONTROLLER = "a leader", "the controller"


class Killed(NamedTuple):
    """One kill; the times are in seconds from it until writes to all partitions continued."""

    role: str
    restarted: bool
    """Whether the broker was started again at once."""
    cluster_s: float
    clients_topic_s: float
    """The cluster's own time for the partitions that the clients write to."""
    clients_s: Mapping[str, float]


def resumed_s(acks: Mapping[int, Sequence[float]], killed_s: float) -> float:
    """Return the seconds from the kill until the last partition continued: each at the end of its longest gap between
    two acknowledgements that the kill falls into. Raises ValueError if there was none before or after it."""
    found = 0.0
    for partition, times in acks.items():
        gaps = [(b - a, b) for a, b in pairwise(times) if b > killed_s and a <= killed_s + OVERLAP_S]
        if not gaps:
            raise ValueError(f"partition {partition} has no acknowledgements around the kill")
        found = max(found, max(gaps)[1] - killed_s)
    return found


class Writer(Protocol):
    """A producer that writes all the time."""

    name: str

    def acks(self) -> Mapping[int, Sequence[float]]:
        """Return the times of all acknowledgements by partition, in seconds since 1970, in order."""

    def close(self) -> None: ...


class LibrdkafkaWriter:
    """librdkafka with its default settings, in a thread."""

    name = "librdkafka"

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "acks": "all"})
        self._acks: dict[int, list[float]] = defaultdict(list)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def acks(self) -> Mapping[int, Sequence[float]]:
        return {partition: list(times) for partition, times in self._acks.items()}

    def close(self) -> None:
        self._ending.set()
        self._thread.join(LIMIT_S)

    def _run(self) -> None:
        sequence, begun = 0, time.monotonic()
        while not self._ending.is_set():
            while sequence < (time.monotonic() - begun) * RATE:
                partition = sequence % CLIENT_PARTITIONS
                self._producer.produce(CLIENTS_TOPIC, b"%d" % sequence, partition=partition, on_delivery=self._acked)
                sequence += 1
            self._producer.poll(0.005)
        self._producer.flush(LIMIT_S)

    def _acked(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition = message.partition()
        assert partition is not None
        self._acks[partition].append(time.time())


class JavaWriter:
    """Apache Kafka's VerifiableProducer, with the Java client's default settings."""

    name = "Java"

    def __init__(self, bootstrap: str, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config, self._output = folder / "java.properties", folder / "java.json"
        config.write_text("retries=2147483647\nenable.idempotence=true\n")  # the tool's are 0 and what that allows
        command = java_command(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", bootstrap, "--topic", CLIENTS_TOPIC, "--throughput", f"{RATE}"),
            *("--repeating-keys", f"{KEYS}", "--producer.config", str(config)),
            version="3.9.1",
            heap_mb=128,
        )
        with self._output.open("wb") as output, (folder / "java.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        self._read = 0
        self._acks: dict[int, list[float]] = defaultdict(list)

    def acks(self) -> Mapping[int, Sequence[float]]:
        with self._output.open("rb") as output:
            output.seek(self._read)
            lines, _, _ = output.read().rpartition(b"\n")
        self._read += len(lines) + 1 if lines else 0
        for line in lines.splitlines():
            event = json.loads(line)
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                self._acks[event["partition"]].append(event["timestamp"] / 1000)
        return self._acks

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Kills:
    """Kills of brokers of one cluster that runs, with its writers. A context manager."""

    def __init__(self, side: Side, partitions: int) -> None:
        self._side = side
        self._partitions = partitions
        self._writers: list[Writer] = []

    def __enter__(self) -> Kills:
        side = self._side
        for topic, partitions in ((TOPIC, self._partitions), (CLIENTS_TOPIC, CLIENT_PARTITIONS)):
            side.keep_trying(lambda topic=topic, partitions=partitions: side.create(topic, partitions))  # type: ignore[misc]
            side.wait_until_whole(topic, partitions)
        # Each kill adds a record to each partition, so all indexes would get their first entries in the same kill.
        # Apache Kafka maps indexes: the page faults of 1,000 of them last for 16 to 36 s on a slow virtual disk.
        for _ in range(INDEXED_RECORDS):
            side.write_all(TOPIC, set(range(self._partitions)))
        bootstrap = side.cluster.bootstrap
        self._writers = [LibrdkafkaWriter(bootstrap), JavaWriter(bootstrap, side.cluster.folder / "java")]
        return self

    def __exit__(self, *exception: object) -> None:
        for writer in self._writers:
            writer.close()

    def kill(self, number: int, role: str, restarted: bool) -> Killed:
        """Kill the broker, wait until all is whole again, and return the times."""
        side = self._side
        self._until_writing(time.time())
        killed_s, total_s, _, beside_s = side.failover(TOPIC, number, restart=restarted, beside=CLIENTS_TOPIC)
        self._until_writing(killed_s + max(total_s, OVERLAP_S))
        clients_s = {writer.name: resumed_s(writer.acks(), killed_s) for writer in self._writers}
        if not restarted:
            side.cluster.brokers[number].start(wait_until_ready=False)
        self.balance()
        return Killed(role, restarted, total_s, beside_s, clients_s)

    def balance(self) -> None:
        """Wait until every replica is in sync and every partition is led by its preferred replica."""
        side = self._side
        for topic, partitions in ((TOPIC, self._partitions), (CLIENTS_TOPIC, CLIENT_PARTITIONS)):
            side.wait_until_whole(topic, partitions)
        side.keep_trying(self._elect_preferred, 0.2)
        time.sleep(SETTLE_S)

    def _elect_preferred(self) -> bool:
        side = self._side
        controller = side.cluster.controller()
        if controller is None or controller not in side.running():
            return False
        with RawConnection(side.port(controller)) as connection:
            connection.socket.settimeout(LIMIT_S)
            connection.ask(ElectLeadersRequest(election_type=0, topic_partitions=None), 2)
            topics = [side.metadata(connection, topic).topics[0] for topic in (TOPIC, CLIENTS_TOPIC)]
        return all(part.leader_id == part.replica_nodes[0] for topic in topics for part in topic.partitions)

    def _until_writing(self, since_s: float) -> None:
        """Wait until every writer has an acknowledgement from each partition after that time."""

        def all_write() -> bool:
            found = [writer.acks() for writer in self._writers]
            return all(len(acks) == CLIENT_PARTITIONS and min(t[-1] for t in acks.values()) > since_s for acks in found)

        self._side.keep_trying(all_write, 0.05)


def kills(side: Side, partitions: int, count: int, victims: Sequence[int] | None = None) -> Iterator[Killed]:
    """Kill a leader and the controller in turn, each with and without a start at once. `victims`: the brokers that are
    killed, in turn, none of them the controller."""
    with Kills(side, partitions) as all_kills:
        all_kills.balance()
        for turn in range(count):
            controller = side.cluster.controller()
            assert controller is not None
            role = CONTROLLER if victims is None and turn % 2 else LEADER
            others = [number for number in victims or side.running() if number != controller]
            number = controller if role == CONTROLLER else others[turn // 2 % len(others)]
            yield all_kills.kill(number, role, bool(turn // 2 % 2))


def summary(found: Sequence[Killed], median_s: float, worst_s: float) -> list[str]:
    """Return the lines of a table: the median and the worst of each kind of kill, in seconds, and whether the cluster's
    are within the limits."""
    names = list(found[0].clients_s)
    lines = [
        f"{'seconds, median and worst of':40}{'kills':>6}{'cluster':>14}" + "".join(f"{name:>14}" for name in names)
    ]
    for role in (LEADER, CONTROLLER):
        for restarted in (False, True):
            chosen = [one for one in found if (one.role, one.restarted) == (role, restarted)]
            if chosen:
                lines.append(_row(f"kill of {role}" + (", started at once" if restarted else ""), chosen, names))
    lines.append(_row("all", list(found), names))
    times = [one.cluster_s for one in found]
    kept = statistics.median(times) <= median_s and max(times) <= worst_s
    lines.append(f"the cluster's limits, {median_s} and {worst_s}: {'kept' if kept else 'missed'}")
    for name in names:
        added = statistics.median(one.clients_s[name] - one.clients_topic_s for one in found)
        lines.append(f"{name} adds {added:.2f} s in the median, by its own back-off and metadata requests")
    return lines


def _row(name: str, found: Sequence[Killed], clients: Sequence[str]) -> str:
    columns = [_figures(one.cluster_s for one in found)]
    columns += [_figures(one.clients_s[client] for one in found) for client in clients]
    return f"{name:40}{len(found):6}" + "".join(f"{column:>14}" for column in columns)


def _figures(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{statistics.median(listed):.2f} {max(listed):.2f}"


def sides(folder: pathlib.Path, kinds: Sequence[str], session_ms: int) -> Side:
    """Return a cluster of these brokers for kills."""
    overrides = OVERRIDES | {"zookeeper.session.timeout.ms": f"{session_ms}"}
    return Side(folder, GREGOR, overrides, kinds=kinds, tick_ms=TICK_MS)
