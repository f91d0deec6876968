"""kill -9 at random moments under load, and the invariants that must hold afterwards.

A crash of the process keeps the page cache, so every acknowledged record is there, once, in its place. Three rounds by
default; GREGOR_CRASH_ROUNDS names another number, GREGOR_CRASH_SEED other choices.
"""

from __future__ import annotations

import os
import pathlib
import random
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.records.batch import RecordBatch, iter_batches
from tests.compat.confluent import Member, as_sent, produce
from tests.compat.records import WAIT_S, assorted, until
from tests.support.kafka import run_kafka_tool
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

ROUNDS = int(os.environ.get("GREGOR_CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("GREGOR_CRASH_SEED", "1"))
TOPIC = "crash"
GROUP = "crash-group"
PARTITIONS = 4
UNKNOWN = -1
"""In place of an offset."""
# Segments roll and indexes fill many times between two crashes.
SETTINGS = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "2000"}


class Load:
    """An idempotent producer with acks=all that never stops, and the result of each record.

    The value of a record is the partition's running number. So a record that came twice, in the wrong place, or not at
    all shows in the values alone.
    """

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, dict[int, int]] = {number: {} for number in range(PARTITIONS)}
        """Partition -> running number -> offset, or UNKNOWN."""
        self.sent = [0] * PARTITIONS
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 2000,
                "compression.type": "lz4",
                "log_level": 0,
                "error_cb": self._error,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def acknowledgements(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(error)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and value is not None
        # A record that is acknowledged at the second attempt, as an older duplicate, comes without its offset.
        self.acknowledged[partition][number_of(value)] = UNKNOWN if offset is None or offset < 0 else offset

    def _run(self) -> None:
        chance = random.Random(SEED)
        while not self._stop.is_set() and not self.errors:
            partition = chance.randrange(PARTITIONS)
            number = self.sent[partition]
            # Incompressible, so that the files grow; of every size, so that batches end anywhere.
            value = struct.pack(">q", number) + chance.randbytes(chance.randrange(3000))
            try:
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._report)
                self.sent[partition] = number + 1
                self._producer.poll(0)
            except BufferError:  # the broker is away
                self._producer.poll(0.05)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop, with everything acknowledged."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert self._producer.flush(2 * WAIT_S) == 0
        assert self.errors == []


def number_of(value: bytes) -> int:
    number: int = struct.unpack_from(">q", value)[0]
    return number


class Commits:
    """A consumer group's member that commits all the time, and its last acknowledged commit."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, int] = {}
        self.attempts = 0
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.attempts += 1
            offsets = [TopicPartition(TOPIC, number, self.attempts) for number in range(PARTITIONS)]
            try:
                done = self._consumer.commit(offsets=offsets, asynchronous=False) or []
            except KafkaException:
                self._stop.wait(0.02)
                continue
            self.acknowledged.update({entry.partition: entry.offset for entry in done if entry.error is None})

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(2 * WAIT_S)
        assert not self._thread.is_alive()
        self._consumer.close()


def wait_for_progress(load: Load, commits: Commits, acknowledgements: int) -> None:
    goal = load.acknowledgements + acknowledgements
    committed = dict(commits.acknowledged)
    until(lambda: load.acknowledgements >= goal or bool(load.errors), f"{goal} acknowledgements")
    until(lambda: commits.acknowledged != committed, "a commit")
    assert load.errors == []


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Load, Commits]]:
    """The rounds themselves: afterwards the broker runs, started for the last time after a crash."""
    chance = random.Random(SEED)
    print(f"GREGOR_CRASH_SEED={SEED} GREGOR_CRASH_ROUNDS={ROUNDS}")
    server = BrokerProcess(tmp_path_factory.mktemp("crash"), SETTINGS).start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
        load, commits = Load(server.bootstrap), Commits(server.bootstrap)
        load.start()
        commits.start()
        for _ in range(ROUNDS):
            wait_for_progress(load, commits, chance.randrange(200, 8000))
            time.sleep(chance.random() * 0.02)  # any moment between two acknowledgements
            server.kill()
            if chance.random() < 0.4:  # and again while it recovers
                server.start(wait_until_ready=False)
                time.sleep(chance.random() * 0.4)
                server.kill()
            server.start()
        load.finish()
        commits.finish()
        yield server, load, commits
    finally:
        server.kill()


def stored(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """Partition -> (offset, running number) of every record, as a consumer reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ends = 0
    try:
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        while ends < PARTITIONS:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ends += 1
                    continue
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                found[partition].append((offset, number_of(value)))
    finally:
        consumer.close()
    return found


def test_records_after_crashes(aftermath: tuple[BrokerProcess, Load, Commits]) -> None:
    server, load, _ = aftermath
    found = stored(server.bootstrap)
    assert load.acknowledgements == sum(load.sent) > 200 * ROUNDS
    for partition in range(PARTITIONS):
        records = found[partition]
        assert [offset for offset, _ in records] == list(range(len(records))), "offsets without a gap"
        assert [number for _, number in records] == list(range(load.sent[partition])), "each record once, in order"
        found_at = {number: offset for offset, number in records}
        said = {number: offset for number, offset in load.acknowledged[partition].items() if offset != UNKNOWN}
        assert {number: found_at[number] for number in said} == said, "where it was said"


