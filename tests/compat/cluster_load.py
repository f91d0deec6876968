"""Writers and a group that keep working while the brokers of a cluster come, leave and change; a judge of the rest."""

from __future__ import annotations

import collections
import logging
import pathlib
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeGroupsRequest, MetadataRequest, OffsetFetchRequest
from gregor.protocol.records.batch import iter_batches
from tests.cluster.stuck import RevivedConsumer, close_client
from tests.compat.records import until
from tests.support.kafka import java_command
from tests.support.mixed_cluster import MixedCluster
from tests.support.wire import ask

WAIT_S = 120.0
"""For a step of a cluster, on a machine that is busy with other tests."""
MAX_NAMED = 20
UNKNOWN = -1001
"""In place of an offset."""
_UNKNOWN_FOR_NOW = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
_QUICK = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "log_level": 0,
}

KEPT_LINES = 60


class _LastLines(logging.Handler):
    """Keeps what a client logged last, for the report of a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class NumberedLoad:
    """An idempotent producer with acks=all that writes running numbers to each partition, some hundreds in a second.

    A broker of Apache Kafka that was started just now knows no topics and no brokers for a moment. librdkafka fails the
    queued records of a topic that is reported as unknown, and those under way to a broker that has gone from the
    metadata. The producer gets an error for each of them, so this is no loss. Metadata without brokers ends all of its
    connections; only a client that may bootstrap again, which is the default, makes new ones.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, client: Mapping[str, str] | None = None) -> None:
        """`client` has more settings of the producer."""
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        """For each partition: running number -> offset."""
        self.given_up: list[set[int]] = [set() for _ in range(partitions)]
        """For each partition: running numbers that the client failed; they may be in the log or not."""
        self.sent = 0
        self.errors: list[KafkaError] = []
        self._bootstrap = bootstrap
        self._log = _LastLines()
        logger = logging.Logger(topic, logging.DEBUG)
        logger.addHandler(self._log)
        self._logger = logger
        self._begin(client or {})

    def _begin(self, client: Mapping[str, str]) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "error_cb": self._error,
                **_QUICK,
                "debug": "eos",  # logs the reason of each new epoch, for the analysis of a failure
                "log_level": 7,
                **client,
            },
            logger=self._logger,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def acknowledgements(self) -> int:
        return sum(map(len, self.acknowledged))

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(error)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and value is not None
        if error is not None and error.code() in (*_UNKNOWN_FOR_NOW, KafkaError._DESTROY):
            self.given_up[partition].add(number_of(value))
            return
        if error is not None:
            self.errors.append(error)
            return
        # A record that is acknowledged at the second attempt, as a duplicate, comes without its offset.
        self.acknowledged[partition][number_of(value)] = UNKNOWN if offset is None else offset

    def _run(self) -> None:
        while not self._stop.is_set() and not self.errors:
            value = struct.pack(">q100x", self.sent)
            self.sent += 1
            for partition in range(self.partitions):
                try:
                    self._producer.produce(self.topic, value, partition=partition, on_delivery=self._report)
                except KafkaException as failure:
                    if failure.args[0].code() not in _UNKNOWN_FOR_NOW:
                        raise
                    self.given_up[partition].add(self.sent - 1)
            self._producer.poll(0.005)

    def __enter__(self) -> NumberedLoad:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)

    def goes_on(self) -> None:
        """Wait until each partition has acknowledged records that were sent after this call."""
        begin = self.sent

        def further() -> bool:
            assert self.errors == [] and self._thread.is_alive(), self.errors
            return all(max(known, default=-1) > begin for known in self.acknowledged)

        try:
            until(further, f"acknowledgements beyond {begin}", WAIT_S)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; {self._state()}") from None

    def _state(self) -> str:
        """Return how far each partition came, the partitions as each broker describes them, and the client's last
        lines."""
        acknowledged = [max(known, default=-1) for known in self.acknowledged]
        lines = "\n".join(["", *partitions_of(self._bootstrap, self.topic), *self._log.lines])
        return f"acknowledged {acknowledged} of {self.sent}{lines}"

    def restart(self, client: Mapping[str, str]) -> None:
        """Continue with a new producer and other settings, when everything of the old one is acknowledged."""
        self._end()
        self._begin(client)
        self._thread.start()

    def _end(self) -> None:
        self.__exit__()
        assert self._producer.flush(WAIT_S) == 0
        assert self.errors == []
        close_client(self._producer.close)

    def finish(self) -> None:
        """Stop, with everything acknowledged."""
        self._end()
        assert self.acknowledgements + sum(map(len, self.given_up)) == self.sent * self.partitions
        assert 2 * self.acknowledgements > self.sent * self.partitions, "most of it"

    def check_stored(self, bootstrap: str, client: Mapping[str, str] | None = None) -> list[list[tuple[int, int]]]:
        """Each number once, in order, at the offset that its acknowledgement named. Return what `read_numbers` does;
        `client` has more settings of the consumer."""
        stored = read_numbers(bootstrap, self.topic, self.partitions, client)
        for partition, records in enumerate(stored):
            assert [offset for offset, _ in records] == list(range(len(records))), "offsets without a gap"
            numbers = [number for _, number in records]
            said = f"{self.topic}-{partition}: each record once, in order, not {out_of_order(records)}"
            assert numbers == sorted(set(numbers)), said
            assert set(range(self.sent)) - set(numbers) <= self.given_up[partition], "none is lost"
            found = {number: offset for offset, number in records}
            told = {number: offset for number, offset in self.acknowledged[partition].items() if offset != UNKNOWN}
            assert {number: found[number] for number in told} == told, "each record where it was said to be"
        return stored


