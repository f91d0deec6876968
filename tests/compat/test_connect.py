"""Kafka Connect 4.3.1, distributed, on three brokers: two workers from two property files, controlled by curl, carry
lines of a file to a topic and on to another file; they stop and are killed, and a broker is killed under them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.compat.transaction_version import upgrade_feature
from tests.support.connect import Worker
from tests.support.gregor_cluster import REPLICATED, GregorCluster
from tests.support.ports import preferred_port
from tests.support.repeating import repeating

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(1)]

PATIENCE_S = 240
# The source keeps whole lines of its buffer of 1024 characters back when a batch is full and the file is at its end.
SIZE = 1500
PAUSE_S = 0.04
"""A worker with a transaction for each two lines keeps up with it, also where one needs a tenth of a second."""
REST_PORTS = (8083, 8084)
"""Of the two workers, where they are free."""
TOPIC = "connect-test"
SOURCE, SINK = "local-file-source", "local-file-sink"
POST = "curl -X POST -H \"Content-Type: application/json\" --data '{data}' http://localhost:PORT/connectors"
PUT = "curl -X PUT -H \"Content-Type: application/json\" --data '{data}' http://localhost:PORT/connectors/{name}/config"
STATUS = "curl http://localhost:PORT/connectors/{name}/status"
DELETE = "curl -X DELETE http://localhost:PORT/connectors/{name}"


class Lines:
    """Numbered lines of a source's file, and of the topic that they are copied to."""

    def __init__(self, path: pathlib.Path, bootstrap: str) -> None:
        self.written: list[str] = []
        self._path = path
        self._bootstrap = bootstrap
        path.touch()

    def write(self, count: int, size: int = 0) -> None:
        new = [f"line {len(self.written) + number} ".ljust(size, "x") for number in range(count)]
        self.written += new
        with self._path.open("a") as source:
            source.write("".join(f"{line}\n" for line in new))

    def growing(self) -> AbstractContextManager[None]:
        """Append lines without an end, until the block ends: whatever the worker's speed, it is never done before."""
        return repeating(lambda: self.write(1, SIZE), PAUSE_S)

    def in_topic(self) -> list[str]:
        """Return the committed lines of the topic."""
        consumer = reading(self._bootstrap, **{"isolation.level": "read_committed"})
        try:
            return [json.loads(message.value() or b"")["payload"] for message in read_to_end(consumer, TOPIC, 0)]
        finally:
            consumer.close()

    def until_in_topic(self, count: int, worker: Worker) -> None:
        until(lambda: len(self.in_topic()) >= count, f"{count} lines in the topic\n{worker.log()}", PATIENCE_S)


def lines_of(path: pathlib.Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def post(worker: Worker, name: str, config: Mapping[str, str]) -> None:
    worker.curl(POST.format(data=json.dumps({"name": name, "config": config})), 201)


def configs_of_source(**more: str) -> dict[str, str]:
    config = {"connector.class": "FileStreamSourceConnector", "tasks.max": "1", "file": "test.txt", "topic": TOPIC}
    return {**config, **more}


@pytest.fixture(scope="module")
def rest_ports() -> list[int]:
    return [preferred_port(port) for port in REST_PORTS]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path / "cluster", overrides=REPLICATED) as running:
        admin = admin_of(running)
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(WAIT_S)
        yield running


