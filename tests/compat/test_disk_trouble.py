"""Full and failing disks under a running broker, with real producers and consumers: small volumes of the test's own."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.records import WAIT_S, until
from tests.support.processes import BrokerProcess
from tests.support.volumes import mounted

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

VALUE_BYTES = 20_000
VOLUME_BYTES = 48 * 1024 * 1024

Volume = Callable[[str], pathlib.Path]


@pytest.fixture
def volume(tmp_path: pathlib.Path) -> Iterator[Volume]:
    """Mounts a small tmpfs by name."""
    with contextlib.ExitStack() as stack:
        yield lambda name: stack.enter_context(mounted(tmp_path / name, VOLUME_BYTES))


class Load:
    """An idempotent producer that writes until it is stopped, and the acknowledged values by offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 50,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%08d" % number + bytes(VALUE_BYTES)
            try:
                self._producer.produce(self._topic, value, on_delivery=self._delivered)
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            self._stop.wait(0.005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        offset, value = message.offset(), message.value()
        if error is not None:
            self.errors.append(error)
        else:
            assert offset is not None and value is not None
            self.acknowledged[offset] = value[:8]

    def finish(self) -> None:
        """Waits for everything that is under way."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        assert self.errors == []


def read(bootstrap: str, topic: str, partition: int = 0) -> dict[int, bytes]:
    """The beginnings of all values, by offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    part = TopicPartition(topic, partition, 0)
    low, end = consumer.get_watermark_offsets(part, WAIT_S)
    part.offset = low
    consumer.assign([part])
    found: dict[int, bytes] = {}
    while low + len(found) < end:
        message = consumer.poll(WAIT_S)
        assert message is not None and message.error() is None
        offset, value = message.offset(), message.value()
        assert offset is not None and value is not None
        found[offset] = value[:8]
    consumer.close()
    return found


def create(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([topic])[name].result(WAIT_S)


def fill(folder: pathlib.Path) -> None:
    with (folder / "ballast").open("ab", buffering=0) as ballast:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while ballast.write(bytes(size)) == size:
                    continue


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_full_disk_loses_nothing(volume: Volume, tmp_path: pathlib.Path, end: str) -> None:
    disk = volume("disk")
    with BrokerProcess(tmp_path / "broker", {"log.dirs": str(disk / "data")}) as broker:
        create(broker.bootstrap, "full", 1)
        load = Load(broker.bootstrap, "full")
        until(lambda: len(load.acknowledged) > 100, "a beginning")
        fill(disk)
        until(lambda: "is full" in broker.log(), "a line about the full disk")
        told = dict(load.acknowledged)
        seen = read(broker.bootstrap, "full")
        assert len(seen) > 100
        assert told.items() <= seen.items(), "an acknowledged record is lost"
        if end == "stop":
            assert broker.stop() == 0
        else:
            broker.kill()
        broker.start()
        assert read(broker.bootstrap, "full").items() >= seen.items()
        before = len(load.acknowledged)
        (disk / "ballast").unlink()
        until(lambda: len(load.acknowledged) > before + 100, "writing to go on")
        load.finish()
        found = read(broker.bootstrap, "full")
        assert found == load.acknowledged
        assert sorted(found.values()) == [found[offset] for offset in sorted(found)], "out of order, or twice"
        assert "Traceback" not in broker.log()
    errors = [line for line in broker.log().splitlines() if " ERROR " in line]
    assert [line for line in errors if "is full" not in line] == []
    assert 1 <= len(errors) <= 4


def test_folders_that_go_away(tmp_path: pathlib.Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    away = [tmp_path / f"{folder.name}-away" for folder in folders]
    settings = {"log.dirs": ",".join(map(str, folders)), "replica.high.watermark.checkpoint.interval.ms": "100"}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        create(broker.bootstrap, "spread", 4)
        placed = {int(path.name[-1]): index for index in (0, 1) for path in folders[index].glob("spread-*")}
        assert sorted(placed.values()) == [0, 0, 1, 1]
        every = set(placed)

        def written(partitions: set[int], timeout_s: float = WAIT_S) -> set[int]:
            """Return the partitions, of these, that accept a record within that time."""
            timeout = {"message.timeout.ms": round(timeout_s * 1000)}
            producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **timeout})
            taken: set[int] = set()
            for index in partitions:
                producer.produce(
                    "spread",
                    b"x" * 100,
                    partition=index,
                    on_delivery=lambda error, _, index=index: error or taken.add(index),  # type: ignore[misc]
                )
            producer.flush(WAIT_S)
            return taken

        assert written(every) == every
        kept = {index for index, disk in placed.items() if disk == 0}
        folders[1].rename(away[1])
        until(lambda: f"{folders[1]} failed, its 2 partitions are offline" in broker.log(), "the line about it")
        assert written(kept) == kept
        assert written(every - kept, 2) == set()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

        def leaders() -> dict[int, int]:
            topic = admin.list_topics("spread", WAIT_S).topics["spread"]
            return {index: part.leader for index, part in topic.partitions.items()}

        until(lambda: leaders() == {index: 0 if index in kept else -1 for index in placed}, "leaderless partitions")
        assert all(len(read(broker.bootstrap, "spread", index)) == 2 for index in kept)
        assert broker.stop() == 0
        away[1].rename(folders[1])
        broker.start()
        until(lambda: set(leaders().values()) == {0}, "all partitions to be led again")
        assert written(every) == every
        for folder, other in zip(folders, away, strict=True):
            folder.rename(other)
        assert broker.process is not None
        assert broker.process.wait(WAIT_S) == 1
        assert "stopping: " in broker.log()
