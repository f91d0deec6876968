"""ControllerRequestHandler: requests for an earlier life are refused; settings are read before logs are opened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gregor.broker.jobs import turns
from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from tests.replication.fakes import CountingLogs, HandClock, on_loop


class Configs:
    def __init__(self) -> None:
        self.read: list[str] = []
        self.asked = asyncio.Event()
        self.answers: asyncio.Event | None = None

    async def ensure(self, topics: Any) -> None:
        self.asked.set()
        if self.answers is not None:
            await self.answers.wait()
        self.read.extend(name for name, _ in topics)

    def log_config(self, topic: str) -> Any:
        assert topic in self.read
        return None


def subject(image: MetadataImage | None = None) -> tuple[ControllerRequestHandler, ReplicaManager, Any]:
    logs: Any = CountingLogs()
    configs: Any = Configs()
    replicas = ReplicaManager(0, logs, configs.log_config, HandClock())
    broker = ControllerRequestHandler(replicas, image or MetadataImage(), configs, LoopGate())
    broker.registered(10)
    return broker, replicas, configs


def leader_and_isr(broker_epoch: int, partitions: int = 1) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=index, isr=[0], replicas=[0])
        for index in range(partitions)
    ]
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=b"i" * 16, partition_states=states)
    return LeaderAndIsrRequest(broker_epoch=broker_epoch, topic_states=[topic])


@on_loop
async def test_what_is_said_before_the_registration_waits_for_it() -> None:
    """A broker that comes back quickly is spoken to as the one that it was, while its old registration stands."""
    _, replicas, configs = subject()
    fresh = ControllerRequestHandler(replicas, MetadataImage(), configs, LoopGate())
    requests = [leader_and_isr(9), leader_and_isr(10)]
    answers = [asyncio.ensure_future(fresh.handle(request)) for request in requests]
    await asyncio.sleep(0)
    assert not any(answer.done() for answer in answers)
    assert fresh.broker_epoch == -1
    assert replicas.get("t", 0) is None
    fresh.registered(10)
    codes = [(await answer).error_code for answer in answers]
    assert codes == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]


@pytest.mark.parametrize(("broker_epoch", "refused"), [(-1, False), (9, True), (10, False), (11, False)])
@on_loop
async def test_only_this_life_of_the_broker_obeys(broker_epoch: int, refused: bool) -> None:
    broker, replicas, configs = subject()
    expected = ErrorCode.STALE_BROKER_EPOCH if refused else ErrorCode.NONE
    for request in (
        leader_and_isr(broker_epoch),
        UpdateMetadataRequest(broker_epoch=broker_epoch),
        StopReplicaRequest(broker_epoch=broker_epoch),
    ):
        assert (await broker.send(0, request)).error_code == expected
    assert (replicas.get("t", 0) is None) is refused
    assert configs.read == ([] if refused else ["t"])


@on_loop
async def test_what_comes_late_on_a_connection_that_the_controller_has_given_up_is_refused() -> None:
    image = MetadataImage()
    broker, _, _ = subject(image)

    async def told(controller_epoch: int, connection_number: int, in_sync: int) -> int:
        state = UpdateMetadataRequest.UpdateMetadataPartitionState(isr=[in_sync])
        topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", partition_states=[state])
        request = UpdateMetadataRequest(controller_epoch=controller_epoch, topic_states=[topic])
        code: int = (await broker.handle(request, connection_number)).error_code
        return code

    def known() -> list[int]:
        found = image.partition("t", 0)
        return [] if found is None else found.isr

    assert await told(1, 5, 0) == ErrorCode.NONE
    assert await told(1, 6, 1) == ErrorCode.NONE
    assert await told(1, 5, 0) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert known() == [1]
    # Another controller had connected earlier.
    assert await told(2, 4, 2) == ErrorCode.NONE
    assert known() == [2]


@on_loop
async def test_others_get_their_turn_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    broker, replicas, _ = subject()
    seen: list[int] = []

    async def bystander() -> None:
        while len(replicas.partitions) < 5:
            seen.append(len(replicas.partitions))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(bystander())
    await broker.handle(leader_and_isr(-1, 5))
    await watching
    assert set(seen) >= {1, 2, 3, 4}


@on_loop
async def test_a_request_that_waits_for_settings_is_refused_once_its_session_has_ended() -> None:
    """Without a metadata store the settings cannot be read; when it answers again, others may lead."""
    broker, replicas, configs = subject()
    answers = asyncio.Event()
    configs.answers = answers
    requests = [asyncio.ensure_future(broker.handle(leader_and_isr(10))) for _ in range(2)]
    await configs.asked.wait()
    broker.session_ended()
    answers.set()
    assert (await requests[0]).error_code == ErrorCode.STALE_BROKER_EPOCH
    await asyncio.sleep(0)
    assert not requests[1].done()
    broker.registered(11)
    assert (await requests[1]).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert replicas.get("t", 0) is None
    assert (await broker.handle(leader_and_isr(11))).error_code == ErrorCode.NONE
    assert replicas.partitions["t", 0].is_leader


@on_loop
async def test_leaders_that_are_made_while_the_session_ends_resign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    broker, replicas, _ = subject()
    request = asyncio.ensure_future(broker.handle(leader_and_isr(10, 5)))

    async def half_done() -> None:
        seen = 0
        while seen < 2:
            await asyncio.sleep(0)
            seen = len(replicas.partitions)

    await half_done()
    broker.session_ended()
    assert (await request).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert len(replicas.partitions) == 5
    assert not any(partition.is_leader for partition in replicas.partitions.values())