def out_of_order(records: list[tuple[int, int]]) -> list[str]:
    """The first places where a number is not larger than all before it."""
    found, largest = [], -1
    for offset, number in records:
        if number <= largest:
            found.append(f"{number} at {offset} behind {largest}")
        largest = max(largest, number)
    return [f"{len(found)} places", *found[:MAX_NAMED]]


def number_of(value: bytes) -> int:
    number: int = struct.unpack_from(">q", value)[0]
    return number


def read_numbers(
    bootstrap: str, topic: str, partitions: int, client: Mapping[str, str] | None = None
) -> list[list[tuple[int, int]]]:
    """(offset, running number) of every record of each partition, as a consumer reads them."""
    reading = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**reading, **(client or {})})
    found: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
    ends: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    try:
        # Not OFFSET_BEGINNING, a request, which fails at a broker that was started just now and knows no topics yet.
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ends) < partitions:
            assert time.monotonic() < deadline, f"partitions {ends} of {partitions} read"
            for message in consumer.consume(10_000, 1.0):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ends.add(partition)
                    continue
                offset, value = message.offset(), message.value()
                assert offset is not None and value is not None
                found[partition].append((offset, number_of(value)))
    finally:
        consumer.close()
    return found


def partitions_of(bootstrap: str, topic: str) -> list[str]:
    """Return leader, epoch and in-sync replicas of each partition, from the metadata of each broker that answers."""
    found = []
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    for address in bootstrap.split(","):
        port = int(address.rpartition(":")[2])
        try:
            (topic_found,) = ask(port, wanted, 8).topics
        except OSError as failure:
            found.append(f"{port}: {failure}")
            continue
        shown = [(part.leader_id, part.leader_epoch, part.isr_nodes) for part in topic_found.partitions]
        found.append(f"{port}: error {topic_found.error_code}, leader, epoch and in-sync replicas {shown}")
    return found


# -- topics --------------------------------------------------------------------------------------------------


def admin(cluster: MixedCluster, broker_id: int | None = None) -> AdminClient:
    bootstrap = cluster.bootstrap if broker_id is None else cluster.brokers[broker_id].bootstrap
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(cluster: MixedCluster, topic: str, assignment: list[list[int]]) -> None:
    """Waits until all replicas are in sync."""

    def made() -> bool:
        new = NewTopic(topic, len(assignment), replica_assignment=assignment)
        client = admin(cluster)
        try:
            client.create_topics([new])[topic].result(WAIT_S)
        except KafkaException as failure:
            return bool(failure.args[0].code() == ErrorCode.TOPIC_ALREADY_EXISTS)
        return True

    until(made, f"topic {topic}", WAIT_S)
    wait_in_sync(cluster, topic, len(assignment), len(assignment[0]))


# -- groups ----------------------------------------------------------------------------------------------------------


