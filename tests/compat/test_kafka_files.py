"""`gregor verify` and `gregor dump-log` on a data folder of Apache Kafka 3.9.1: in use, after a stop, after a kill -9.

Transactions, idempotent producers, every codec, compaction, deleted records, LogAppendTime: nothing of that is a
problem, and both tools print the same of it.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.cli import verify
from gregor.broker.cli.dump_log import command as dump_log
from tests.compat.records import CODECS, WAIT_S, until
from tests.storage.test_dump_log import DUMP
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

SMALL = {"retention.ms": "-1", "segment.bytes": "20000", "segment.index.bytes": "2000", "index.interval.bytes": "500"}
TOPICS = {
    "plain": SMALL,
    "stamped": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "300"},
}
ONE_REPLICA = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


def fill(bootstrap: str, chance: random.Random) -> None:
    for codec in CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "log_level": 0}
        producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
        for number in range(60):
            value = chance.randbytes(chance.randrange(300)) if number % 7 else None
            timestamp_ms = 1_700_000_000_000 + chance.randrange(10**6)
            for topic in TOPICS:
                producer.produce(topic, value, b"k%d" % chance.randrange(40), timestamp=timestamp_ms)
            if number % 10 == 0:
                producer.flush()
        assert producer.flush(WAIT_S) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        for topic in ("plain", "compacted"):
            producer.produce(topic, b"v%d" % number, b"k%d" % (number % 7))
        producer.flush(WAIT_S)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(WAIT_S)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """The data folder, and the reports of verify while it was in use, after a stop, and after a kill -9."""
    folder = tmp_path_factory.mktemp("kafka-files")
    data = folder / "data"
    data.mkdir()
    chance = random.Random(1)
    kafka = ApacheKafka(folder, data, None, 1, ONE_REPLICA)
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()])
        for future in made.values():
            future.result(WAIT_S)
        fill(kafka.bootstrap, chance)
        (deleted,) = admin.delete_records([TopicPartition("plain", 0, 33)]).values()
        deleted.result(WAIT_S)
        until(lambda: any(data.glob("compacted-0/*.deleted")), "a compaction")
        said = [verified(data)]
        kafka.stop()
        said.append(verified(data))
        kafka = ApacheKafka(folder, data, None, 2, ONE_REPLICA)
        fill(kafka.bootstrap, chance)
    finally:
        kafka.kill()
    said.append(verified(data))
    yield data, said


def verified(data: Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        verify.main([str(data), "--deep-iteration"])
    return out.getvalue()


@pytest.mark.parametrize("when", ["in use", "after a stop", "after a kill"])
def test_verify(folders: tuple[Path, list[str]], when: str) -> None:
    said = folders[1][["in use", "after a stop", "after a kill"].index(when)]
    assert said.splitlines()[-1].endswith("no problems."), said
    assert ("in use by a running broker" in said) == (when == "in use")
    assert ("was not closed cleanly" in said) == (when == "after a kill")


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", ".txnindex"])
def test_dump_log(folders: tuple[Path, list[str]], kafka_tools: KafkaTools, suffix: str) -> None:
    data, _ = folders
    names = [str(path) for name in TOPICS for path in sorted((data / f"{name}-0").glob(f"*{suffix}"))]
    assert names, f"Apache Kafka wrote no file *{suffix}"
    arguments = ["--files", ",".join(names), *(["--print-data-log"] if suffix == ".log" else [])]
    theirs = kafka_tools.run(DUMP, *arguments)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        dump_log.main(arguments)
    assert out.getvalue().splitlines() == theirs.out.splitlines()
    assert out.getvalue().count("\n") >= len(names)


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools
