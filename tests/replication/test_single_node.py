"""A cluster of one, wired as the broker wires it: real store, real logs, the controller, the admin calls."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.config.listeners import Listener
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse
from gregor.protocol.records.batch import build_batch
from gregor.protocol.turns import run_all
from gregor.replication.admin.config_changes import ConfigChange, ConfigOperation
from gregor.replication.admin.configs import incremental, replacement
from gregor.replication.admin.controller_wait import NOTIFIED_WITHIN_MS
from gregor.replication.admin.topics import TOPICS_AT_ONCE, Admin, CreatedTopic, NewTopic
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.store import nodes
from gregor.replication.store.adoption import adopt
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import Create, Delete
from gregor.replication.store.nodes import BrokerRegistration
from gregor.replication.store.registration import announce_disk_event, join_cluster, make_persistent_nodes, register
from gregor.replication.store.topic_configs import TopicConfigs
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.files import OsFiles
from tests.replication.fakes import on_loop


def clock_ms() -> int:
    return int(time.time() * 1000)


class Node:
    """The parts, started in the order in which they need each other."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.config = BrokerConfig({"log.dirs": str(folder), **settings})
        self.store = EmbeddedStore(str(folder / FILE_NAME))
        self.logs = LogManager(self.config, OsFiles(), clock_ms)
        self.image = MetadataImage()
        self.removed: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def start(self) -> None:
        gate = LoopGate()
        self.logs.lock()
        await self.store.start()
        await make_persistent_nodes(self.store)
        self.cluster_id = await join_cluster(self.store, self.logs.load_meta(None, None))
        self.logs.load_meta(self.cluster_id, 0)
        self.configs = TopicConfigs(self.store, self.config, 0, self.spawn, clock_ms, gate)
        await self.configs.start()
        list(self.logs.load())
        self.adopted = await adopt(self.store, 0, self.logs.logs.values(), gate)
        self.replicas = ReplicaManager(
            0,
            self.logs,
            self.configs.log_config,
            clock_ms,
            is_alive=self.image.is_alive,
            folder_removed=self.removed.append,
        )
        self.configs.on_topics_changed.append(self.replicas.settings_changed)
        local = ControllerRequestHandler(self.replicas, self.image, self.configs, gate)
        endpoint = Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
        local.registered(await register(self.store, BrokerRegistration(0, (endpoint,), timestamp_ms=clock_ms())))
        self.controller = ControllerLoop(
            0, self.store, local, self.configs, clock_ms, gate, delete_topics=self.config["delete.topic.enable"]
        )
        await self.controller.start()
        self.admin = Admin(self.store, self.config, 0, self.controller, self.image, self.configs, gate)

    async def stop(self) -> None:
        await self.controller.stop()
        await self.store.close()
        self.logs.close_all()
        self.logs.unlock()


@asynccontextmanager
async def node(folder: Path, **settings: str) -> AsyncIterator[Node]:
    running = Node(folder, {key.replace("_", "."): value for key, value in settings.items()})
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def batch() -> bytearray:
    return build_batch([(b"k", b"v")], timestamp_ms=clock_ms())


@on_loop
async def test_from_nothing_to_a_record_and_back_after_a_restart(tmp_path: Path) -> None:
    async with node(tmp_path) as first:
        assert (first.image.controller_id, list(first.image.brokers)) == (0, [0])
        created = await first.admin.create_topic("t", 3, 1, {"retention.ms": "60000"})
        partition = first.replicas.get("t", 1)
        assert partition is not None and partition.is_leader and partition.log is not None
        assert partition is first.replicas.get_by_id(created.topic_id, 1)
        assert partition.log.config.retention_ms == 60000
        assert partition.append(batch(), clock_ms(), -1).last_offset == 0
        assert partition.high_watermark == 1
        cluster_id = first.cluster_id
    async with node(tmp_path) as second:
        topic = second.image.topic("t")
        assert topic is not None and topic.topic_id == created.topic_id
        assert second.cluster_id == cluster_id
        partition = second.replicas.get("t", 1)
        assert partition is not None and partition.log is not None
        assert (partition.high_watermark, partition.leader_epoch, partition.log.config.retention_ms) == (1, 0, 60000)
        assert second.controller.cluster is not None and second.controller.cluster.epoch == 2
        assert second.adopted == []


