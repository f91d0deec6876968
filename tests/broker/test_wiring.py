"""gregor.broker.wiring: the state after a clean stop and after a crash, and starts that must fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.jobs.background import Background
from gregor.broker.jobs.log_mover import LogMover
from gregor.broker.jobs.scan_helper import ScanHelper
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.net.connections import Connections
from gregor.broker.node.store import StartError
from gregor.broker.wiring import Node, end_in_order
from gregor.config.broker import BrokerConfig
from gregor.coordinator.group.coordinator import GroupCoordinator
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.controller.writes import ControllerWrites
from gregor.replication.store.embedded import EmbeddedStore
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.files import OsFiles
from tests.broker.harness import Harness, batch, one_partition, produce_request, running

CLEAN, CRASH = "clean stop", "crash"


def idempotent(harness: Harness, sequence: int, *values: bytes) -> tuple[int, int]:
    records = batch(*values, producer_id=900, producer_epoch=0, base_sequence=sequence)
    answer = one_partition(harness.ask(produce_request("orders", records, acks=-1), 9))
    return answer.error_code, answer.base_offset


def committed(harness: Harness) -> int:
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[1])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="readers", topics=[wanted])
    response = harness.ask(OffsetFetchRequest(groups=[group]), 8)
    (answer,) = response.groups
    assert answer.error_code == 0
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def commit(harness: Harness, offset: int, **member: Any) -> int:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=1, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[part])
    response = harness.ask(OffsetCommitRequest(group_id="readers", topics=[topic], **member), 8)
    code: int = response.topics[0].partitions[0].error_code
    return code


def until_coordinators_are_ready(harness: Harness) -> None:
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)


def restarted(harness: Harness, how: str, folder: Path) -> Harness:
    """Start the next broker on the files of the first one."""
    if how == CRASH:
        folder = harness.copy(folder)
        harness.stop()
    else:
        harness.stop()
        folder = harness.folder
        assert (folder / ".kafka_cleanshutdown").exists()
    return Harness(folder).start()


@pytest.mark.slow
def test_a_deletion_is_durable_before_the_topic_is_gone_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut could give the folders their old names again, and the next start would adopt them."""
    folders = [str(tmp_path / name) for name in "ab"]
    done: list[str] = []

    def note(of: type[Any], name: str, text: Callable[..., str]) -> None:
        original = getattr(of, name)

        def noted(self: Any, *args: Any) -> Any:
            done.append(text(*args))
            return original(self, *args)

        monkeypatch.setattr(of, name, noted)

    with running(tmp_path, log_dirs=",".join(folders)) as harness:
        harness.create_topic("t", partitions=4)
        note(OsFiles, "rename", lambda source, target: "rename")
        note(OsFiles, "sync_directory", str)
        note(ControllerWrites, "remove_topic", str)
        harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)
    done = [what for what in done if what in {"rename", *folders, "t"}]
    assert done[:7] == ["rename"] * 4 + [*folders, "t"]


@pytest.mark.parametrize("how", [CLEAN, CRASH])
def test_everything_is_found_again(tmp_path: Path, how: str) -> None:
    harness = Harness(tmp_path / "first").start()
    topic_id = harness.create_topic("orders", partitions=2, retention_ms="777000")
    harness.create_topic("gone")
    harness.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=30_000), 5)
    assert [idempotent(harness, 0, b"a", b"b"), idempotent(harness, 2, b"c")] == [(0, 0), (0, 2)]
    harness.produce("orders", b"other partition", partition=1)
    until_coordinators_are_ready(harness)
    assert [commit(harness, offset) for offset in (1, 17)] == [0, 0]
    cluster_id = harness.broker.cluster_id

    harness = restarted(harness, how, tmp_path / "second")
    assert harness.broker.cluster_id == cluster_id
    state = harness.broker.metadata.topic("orders")
    assert state is not None
    assert (state.topic_id, sorted(state.partitions)) == (topic_id, [0, 1])
    assert harness.broker.metadata.topic("gone") is None
    assert [record.value for record in harness.records("orders")] == [b"a", b"b", b"c"]
    assert [record.value for record in harness.records("orders", partition=1)] == [b"other partition"]
    log = harness.broker.logs.get("orders", 0)
    assert log is not None
    assert (log.config.retention_ms, log.high_watermark) == (777_000, 3)
    # The batch whose answer got lost is sent again: it gets the answer of the first time.
    assert idempotent(harness, 2, b"c") == (0, 2)
    assert idempotent(harness, 4, b"too early")[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert idempotent(harness, 3, b"d") == (0, 3)
    until_coordinators_are_ready(harness)
    assert committed(harness) == 17
    assert not list(harness.folder.glob("gone-*")) or harness.run(_gone(harness, "gone"))
    harness.stop()


async def _gone(harness: Harness, topic: str) -> bool:
    """Whether the folders of a deleted topic go."""
    for _ in range(500):
        if not list(harness.folder.glob(f"{topic}-*")):
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.parametrize("how", [CLEAN, CRASH])
def test_members_keep_their_places_over_a_restart(tmp_path: Path, how: str) -> None:
    harness = Harness(tmp_path / "first").start()
    harness.create_topic("orders", partitions=2)
    until_coordinators_are_ready(harness)
    join = JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"s")],
    )
    joined = harness.ask(join, 3)
    member = {"member_id": joined.member_id}
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    sync = SyncGroupRequest(group_id="readers", generation_id=1, assignments=[assignment], **member)
    assert harness.ask(sync, 2).assignment == b"all"

    harness = restarted(harness, how, tmp_path / "second")
    until_coordinators_are_ready(harness)
    sync.assignments = []
    assert harness.ask(sync, 2).assignment == b"all"
    assert commit(harness, 3, generation_id_or_member_epoch=1, **member) == 0
    assert commit(harness, 4, generation_id_or_member_epoch=0, **member) == ErrorCode.ILLEGAL_GENERATION
    assert committed(harness) == 3
    harness.stop()


