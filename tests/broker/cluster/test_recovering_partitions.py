"""Logs whose check after a crash is long are served when they are ready, the others before.

"slow" is a topic whose folder stays unchecked until the test opens the gate.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker import wiring
from gregor.broker.cluster.recovering_partitions import RecoveringPartitions
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.node import log_loading
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from gregor.protocol.turns import Steps
from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
from gregor.storage.log.log import Log
from gregor.storage.recovery import recovery
from tests.broker.harness import Harness, Wire, batch, fetch_request, one_partition, produce_request

Load = Callable[..., Generator[int, None, Log]]


class Gate:
    def __init__(self) -> None:
        self.open = False
        self.failing: set[str] = set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    load: Load = recovery.FolderLoader.load

    def gated(self: recovery.FolderLoader, clean: bool) -> Generator[int, None, Log]:
        if self.identity.topic == "slow":
            while not gate.open:
                time.sleep(0.001)  # long enough for the manager to give others a turn
                yield 0
        if f"{self.identity.topic}-{self.identity.partition}" in gate.failing:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a bad disk")
        return (yield from load(self, clean))

    monkeypatch.setattr(recovery.FolderLoader, "load", gated)
    monkeypatch.setattr(wiring, "_LOAD_BEFORE_SERVING_S", 0)
    return gate


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The leftovers of a crash: the topics "quick" and "slow"."""
    harness = Harness(tmp_path / "first").start()
    for name, partitions, size in (("quick", 1, 10), ("slow", 2, 5000)):
        harness.create_topic(name, partitions=partitions)
        for partition in range(partitions):
            harness.produce(name, bytes(size), partition=partition)
    folder = harness.copy(tmp_path / "second")
    harness.stop()
    return folder


@pytest.fixture
def harness(crashed: Path, gate: Gate) -> Iterator[Harness]:
    harness = Harness(crashed).start()
    yield harness
    gate.open = True
    if not harness.loop.is_closed():
        harness.stop()


def loaded(harness: Harness) -> bool:
    return harness.node.loading.is_over


def leaders(harness: Harness, name: str) -> list[int]:
    (topic,) = harness.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)]), 12).topics
    return [part.leader_id for part in topic.partitions]


def test_recovering_partitions_have_another_leader_until_they_are_ready(harness: Harness, gate: Gate) -> None:
    assert len(harness.records("quick")) == 1
    assert harness.produce("quick", b"x").base_offset == 1
    assert leaders(harness, "slow") == [0, 0]
    late = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for version in (3, 7, 9, 12):
        assert one_partition(harness.ask(produce_request("slow", batch(b"x")), version)).error_code == late
    for version in (4, 11, 12):
        request = fetch_request([("slow", 0, 0)], max_wait_ms=5000)
        assert harness.ask(request, version).responses[0].partitions[0].error_code == late
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="slow", partitions=[wanted])])
    assert harness.ask(asked, 7).topics[0].partitions[0].error_code == late

    gate.open = True
    harness.until(lambda: loaded(harness))
    for partition in (0, 1):
        assert len(harness.records("slow", partition=partition)) == 1
        assert harness.produce("slow", b"x", partition=partition).base_offset == 1


def test_a_line_in_the_log_shows_the_progress(
    crashed: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_loading, "PROGRESS_EVERY_S", 0)
    caplog.set_level("INFO", "gregor")
    harness = Harness(crashed).start()
    harness.until(lambda: "recovering: " in caplog.text)
    (first, *_) = [record.message for record in caplog.records if record.message.startswith("recovering: ")]
    assert re.fullmatch(r"recovering: 1 of 3 partitions, 0\.0 of 0\.0 MB checked", first)
    gate.open = True
    harness.until(lambda: loaded(harness))
    harness.stop()


