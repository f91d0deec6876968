"""Flink's Kafka connector with an exactly-once sink on three brokers: a job that is killed, and a broker under it.

`make flink` runs it alone. Flink commits a transaction after the checkpoint that contains it; a job that continues from
a checkpoint commits what was prepared, with the producer id and epoch of the killed one, and aborts the rest.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import until
from tests.support.fetching_clients import largest_lags
from tests.support.flink import FlinkJob, flink
from tests.support.gregor_cluster import REPLICATED, GregorCluster
from tests.support.processes import ROOT

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

PROGRAM = ROOT / "tests/compat/flink/job.py"
PARTITIONS = 2
RECORDS = 500
"""Of each part of the input."""
PATIENCE_S = 120
"""For each of four waits; a JVM with Flink starts within 20 s on a busy machine."""


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path / "cluster", overrides=REPLICATED) as running:
        yield running


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return all values; none while a leader moves."""
    consumer = reading(bootstrap, **{"isolation.level": isolation})
    try:
        found = [message for part in range(PARTITIONS) for message in read_to_end(consumer, topic, 0, part)]
    except (KafkaException, AssertionError):
        return []
    finally:
        consumer.close()
    return [message.value() or b"" for message in found]


class Input:
    """Numbered records, a part of them at a time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count = 0
        self._bootstrap = bootstrap
        self._topic = topic

    def write(self) -> None:
        # Without idempotence a record that is sent again to a new leader may be there twice.
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(self.count, self.count + RECORDS):
            producer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        self.count += RECORDS


def last_checkpoint(folder: pathlib.Path) -> pathlib.Path:
    """Return the newest complete checkpoint: those that are not lack their metadata."""
    found = sorted(folder.glob("*/chk-*/_metadata"), key=lambda path: int(path.parent.name.removeprefix("chk-")))
    return found[-1].parent


def test_each_input_is_committed_once(cluster: GregorCluster, tmp_path: pathlib.Path) -> None:
    bootstrap, checkpoints = cluster.bootstrap, tmp_path / "checkpoints"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in ("lines", "copies")]).values():
        future.result(PATIENCE_S)
    source = Input(bootstrap, "lines")
    source.write()
    arguments = [bootstrap, "lines", "copies", "copier", str(checkpoints), str(flink().connector)]
    with FlinkJob(PROGRAM, tmp_path) as job:

        def until_copied(count: int, isolation: str = "read_committed") -> None:
            def copied() -> bool:
                assert job.is_running(), f"the job ended:\n{job.log()}"
                return len(read(bootstrap, "copies", isolation)) >= count

            until(copied, f"{count} records with {isolation}\n{job.output}", PATIENCE_S)

        job.start(arguments)
        until_copied(source.count)
        nothing_unread = dict.fromkeys(range(PARTITIONS), 0)
        until(lambda: largest_lags(cluster.brokers.values(), "lines") == nothing_unread, "Flink's source has no lag")
        source.write()
        # They are written, and not yet committed but for some.
        until_copied(source.count, "read_uncommitted")
        job.kill()
        source.write()
        job.start([*arguments, str(last_checkpoint(checkpoints))])
        until_copied(source.count)
        # A job that fails with the broker starts again from its last checkpoint by itself.
        source.write()
        leader = cluster.until_led("copies")
        cluster.kill(leader)
        source.write()
        until_copied(source.count)
        cluster.start(leader)
        source.write()
        until_copied(source.count)
        found = Counter(read(bootstrap, "copies"))
    assert found == Counter(b"%d" % number for number in range(source.count))