def test_leader_epochs_and_offsets_never_go_back(tmp_path: Path) -> None:
    seen = []
    for number in range(3):
        with running(tmp_path) as harness:
            if not number:
                harness.create_topic("t")
            harness.produce("t", b"x")
            partition = harness.broker.replicas.get("t", 0)
            assert partition is not None
            seen.append((partition.leader_epoch, partition.log_end_offset))
    assert [offset for _, offset in seen] == [1, 2, 3]
    assert [epoch for epoch, _ in seen] == sorted(epoch for epoch, _ in seen)


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "first").start()
    harness.create_topic("t")
    for value in (b"one", b"two"):
        harness.produce("t", value)
    folder = harness.copy(tmp_path / "second")
    harness.stop()
    log = folder / "t-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    with running(folder) as harness:
        assert [record.value for record in harness.records("t")] == [b"one"]
        assert harness.produce("t", b"three").base_offset == 1


def test_a_store_that_was_lost_is_made_anew_from_the_folders(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        topic_id = harness.create_topic("t", partitions=3)
        for partition in range(3):
            harness.produce("t", b"x", partition=partition)
    for path in tmp_path.glob("gregor-metadata*"):
        path.unlink()
    with running(tmp_path) as harness:
        state = harness.broker.metadata.topic("t")
        assert state is not None and state.topic_id == topic_id
        for partition in range(3):
            assert len(harness.records("t", partition=partition)) == 1
            assert harness.produce("t", b"y", partition=partition).base_offset == 1


# -- starts that cannot be --------------------------------------------------------------------------------------------


def start_error(folder: Path, **settings: str) -> str:
    """Return the error of a start that fails, which must leave nothing behind that disturbs a later start."""
    harness = Harness.__new__(Harness)
    with pytest.raises(StartError) as caught:
        harness = Harness(folder, **settings)
        harness.start()
    if hasattr(harness, "node"):
        harness.stop()
    elif hasattr(harness, "loop"):
        harness.loop.close()
    return str(caught.value)


def test_a_folder_in_use(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        assert str(tmp_path) in start_error(tmp_path)
        harness.create_topic("t")
    with running(tmp_path) as harness:
        assert harness.broker.metadata.topic("t") is not None


def test_a_folder_of_another_broker_or_cluster(tmp_path: Path) -> None:
    with running(tmp_path):
        pass
    assert "broker" in start_error(tmp_path, broker_id="5")
    meta = tmp_path / "meta.properties"
    text = meta.read_text()
    meta.write_text(
        "\n".join(line for line in text.splitlines() if "cluster.id" not in line) + "\ncluster.id=another\n"
    )
    assert "another" in start_error(tmp_path)
    meta.write_text(text)
    with running(tmp_path):
        pass


def test_a_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "gregor-metadata.sqlite").write_bytes(b"this is no database" * 100)
    assert "gregor-metadata.sqlite" in start_error(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert str(tmp_path / "file") in start_error(tmp_path / "file" / "data")


def test_settings_of_zookeeper_that_cannot_be_followed_are_named(tmp_path: Path) -> None:
    loopless = BrokerConfig({"log.dirs": str(tmp_path), "zookeeper.connect": "zk:2181", "zookeeper.set.acl": "true"})
    with pytest.raises(StartError, match=r"zookeeper\.set\.acl"):
        Node(loopless)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_node_can_be_closed_at_any_point_of_its_start(tmp_path: Path, steps: int) -> None:
    harness = Harness(tmp_path)
    if steps:
        harness.run(harness.node.open_storage())
    harness.stop()
    with running(tmp_path) as again:
        again.create_topic("t")


def recorded(monkeypatch: pytest.MonkeyPatch, ended: list[str], owner: type, method: str) -> None:
    """Note the class in `ended` whenever the method is called."""
    original = getattr(owner, method)

    def noted(self: Any, *arguments: Any) -> Any:
        ended.append(owner.__name__)
        return original(self, *arguments)

    monkeypatch.setattr(owner, method, noted)


ENDS = ((Connections, "close_all"), (LogManager, "release_reserves"), (ScanHelper, "close"), (Background, "close"))
ENDS_OF_STORAGE = ((EmbeddedStore, "close"), (LogMover, "close"), (LogManager, "close_all"))


def test_parts_of_a_broker_end_in_the_order_that_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    for owner, method in (*ENDS, (GroupCoordinator, "close"), (ControllerLoop, "stop"), *ENDS_OF_STORAGE):
        recorded(monkeypatch, ended, owner, method)
    harness = Harness(tmp_path).start()
    ended.clear()  # the processes for recovery end with the start
    harness.stop()
    assert ended == [
        *("Connections", "LogManager", "GroupCoordinator", "ControllerLoop", "ScanHelper", "Background"),
        *("EmbeddedStore", "LogManager", "LogMover", "LogManager"),
    ]


def test_producers_are_known_after_a_start_for_as_long_as_a_dynamic_setting_has_it(tmp_path: Path) -> None:
    day_ms = 86_400_000
    alteration = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="producer.id.expiration.ms", config_operation=0, value=str(7 * day_ms)
            )
        ],
    )
    offsets = []
    for life in range(2):
        with running(tmp_path) as harness:
            if life == 0:
                harness.create_topic("t")
                harness.ask(IncrementalAlterConfigsRequest(resources=[alteration]), 1)
            two_days_ago_ms = harness.broker.now_ms() - 2 * day_ms
            written = harness.produce(
                "t", b"x", producer_id=5, producer_epoch=0, base_sequence=0, timestamp_ms=two_days_ago_ms
            )
            offsets.append(written.base_offset)
    assert offsets == [0, 0]  # the second is the first one again


