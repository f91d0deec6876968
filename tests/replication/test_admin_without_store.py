"""Admin requests while the metadata store does not answer: each is answered in its time, and none is done later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import AllocateProducerIdsRequest, AlterPartitionRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.replication.admin.configs import replacement
from gregor.replication.admin.topics import NewTopic
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.requests import metadata_of, update_metadata
from gregor.replication.store import nodes, time_limit
from gregor.replication.store.embedded import EmbeddedStore
from gregor.replication.store.metadata_store import Create, Delete
from tests.replication.fakes import on_loop
from tests.replication.test_single_node import Node, node

AWAY_MS = 20


class Away:
    """Stands before a store; while it is shut, its callers wait."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.open = asyncio.Event()
        self.waiting = 0
        for name in ("get", "get_many", "exists", "children", "multi", "create", "set", "delete"):
            setattr(store, name, self._behind(getattr(store, name)))

    def _behind(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*arguments: Any, **named: Any) -> Any:
            self.waiting += 1
            try:
                await self.open.wait()
            finally:
                self.waiting -= 1
            return await ask(*arguments, **named)

        return asked


def shut(running: Node, monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(time_limit, "MIN_MS", AWAY_MS)
    monkeypatch.setattr(time_limit, "MAX_MS", AWAY_MS)
    return Away(running.store)


async def code(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        async with asyncio.timeout(30):
            await work
    return raised.value.code


def codes(results: Any) -> list[ErrorCode]:
    assert all(isinstance(result, KafkaError) for result in results)
    return [result.code for result in results]


@on_loop
async def test_writes_are_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path) as running:
        await running.admin.create_topic("t")
        away = shut(running, monkeypatch)
        admin = running.admin
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        async with asyncio.timeout(30):
            assert codes(await admin.create_topics([NewTopic("a"), NewTopic("b")], 10)) == [timed_out] * 2
            assert codes(await admin.create_topics([NewTopic("c")], 2**31 - 1)) == [timed_out]
            assert codes(await admin.delete_topics(["t", "a"], 10)) == [timed_out] * 2
        assert await code(admin.create_partitions("t", 3)) is timed_out
        assert await code(admin.settings.alter("topics", "t", replacement({"retention.ms": "1"}))) is timed_out
        assert await code(admin.settings.texts("groups", "g")) is timed_out
        assert await code(admin.settings.names("groups")) is timed_out
        answers = ControllerAnswers(running.controller, running.store)
        assert running.controller.cluster is not None
        epoch = running.controller.cluster.brokers[0].epoch
        given = await answers.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=0, broker_epoch=epoch))
        assert given.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert away.waiting == 0
        away.open.set()
        monkeypatch.undo()
        assert (await admin.create_topic("later")).partitions == 1
        assert sorted(await running.store.children(nodes.TOPICS)) == ["later", "t"]
        assert await running.store.children(nodes.DELETE_TOPICS) == []


@on_loop
async def test_work_that_waits_for_its_turn_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path) as running:
        await running.admin.create_topic("t")
        away = shut(running, monkeypatch)
        admin, loop = running.admin, running.controller
        # The controller begins to read the registrations again.
        await EmbeddedStore.multi(running.store, [Create(f"{nodes.BROKER_IDS}/no-broker")])
        begun: list[str] = []

        async def work(*_: Any) -> None:
            begun.append("work")

        async with asyncio.timeout(30):
            elected = await admin.replicas.elect_leaders([("t", 0)], 10)
        assert codes(elected.values()) == [ErrorCode.REQUEST_TIMED_OUT]
        assert await code(admin.replicas.reassign({("t", 0): (0,)}, 10)) is ErrorCode.REQUEST_TIMED_OUT
        assert await code(admin.replicas.reassignments(None, 10)) is ErrorCode.REQUEST_TIMED_OUT
        assert await code(time_limit.TimeLimit().within(lambda: loop.in_turn(work))) is ErrorCode.REQUEST_TIMED_OUT
        answers = ControllerAnswers(loop, running.store)
        told = await answers.alter_partition(AlterPartitionRequest(broker_id=0), 3)
        assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert away.waiting == 1  # the controller itself
        away.open.set()
        monkeypatch.undo()
        assert await admin.replicas.elect_leaders([("t", 0)], 30_000) != {}
        assert begun == []


@on_loop
async def test_metadata_of_the_next_controller_completes_a_wait(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        decided = asyncio.ensure_future(
            running.controller.wait_until(lambda: running.image.topic("t") is not None, 30_000)
        )
        await running.admin.create_topic("u")
        cluster = running.controller.cluster
        assert cluster is not None
        claim = nodes.encode_controller(2, 0)
        await running.store.multi([Delete(nodes.CONTROLLER), Create(nodes.CONTROLLER, claim)])
        await running.controller.until_idle(30_000)
        assert not running.controller.is_active
        assert not decided.done()
        [created] = metadata_of(cluster, [TopicPartition("u", 0)])
        created.topic_name, created.topic_id = "t", bytes(15) + b"t"
        assert run_all(running.image.apply(update_metadata(cluster, 0, [created]))).error_code == 0
        assert await decided is True
