"""gregor.broker.cluster.first_topics: created here if this broker is the controller, else by forwarding to that one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker.cluster.first_topics import make_first_topics
from gregor.broker.cluster.topic_forwarder import TopicForwarder
from gregor.config.environment import TopicWish
from gregor.protocol.errors import ErrorCode, KafkaError
from tests.broker.harness import Harness


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path).start()
    yield harness
    harness.stop()


def make(node: Harness, *wishes: TopicWish, give_up_s: float = 0.0) -> None:
    broker = node.broker
    node.run(
        make_first_topics(
            broker.config, broker.metadata, broker.admin, broker.gate, wishes, try_again_s=0.001, give_up_s=give_up_s
        )
    )


def test_made_with_numbers_and_policy_and_left_alone_where_they_exist(
    node: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        make(node, TopicWish("orders", 3, 1, None), TopicWish("state", -1, -1, "compact,delete"))
    assert node.broker.metadata.partition_count("orders") == 3
    assert node.broker.metadata.partition_count("state") == 1
    assert node.broker.topic_configs.log_config("state").cleanup_policy == {"compact", "delete"}
    assert [line.removeprefix("KAFKA_CREATE_TOPICS: ") for line in caplog.messages if "CREATE_TOPICS" in line] == [
        "created orders",
        "created state",
        "orders exists already",
        "state exists already",
    ]


def test_what_can_never_be_is_told_once_and_the_rest_is_made(node: Harness, caplog: pytest.LogCaptureFixture) -> None:
    make(
        node, TopicWish("a b", 1, 1, None), TopicWish("odd", 1, 1, "shred"), TopicWish("good", 1, 1, None), give_up_s=9
    )
    assert node.broker.metadata.partition_count("good") == 1
    assert [line.split()[1] for line in caplog.messages if "is not created" in line] == ["a", "odd"]


def test_replicas_that_have_no_broker_yet_are_waited_for(
    node: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    create = node.broker.admin.create_topics

    async def two_of_three_brokers(topics: list[object]) -> list[object]:
        asked.append(topics)
        if len(asked) < 4:
            return [KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")]
        return list(await create(topics))  # type: ignore[arg-type]

    monkeypatch.setattr(node.broker.admin, "create_topics", two_of_three_brokers)
    make(node, TopicWish("orders", 1, 1, None), give_up_s=60)
    assert len(asked) == 4
    assert node.broker.metadata.partition_count("orders") == 1
    assert sum(" waits: " in line for line in caplog.messages) == 1


def test_the_wait_ends(node: Harness, caplog: pytest.LogCaptureFixture) -> None:
    make(node, TopicWish("orders", 1, 3, None), give_up_s=0.003)
    assert sum("orders is not created: INVALID_REPLICATION_FACTOR" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_creation_is_forwarded_to_the_controller(
    node: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_new: bool
) -> None:
    """Another broker may have created the topic meanwhile: the line in the log does not claim it."""
    caplog.set_level(logging.INFO)
    asked: list[object] = []

    async def refuse(topics: object) -> object:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async def create_topic(self: TopicForwarder, *topic: object) -> bool:
        asked.append(topic)
        if len(asked) == 1:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the controller does not create topics now")
        return is_new

    monkeypatch.setattr(node.broker.admin, "create_topics", refuse)
    monkeypatch.setattr(TopicForwarder, "create_topic", create_topic)
    make(node, TopicWish("orders", 2, 3, "compact"), give_up_s=60)
    assert asked == [("orders", 2, 3, {"cleanup.policy": "compact"})] * 2
    result = "created orders" if is_new else "orders exists already"
    assert caplog.messages[-1] == f"KAFKA_CREATE_TOPICS: {result}"