def test_start_that_fails_ends_the_parts_that_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    for owner, method in (*ENDS, *ENDS_OF_STORAGE):
        recorded(monkeypatch, ended, owner, method)
    harness = Harness(tmp_path)
    harness.run(harness.node.open_storage())
    ended.clear()
    harness.stop()
    assert ended == [
        "Connections",
        "LogManager",
        "ScanHelper",
        "Background",
        "EmbeddedStore",
        "LogManager",
        "LogManager",
    ]


def test_member_of_a_cluster_ends_after_the_controller_and_while_there_are_threads() -> None:
    ended: list[str] = []

    def part(name: str) -> Any:
        async def end() -> None:
            ended.append(name)

        return SimpleNamespace(close=lambda: ended.append(name), stop=end)

    async def ends() -> None:
        background = Background(LoopGate())

        async def close_member() -> None:
            ended.append("member")
            ended.append(await background.fsync(lambda: "flushed"))

        async with AsyncExitStack() as lifetimes:
            lifetimes.push_async_callback(background.close)
            member: Any = SimpleNamespace(close=close_member)
            end_in_order(lifetimes, member=member, controller=part("controller"), coordinators=part("coordinators"))

    asyncio.run(ends())
    assert ended == ["coordinators", "controller", "member", "flushed"]


def test_a_client_is_told_the_address_it_came_by_where_none_was_promised(tmp_path: Path) -> None:
    from gregor.protocol.messages import MetadataRequest

    with running(tmp_path, listeners="PLAINTEXT://0.0.0.0:9092") as harness:
        harness.connection.sockname = ("192.0.2.7", 9092)
        (broker,) = harness.ask(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port) == ("192.0.2.7", 9092)


def test_settings_changed_at_run_time_hold_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.create_topic("t")
        harness.alter_topic("t", max_message_bytes="2000")
    with running(tmp_path) as harness:
        log = harness.broker.logs.get("t", 0)
        assert log is not None and log.config.max_message_bytes == 2000
        assert harness.produce("t", bytes(3000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_several_data_folders_share_the_partitions(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    settings = {"log_dirs": ",".join(map(str, folders))}
    for number in range(2):
        with running(tmp_path, **settings) as harness:
            if not number:
                harness.create_topic("t", partitions=6)
            for partition in range(6):
                assert harness.produce("t", b"x", partition=partition).base_offset == number
    counts = [sum(name.startswith("t-") for name in os.listdir(folder)) for folder in folders]
    assert counts == [3, 3]
