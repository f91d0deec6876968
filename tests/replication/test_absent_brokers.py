"""Topics that have replicas on brokers that are away: created, deleted, and the errors for their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import random_uuid
from gregor.replication.admin.topics import NewTopic
from gregor.replication.store import nodes
from tests.replication.fakes import on_loop
from tests.replication.test_single_node import Node, node

AWAY, NOBODY = 5, 6


async def spread_wide(running: Node, name: str, replicas: tuple[int, ...]) -> None:
    """A topic of which a broker has a replica that is not there now."""
    topic = nodes.TopicAssignment(random_uuid(), nodes.replica_assignments({0: replicas}))
    await running.store.create(nodes.topic_path(name), nodes.encode_topic(topic))
    assert await running.controller.wait_until(lambda: running.image.topic(name) is not None, 30_000)


@on_loop
async def test_a_deletion_does_not_wait_for_a_broker_that_is_away(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        await spread_wide(running, "wide", (0, AWAY))
        assert running.replicas.get("wide", 0) is not None
        assert await running.admin.delete_topics(["wide"], 600_000) == [None]
        assert running.image.topic("wide") is None
        assert running.replicas.get("wide", 0) is None
        assert await running.store.exists(nodes.delete_topic_path("wide")) is not None
        with pytest.raises(KafkaError, match="wide is still being deleted") as refused:
            await running.admin.create_topic("wide", 1)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


@on_loop
async def test_replicas_may_be_given_to_a_broker_that_is_away_but_not_to_an_unknown_one(tmp_path: Path) -> None:
    async with node(tmp_path) as running:
        new = NewTopic("new", assignments={0: [0, AWAY], 1: [AWAY, 0]})
        (refused,) = await running.admin.create_topics([new])
        assert isinstance(refused, KafkaError) and refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await spread_wide(running, "wide", (0, AWAY))
        (created,) = await running.admin.create_topics([new])
        assert not isinstance(created, KafkaError) and created.partitions == 2
        topic = running.image.topic("new")
        assert topic is not None
        assert {index: (state.leader, state.isr) for index, state in topic.partitions.items()} == {
            0: (0, [0]),
            1: (0, [0]),
        }
        (refused,) = await running.admin.create_topics([NewTopic("typo", assignments={0: [0, AWAY, NOBODY]})])
        assert isinstance(refused, KafkaError) and f"[{NOBODY}]" in str(refused)
