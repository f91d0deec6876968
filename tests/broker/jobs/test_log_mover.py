"""jobs.log_mover: which of the moves that a stop has interrupted are resumed, and when."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, cast

from gregor.broker.jobs.background import Background
from gregor.broker.jobs.log_mover import LogMover
from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import LeaderAndIsrRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.storage.folders.manager import LogManager
from tests.storage.logs import NOW_MS, batch, log_config
from tests.storage.memory_files import MemoryFiles

HOME, TARGET = "/home", "/target"
CONFIG = BrokerConfig({"log.dirs": f"{HOME},{TARGET}"})


class Jobs:
    """A Background that only notes its jobs."""

    def __init__(self) -> None:
        self.spawned = 0
        self.removed: list[str] = []

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.spawned += 1
        coroutine.close()

    def remove_later(self, paths: Iterable[str], delay_ms: int) -> None:
        self.removed += paths


def loaded(files: MemoryFiles) -> LogManager:
    for folder in (HOME, TARGET):
        files.make_directory(folder)
    manager = LogManager(CONFIG, files, lambda: NOW_MS)
    for _ in manager.load(lambda topic: log_config(segment_bytes=300)):
        pass
    return manager


def interrupted(files: MemoryFiles) -> None:
    """Move partition t-0, and stop with a part of it copied."""
    manager = loaded(files)
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config(segment_bytes=300))
    for _ in range(20):
        log.append_as_leader(batch(1), 0, NOW_MS)
    move = manager.moves.begin(("t", 0), manager.folders[1])
    for _ in range(3):
        plan = move.plan()
        assert plan is not None
        plan.run()
        move.copied(plan)
    manager.close_all()


def assign(replicas: ReplicaManager, *indexes: int, leader: int = 1) -> None:
    states = [
        LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=index, leader=leader, leader_epoch=leader, isr=[leader], replicas=[0, 1]
        )
        for index in indexes
    ]
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", partition_states=states)
    run_all(replicas.apply(LeaderAndIsrRequest(controller_epoch=1, topic_states=[topic])))


def test_an_interrupted_move_is_resumed_when_its_partition_is_assigned_again() -> None:
    """In a cluster a broker has no partitions at its start: the controller assigns them later."""
    files = MemoryFiles()
    interrupted(files)
    manager, jobs = loaded(files), Jobs()
    replicas = ReplicaManager(0, manager, lambda topic: log_config(segment_bytes=300), lambda: NOW_MS)
    mover = LogMover(CONFIG, manager, replicas, cast(Background, jobs))
    mover.resume()
    assert manager.moves.wishes == {("t", 0): manager.folders[1]}
    assign(replicas, 1)
    assert (jobs.spawned, jobs.removed) == (0, [])
    assign(replicas, 0)
    move = manager.moves.under_way[TopicPartition("t", 0)]
    assert move.size_bytes > 0, "behind what was copied"
    assert (jobs.spawned, jobs.removed, manager.moves.wishes) == (1, [], {})
    assign(replicas, 0, leader=0)
    assert jobs.spawned == 1


def test_an_interrupted_move_of_a_partition_that_is_suspended_waits() -> None:
    files = MemoryFiles()
    interrupted(files)
    manager, jobs = loaded(files), Jobs()
    replicas = ReplicaManager(0, manager, lambda topic: log_config(segment_bytes=300), lambda: NOW_MS)
    assign(replicas, 0)
    replicas.suspend([("t", 0)])
    LogMover(CONFIG, manager, replicas, cast(Background, jobs)).resume()
    assert (jobs.spawned, jobs.removed) == (0, [])
    replicas.resume([("t", 0)])
    assign(replicas, 0)
    assert (jobs.spawned, list(manager.moves.under_way)) == (1, [("t", 0)])


def test_an_interrupted_move_of_a_deleted_partition_leaves_nothing() -> None:
    files = MemoryFiles()
    interrupted(files)
    manager, jobs = loaded(files), Jobs()
    replicas = ReplicaManager(0, manager, lambda topic: log_config(), lambda: NOW_MS)
    LogMover(CONFIG, manager, replicas, cast(Background, jobs)).resume()
    manager.remove("t", 0)
    assert manager.moves.wishes == {}
    (copy,) = manager.pop_unlinkable()
    assert copy.startswith(f"{TARGET}/t-0.")
    assert copy.endswith("-delete")


def test_an_interrupted_move_can_be_cancelled_before_it_is_resumed() -> None:
    files = MemoryFiles()
    interrupted(files)
    manager, jobs = loaded(files), Jobs()
    replicas = ReplicaManager(0, manager, lambda topic: log_config(), lambda: NOW_MS)
    assign(replicas, 0)
    mover = LogMover(CONFIG, manager, replicas, cast(Background, jobs))
    mover.move("t", 0, mover.folder(HOME))
    assert (manager.moves.wishes, jobs.spawned, len(jobs.removed)) == ({}, 0, 1)
