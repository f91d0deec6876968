"""ControllerLoop and nodes that were damaged, removed or edited by hand; requests that must not get lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller import loop as controller_loop
from gregor.replication.controller import writes as controller_writes
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create, Delete, NoNode, Set, StoreFull, TooLarge
from gregor.replication.store.nodes import PartitionState
from tests.replication.controller_subject import Subject, running
from tests.replication.fakes import on_loop


async def until(subject: Subject, holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await subject.loop.wait_until(holds, 10)
    await subject.settle()


@on_loop
async def test_a_state_that_cannot_be_read_leaves_the_rest_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2), (2, 1))
        await subject.create("u", (1, 2))
        await subject.store.set(nodes.state_path("t", 0), b"damaged")
        await subject.store.delete(nodes.CONTROLLER)
        await until(subject, lambda: subject.loop.cluster is not None and subject.loop.cluster.epoch == 2)
        await subject.store.delete(nodes.broker_path(2))
        await subject.settle()
        assert await subject.state("u") == PartitionState(1, 1, (1,), 2)
        assert await subject.state("t", 1) == PartitionState(1, 1, (1,), 2)
        found = await subject.store.get(nodes.state_path("t", 0))
        assert found is not None and found[0] == b"damaged"  # its contents are not known
        assert f"{nodes.state_path('t', 0)}" in caplog.text
        # It can be deleted all the same.
        await subject.join(2)
        await subject.store.create(nodes.delete_topic_path("t"))
        await subject.settle()
        assert await subject.store.children(nodes.TOPICS) == ["u"]


@on_loop
async def test_an_epoch_edited_by_hand_brings_a_new_term(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        await subject.store.set(nodes.CONTROLLER_EPOCH, b"7")
        await subject.store.delete(nodes.broker_path(2))
        await subject.settle()
        assert subject.loop.cluster is not None and subject.loop.cluster.epoch == 8
        assert await subject.state("t") == PartitionState(1, 1, (1,), 8)


@on_loop
async def test_an_epoch_that_cannot_be_read_is_read_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_loop, "ELECTION_RETRY_S", 0.001)
    async with running(tmp_path, 2) as subject:
        await subject.store.set(nodes.CONTROLLER_EPOCH, b"damaged")
        await subject.store.delete(nodes.CONTROLLER)
        await until(subject, lambda: not subject.loop.is_active)
        await subject.store.set(nodes.CONTROLLER_EPOCH, b"4")
        await until(subject, lambda: subject.loop.is_active)
        assert subject.loop.cluster is not None and subject.loop.cluster.epoch == 5


@on_loop
async def test_an_election_for_which_the_disk_has_no_room_is_held_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_loop, "FULL_DELAY_S", 0)
    async with running(tmp_path, 2) as subject:
        create = subject.store.create
        refused: list[str] = []

        async def full_once(path: str, *given: Any, **options: Any) -> str:
            if not refused:
                refused.append(path)
                raise StoreFull(path)
            return await create(path, *given, **options)

        monkeypatch.setattr(subject.store, "create", full_once)
        await subject.store.multi([Delete(nodes.CONTROLLER), Delete(nodes.CONTROLLER_EPOCH)])
        await until(subject, lambda: refused and subject.loop.is_active)
        assert refused == [nodes.CONTROLLER_EPOCH]


@pytest.mark.parametrize("path", [nodes.ISR_CHANGE_NOTIFICATIONS, nodes.LOG_DIR_EVENTS, nodes.DELETE_TOPICS])
@on_loop
async def test_a_folder_removed_by_hand_is_made_again_and_watched(tmp_path: Path, path: str) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        await subject.store.delete(path)
        await subject.settle()
        assert subject.loop.is_active
        await subject.store.create(nodes.delete_topic_path("t"), make_parents=True)
        notice = nodes.encode_partition_list([("t", 0)])
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, notice, sequential=True, make_parents=True)
        await subject.store.create(
            nodes.LOG_DIR_EVENT_PREFIX, nodes.encode_log_dir_event(2), sequential=True, make_parents=True
        )
        await subject.settle()
        assert await subject.store.children(nodes.TOPICS) == []
        assert await subject.store.children(path) == []


@on_loop
async def test_a_preferred_election_on_an_outdated_context_is_held_on_the_new_one(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        # A leader's own write, of which the controller does not know yet.
        await subject.store.set(nodes.state_path("t", 0), nodes.encode_state(PartitionState(2, 1, (2, 1), 1)))
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, nodes.encode_partition_list([("t", 0)]), sequential=True)
        await subject.settle()
        await subject.store.set(nodes.state_path("t", 0), nodes.encode_state(PartitionState(2, 1, (1, 2), 1)))
        await subject.store.create(nodes.PREFERRED_ELECTION, nodes.encode_partition_list([("t", 0)]))
        await subject.settle()
        assert await subject.state("t") == PartitionState(1, 2, (1, 2), 1)
        assert await subject.store.exists(nodes.PREFERRED_ELECTION) is None


@on_loop
async def test_a_surprising_response_does_not_stop_the_requests_to_a_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 2) as subject:
        real = subject.brokers.send
        surprises: list[Any] = [ValueError("surprise"), KeyError("more of them")]

        async def surprising(broker_id: int, request: Any) -> Any:
            if broker_id == 2 and surprises:
                raise surprises.pop(0)
            return await real(broker_id, request)

        subject.brokers.send = surprising  # type: ignore[method-assign]
        await subject.create("t", (2, 1))
        await subject.brokers.until(lambda: subject.brokers.led_by(2) == {("t", 0)})
        assert "surprise" in caplog.text


@on_loop
async def test_the_end_of_a_topic_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next topic of that name, created as soon as possible, stays, with its settings."""
    monkeypatch.setattr(controller_writes, "MAX_OPERATIONS", 10)
    topic, config, request = nodes.topic_path("t"), nodes.config_path("topics", "t"), nodes.delete_topic_path("t")
    async with running(tmp_path) as subject:
        await subject.store.create(config, nodes.encode_config({"retention.ms": "5"}))
        await subject.create("t", *[(1,)] * 4)
        real = subject.store.multi
        left: list[bool] = []

        async def watched(operations: Any) -> Any:
            results = await real(operations)
            if await subject.store.exists(topic) is None:
                left.extend([await subject.store.exists(path) is not None for path in (config, request)])
            return results

        monkeypatch.setattr(subject.store, "multi", watched)
        await subject.store.create(request)
        await subject.settle()
        assert left
        assert not any(left)


