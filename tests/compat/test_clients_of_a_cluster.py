"""Python clients with their own implementation of the protocol, on three brokers.

They keep working when a leader is killed, when one stops as it should, and when it is back; no record is lost, and none
is there twice.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.cluster_load import WAIT_S, number_of, read_numbers
from tests.compat.records import until
from tests.support.gregor_cluster import GregorCluster

with warnings.catch_warnings():
    # Its import reads its schemas by a function that Python calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Partition

# Clients that lose their broker may leave a socket or a task to the garbage collector.
LEAKS = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.filterwarnings(LEAKS)]

PARTITIONS = 3
PAUSE_S = 0.02
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(PARTITIONS),
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """Hide the clients' log of each refused connection, and collect the objects that they leave."""
    loggers = [logging.getLogger(name) for name in ("kafka", "aiokafka")]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger in loggers:
        logger.setLevel(logging.NOTSET)
    gc.collect()


class Load(ABC):
    """Writes running numbers to each partition with idempotence, and reads them, in a thread, until `finish`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.servers = bootstrap.split(",")
        self.topic = topic
        self.sent = 0
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """For each partition: running number -> offset."""
        self.seen: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.failures: list[BaseException] = []
        self.ending, self.over = threading.Event(), threading.Event()
        self._thread = self.in_a_thread(self.work)

    @abstractmethod
    def work(self) -> None:
        """Send until `ending`, wait for the answers, and read until `over`."""

    def in_a_thread(self, work: Callable[[], None]) -> threading.Thread:
        """Started; its end by an error is one of the failures."""

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def next(self) -> tuple[int, bytes]:
        """The partition and the value of the next record."""
        self.sent += 1
        return (self.sent - 1) % PARTITIONS, struct.pack(">q", self.sent - 1)

    def goes_on(self) -> None:
        """Waits until records sent after this call are acknowledged and read, of each partition."""
        begin = self.sent

        def further() -> bool:
            assert self.failures == [] and self._thread.is_alive(), self.failures
            return all(max(known, default=-1) > begin for known in (*self.acknowledged, *self.seen))

        until(further, f"{self.topic}: records beyond {begin}", WAIT_S)

    def finish(self) -> None:
        """Everything sent is acknowledged and read."""
        self.ending.set()

        def complete() -> bool:
            assert self.failures == [] and self._thread.is_alive(), self.failures
            return sum(map(len, self.seen)) >= self.sent == sum(map(len, self.acknowledged))

        until(complete, f"{self.topic}: all of {self.sent} records", WAIT_S)
        self.end()
        assert not self._thread.is_alive() and self.failures == []

    def end(self) -> None:
        self.ending.set()
        self.over.set()
        self._thread.join(WAIT_S)

    def check_stored(self, bootstrap: str) -> None:
        """Each number once, in order, at the offset that its acknowledgement named."""
        for partition, records in enumerate(read_numbers(bootstrap, self.topic, PARTITIONS)):
            assert [number for _, number in records] == list(range(partition, self.sent, PARTITIONS))
            assert {number: offset for offset, number in records} == self.acknowledged[partition]


class KafkaPythonLoad(Load):
    """A load without a group: a member whose poll ends while it joins may consider itself joined until it is closed."""

    def work(self) -> None:
        reader = self.in_a_thread(self._read)
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            enable_idempotence=True,
            acks="all",
            linger_ms=5,
            delivery_timeout_ms=120_000,
        )
        while not self.ending.is_set():
            partition, value = self.next()
            future = producer.send(self.topic, value, partition=partition)
            future.add_callback(self._acknowledged, number_of(value))
            future.add_errback(self.failures.append)
            time.sleep(PAUSE_S)
        producer.flush(WAIT_S)
        reader.join()
        producer.close(5)

    def _acknowledged(self, number: int, where: Any) -> None:
        self.acknowledged[where.partition][number] = where.offset

    def _read(self) -> None:
        consumer = KafkaConsumer(bootstrap_servers=self.servers, auto_offset_reset="earliest")
        consumer.assign([Partition(self.topic, number) for number in range(PARTITIONS)])
        while not self.over.is_set():
            for partition, records in consumer.poll(timeout_ms=100).items():
                self.seen[partition.partition].update(number_of(record.value) for record in records)
        consumer.close()


class AiokafkaLoad(Load):
    """As the only member of a group."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        # The time for a request is its time for delivery, too.
        producer = AIOKafkaProducer(
            bootstrap_servers=self.servers, enable_idempotence=True, linger_ms=5, request_timeout_ms=120_000
        )
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=f"{self.topic}-readers",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )
        async with producer, consumer:
            reader = asyncio.create_task(self._read(consumer))
            answers = []
            while not self.ending.is_set():
                partition, value = self.next()
                answer = await producer.send(self.topic, value, partition=partition)
                answers.append(asyncio.create_task(self._acknowledged(number_of(value), answer)))
                await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*answers)
            await reader

    async def _acknowledged(self, number: int, answer: asyncio.Future[Any]) -> None:
        where = await answer
        self.acknowledged[where.partition][number] = where.offset

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        while not self.over.is_set():
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                self.seen[partition.partition].update(number_of(record.value or b"") for record in records)


def test_they_go_on(tmp_path: Path) -> None:
    kinds: list[Callable[[str, str], Load]] = [KafkaPythonLoad, AiokafkaLoad]
    with GregorCluster(tmp_path, overrides=SETTINGS) as cluster:
        names = ["kafka-python", "aiokafka"]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in names]).values():
            created.result(WAIT_S)
        loads = [kind(cluster.bootstrap, name) for kind, name in zip(kinds, names, strict=True)]
        try:
            everybody_goes_on(loads)
            for leave in (cluster.kill, cluster.stop):
                leader = cluster.until_led("kafka-python")
                leave(leader)
                everybody_goes_on(loads)
                cluster.start(leader)
                for name in (*names, "__consumer_offsets"):
                    for index in range(PARTITIONS):
                        cluster.until_isr(name, range(3), index)
                everybody_goes_on(loads)
            for load in loads:
                load.finish()
        finally:
            for load in loads:
                load.end()
        for load in loads:
            load.check_stored(cluster.bootstrap)


def everybody_goes_on(loads: list[Load]) -> None:
    for load in loads:
        load.goes_on()
