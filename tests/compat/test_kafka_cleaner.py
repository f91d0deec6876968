"""Apache Kafka 4.3.1's cleaner and ours over the same segments, transactions included: the same bytes stay."""

from __future__ import annotations

import pathlib
import random
import shutil
import time

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from gregor.config.broker import BrokerConfig
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.log import Log
from tests.compat.records import WAIT_S, until
from tests.storage.compacting import all_batches, compact
from tests.storage.logs import log_config
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import free_port

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

FILE = (
    SINGLE_NODE
    + """\
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.cleaner.backoff.ms=100
"""
)
TOPIC = "table"


def write(bootstrap: str) -> None:
    """Plain, idempotent and transactional producers in turn, over several segments (segment.ms)."""
    rng = random.Random(11)

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error

    def send(producer: Producer, count: int, keys: int) -> None:
        for _ in range(count):
            value = rng.randbytes(rng.randrange(1, 60))
            producer.produce(TOPIC, value, b"key-%d" % rng.randrange(keys), on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 7, "acks": "all"}
    plain, idempotent = Producer(settings), Producer({**settings, "enable.idempotence": True})
    transactional = [Producer({**settings, "transactional.id": name}) for name in ("one", "two")]
    for producer in transactional:
        producer.init_transactions(WAIT_S)
    for turn in range(12):
        send(plain, 20, 30)
        send(idempotent, 20, 30)
        for number, producer in enumerate(transactional):
            producer.begin_transaction()
            send(producer, 10, 30)
            if (turn + number) % 2:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        time.sleep(0.1)
    # Nothing stays of the last batches of some producers.
    for number in range(20):
        plain.produce(TOPIC, b"last", b"key-%d" % number, on_delivery=delivered)
    assert plain.flush(WAIT_S) == 0
    time.sleep(0.2)
    send(plain, 1, 1)  # this one begins a segment


def bases(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def opened(folder: pathlib.Path) -> Log:
    """Open a copy of the log with our log manager; the copy is like one after a crash."""
    config = log_config(cleanup_policy=frozenset(["compact"]))
    manager = LogManager(BrokerConfig({"log.dirs": str(folder)}), OsFiles(), lambda: int(time.time() * 1000))
    (log,) = [one for one in manager.load(lambda topic: config) if one is not None]
    log.offsets.restore_high_watermark(log.log_end_offset)
    return log


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path, Log]:
    """Return the partition as Apache Kafka compacted it, our compaction of a copy, and our log."""
    folder, port, controller = tmp_path_factory.mktemp("kafka"), free_port(), free_port()
    file = folder / "server.properties"
    file.write_text(FILE.format(port=port, controller=controller, folder=folder))
    theirs, before = folder / f"data/{TOPIC}-0", folder / f"before/{TOPIC}-0"
    with KafkaPeer(file, port):
        bootstrap = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "segment.ms": "150"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(WAIT_S)
        write(bootstrap)
        shutil.copytree(theirs, before)
        active = bases(before)[-1]
        due = ConfigEntry("min.cleanable.dirty.ratio", "0", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[due])
        admin.incremental_alter_configs([changed])[changed].result(WAIT_S)
        checkpoint = folder / "data/cleaner-offset-checkpoint"
        until(lambda: f"{TOPIC} 0 {active}" in checkpoint.read_text(), "Apache Kafka's cleaner")
        after = folder / f"after/{TOPIC}-0"
        shutil.copytree(theirs, after, ignore=shutil.ignore_patterns("*.deleted"))
    log = opened(before.parent)
    assert log.segments[-1].base_offset == active
    compact(OsFiles(), log, int(time.time() * 1000))
    return after, before, log


def test_the_segments_are_the_same(compacted: tuple[pathlib.Path, pathlib.Path, Log]) -> None:
    theirs, ours, _ = compacted
    assert bases(ours) == bases(theirs)
    assert len(bases(ours)) == 2, "all of them have become one, before the active one"
    for suffix in ("log", "txnindex", "index", "timeindex"):
        assert (ours / f"{0:020d}.{suffix}").read_bytes() == (theirs / f"{0:020d}.{suffix}").read_bytes(), suffix
    assert (ours / f"{0:020d}.txnindex").stat().st_size > 0, "aborted transactions were there"


def test_what_is_read_is_the_same(compacted: tuple[pathlib.Path, pathlib.Path, Log]) -> None:
    """Empty batches and markers were among it."""
    batches = all_batches(compacted[2])
    assert any(batch.is_control for batch in batches)
    assert any(not batch.record_count for batch in batches)
    data = [record.key for batch in batches if not batch.is_control for record in batch.records()]
    assert len(data) == len(set(data)) + 1, "of each key one record, and the one in the active segment"
