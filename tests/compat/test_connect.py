"""Kafka Connect 4.3.1, distributed: lines of a file to a topic and on to another file, with workers that stop."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.support.connect import Worker

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

PATIENCE_S = 240
# The source keeps whole lines of its buffer of 1024 characters back when a batch is full and the file is at its end.
SIZE = 1500
PAUSE_S = 0.04
"""A worker with a transaction for each two lines keeps up with it, also where one needs a tenth of a second."""
FILE = "org.apache.kafka.connect.file.FileStream"

Unique = Callable[[str], str]


class Way:
    """A file, the topic with its lines, and the file that these are written to."""

    def __init__(self, folder: pathlib.Path, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.source = folder / "source.txt"
        self.sink = folder / "sink.txt"
        self.lines: list[str] = []
        # The name of a sink is in that of its group, in which a killed worker stays for a while.
        self.source_name = f"{topic}-source"
        self.sink_name = f"{topic}-sink"
        self._bootstrap = bootstrap
        self.source.touch()

    def write(self, count: int, size: int = 0) -> None:
        new = [f"line {len(self.lines) + number} ".ljust(size, "x") for number in range(count)]
        self.lines += new
        with self.source.open("a") as source:
            source.write("".join(f"{line}\n" for line in new))

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Append lines without an end, until the block ends: whatever the worker's speed, it is never done before."""
        ended = threading.Event()

        def grow() -> None:
            while not ended.wait(PAUSE_S):
                self.write(1, SIZE)

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()

    def set_up_source(self, worker: Worker, **settings: str) -> None:
        config = {"connector.class": f"{FILE}SourceConnector", "tasks.max": "1", "file": str(self.source)}
        worker.put_connector(self.source_name, {**config, "topic": self.topic, **settings})

    def set_up(self, worker: Worker, **sink: str) -> None:
        self.set_up_source(worker)
        config = {"connector.class": f"{FILE}SinkConnector", "tasks.max": "1", "file": str(self.sink)}
        worker.put_connector(self.sink_name, {**config, "topics": self.topic, **sink})

    def in_topic(self) -> list[str]:
        """Return the committed lines of the topic."""
        consumer = reading(self._bootstrap, **{"isolation.level": "read_committed"})
        try:
            return [(message.value() or b"").decode() for message in read_to_end(consumer, self.topic, 0)]
        finally:
            consumer.close()

    def in_sink(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def until_in_topic(self, count: int, worker: Worker) -> None:
        until(lambda: len(self.in_topic()) >= count, f"{count} lines in the topic\n{worker.log()}", PATIENCE_S)

    def until_through(self, worker: Worker) -> None:
        """Wait for the last line; each is in the topic and in the sink once, in order."""
        until(lambda: self.lines[-1] in self.in_sink(), f"the last line in the sink\n{worker.log()}", PATIENCE_S)
        assert self.in_topic() == self.lines
        assert self.in_sink() == self.lines


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def way(tmp_path: pathlib.Path, bootstrap: str, new_topic: Callable[..., str]) -> Way:
    return Way(tmp_path, bootstrap, new_topic())


def test_worker_continues_where_it_stopped(
    way: Way, bootstrap: str, unique: Unique, admin: AdminClient, tmp_path: pathlib.Path, stack: ExitStack
) -> None:
    """The consumer of the sink uses the new group protocol (KIP-848)."""
    group = unique("connect")
    worker = Worker(tmp_path, "one", bootstrap, group)
    stack.enter_context(worker)
    way.set_up(worker, **{"consumer.override.group.protocol": "consumer"})
    way.write(50)
    way.until_through(worker)
    groups = {one.group_id: one.type for one in admin.list_consumer_groups().result(WAIT_S).valid}
    assert groups[f"connect-{way.sink_name}"] == ConsumerGroupType.CONSUMER
    for kind in ("config", "offset", "status"):
        resource = ConfigResource(ConfigResource.Type.TOPIC, f"{group}-{kind}")
        settings = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert settings["cleanup.policy"].value == "compact"
    worker.stop()
    way.write(50)
    worker.start()
    worker.until_tasks_run(way.source_name)
    worker.until_tasks_run(way.sink_name)
    way.until_through(worker)


def test_other_worker_takes_over(
    way: Way, bootstrap: str, unique: Unique, tmp_path: pathlib.Path, stack: ExitStack
) -> None:
    group = unique("connect")
    workers = [Worker(tmp_path, name, bootstrap, group) for name in ("one", "two")]
    for worker in workers:
        stack.enter_context(worker)
    for worker in workers:
        worker.until_ready()
    way.set_up(workers[0])
    way.write(50)
    way.until_through(workers[0])
    holder = workers[0].until_tasks_run(way.source_name)
    stopped, other = sorted(workers, key=lambda worker: worker.worker_id != holder)
    stopped.stop()
    way.write(50)
    other.until_tasks_run(way.source_name, other)
    other.until_tasks_run(way.sink_name, other)
    way.until_through(other)


def test_killed_worker_writes_each_line_once(
    way: Way, bootstrap: str, unique: Unique, tmp_path: pathlib.Path, stack: ExitStack
) -> None:
    """With exactly.once.source.support, lines and the position in the file are in the same transaction."""
    worker = Worker(tmp_path, "one", bootstrap, unique("connect"), {"exactly.once.source.support": "enabled"})
    stack.enter_context(worker)
    way.set_up_source(worker, **{"exactly.once.support": "required", "batch.size": "2"})
    with way.growing():
        for _ in range(2):
            before = len(way.in_topic())
            way.until_in_topic(before + 1, worker)
            worker.kill()
            worker.start()
    worker.until_tasks_run(way.source_name)
    way.until_in_topic(len(way.lines), worker)
    assert way.in_topic() == way.lines