def test_committed_offsets_after_crashes(aftermath: tuple[BrokerProcess, Load, Commits]) -> None:
    server, _, commits = aftermath
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    # The admin client does not retry while the partitions of the restarted broker are without a leader.
    until(lambda: _is_described(admin, GROUP), "the coordinator is back")
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(WAIT_S)
    found = {entry.partition: entry.offset for entry in answer.topic_partitions}
    assert set(found) == set(commits.acknowledged) == set(range(PARTITIONS))
    for partition, offset in found.items():
        # The last attempt may have been written without its acknowledgement having arrived.
        assert commits.acknowledged[partition] <= offset <= commits.attempts


def segments(server: BrokerProcess, topic: str) -> list[pathlib.Path]:
    found = sorted((server.folder / "data").glob(f"{topic}-[0-9]*/*.log"))
    assert found
    return found


def check_indexes(log: pathlib.Path) -> int:
    """Compares a segment's indexes with its batches, read from the first to the last; returns their entries."""
    base_offset = int(log.stem)
    batches: dict[int, RecordBatch] = {}
    position, data = 0, log.read_bytes()
    latest: list[tuple[int, int]] = []  # after each batch: (its last offset, greatest timestamp so far)
    for batch in iter_batches(data):
        assert batch.crc_ok()
        batches[position] = batch
        position += batch.size_bytes
        latest.append((batch.last_offset, max(batch.max_timestamp, latest[-1][1] if latest else -1)))
    assert position == len(data), "a torn batch at the end"
    offsets = list(struct.iter_unpack(">ii", log.with_suffix(".index").read_bytes()))
    assert offsets == sorted(set(offsets))
    for relative, at in offsets:
        assert batches[at].base_offset <= base_offset + relative <= batches[at].last_offset
    times = list(struct.iter_unpack(">qi", log.with_suffix(".timeindex").read_bytes()))
    assert times == sorted(set(times))
    greatest = dict(latest)
    for timestamp, relative in times:
        assert greatest[base_offset + relative] == timestamp
    return len(offsets) + len(times)


def test_indexes_after_crashes(aftermath: tuple[BrokerProcess, Load, Commits]) -> None:
    server, _, _ = aftermath
    # A slow broker gets few large batches, each with one entry at most.
    for topic in (TOPIC, "__consumer_offsets"):
        assert sum(check_indexes(log) for log in segments(server, topic))


def test_a_group_goes_on_over_a_crash(tmp_path: pathlib.Path) -> None:
    server = BrokerProcess(tmp_path).start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("goes-on", 2, 1)])["goes-on"].result(WAIT_S)
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
        members = [Member(server.bootstrap, GROUP, "goes-on", **quick) for _ in range(2)]
        members[0].settled(members[1:], 1, 1)
        sent = assorted(40)
        told = [list(member.events) for member in members]
        for part in (sent[:20], sent[20:]):
            for partition in range(2):
                produce(server.bootstrap, "goes-on", part[partition::2], partition)
            goal = len(members[0].read) + 10
            for member in members:
                member.read_until(goal)
                member.commit()
            server.kill()
            server.start()
        for member in members:
            [partition] = member.owned
            assert as_sent(member.read) == sent[:20][partition::2] + sent[20:][partition::2], "each record once"
        # The generation is still the one of before: the coordinator knew its members again.
        assert [member.events for member in members] == told
        # The admin client does not retry while the partitions of the restarted broker are without a leader.
        until(lambda: _is_described(admin, GROUP), "the coordinator is back")
        described = admin.describe_consumer_groups([GROUP])[GROUP].result(WAIT_S)
        assert {entry.member_id for entry in described.members} == {member.consumer.memberid() for member in members}
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(WAIT_S)
        assert [entry.offset for entry in answer.topic_partitions] == [20, 20]
        for member in members:
            member.close()
    finally:
        server.kill()


def _is_described(admin: AdminClient, group: str) -> bool:
    try:
        admin.describe_consumer_groups([group])[group].result(WAIT_S)
    except KafkaException as error:
        passing = (
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError._TRANSPORT,
            KafkaError._TIMED_OUT,
        )
        assert error.args[0].code() in passing
        return False
    return True


@pytest.mark.jvm
def test_dump_log_after_crashes(aftermath: tuple[BrokerProcess, Load, Commits]) -> None:
    server, load, _ = aftermath
    assert server.stop() == 0  # the last test of this file: changes of the files at a clean end are checked with them
    files = segments(server, TOPIC)
    names = ",".join(map(str, files))
    tool = "org.apache.kafka.tools.DumpLogSegments"
    dumped = run_kafka_tool(tool, "--deep-iteration", "--skip-record-metadata", "--files", names)
    assert dumped.count("isvalid: true") > ROUNDS and "isvalid: false" not in dumped
    counts = [int(line.split(" count: ")[1].split()[0]) for line in dumped.splitlines() if " count: " in line]
    assert sum(counts) == sum(load.sent)
    for suffix in (".index", ".timeindex"):
        indexes = [str(log.with_suffix(suffix)) for log in files if log.with_suffix(suffix).stat().st_size]
        said = run_kafka_tool(tool, "--index-sanity-check", "--files", ",".join(indexes))
        assert said.count("passed sanity check") == len(indexes), said