@on_loop
async def test_the_nodes_are_those_of_apache_kafka(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        created = await running.admin.create_topic("demo", 1, 1, {"retention.ms": "60000"})
        await running.admin.settings.alter("brokers", "", replacement({"log.cleaner.threads": "1"}))

        async def text(path: str) -> tuple[str, int]:
            found = await running.store.get(path)
            assert found is not None
            return found[0].decode(), found[1].version

        assert await text("/controller_epoch") == ("1", 1)
        assert (await text("/brokers/ids/0"))[1] == 1
        assert (await text("/brokers/topics/demo"))[0].startswith('{"partitions":{"0":[0]},"topic_id":"')
        state = '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
        assert await text("/brokers/topics/demo/partitions/0/state") == (state, 0)
        assert await text("/config/topics/demo") == ('{"version":1,"config":{"retention.ms":"60000"}}', 0)
        change = '{"version":2,"entity_path":"brokers/<default>"}'
        assert await text("/config/changes/config_change_0000000000") == (change, 0)
        assert await text("/feature") == ('{"features":{},"version":2,"status":1}', 0)
        for path in nodes.PERSISTENT_PATHS:
            assert await running.store.exists(path) is not None
        assert created.partitions == 1


@on_loop
async def test_delete_removes_everything_and_the_name_is_free_again(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        first = await running.admin.create_topic("t", 2)
        generation = running.replicas.generation
        gone, unknown = await running.admin.delete_topics(["t", "none"])
        assert gone is None and unknown is not None
        assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert running.replicas.generation > generation
        assert running.replicas.get("t", 0) is None
        assert running.image.topic("t") is None
        assert len(running.removed) == 2
        for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
            assert await running.store.exists(path) is None
        second = await running.admin.create_topic("t", 1)
        assert second.topic_id != first.topic_id
        assert running.replicas.get("t", 0) is not None


@on_loop
async def test_topics_of_one_request_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(TOPICS_AT_ONCE)]
    commits: list[float] = []

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
            if statement == "COMMIT":
                commits.append(time.monotonic())
                time.sleep(0.02)  # a slow disk
            return super().execute(statement, *arguments)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    async with node(tmp_path) as single:
        commits.clear()
        created = await single.admin.create_topics([NewTopic(name, 1) for name in names])
        assert [topic.name for topic in created if isinstance(topic, CreatedTopic)] == names
        assert len(commits) < 10
        commits.clear()
        assert await single.admin.delete_topics(names) == [None] * len(names)
        # The controller removes the nodes of one topic after another; the requests for it are a commit or two.
        assert len(commits) < 1.5 * len(names)


@on_loop
async def test_names_of_one_request_that_collide(tmp_path: Path) -> None:
    async with node(tmp_path) as single:
        results = await single.admin.create_topics([NewTopic(name, 1) for name in ("a.b", "c", "a_b", "a.b")])
        assert [result.code if isinstance(result, KafkaError) else result.name for result in results] == [
            "a.b",
            "c",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ]


@on_loop
async def test_partitions_are_added(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        created = await running.admin.create_topic("t", 1)
        await running.admin.create_partitions("t", 3, validate_only=True)
        assert running.replicas.get("t", 1) is None
        await running.admin.create_partitions("t", 3)
        assert [running.replicas.get("t", index) is not None for index in range(4)] == [True, True, True, False]
        topic = running.image.topic("t")
        assert topic is not None and (topic.topic_id, sorted(topic.partitions)) == (created.topic_id, [0, 1, 2])


@on_loop
async def test_altered_settings_are_in_effect_at_once(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        await running.admin.create_topic("t")
        partition = running.replicas.get("t", 0)
        assert partition is not None and partition.log is not None

        async def alter(name: str, changes: list[ConfigChange], *, validate_only: bool = False) -> None:
            edit = incremental(changes, TOPIC_KEYS)
            await running.admin.settings.alter("topics", name, edit, validate_only=validate_only)

        await alter("t", [ConfigChange("retention.ms", ConfigOperation.SET, "5")], validate_only=True)
        assert partition.log.config.retention_ms == 604_800_000
        await alter("t", [ConfigChange("retention.ms", ConfigOperation.SET, "5")])
        await alter("t", [ConfigChange("cleanup.policy", ConfigOperation.APPEND, "compact")])
        assert partition.log.config.retention_ms == 5
        assert partition.log.config.cleanup_policy == {"delete", "compact"}
        assert running.configs.overrides("t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        await running.admin.settings.alter("brokers", "", replacement({"log.segment.bytes": "1048576"}))
        assert partition.log.config.segment_bytes == 1_048_576
        await alter("t", [ConfigChange("retention.ms", ConfigOperation.DELETE)])
        assert partition.log.config.retention_ms == 604_800_000


@on_loop
async def test_a_topic_made_by_an_old_tool_is_served(tmp_path: Path) -> None:
    """kafka-topics --zookeeper writes the settings, then the assignment without a topic id, and nothing else."""
    async with node(tmp_path) as running:
        await running.store.create("/config/topics/old", b'{"version":1,"config":{"retention.ms":"7"}}')
        await running.store.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[0]}}')
        assert await running.controller.wait_until(lambda: running.image.topic("old") is not None, 30_000)
        partition = running.replicas.get("old", 0)
        assert partition is not None and partition.log is not None and partition.log.config.retention_ms == 7
        topic_id = partition.topic_id
        assert topic_id != bytes(16)
        await running.store.set("/brokers/topics/old", b'{"version":1,"partitions":{"0":[0],"1":[0]}}')
        assert await running.controller.wait_until(lambda: running.image.partition_count("old") == 2, 30_000)
        found = await running.store.get("/brokers/topics/old")
        assert found is not None and run_all(nodes.decode_topic("old", found[0])).topic_id == topic_id
        await running.store.create("/admin/delete_topics/old")
        await running.store.create("/admin/delete_topics/none")
        assert await running.controller.wait_until(lambda: running.image.topic("old") is None, 30_000)
        await running.controller.until_idle(30_000)
        assert await running.store.children("/admin/delete_topics") == []


@on_loop
async def test_folders_without_metadata_become_topics(tmp_path: Path) -> None:
    async with node(tmp_path) as first:
        created = await first.admin.create_topic("t", 2)
        for index in (0, 1):
            partition = first.replicas.get("t", index)
            assert partition is not None
            partition.append(batch(), clock_ms(), -1)
    for name in (FILE_NAME, "gregor-metadata.sqlite-wal"):
        (tmp_path / name).unlink(missing_ok=True)
    async with node(tmp_path) as second:
        assert second.adopted == [("t", 0), ("t", 1)]
        partition = second.replicas.get("t", 1)
        assert partition is not None and partition.is_leader
        assert (partition.high_watermark, partition.leader_epoch, partition.topic_id) == (1, 0, created.topic_id)
        topic = second.image.topic("t")
        assert topic is not None and topic.topic_id == created.topic_id


@on_loop
async def test_a_failed_disk_takes_its_partitions_offline_and_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path) as running:
        real = running.logs.get_or_create

        def failing(topic: str, partition: int, *rest: Any, **options: Any) -> Any:
            if partition == 1:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
            return real(topic, partition, *rest, **options)

        monkeypatch.setattr(running.logs, "get_or_create", failing)
        await running.admin.create_topic("t", 3)
        await running.controller.until_idle(30_000)
        topic = running.image.topic("t")
        assert topic is not None
        assert {index: state.leader for index, state in topic.partitions.items()} == {0: 0, 1: -1, 2: 0}
        assert topic.partitions[1].offline_replicas == [0]
        # There is room again, and the broker reports it.
        monkeypatch.setattr(running.logs, "get_or_create", real)
        await announce_disk_event(running.store, 0)
        await running.controller.wait_until(lambda: running.image.topic("t").partitions[1].leader == 0, 30_000)  # type: ignore[union-attr]
        assert running.image.topic("t").partitions[1].offline_replicas == []  # type: ignore[union-attr]
        assert await running.store.children(nodes.LOG_DIR_EVENTS) == []


@on_loop
async def test_refusals(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        admin = running.admin
        await admin.create_topic("a.b")
        new: list[tuple[NewTopic, ErrorCode]] = [
            (NewTopic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
            (NewTopic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic("x", partitions=0), ErrorCode.INVALID_PARTITIONS),
            (NewTopic("x", partitions=10_001), ErrorCode.POLICY_VIOLATION),
            (NewTopic("x", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
            (NewTopic("x", assignments={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewTopic("x", 1, 1, assignments={0: [0]}), ErrorCode.INVALID_REQUEST),
            (NewTopic("x", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
            (NewTopic("x", configs={"nonsense": "1"}), ErrorCode.INVALID_CONFIG),
            (NewTopic("x", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
            (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        ]
        results = await admin.create_topics([topic for topic, _ in new])
        assert [result.code for result in results if isinstance(result, KafkaError)] == [code for _, code in new]
        assert await running.store.children("/brokers/topics") == ["a.b"]
        assert await running.store.children("/config/topics") == ["a.b"]

        async def code(call: Any) -> ErrorCode:
            with pytest.raises(KafkaError) as error:
                await call
            return error.value.code

        assert await code(admin.create_partitions("a.b", 1)) is ErrorCode.INVALID_PARTITIONS
        assert await code(admin.create_partitions("none", 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(admin.create_partitions("a.b", 3, [[0]])) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await code(admin.create_partitions("a.b", 2, [[5]])) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        # The deed is done, only the answer does not wait for it.
        assert await code(admin.create_topic("later", timeout_ms=0)) is ErrorCode.REQUEST_TIMED_OUT
        assert await running.controller.wait_until(lambda: running.image.topic("later") is not None, 30_000)
        await running.controller.stop()
        assert await code(admin.create_topic("y")) is ErrorCode.NOT_CONTROLLER


@on_loop
async def test_validate_only_and_assignments_by_hand(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        topic = NewTopic("t", assignments={0: [0], 1: [0]}, configs={"retention.ms": "9"})
        (result,) = await running.admin.create_topics([topic], validate_only=True)
        assert not isinstance(result, KafkaError)
        assert (result.partitions, result.replication_factor, result.topic_id) == (2, 1, bytes(16))
        assert await running.store.children("/brokers/topics") == []
        (result,) = await running.admin.create_topics([topic])
        assert not isinstance(result, KafkaError) and result.configs == {"retention.ms": "9"}
        assert running.replicas.get("t", 1) is not None


@on_loop
async def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    async with node(tmp_path, delete_topic_enable="false") as running:
        await running.admin.create_topic("t")
        (error,) = await running.admin.delete_topics(["t"])
        assert error is not None and error.code is ErrorCode.TOPIC_DELETION_DISABLED
        # A tool's request by node is removed without effect.
        await running.store.create("/admin/delete_topics/t")
        await running.controller.until_idle(30_000)
        assert await running.store.children("/admin/delete_topics") == []
        assert running.replicas.get("t", 0) is not None
        # So is one that was made while there was no controller.
        await running.store.multi([Create("/admin/delete_topics/t"), Delete("/controller")])
        await running.controller.until_idle(30_000)
        assert await running.store.children("/admin/delete_topics") == []
        assert running.replicas.get("t", 0) is not None


@on_loop
async def test_an_interrupted_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async with node(tmp_path) as first:
        await first.admin.create_topic("t", 2)
        await first.controller.stop()
        await first.store.create("/admin/delete_topics/t")
    async with node(tmp_path) as second:
        await second.controller.until_idle(30_000)
        assert second.image.topic("t") is None
        assert await second.store.exists("/brokers/topics/t") is None
        assert len(second.removed) == 2


@on_loop
async def test_a_controller_fenced_by_an_edited_epoch_stands_for_election_again(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        assert running.controller.is_active
        # The effect of a second controller's election on the nodes.
        await running.store.delete("/controller")
        await running.controller.until_idle(30_000)
        assert running.controller.cluster is not None and running.controller.cluster.epoch == 2
        await running.store.set("/controller_epoch", b"9")
        await running.store.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
        await running.controller.until_idle(30_000)
        # Nothing was written in the old epoch; with /controller still its own it stood again by itself.
        assert running.controller.cluster is not None and running.controller.cluster.epoch == 10
        state = await running.store.get(nodes.state_path("t", 0))
        assert state is not None and nodes.decode_state(state[0]).controller_epoch == 10
        assert running.image.controller_epoch == 10


@on_loop
async def test_a_shutdown_announced_by_a_broker_alone_leaves_it_its_partitions(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        await running.admin.create_topic("t")
        answers = ControllerAnswers(running.controller, running.store)
        answer = await answers.controlled_shutdown(ControlledShutdownRequest(broker_id=0))
        assert answer == ControlledShutdownResponse()
        topic = running.image.topic("t")
        assert topic is not None and topic.partitions[0].leader == 0


@on_loop
async def test_a_topic_on_the_move_is_not_widened(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        await running.admin.create_topic("t")
        moving = nodes.TopicAssignment(bytes(15) + b"t", {0: nodes.ReplicaAssignment((5, 0), (5,), (0,))})
        await running.store.set(nodes.topic_path("t"), nodes.encode_topic(moving))
        with pytest.raises(KafkaError) as refused:
            await running.admin.create_partitions("t", 2)
        assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


@on_loop
async def test_changes_of_topics_are_answered_when_the_other_brokers_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path) as running:
        told: list[int] = []

        async def until_notified(timeout_s: float) -> None:
            assert 0 < timeout_s <= NOTIFIED_WITHIN_MS / 1000
            topic = running.image.topic("t")
            told.append(0 if topic is None else len(topic.partitions))

        monkeypatch.setattr(running.controller, "until_notified", until_notified)
        await running.admin.create_topic("t", 1, 1)
        await running.admin.create_partitions("t", 3)
        assert await running.admin.delete_topics(["t"]) == [None]
        assert told == [1, 3, 0]
        # A request without a timeout does not wait.
        topic = NewTopic("u", 1, 1)
        [answer] = await running.admin.create_topics([topic], 0)
        assert isinstance(answer, KafkaError) and len(told) == 3
