"""Requests about many groups or partitions, answered in pieces as they are in one."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopTurns
from gregor.coordinator.group import coordinator, pieces
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.broker.harness import Harness, running
from tests.coordinator.context import Context

COMMITTED = {"a": [0, 1, 2, 5, 6, 9], "b": [3], "c": [0, 1, 2]}


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(tmp_path_factory.mktemp("node")) as harness:
        harness.ask(FindCoordinatorRequest(key="g"), 1)
        for name in COMMITTED:
            harness.create_topic(name, 10)
        for group in [f"g{number}" for number in range(11)]:
            topics = [
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=100 + index
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in COMMITTED.items()
            ]
            answer = harness.ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
            assert {part.error_code for topic in answer.topics for part in topic.partitions} == {0}
        yield harness


def topics_wanted(version: int) -> list[Any]:
    kind: Any = (
        OffsetFetchRequest.OffsetFetchRequestTopics if version >= 8 else OffsetFetchRequest.OffsetFetchRequestTopic
    )
    return [
        kind(name="a", partition_indexes=list(range(10))),
        kind(name="empty", partition_indexes=[]),
        kind(name="c", partition_indexes=[2, 1]),
        kind(name="nobody", partition_indexes=[7, 8, 9, 10]),
        kind(name="b", partition_indexes=[3]),
    ]


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("version", [2, 7, 8, 9])
def test_offset_fetch(
    groups: Harness, version: int, everything: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = None if everything else topics_wanted(version)
    if version >= 8:
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(
            groups=[kind(group_id="g1", topics=topics), kind(group_id="other", topics=topics), kind(group_id="g2")]
        )
    else:
        request = OffsetFetchRequest(group_id="g1", topics=topics)
    monkeypatch.setattr(pieces, "PARTITIONS_PER_FETCH", 10_000)
    expected = groups.ask(request, version)
    monkeypatch.setattr(pieces, "PARTITIONS_PER_FETCH", at_a_time)
    assert groups.ask(request, version) == expected
    found = expected.groups[0].topics if version >= 8 else expected.topics
    if everything:
        assert {topic.name: [part.partition_index for part in topic.partitions] for topic in found} == COMMITTED
    else:
        assert [topic.name for topic in found] == ["a", "empty", "c", "nobody", "b"]
        assert [part.committed_offset for part in found[2].partitions] == [102, 101]


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 1000])
@pytest.mark.parametrize("generation", [-1, 7])
@pytest.mark.parametrize("version", [2, 5, 9])
def test_offset_commit(
    groups: Harness, version: int, generation: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a metadata too long for one partition, and refused as a whole (there is no generation 7)."""
    monkeypatch.setattr(pieces, "PARTITIONS_PER_COMMIT", at_a_time)
    group = f"commit-{version}-{generation}-{at_a_time}"
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=100 + index,
                    committed_metadata="x" * (5000 if (name, index) == ("a", 2) else 5),
                )
                for index in indexes
            ],
        )
        for name, indexes in COMMITTED.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=topics, generation_id_or_member_epoch=generation, member_id="m" if generation > 0 else ""
    )
    answer = groups.ask(request, version)
    assert {topic.name: [part.partition_index for part in topic.partitions] for topic in answer.topics} == COMMITTED
    errors = {
        (topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions
    }
    fetched = groups.ask(OffsetFetchRequest(group_id=group, topics=None), 7).topics
    found = {topic.name: [part.partition_index for part in topic.partitions] for topic in fetched}
    if generation > 0:
        assert set(errors.values()) == {ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION}
        assert found == {}
    else:
        assert errors.pop(("a", 2)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert set(errors.values()) == {0}
        assert found == {**COMMITTED, "a": [0, 1, 5, 6, 9]}


@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_groups(groups: Harness, at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "ITEMS_PER_STEP", at_a_time)
    monkeypatch.setattr(coordinator, "GROUPS_PER_DELETION", at_a_time)
    names = [f"g{number}" for number in range(11)]
    listed = [group.group_id for group in groups.ask(ListGroupsRequest(), 4).groups]
    assert sorted(name for name in listed if name.startswith("g")) == sorted(names)
    described = groups.ask(DescribeGroupsRequest(groups=[*names, "other"]), 5).groups
    assert [(group.group_id, group.group_state) for group in described] == [
        *((name, "Empty") for name in names),
        ("other", "Dead"),
    ]
    refused = groups.ask(DeleteGroupsRequest(groups_names=[f"no{number}" for number in range(7)]), 2).results
    assert sorted(group.group_id for group in refused) == [f"no{number}" for number in range(7)]
    assert {group.error_code for group in refused} == {ErrorCode.GROUP_ID_NOT_FOUND}


def test_many_small_topics_in_the_old_form_give_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []

    async def count(turns: LoopTurns) -> None:
        passed.append(turns)

    monkeypatch.setattr(LoopTurns, "next", count)
    wanted = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=f"t{number}", partition_indexes=[0]) for number in range(100)
    ]
    with Context() as context:
        response = context.run(
            context.coordinator.offset_fetch(OffsetFetchRequest(group_id="g", topics=wanted, require_stable=False), 7)
        )
    assert len(response.topics) == len(wanted)
    assert len(passed) >= len(wanted)
