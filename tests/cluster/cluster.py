"""Brokers and a ZooKeeper on hosts of their own, and their state as ZooKeeper and the brokers report it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from gregor.protocol.client import version_ranges
from gregor.protocol.messages import ApiVersionsRequest, MetadataRequest, MetadataResponse
from gregor.protocol.sync_client import SyncConnection
from tests.cluster.network import Network
from tests.cluster.security import ADMIN, PLAINTEXT, Security
from tests.cluster.servers import PORT, Broker, ZooKeeper

START_TIMEOUT_S = 120.0
MAX_ENDS = 30
ASK_TIMEOUT_S = 5.0
METADATA_VERSION = 9


class NotWhole(Exception):
    """The reason why the cluster is not whole, in a word or two."""


def replication(brokers: int) -> dict[str, object]:
    """Return the settings with which every broker has every partition, and one of several may be lost."""
    return {
        "default.replication.factor": brokers,
        "offsets.topic.replication.factor": brokers,
        "min.insync.replicas": min(2, brokers),
    }


class Cluster:
    """`kinds` are those of the brokers 0, 1, ... A context manager: started, and at its end killed."""

    def __init__(
        self,
        folder: pathlib.Path,
        kinds: Sequence[str],
        settings: dict[str, object] | None = None,
        protocol: str = PLAINTEXT,
    ) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        names = [f"broker-{number}" for number in range(len(kinds))]
        self.network = Network(["zookeeper", *names])
        self.zookeeper = ZooKeeper(self.network, folder)
        self.security = Security(protocol, folder / "security", [self.network.address(name) for name in names])
        wanted = {"zookeeper.connect": self.zookeeper.connect, **replication(len(kinds)), **(settings or {})}
        self.brokers = [
            Broker(self.network, folder, number, kind, wanted, self.security) for number, kind in enumerate(kinds)
        ]
        self.ended: list[str] = []
        """The ends of gregor's brokers that no fault explains."""
        self.leaders: dict[str, dict[tuple[int, int], int]] = {}
        """topic -> (partition, leader epoch) -> leader, of all states that were seen in ZooKeeper."""
        self._ends = 0
        self.may_end: set[str] = set()
        """The names of brokers that a fault may have ended, until the cluster is whole again."""
        self.bootstrap = ",".join(broker.address for broker in self.brokers)

    def __enter__(self) -> Cluster:
        self.zookeeper.start()
        if self.security.is_on:
            with self._nodes(START_TIMEOUT_S) as nodes:
                self.security.store_users(nodes)
        for broker in self.brokers:
            broker.start()
        with self.explained():
            self.wait_until_whole(START_TIMEOUT_S)
        return self

    def __exit__(self, *exception: object) -> None:
        for server in (*self.brokers, self.zookeeper):
            server.kill()
        for broker in self.brokers:
            broker.remove_disk()

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Adds the end of what each server printed to an error about the cluster."""
        try:
            yield
        except TimeoutError as error:
            for server in (*self.brokers, self.zookeeper):
                state = "runs" if server.running else f"ended with {server.exit_code}"
                error.add_note(f"--- {server.name} {state}\n{server.output.read_text(errors='replace')[-3000:]}")
            raise

    def create_topic(self, topic: str, partitions: int, groups: Iterable[str]) -> None:
        """Create the topic, and the rules of its clients, with those of the groups."""
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=len(self.brokers))
        self._admin.create_topics([wanted])[topic].result(START_TIMEOUT_S)
        if rules := self.security.rules(topic, groups):
            for made in self._admin.create_acls(rules).values():
                made.result(START_TIMEOUT_S)

    def client(self, user: str) -> dict[str, Any]:
        """Return the settings of librdkafka with which a user reaches the brokers."""
        return {"bootstrap.servers": self.bootstrap, **self.security.librdkafka(user)}

    @functools.cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**self.client(ADMIN), "log_level": 0})

    @contextlib.contextmanager
    def _nodes(self, timeout_s: float = ASK_TIMEOUT_S) -> Iterator[KazooClient]:
        client = KazooClient(hosts=self.zookeeper.connect, timeout=6)
        try:
            client.start(timeout=timeout_s)
            yield client
        finally:
            client.stop()
            client.close()

    def controller(self) -> int | None:
        """The controller's broker id by its node; None where there is none."""
        try:
            with self._nodes() as nodes:
                return int(json.loads(nodes.get("/controller")[0])["brokerid"])
        except (NoNodeError, KazooTimeoutError, KazooException):
            return None

    def session_of(self, number: int) -> int | None:
        """Return the id of the session in which a broker is registered; None where it is not. Raises the errors of
        kazoo."""
        with self._nodes() as nodes:
            stat = nodes.exists(f"/brokers/ids/{number}")
            return None if stat is None else int(stat.ephemeralOwner)

    def is_registered(self, number: int) -> bool:
        """Return whether a broker is registered; False where ZooKeeper does not answer."""
        try:
            return self.session_of(number) is not None
        except (KazooTimeoutError, KazooException):
            return False

    def wait_until_whole(self, timeout_s: float) -> float:
        """Wait until every broker is there and every replica is in sync in the metadata of all brokers.

        Return the seconds until then. Raise TimeoutError with the reason.
        """
        begun = time.monotonic()
        while True:
            self.start_ended()
            try:
                self.check_whole()
                self.may_end.clear()
                return time.monotonic() - begun
            except (NotWhole, KazooTimeoutError, KazooException, OSError) as error:
                if time.monotonic() - begun > timeout_s:
                    raise TimeoutError(f"not whole after {timeout_s:.0f} s: {type(error).__name__} {error}") from None
                time.sleep(0.2)

    def start_ended(self) -> None:
        """Start each broker that has ended, as its machine would do it. One of Apache Kafka ends when it starts while
        the registration of its last process is there. Raise TimeoutError if that does not end."""
        for broker in self.brokers:
            if broker.running:
                continue
            if broker.name not in self.may_end:
                self._ends += 1
                text = f"{broker.name} ended by itself with {broker.exit_code}"
                self.ended += [text] if broker.is_watched else []
                if self._ends > MAX_ENDS:
                    raise TimeoutError(f"{text}, the {self._ends}th end of a broker in this run")
            broker.start()

    def check_whole(self) -> None:
        """Check the cluster once. Raise NotWhole, or an error of the query."""
        leaders = self._leaders_by_zookeeper()
        for broker in self.brokers:
            said = ask_metadata(broker)
            if len(said.brokers) != len(self.brokers):
                raise NotWhole(f"{broker.name} knows {len(said.brokers)} brokers")
            for topic in said.topics:
                for part in topic.partitions:
                    place = f"{topic.name}-{part.partition_index}"
                    if len(part.isr_nodes) != len(self.brokers):
                        raise NotWhole(f"{broker.name} says that {place} has the ISR {part.isr_nodes}")
                    if leaders.pop((broker.number, place), None) != part.leader_id:
                        raise NotWhole(f"{broker.name} says that {place} is led by {part.leader_id}")
        if leaders:
            raise NotWhole(f"a broker does not know of {next(iter(leaders))[1]}")

    def _leaders_by_zookeeper(self) -> dict[tuple[int, str], int]:
        """(broker, partition) -> leader, the same for all brokers."""
        with self._nodes() as nodes:
            live = sorted(map(int, nodes.get_children("/brokers/ids")))
            states = {
                (topic, int(partition)): json.loads(
                    nodes.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0]
                )
                for topic in nodes.get_children("/brokers/topics")
                for partition in nodes.get_children(f"/brokers/topics/{topic}/partitions")
            }
        leaders = {}
        for (topic, partition), state in states.items():
            self.leaders.setdefault(topic, {})[partition, state["leader_epoch"]] = state["leader"]
            leaders.update({(broker.number, f"{topic}-{partition}"): state["leader"] for broker in self.brokers})
        if live != list(range(len(self.brokers))):
            raise NotWhole(f"only {live} are registered")
        for (topic, partition), state in states.items():
            if len(state["isr"]) != len(self.brokers):
                raise NotWhole(f"{topic}-{partition} has the ISR {state['isr']} in ZooKeeper")
        return leaders

    def read_all(self, topic: str, partitions: int) -> dict[int, dict[int, str]]:
        """partition -> offset -> value, from the start to the high watermark of each."""
        consumer = Consumer(
            {**self.client(ADMIN), "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
        )
        log: dict[int, dict[int, str]] = {}
        try:
            for partition in range(partitions):
                place = TopicPartition(topic, partition, 0)
                low, high = _watermarks(consumer, place)
                if low:
                    raise NotWhole(f"partition {partition} begins at {low}")
                records = log.setdefault(partition, {})
                consumer.assign([place])
                deadline = time.monotonic() + START_TIMEOUT_S
                while len(records) < high:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"partition {partition}: {len(records)} of {high} records can be read")
                    for message in consumer.consume(1000, timeout=1):
                        value, offset = message.value(), message.offset()
                        if message.error() is None and isinstance(value, bytes) and offset is not None:
                            records[offset] = value.decode()
        finally:
            consumer.close()
        return log

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """Return the committed offset of each partition; none while the group's coordinator does not answer."""
        asking = Consumer({**self.client(ADMIN), "group.id": group, "log_level": 0})
        try:
            places = [TopicPartition(topic, partition) for partition in range(partitions)]
            found = asking.committed(places, timeout=ASK_TIMEOUT_S)
            return {part.partition: part.offset for part in found if part.error is None and part.offset >= 0}
        except KafkaException:
            return {}
        finally:
            asking.close()

    def wait_until(self, holds: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
            time.sleep(0.2)


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=ASK_TIMEOUT_S)
        except KafkaException:
            # Its leader may have changed just now.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextlib.contextmanager
def connected(broker: Broker, user: str = ADMIN) -> Iterator[SyncConnection]:
    """A connection of that user to a broker. Raise OSError."""
    host, security = broker.address.rpartition(":")[0], broker.security
    with SyncConnection(host, PORT, "chaos", ASK_TIMEOUT_S, ASK_TIMEOUT_S, security.connection(user)) as connection:
        if security.is_on:
            connection.log_in(version_ranges(connection.exchange(ApiVersionsRequest(), 0)))
        yield connection


def ask_metadata(broker: Broker, user: str = ADMIN) -> MetadataResponse:
    """Return this broker's own metadata of all topics that the user may see. Raise OSError."""
    with connected(broker, user) as connection:
        response: MetadataResponse = connection.exchange(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION
        )
        return response
