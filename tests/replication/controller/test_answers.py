"""The controller's responses to brokers, and the changes behind them; over the embedded store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    UpdateMetadataRequest,
)
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.context import Cluster
from gregor.replication.controller.loop import Step
from gregor.replication.store import nodes
from gregor.replication.store.nodes import PartitionState
from tests.replication.controller_subject import Subject, running
from tests.replication.fakes import on_loop

NEWEST = AlterPartitionRequest.MAX_VERSION


async def epoch_of(it: Subject, broker_id: int) -> int:
    stat = await it.store.exists(nodes.broker_path(broker_id))
    assert stat is not None
    return stat.czxid


async def request(it: Subject, *isr: int, topic: str = "t", version: int = NEWEST, **fields: Any) -> Any:
    """One partition's set, as this version of the request holds it."""
    members = [AlterPartitionRequest.BrokerState(broker_id=id_, broker_epoch=-1) for id_ in isr]
    partition = AlterPartitionRequest.PartitionData(leader_epoch=0, partition_epoch=fields.pop("partition_epoch", 0))
    if version < 3:
        partition.new_isr = list(isr)
    else:
        partition.new_isr_with_epochs = members
    assert it.loop.cluster is not None
    known = it.loop.cluster.topics.get(topic)
    asked = AlterPartitionRequest.TopicData(partitions=[partition])
    if version < 2:
        asked.topic_name = topic
    else:
        asked.topic_id = known.topic_id if known is not None else b"x" * 16
    given = {"broker_id": 1, "broker_epoch": await epoch_of(it, 1), **fields}
    return AlterPartitionRequest(topics=[asked], **given)


async def ask(it: Subject, asked: AlterPartitionRequest, version: int = NEWEST) -> AlterPartitionResponse:
    """Over the wire and back, in this version."""
    decoded, _ = AlterPartitionRequest.decode(memoryview(asked.encode(version)), version)
    answer = await ControllerAnswers(it.loop, it.store).answer(decoded, version)
    assert isinstance(answer, AlterPartitionResponse)
    return AlterPartitionResponse.decode(memoryview(answer.encode(version)), version)[0]


@pytest.mark.parametrize("version", range(NEWEST + 1))
@on_loop
async def test_a_set_shrinks_and_grows(tmp_path: Path, version: int) -> None:
    async with running(tmp_path, 2) as it:
        await it.create("t", (1, 2))
        it.brokers.heard.clear()
        answer = await ask(it, await request(it, 1, version=version), version)
        assert answer.error_code == 0
        (topic,) = answer.topics
        (partition,) = topic.partitions
        assert (topic.topic_name == "t") is (version < 2)
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
        assert (partition.isr, partition.partition_epoch) == ([1], 1)
        assert await it.state("t") == PartitionState(1, 0, (1,), 1)
        # All brokers are notified for their clients; no role changes.
        assert {id_ for id_, told in it.brokers.heard if isinstance(told, UpdateMetadataRequest)} == {1, 2}
        assert all(isinstance(told, UpdateMetadataRequest) for _, told in it.brokers.heard)
        again = await ask(it, await request(it, 1, 2, version=version, partition_epoch=1), version)
        assert again.topics[0].partitions[0].isr == [1, 2]
        assert await it.state("t") == PartitionState(1, 0, (1, 2), 1)


@on_loop
async def test_requests_of_other_epochs_and_unknown_brokers_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as it:
        await it.create("t", (1, 2))
        for broker_id, epoch in ((1, -1), (1, await epoch_of(it, 1) - 1), (9, 5)):
            answer = await ask(it, await request(it, 1, broker_id=broker_id, broker_epoch=epoch))
            assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
        unknown = await ask(it, await request(it, 1, topic="u"))
        assert unknown.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        unknown = await ask(it, await request(it, 1, topic="u", version=1), 1)
        assert unknown.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await it.store.delete(nodes.broker_path(2))
        await it.settle()
        assert it.loop.cluster is not None
        known = it.loop.cluster.partition(("t", 0))
        assert known is not None and known.state is not None
        for version, error in ((3, ErrorCode.INELIGIBLE_REPLICA), (1, ErrorCode.OPERATION_NOT_ATTEMPTED)):
            asked = await request(it, 1, 2, version=version, partition_epoch=known.version)
            asked.topics[0].partitions[0].leader_epoch = known.state.leader_epoch
            answer = await ask(it, asked, version)
            assert answer.topics[0].partitions[0].error_code == error
        await it.loop.stop()
        assert (await ask(it, asked, 1)).error_code == ErrorCode.NOT_CONTROLLER


@on_loop
async def test_on_an_outdated_context_the_leader_repeats_its_request(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as it:
        await it.create("t", (1, 2))
        asked = await request(it, 1)
        # Another process writes the node, unknown to the controller.
        await it.store.set(nodes.state_path("t", 0), nodes.encode_state(PartitionState(1, 0, (1, 2), 1)))
        assert (await ask(it, asked)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await it.settle()
        answer = await ask(it, asked)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION


@on_loop
async def test_producer_ids(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as it:
        answers = ControllerAnswers(it.loop, it.store)
        epoch = await epoch_of(it, 2)
        blocks = []
        for _ in range(2):
            answer = await answers.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch))
            blocks.append((answer.error_code, answer.producer_id_start, answer.producer_id_len))
        assert blocks == [(0, 0, 1000), (0, 1000, 1000)]
        found = await it.store.get(nodes.PRODUCER_ID_BLOCK)
        assert found is not None and nodes.decode_producer_id_block(found[0]).broker_id == 2
        for asked, error in (
            (AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch - 1), ErrorCode.STALE_BROKER_EPOCH),
            (AllocateProducerIdsRequest(broker_id=7, broker_epoch=epoch), ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            assert (await answers.allocate_producer_ids(asked)).error_code == error
        await it.store.set(nodes.PRODUCER_ID_BLOCK, b"damaged")
        asked = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
        assert (await answers.allocate_producer_ids(asked)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await it.loop.stop()
        asked = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
        assert (await answers.allocate_producer_ids(asked)).error_code == ErrorCode.NOT_CONTROLLER


@on_loop
async def test_a_caller_that_waits_for_its_turn_is_answered_when_the_term_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as it:

        async def refuse(cluster: Cluster, step: Step) -> None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

        with pytest.raises(KafkaError, match="no"):
            await it.loop.in_turn(refuse)
        assert it.loop.is_active

        async def resign(cluster: Cluster, step: Step) -> None:
            it.spawn(it.loop.stop())
            await it.loop.wait_until(lambda: False)

        with pytest.raises(KafkaError) as raised:
            await it.loop.in_turn(resign)
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        with pytest.raises(KafkaError):
            await it.loop.in_turn(refuse)
