"""Requests of controllers to brokers (keys 4 to 6) and of brokers to controllers (keys 7, 56 and 67).

All versions of a request must have the same effect. A broker without a cluster serves none of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.registry import load_handlers
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ApiVersionsRequest,
    ControlledShutdownRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tests.broker.harness import Harness, Wire, request_frame

AMONG_BROKERS = [4, 5, 6, 7, 56, 67]
ID = b"i" * 16
NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("broker")).start()
    yield harness
    harness.stop()


@pytest.fixture(scope="module")
def member(harness: Harness) -> Harness:
    """The same broker, as if it had others beside it."""
    harness.broker.handlers = load_handlers()
    return harness


def epochs(harness: Harness) -> dict[str, Any]:
    broker = harness.broker
    return {
        "controller_epoch": broker.replicas.controller_epoch,
        "broker_epoch": broker.controller_requests.broker_epoch,
    }


def test_a_broker_that_is_alone_serves_nothing_of_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path).start()
    answer = harness.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    served = {api.api_key for api in answer.api_keys}
    assert served.isdisjoint(AMONG_BROKERS)
    assert served | set(AMONG_BROKERS) == set(load_handlers(telemetry=False))
    harness.stop()


# -- LeaderAndIsr and StopReplica --------------------------------------------------------------------------------------


def leader_and_isr(harness: Harness, topic: str, version: int, indexes: range, **fields: Any) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=index, leader=0, leader_epoch=3, isr=[0], partition_epoch=4, replicas=[0, 9]
        )
        for index in indexes
    ]
    request = LeaderAndIsrRequest(**{**epochs(harness), **fields})
    if version < 2:
        for state in states:
            state.topic_name = topic
        request.ungrouped_partition_states = states
    else:
        told = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=topic, topic_id=ID, partition_states=states)
        request.topic_states = [told]
    return request


def stop_replica(harness: Harness, topic: str, version: int, indexes: range, **fields: Any) -> StopReplicaRequest:
    request = StopReplicaRequest(**{**epochs(harness), **fields})
    if version < 3:
        request.delete_partitions = True
    if version == 0:
        request.ungrouped_partitions = [
            StopReplicaRequest.StopReplicaPartitionV0(topic_name=topic, partition_index=index) for index in indexes
        ]
    elif version < 3:
        request.topics = [StopReplicaRequest.StopReplicaTopicV1(name=topic, partition_indexes=list(indexes))]
    else:
        states = [
            StopReplicaRequest.StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
            for index in indexes
        ]
        request.topic_states = [StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=states)]
    return request


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr(member: Harness, version: int) -> None:
    topic = f"led-{version}"
    answer = member.ask(leader_and_isr(member, topic, version, range(2)), version)
    assert answer.error_code == 0
    if version < 5:
        said = [(one.topic_name, one.partition_index, one.error_code) for one in answer.partition_errors]
        assert said == [(topic, 0, 0), (topic, 1, 0)]
    else:
        assert answer.topics[0].topic_id == ID
        assert [(one.partition_index, one.error_code) for one in answer.topics[0].partition_errors] == [(0, 0), (1, 0)]
    for index in range(2):
        partition = member.broker.replicas.get(topic, index)
        assert partition is not None and partition.is_leader
        assert (partition.leader_epoch, partition.partition_epoch, partition.isr) == (3, 4, [0])
    stopping = member.ask(stop_replica(member, topic, min(version, 4), range(2)), min(version, 4))
    assert [(one.topic_name, one.partition_index, one.error_code) for one in stopping.partition_errors] == [
        (topic, 0, 0),
        (topic, 1, 0),
    ]
    assert member.broker.replicas.get(topic, 0) is None
    assert member.broker.logs.get(topic, 1) is None


@pytest.mark.parametrize(
    ("field", "error"),
    [("controller_epoch", ErrorCode.STALE_CONTROLLER_EPOCH), ("broker_epoch", ErrorCode.STALE_BROKER_EPOCH)],
)
def test_who_is_not_obeyed(member: Harness, field: str, error: ErrorCode) -> None:
    stale = {field: epochs(member)[field] - 1}
    for request, version in (
        (leader_and_isr(member, "stale", 7, range(1), **stale), 7),
        (stop_replica(member, "stale", 4, range(1), **stale), 4),
        (UpdateMetadataRequest(**{**epochs(member), **stale}), 8),
    ):
        assert member.ask(request, version).error_code == error
    if field == "controller_epoch":
        (by_name,) = member.ask(leader_and_isr(member, "stale", 1, range(1), **stale), 1).partition_errors
        assert (by_name.topic_name, by_name.partition_index, by_name.error_code) == ("stale", 0, error)
        (topic,) = member.ask(leader_and_isr(member, "stale", 7, range(1), **stale), 7).topics
        assert [(one.partition_index, one.error_code) for one in topic.partition_errors] == [(0, error)]
    assert member.broker.replicas.get("stale", 0) is None


# -- UpdateMetadata ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(9))
def test_update_metadata(member: Harness, version: int) -> None:
    image = member.broker.metadata
    before = image.brokers
    controller_id = image.controller_id
    topic = f"known-{version}"
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=1, leader=9, leader_epoch=2, isr=[9], replicas=[9, 0]
    )
    other = UpdateMetadataRequest.UpdateMetadataBroker(id=9)
    if version < 1:
        other.v0_host, other.v0_port = "near", 99
    else:
        endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(host="near", port=99)
        if version >= 3:
            endpoint.listener = "PLAINTEXT"
        other.endpoints = [endpoint]
    if version >= 2:
        other.rack = "r"
    request = UpdateMetadataRequest(controller_id=9, live_brokers=[other], **epochs(member))
    if version < 5:
        state.topic_name = topic
        request.ungrouped_partition_states = [state]
    else:
        request.topic_states = [
            UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=topic, topic_id=ID, partition_states=[state])
        ]
    assert member.ask(request, version).error_code == 0
    assert image.controller_id == 9
    assert image.brokers[9].endpoints == {"PLAINTEXT": ("near", 99, 0)}
    assert image.brokers[9].rack == ("r" if version >= 2 else None)
    known = image.partition(topic, 1)
    assert known is not None and (known.leader, known.leader_epoch, known.isr, known.replicas) == (9, 2, [9], [9, 0])
    image.brokers, image.controller_id = before, controller_id


# -- one at a time -----------------------------------------------------------------------------------------------------


def test_requests_of_two_controllers_do_not_mix(member: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.broker.jobs.turns.TURN_S", -1.0)  # a turn for others after each partition
    broker = member.broker
    old, new = epochs(member)["controller_epoch"], epochs(member)["controller_epoch"] + 1
    first = leader_and_isr(member, "busy", 7, range(5))
    second = stop_replica(member, "busy", 4, range(5), controller_epoch=new)
    late = leader_and_isr(member, "busy", 7, range(5), controller_epoch=old)
    answers = [member.begin(request, version, turns=1) for request, version in ((first, 7), (second, 4), (late, 7))]
    done = member.run(asyncio.gather(*answers))
    assert [answer.error_code for answer in done] == [0, 0, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert len(done[0].topics[0].partition_errors) == 5
    assert all(broker.replicas.get("busy", index) is None for index in range(5))
    broker.replicas.controller_epoch = old


# -- requests to the controller ----------------------------------------------------------------------------------------


def test_the_controller_answers_brokers(member: Harness) -> None:
    broker_epoch = member.broker.controller_requests.broker_epoch
    for version in range(4):
        asked = AlterPartitionRequest(broker_id=0, broker_epoch=broker_epoch)
        assert member.ask(asked, version).error_code == 0
        stale = AlterPartitionRequest(broker_id=0, broker_epoch=broker_epoch - 1)
        assert member.ask(stale, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    ids = member.ask(AllocateProducerIdsRequest(broker_id=0, broker_epoch=broker_epoch), 0)
    assert (ids.error_code, ids.producer_id_len) == (0, 1000)
    for version in range(4):
        unknown = member.ask(ControlledShutdownRequest(broker_id=9), version)
        assert unknown.error_code == ErrorCode.BROKER_NOT_AVAILABLE


def test_the_request_header_without_a_client_id(member: Harness) -> None:
    wire = Wire(member)
    frame = request_frame(ControlledShutdownRequest(broker_id=0x4142), 0)
    assert frame == bytes.fromhex("0000000c 0007 0000 00000007 00004142")
    wire.send(frame)
    begin_s = time.monotonic()
    while not wire.transport.written and time.monotonic() < begin_s + 30:
        member.turn()
    # Correlation id, error, no partitions.
    assert bytes(wire.transport.written) == bytes.fromhex("0000000a 00000007 0008 00000000")


def test_others_say_that_they_are_not_the_controller(member: Harness) -> None:
    controller = member.node.controller
    assert controller is not None
    cluster, controller.cluster = controller.cluster, None
    try:
        for request, version in (
            (ControlledShutdownRequest(broker_id=0), 3),
            (AlterPartitionRequest(broker_id=0), 3),
            (AllocateProducerIdsRequest(broker_id=0), 0),
        ):
            assert member.ask(request, version).error_code == ErrorCode.NOT_CONTROLLER
        # Clients' requests: each topic is answered once, before any other check.
        creation = [CreateTopicsRequest.CreatableTopic(name=name) for name in ("a", "a", "?")]
        made = member.ask(CreateTopicsRequest(topics=creation), 7)
        assert [(one.name, one.error_code) for one in made.topics] == [("a", NOT_CONTROLLER), ("?", NOT_CONTROLLER)]
        widening = [CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=0) for name in ("a", "b")]
        wider = member.ask(CreatePartitionsRequest(topics=widening), 3)
        assert [(one.name, one.error_code) for one in wider.results] == [("a", NOT_CONTROLLER), ("b", NOT_CONTROLLER)]
        gone = member.ask(DeleteTopicsRequest(topic_names=["a"]), 5)
        assert [(one.name, one.error_code) for one in gone.responses] == [("a", NOT_CONTROLLER)]
        by_id = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=ID)])
        (one,) = member.ask(by_id, 6).responses
        assert (one.name, one.topic_id, one.error_code) == (None, ID, NOT_CONTROLLER)
    finally:
        controller.cluster = cluster
