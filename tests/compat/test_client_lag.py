"""The lag of real clients that commit nothing: `/metrics` shows what they have not read yet."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.metrics.scraped import fetched, parsed
from tests.compat.records import WAIT_S, until
from tests.support.kafka import java_command
from tests.support.ports import free_port
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

RECORDS, READ = 20, 8
SIZE_BYTES = 100_000
"""Larger than a pipe holds: the console consumer waits for the reader of its output in each record."""
STEP_MS = 10_000
HELD = 3
"""Batches of one record that a client has fetched ahead of its application at most."""
ONE_BATCH = "1"
"""As a limit of bytes: a fetch gets one batch, whatever its size."""
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Filled:
    """A broker with a topic of one record in each batch, STEP_MS apart."""

    def __init__(self, broker: BrokerProcess, url: str) -> None:
        self.broker = broker
        self._url = url
        self._first_ms = int(time.time() * 1000) - 600_000
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce("t", b"v" * SIZE_BYTES, partition=0, timestamp=self._first_ms + number * STEP_MS)
            assert producer.flush(WAIT_S) == 0

    def until_lag(self, client_id: str, unread: int) -> None:
        """Until the lag is that of a client whose application has not read so many records, in seconds as well."""
        labels = f'{{client_id="{client_id}",topic="t",partition="0"}}'
        lag = lag_s = begin_s = 0.0

        def right() -> bool:
            nonlocal lag, lag_s, begin_s
            begin_s, page = time.time(), parsed(fetched(self._url)[2])
            lag = page.get(f"gregor_client_fetch_lag{labels}", -1)
            lag_s = page.get(f"gregor_client_fetch_lag_seconds{labels}", -1)
            return max(0, unread - HELD) <= lag <= unread

        until(right, f"the lag of {client_id}, which has not read {unread} records")
        age_s = begin_s - (self._first_ms + (RECORDS - lag) * STEP_MS) / 1000 if lag else 0.0
        assert age_s - 0.001 <= lag_s <= age_s + time.time() - begin_s + 0.001


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    address = f"127.0.0.1:{free_port()}"
    settings = {"gregor.metrics.listener": address}
    with BrokerProcess(tmp_path_factory.mktemp("lagging"), settings) as broker:
        yield Filled(broker, f"http://{address}/metrics")


def test_librdkafka_with_assign(filled: Filled) -> None:
    settings = {
        "bootstrap.servers": filled.broker.bootstrap,
        "client.id": "assigned",
        "group.id": "commits-nothing",
        "enable.auto.commit": "false",
        "fetch.message.max.bytes": ONE_BATCH,
        "queued.min.messages": "1",
        "fetch.queue.backoff.ms": "1",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("t", 0, 0)])
    for read in range(1, RECORDS + 1):
        message = consumer.poll(WAIT_S)
        assert message is not None and message.error() is None and message.offset() == read - 1
        if read == READ:
            filled.until_lag("assigned", RECORDS - READ)
    filled.until_lag("assigned", 0)
    consumer.close()


def test_java_console_consumer_without_commits(filled: Filled) -> None:
    place = ("--topic", "t", "--partition", "0", "--offset", "earliest")
    properties = ("client.id=console", "enable.auto.commit=false", f"max.partition.fetch.bytes={ONE_BATCH}")
    options = [word for one in properties for word in ("--command-property", one)]
    command = java_command(CONSOLE_CONSUMER, "--bootstrap-server", filled.broker.bootstrap, *place, *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as consumer:
        try:
            assert consumer.stdout is not None
            for read in range(1, RECORDS + 1):
                assert len(consumer.stdout.readline()) == SIZE_BYTES + 1
                if read == READ:
                    filled.until_lag("console", RECORDS - READ)
            filled.until_lag("console", 0)
        finally:
            consumer.kill()