def test_a_producer_that_was_refused_continues_when_the_log_is_ready(harness: Harness, gate: Gate) -> None:
    wire = Wire(harness)
    request = produce_request("slow", batch(b"x"), acks=-1)
    answers = [one_partition(wire.ask(request, 9)) for _ in range(3)]
    assert {answer.error_code for answer in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    gate.open = True
    harness.until(lambda: loaded(harness))
    assert [one_partition(wire.ask(request, 9)).base_offset for _ in range(3)] == [1, 2, 3]
    wire.close()


def test_settings_altered_meanwhile_count(harness: Harness, gate: Gate) -> None:
    harness.alter_topic("slow", max_message_bytes="100")
    gate.open = True
    harness.until(lambda: loaded(harness))
    assert harness.produce("slow", bytes(500)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_deleted_meanwhile_is_gone_when_its_logs_are_ready(harness: Harness, gate: Gate) -> None:
    deletion = harness.begin(DeleteTopicsRequest(topic_names=["slow"], timeout_ms=30_000), 5)
    assert harness.produce("quick", b"x").base_offset == 1
    gate.open = True
    assert harness.run(deletion).responses[0].error_code == 0
    harness.until(lambda: loaded(harness))
    assert harness.broker.metadata.topic("slow") is None
    assert harness.broker.logs.get("slow", 0) is harness.broker.logs.get("slow", 1) is None
    assert not [path for path in harness.folder.glob("slow-*") if not path.name.endswith("-delete")]
    harness.create_topic("slow")
    assert harness.records("slow") == []


def test_a_controller_on_another_broker_is_notified_of_deferred_deletions_too(harness: Harness, gate: Gate) -> None:
    harness.node.recovering.on_deferred_response.clear()  # the short way to a controller in the same process
    deletion = harness.begin(DeleteTopicsRequest(topic_names=["slow"], timeout_ms=30_000), 5)
    gate.open = True
    assert harness.run(deletion).responses[0].error_code == 0
    harness.create_topic("slow")
    assert harness.records("slow") == []


def test_other_topics_can_be_made_and_deleted_meanwhile(harness: Harness, gate: Gate) -> None:
    harness.create_topic("new")
    assert harness.produce("new", b"x").base_offset == 0
    assert harness.ask(DeleteTopicsRequest(topic_names=["new"], timeout_ms=30_000), 5).responses[0].error_code == 0


def test_a_deletion_that_waits_for_a_log_holds_up_no_other_topic(harness: Harness, gate: Gate) -> None:
    deletion = harness.begin(DeleteTopicsRequest(topic_names=["slow"], timeout_ms=30_000), 5)
    harness.create_topic("new")
    assert harness.ask(DeleteTopicsRequest(topic_names=["new"], timeout_ms=30_000), 5).responses[0].error_code == 0
    assert not deletion.done()
    gate.open = True
    assert harness.run(deletion).responses[0].error_code == 0


def test_a_log_that_cannot_be_loaded_stays_out_and_keeps_nothing_waiting(harness: Harness, gate: Gate) -> None:
    gate.failing.add("slow-0")
    gate.open = True
    harness.until(lambda: loaded(harness))
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    harness.until(lambda: leaders(harness, "slow") == [-1, 0])
    assert one_partition(harness.ask(produce_request("slow", batch(b"x")), 9)).error_code == failed
    assert len(harness.records("slow", partition=1)) == 1
    # As in Apache Kafka its topic is deleted for good only when the disk is back; no request waits for that.
    request = DeleteTopicsRequest(topic_names=["slow"], timeout_ms=30_000)
    assert harness.ask(request, 5).responses[0].error_code == ErrorCode.NONE
    harness.create_topic("new")
    harness.stop()
    gate.failing.clear()
    again = Harness(harness.folder).start()
    again.until(lambda: loaded(again) and not list(again.folder.glob("slow-[01]")))
    assert [topic.name for topic in again.broker.metadata.topics()] == ["new", "quick"]
    again.stop()


def test_a_start_does_not_wait_for_logs_of_a_topic_that_is_to_be_deleted(crashed: Path, gate: Gate) -> None:
    harness = Harness(crashed).start()
    request = DeleteTopicsRequest(topic_names=["slow"], timeout_ms=10)
    assert harness.ask(request, 5).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    harness.stop()

    harness = Harness(crashed).start()
    assert harness.produce("quick", b"x").base_offset == 1
    gate.open = True
    harness.until(lambda: loaded(harness) and not list(crashed.glob("slow-[01]")))
    wanted = CreateTopicsRequest.CreatableTopic(name="slow", num_partitions=1, replication_factor=1)
    trial = CreateTopicsRequest(topics=[wanted], timeout_ms=1000, validate_only=True)
    harness.until(lambda: harness.ask(trial, 7).topics[0].error_code == 0)  # the topic goes after its folders
    harness.create_topic("slow")
    assert harness.records("slow") == []
    harness.stop()


def test_a_recovery_that_a_stop_interrupts_is_resumed_at_the_next_start(crashed: Path, gate: Gate) -> None:
    harness = Harness(crashed).start()
    harness.produce("quick", b"x")
    harness.stop()
    assert not (crashed / ".kafka_cleanshutdown").exists()
    gate.open = True
    harness = Harness(crashed).start()
    harness.until(lambda: loaded(harness))
    assert len(harness.records("quick")) == 2
    assert [len(harness.records("slow", partition=partition)) for partition in (0, 1)] == [1, 1]
    harness.stop()


def test_folders_without_metadata_are_adopted_when_they_are_ready(crashed: Path, gate: Gate) -> None:
    for path in crashed.glob("gregor-metadata*"):
        path.unlink()
    harness = Harness(crashed).start()
    harness.create_topic("new")
    # Their names are reserved meanwhile: another topic would replace the records on the disk.
    topic = CreateTopicsRequest.CreatableTopic(name="slow", num_partitions=1, replication_factor=1)
    (answer,) = harness.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    wanted = [MetadataRequest.MetadataRequestTopic(name="slow")]
    (answer,) = harness.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9).topics
    assert answer.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    gate.open = True
    harness.until(lambda: harness.broker.metadata.topic("slow") is not None and loaded(harness))
    for name, partition in (("quick", 0), ("slow", 0), ("slow", 1)):
        assert len(harness.records(name, partition=partition)) == 1
        assert harness.produce(name, b"x", partition=partition).base_offset == 1
    harness.stop()


def test_groups_are_not_listed_by_halves(tmp_path: Path, gate: Gate) -> None:
    first = Harness(tmp_path / "first").start()
    first.create_topic("slow")
    first.produce("slow", b"x")
    assert first.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_metadata="x" * 1000)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="slow", partitions=[part])]
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    first.until(lambda: first.ask(request, 8).topics[0].partitions[0].error_code == 0)
    second = first.copy(tmp_path / "second")
    first.stop()

    harness = Harness(second).start()
    try:
        assert harness.ask(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.open = True
        harness.until(lambda: loaded(harness) and harness.ask(ListGroupsRequest(), 4).error_code == 0)
        assert [group.group_id for group in harness.ask(ListGroupsRequest(), 4).groups] == ["g"]
    finally:
        gate.open = True
        harness.stop()


def test_committed_offsets_without_metadata_are_not_begun_anew(tmp_path: Path, gate: Gate) -> None:
    """Offsets are not deleted by age either: before the topic is adopted, it is unknown that it is compacted."""
    first = Harness(tmp_path / "first").start()
    first.create_topic("slow")
    first.produce("slow", bytes(5000))
    assert first.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0
    key = first.broker.groups.partition_for("g")
    first.until(lambda: first.broker.logs.get("__consumer_offsets", key) is not None)
    (log,) = (first.broker.logs.get("__consumer_offsets", key),)
    assert log is not None
    now_ms = first.broker.now_ms()
    log.append_as_leader(batch((b"k", b"v"), timestamp_ms=now_ms - 30 * 24 * 3600 * 1000), 0, now_ms)
    log.roll(now_ms)
    log.append_as_leader(batch((b"k", b"w")), 0, now_ms)
    log.offsets.restore_high_watermark(log.log_end_offset)
    topic_id, second = log.topic_id, first.copy(tmp_path / "second")
    first.stop()
    for path in second.glob("gregor-metadata*"):
        path.unlink()

    harness = Harness(second).start()
    try:
        harness.until(lambda: harness.broker.logs.get("__consumer_offsets", key) is not None)
        assert harness.ask(FindCoordinatorRequest(key="g"), 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.run(harness.node.maintenance.retain())
        gate.open = True
        harness.until(lambda: harness.broker.metadata.topic("__consumer_offsets") is not None and loaded(harness))
        assert harness.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0
        found = harness.broker.logs.get("__consumer_offsets", key)
        assert found is not None
        assert (found.topic_id, found.log_start_offset) == (topic_id, 0)
        harness.run(harness.node.maintenance.retain())
        assert found.log_start_offset == 0
    finally:
        gate.open = True
        harness.stop()


def test_a_request_to_an_earlier_registration_is_not_applied_later(harness: Harness, gate: Gate) -> None:
    # As at the end of a session, while the logs are being checked.
    local = harness.broker.controller_requests
    local.registered(local.broker_epoch + 1)
    gate.open = True
    harness.until(lambda: loaded(harness))
    assert harness.node.broker.replicas.get("slow", 0) is None
    assert harness.node.broker.replicas.get("quick", 0) is not None


def test_no_recovered_log_is_served_before_its_topics_settings_are_read() -> None:
    """ZooKeeper may answer later than the check of the log ends."""
    asyncio.run(_load_while_settings_are_read())


async def _load_while_settings_are_read() -> None:
    loading, read, applied = {("slow", 0)}, asyncio.Event(), []

    class Configs:
        async def ensure(self, _topics: Iterable[str]) -> None:
            await read.wait()

    class Replicas:
        controller_epoch = 0

        def apply(self, request: LeaderAndIsrRequest) -> Steps[LeaderAndIsrResponse]:
            applied.extend((read.is_set(), len(topic.partition_states)) for topic in request.topic_states)
            yield None
            return LeaderAndIsrResponse()

    replicas: Any = Replicas()
    recovering = RecoveringPartitions(replicas, lambda *key: key in loading)
    parts: list[Any] = [replicas, None, Configs(), LoopGate()]
    local = ControllerRequestHandler(*parts, recovering.hold_back)
    local.registered(5)
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=0)
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="slow", partition_states=[state])
    telling = asyncio.create_task(local.handle(LeaderAndIsrRequest(broker_epoch=5, topic_states=[topic])))
    await asyncio.sleep(0)
    loading.clear()
    log: Any = SimpleNamespace(topic="slow", partition=0)
    recovering.loaded(log, local.min_request_epoch)
    assert applied == []
    read.set()
    await telling
    assert applied == [(True, 1)]


@pytest.mark.parametrize("ended", [False, True])
def test_no_recovered_log_is_led_after_the_end_of_the_session(ended: bool) -> None:
    asyncio.run(_load_after_the_session(ended))


async def _load_after_the_session(ended: bool) -> None:
    applied: list[LeaderAndIsrRequest] = []

    class Configs:
        async def ensure(self, _topics: Iterable[str]) -> None:
            return

    class Replicas:
        controller_epoch = 0

        def apply(self, request: LeaderAndIsrRequest) -> Steps[LeaderAndIsrResponse]:
            applied.append(request)
            yield None
            return LeaderAndIsrResponse()

    replicas: Any = Replicas()
    recovering = RecoveringPartitions(replicas, lambda *_: True)
    parts: list[Any] = [replicas, None, Configs(), LoopGate()]
    local = ControllerRequestHandler(*parts, recovering.hold_back)
    local.registered(5)
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=0)
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="slow", partition_states=[state])
    await local.handle(LeaderAndIsrRequest(broker_epoch=5, topic_states=[topic]))
    applied.clear()
    if ended:
        local.session_ended()
    log: Any = SimpleNamespace(topic="slow", partition=0)
    recovering.loaded(log, local.min_request_epoch)
    assert len(applied) == (not ended)