@on_loop
async def test_a_topic_created_again_is_not_mistaken_for_the_deleted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as subject:
        await subject.create("t", (1,))
        real = subject.store.multi
        path = nodes.topic_path("t")
        found = await subject.store.get(path)
        assert found is not None

        async def answer_lost(operations: Any) -> Any:
            operations = list(operations)
            results = await real(operations)
            if Delete(path) in operations:
                # Done, but the response was lost; and repeated when the topic had been created again.
                monkeypatch.setattr(subject.store, "multi", real)
                await real([Create(path, found[0])])
                raise NoNode(nodes.partitions_path("t"))
            return results

        monkeypatch.setattr(subject.store, "multi", answer_lost)
        await subject.store.create(nodes.delete_topic_path("t"))
        await subject.settle()
        assert await subject.store.children(nodes.TOPICS) == ["t"]
        assert (await subject.state("t")).leader == 1


@on_loop
async def test_a_request_too_large_for_the_store_is_refused_and_the_controller_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1,))
        real = subject.store.multi

        async def too_large(operations: Any) -> Any:
            raise TooLarge(nodes.topic_path("t"), 2_000_000)

        monkeypatch.setattr(subject.store, "multi", too_large)
        with pytest.raises(TooLarge, match="jute.maxbuffer") as error:
            await subject.loop.reassign({("t", 0): (1, 2)})
        assert error.value.code == ErrorCode.INVALID_REQUEST
        monkeypatch.setattr(subject.store, "multi", real)
        await subject.settle()
        assert await subject.loop.reassign({("t", 0): (1, 2)}) == {("t", 0): None}


@pytest.mark.parametrize(
    "order",
    [
        lambda controller: controller.reassign({("t", 0): (1, 2)}),
        lambda controller: controller.elect([TopicPartition("t", 0)], False),
    ],
    ids=["reassign", "elect"],
)
@on_loop
async def test_a_deposed_controller_does_not_answer_that_nothing_is_to_be_done(tmp_path: Path, order: Any) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        # Broker 2 was elected while this broker could not know it, and may have moved the partition.
        await subject.store.lose_session()
        found = await subject.store.get(nodes.CONTROLLER_EPOCH)
        assert found is not None
        elected = Create(nodes.CONTROLLER, nodes.encode_controller(2, 0))
        await subject.store.multi(
            [elected, Set(nodes.CONTROLLER_EPOCH, nodes.encode_controller_epoch(2), found[1].version)]
        )
        (refusal,) = (await order(subject.loop)).values()
        assert isinstance(refusal, KafkaError) and refusal.code == ErrorCode.NOT_CONTROLLER
        await subject.loop.until_idle(30_000)
        assert not subject.loop.is_active