def admin_of(cluster: GregorCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def start_workers(
    cluster: GregorCluster, stack: ExitStack, folder: pathlib.Path, ports: list[int], **overrides: str
) -> list[Worker]:
    settings = {key.replace("_", "."): value for key, value in overrides.items()}
    names = [f"connect-distributed-{number}" for number in (1, 2)]
    workers = [
        Worker(folder, name, cluster.bootstrap, "connect-cluster", port, settings)
        for name, port in zip(names, ports, strict=True)
    ]
    for worker in workers:
        stack.enter_context(worker)
    for worker in workers:
        worker.until_ready()
    return workers


def test_two_workers_carry_lines_and_one_takes_over(
    cluster: GregorCluster, tmp_path: pathlib.Path, rest_ports: list[int], stack: ExitStack
) -> None:
    """The consumer of the sink uses the new group protocol (KIP-848)."""
    upgrade_feature(cluster.bootstrap, "group.version", 1)
    lines = Lines(tmp_path / "test.txt", cluster.bootstrap)
    workers = start_workers(cluster, stack, tmp_path, rest_ports)
    sink = {"connector.class": "FileStreamSinkConnector", "tasks.max": "1", "file": "test.sink.txt", "topics": TOPIC}
    sink["consumer.override.group.protocol"] = "consumer"

    def until_through(worker: Worker, file: str, before: str | None = None) -> None:
        """Wait for the last line; each is in the topic once, and once in the file, or before in the one that the sink
        wrote before, in order. The task that writes to that one may still run when the new file is set."""
        path, last = tmp_path / file, lines.written[-1]
        until(lambda: last in lines_of(path), f"the last line in {file}\n{worker.log()}", PATIENCE_S)
        assert lines.in_topic() == lines.written
        assert (lines_of(tmp_path / before) if before else []) + lines_of(path) == lines.written

    lines.write(50)
    post(workers[0], SOURCE, configs_of_source())
    post(workers[1], SINK, sink)
    until_through(workers[0], "test.sink.txt")
    for worker in workers:
        assert sorted(worker.curl("curl http://localhost:PORT/connectors", 200)) == [SINK, SOURCE]
    admin = admin_of(cluster)
    groups = {one.group_id: one.type for one in admin.list_consumer_groups().result(WAIT_S).valid}
    assert groups[f"connect-{SINK}"] == ConsumerGroupType.CONSUMER
    topics = admin.list_topics(timeout=WAIT_S).topics
    for name in (f"connect-cluster-{kind}" for kind in ("config", "offset", "status")):
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        assert admin.describe_configs([resource])[resource].result(WAIT_S)["cleanup.policy"].value == "compact"
        assert all(len(part.replicas) == 3 for part in topics[name].partitions.values())

    workers[1].curl(PUT.format(name=SINK, data=json.dumps({**sink, "file": "test.sink-2.txt"})), 200)
    workers[1].until_tasks_run(SINK)
    lines.write(50)
    until_through(workers[1], "test.sink-2.txt", "test.sink.txt")
    holder = workers[0].until_tasks_run(SOURCE)
    stopped, other = sorted(workers, key=lambda worker: worker.worker_id != holder)
    stopped.stop()
    lines.write(50)
    other.until_tasks_run(SOURCE, other)
    other.until_tasks_run(SINK, other)
    until_through(other, "test.sink-2.txt", "test.sink.txt")
    stopped.start()
    stopped.until_tasks_run(SOURCE)
    stopped.until_tasks_run(SINK)
    lines.write(50)
    until_through(stopped, "test.sink-2.txt", "test.sink.txt")
    for name in (SOURCE, SINK):
        stopped.curl(DELETE.format(name=name), 204)
    for worker in workers:
        until(lambda worker=worker: worker.curl("curl http://localhost:PORT/connectors", 200) == [], "no connectors")  # type: ignore[misc]


def test_killed_workers_and_brokers_write_each_line_once(
    cluster: GregorCluster, tmp_path: pathlib.Path, rest_ports: list[int], stack: ExitStack
) -> None:
    """With exactly.once.source.support, lines and the position in the file are in the same transaction."""
    lines = Lines(tmp_path / "test.txt", cluster.bootstrap)
    workers = start_workers(cluster, stack, tmp_path, rest_ports, exactly_once_source_support="enabled")
    post(workers[0], SOURCE, configs_of_source(**{"exactly.once.support": "required", "batch.size": "2"}))
    worker = workers[0]
    with lines.growing():
        lines.until_in_topic(1, worker)
        for _ in range(2):
            holder = worker.until_tasks_run(SOURCE)
            killed, worker = sorted(workers, key=lambda worker: worker.worker_id != holder)
            before = len(lines.in_topic())
            killed.kill()
            worker.until_tasks_run(SOURCE, worker)
            lines.until_in_topic(before + 1, worker)
            killed.start()
            killed.until_ready()
        leader = cluster.until_led(TOPIC)
        cluster.kill(leader)
        cluster.until_led(TOPIC, not_by=leader)
        before = len(lines.in_topic())
        lines.until_in_topic(before + 1, worker)
        cluster.start(leader)
    worker.until_tasks_run(SOURCE)
    lines.until_in_topic(len(lines.written), worker)
    assert lines.in_topic() == lines.written