class Reader:
    """A member of a group, which reads what NumberedLoad writes and commits by itself, wherever the group's coordinator
    is just now. `finish` is for the only member."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        load: NumberedLoad,
        protocol: str = "classic",
        client: Mapping[str, str] | None = None,
    ) -> None:
        """`client` has more settings of the consumer."""
        self._load = load
        self.seen: list[set[int]] = [set() for _ in range(load.partitions)]
        settings: dict[str, str | int] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            **_QUICK,
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = 10_000
        self._settings = {**settings, **(client or {})}
        self._errors: collections.deque[str] = collections.deque(maxlen=3)
        self._returned_s = time.monotonic()
        self._consumer = RevivedConsumer(self._new_consumer)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _new_consumer(self) -> Consumer:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._load.topic])
        return consumer

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, 0.2):
                partition, value = message.partition(), message.value()
                if (error := message.error()) is not None:
                    self._errors.append(str(error))
                elif partition is not None and value is not None:
                    self.seen[partition].add(number_of(value))
            self._returned_s = time.monotonic()

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        if not self._thread.is_alive():
            self._consumer.close()

    def finish(self, *earlier: Reader) -> None:
        """Waits until it has read everything that those before it have not; the load is over."""
        read_before = [set().union(*(one.seen[number] for one in earlier)) for number in range(self._load.partitions)]
        wanted = [known.keys() - read for known, read in zip(self._load.acknowledged, read_before, strict=True)]

        def complete() -> bool:
            assert self._thread.is_alive()
            return all(seen >= known for seen, known in zip(self.seen, wanted, strict=True))

        try:
            until(complete, f"{[*map(len, wanted)]} records read", WAIT_S)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; {self._state()}") from None

    def _state(self) -> str:
        silent_s = time.monotonic() - self._returned_s
        bootstrap, group = str(self._settings["bootstrap.servers"]), str(self._settings["group.id"])
        return (
            f"now {[*map(len, self.seen)]}, the last call returned {silent_s:.1f} s ago, "
            f"{self._consumer.replaced} clients replaced, last errors {[*self._errors]}, "
            f"the group {described(bootstrap, group)}"
        )


def described(bootstrap: str, group: str) -> list[str]:
    """Return the state of a classic group and its members on each broker that answers."""
    found = []
    for address in bootstrap.split(","):
        port = int(address.rpartition(":")[2])
        try:
            (group_found,) = ask(port, DescribeGroupsRequest(groups=[group]), 5).groups
        except OSError as failure:
            found.append(f"{port}: {failure}")
            continue
        members = [(member.member_id, member.client_host) for member in group_found.members]
        found.append(f"{port}: error {group_found.error_code}, {group_found.group_state} {members}")
    return found


def commit(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Commit again and again until the group's coordinator, which may just be moving, accepts it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **_QUICK})

    def done() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        except KafkaException:
            return False
        return True

    try:
        until(done, f"a commit of {offset}", WAIT_S)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """Return the group's offset of partition 0, which its coordinator returns once it is found.

    The admin client of librdkafka 2.16 crashes on a coordinator that moves.
    """
    part = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[part])]
    found: list[int] = []

    def asked() -> bool:
        for address in bootstrap.split(","):
            try:
                (answer,) = ask(int(address.rpartition(":")[2]), OffsetFetchRequest(groups=groups), 8).groups
            except OSError:
                continue
            if not answer.error_code:
                found.append(answer.topics[0].partitions[0].committed_offset)
                return True
        return False

    until(asked, "the committed offset", WAIT_S)
    return found[-1]


# -- replicas --------------------------------------------------------------------------------------------------------


def in_sync(cluster: MixedCluster, topic: str, partitions: int, count: int) -> bool:
    states = [cluster.state(topic, number) for number in range(partitions)]
    return all(state is not None and len(state["isr"]) == count for state in states)


def wait_in_sync(cluster: MixedCluster, topic: str, partitions: int, count: int = 3) -> None:
    def whole() -> bool:
        return in_sync(cluster, topic, partitions, count)

    until(whole, f"{count} replicas of {topic} in sync", WAIT_S)


def log_bytes(data: pathlib.Path, topic: str, partition: int) -> bytes:
    """All batches of a replica, whatever segments they lie in."""
    segments = sorted((data / f"{topic}-{partition}").glob("*.log"))
    assert segments, f"no log of {topic}-{partition} in {data}"
    return b"".join(segment.read_bytes() for segment in segments)


def check_replicas(cluster: MixedCluster, topic: str, partitions: int) -> None:
    """Byte by byte; the brokers have ended."""
    for partition in range(partitions):
        replicas = [log_bytes(broker.folder / "data", topic, partition) for broker in cluster.brokers]
        for number, replica in enumerate(replicas):
            assert list(_shape(replica)) == list(_shape(replicas[0])), f"{topic}-{partition} of broker {number}"
            assert replica == replicas[0], f"{topic}-{partition} of broker {number}"


def verify_replicas(cluster: MixedCluster, topic: str, output: pathlib.Path) -> None:
    """Apache Kafka's own tool reads each replica at its broker, and finds all of them alike up to the end."""
    words = ["--broker-list", cluster.bootstrap, "--topics-include", topic, "--time", "-2"]
    words += ["--report-interval-ms", "200", "--max-wait-ms", "200"]
    command = java_command("org.apache.kafka.tools.ReplicaVerificationTool", *words, version="3.9.1")
    with output.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:

        def level() -> bool:
            text = output.read_text()
            assert process.poll() is None and "match" not in text and "checksum" not in text, text
            return "max lag is 0 for partition" in text

        until(level, "replicas that are verified to be alike", WAIT_S)
    finally:
        process.kill()
        process.wait()


def _shape(log: bytes) -> Iterator[tuple[int, int, int, int]]:
    for batch in iter_batches(log):
        yield batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc
