"""DescribeTopicPartitions: whole, in slices of any size, with cursors that point anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from tests.broker.harness import Harness, running

SIZES = {"a": 3, "b": 1, "c": 5}
Cursor = tuple[str, int]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A broker that answers at most six partitions at once."""
    folder: Path = tmp_path_factory.mktemp("describe")
    with running(folder, max_request_partition_size_limit="6") as harness:
        for name, partitions in SIZES.items():
            harness.create_topic(name, partitions=partitions)
        yield harness


def ask(
    node: Harness, names: list[str] | None = None, *, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names or ()],
        response_partition_limit=limit,
    )
    if cursor is not None:
        request.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    response: DescribeTopicPartitionsResponse = node.ask(request, 0)
    return response


def listed(response: DescribeTopicPartitionsResponse) -> list[Cursor]:
    return [(topic.name or "", part.partition_index) for topic in response.topics for part in topic.partitions]


def following(response: DescribeTopicPartitionsResponse) -> Cursor | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


ALL = [(name, index) for name, size in SIZES.items() for index in range(size)]


def test_a_topic(node: Harness) -> None:
    response = ask(node, ["b", "b"])
    (topic,) = response.topics
    state = node.broker.metadata.topic("b")
    assert state is not None
    assert (topic.name, topic.topic_id, topic.error_code, topic.is_internal) == ("b", state.topic_id, 0, False)
    assert topic.topic_authorized_operations > 0
    (part,) = topic.partitions
    assert (part.partition_index, part.leader_id, part.leader_epoch, part.error_code) == (0, 0, 0, 0)
    assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ([0], [0], [])
    assert (part.eligible_leader_replicas, part.last_known_elr) == ([], [])
    assert following(response) is None


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5, 6, 7, 2000])
@pytest.mark.parametrize("names", [None, ["c", "a", "b"]])
def test_slices_add_up(node: Harness, limit: int, names: list[str] | None) -> None:
    found: list[Cursor] = []
    cursor: Cursor | None = None
    while True:
        response = ask(node, names, limit=limit, cursor=cursor)
        part = listed(response)
        assert 0 < len(part) <= max(1, min(limit, 6))
        found += part
        cursor = following(response)
        if cursor is None:
            break
        assert len(part) == max(1, min(limit, 6))
    assert found == ALL


def test_a_cursor_anywhere(node: Harness) -> None:
    assert listed(ask(node, cursor=("c", 3))) == [("c", 3), ("c", 4)]
    assert listed(ask(node, cursor=("bb", 2)))[0] == ("c", 0)
    assert ask(node, cursor=("z", 0)).topics == []
    (topic,) = ask(node, ["b"], cursor=("b", 9)).topics
    assert (topic.name, topic.partitions) == ("b", [])


def test_topics_that_are_not_there(node: Harness) -> None:
    response = ask(node, ["b", "absent", "no/name"])
    assert {topic.name: ErrorCode(topic.error_code) for topic in response.topics} == {
        "b": ErrorCode.NONE,
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert node.broker.metadata.topic("absent") is None


@pytest.mark.parametrize("names", [None, ["a", "b"]])
@pytest.mark.parametrize("cursor", [("a", -1), ("c", 0)])
def test_cursors_that_cannot_be(node: Harness, names: list[str] | None, cursor: Cursor) -> None:
    if names is None and cursor[1] >= 0:
        assert ask(node, cursor=cursor).topics[0].error_code == 0
        return
    response = ask(node, names, cursor=cursor)
    assert {topic.name for topic in response.topics} == set(names or ["a"])
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}


def test_without_a_leader(node: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    state = node.broker.metadata.topic("b")
    assert state is not None
    monkeypatch.setitem(state.partitions, 0, state.partitions[0]._replace(leader=-1, offline_replicas=[0]))
    (topic,) = ask(node, ["b"]).topics
    assert (topic.partitions[0].leader_id, topic.partitions[0].offline_replicas) == (-1, [0])
