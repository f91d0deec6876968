"""Repeated offset commits beside the general path: two brokers get the same requests, and only one recognises them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.registry import Entry
from gregor.coordinator.group.commits.repeated import MAX_PARTITIONS
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.broker.harness import Harness, Wire, request_frame

OFFSET_COMMIT = ApiKey.OFFSET_COMMIT.value
VERSIONS = range(1, 11)
PARTITIONS = MAX_PARTITIONS + 1


class Side:
    """A broker, a connection, and the number of commits that its handler has served."""

    def __init__(self, folder: Path, *, recognises: bool) -> None:
        self.harness = harness = Harness(folder).start()
        self.served = 0
        self.topic_id = harness.create_topic("t", PARTITIONS)
        harness.ask(FindCoordinatorRequest(key="g"), 0)
        harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)
        entry: Entry = harness.broker.handlers[OFFSET_COMMIT]

        def count(broker: Any, request: Any, call: Any) -> Any:
            self.served += 1
            return entry.handler(broker, request, call)

        broker: Any = harness.broker
        broker.handlers = {
            **broker.handlers,
            OFFSET_COMMIT: Entry(
                entry.key,
                entry.min_version,
                entry.max_version,
                count,
                changes=True,
                eager=True,
                is_short=entry.is_short,
                numbers=entry.numbers if recognises else None,
            ),
        }
        self.wire = Wire(harness)

    def send(self, request: OffsetCommitRequest, version: int) -> bytes:
        """Return the bytes of the response."""
        begin = len(self.wire.transport.written)
        self.wire.send(request_frame(request, version))
        self.harness.turn()
        return bytes(self.wire.transport.written[begin:])

    def commit(self, version: int, offsets: dict[int, int], **fields: Any) -> bytes:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t" if version < 10 else "",
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                for index, offset in offsets.items()
            ],
        )
        if version >= 10:
            topic.topic_id = self.topic_id
        return self.send(OffsetCommitRequest(group_id="g", topics=[topic], **fields), version)

    def committed(self) -> dict[int, tuple[int, int, str]]:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = self.harness.ask(OffsetFetchRequest(groups=[group]), 8)
        return {
            part.partition_index: (part.committed_offset, part.committed_leader_epoch, part.metadata)
            for topic in answer.groups[0].topics
            for part in topic.partitions
        }


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    found = Side(tmp_path / "quick", recognises=True), Side(tmp_path / "general", recognises=False)
    yield found
    for side in found:
        side.wire.close()
        side.harness.stop()


def same(sides: tuple[Side, Side], version: int, offsets: dict[int, int], **fields: Any) -> None:
    """Let both brokers serve a commit: their responses have the same bytes, but for the ids of topics."""
    quick, general = (side.commit(version, offsets, **fields).replace(side.topic_id, b"id" * 8) for side in sides)
    assert quick == general != b""


def test_repeated_commits_have_the_effect_and_the_bytes_of_the_general_path(sides: tuple[Side, Side]) -> None:
    quick, general = sides
    for version in VERSIONS:
        before = quick.served
        for offset in range(10):
            same(sides, version, {0: offset, 2: 2**40 + version})
        # The first two are decoded; commits with times of their own always are.
        assert quick.served - before == (2 if version >= 5 else 10), version
        assert quick.committed() == general.committed()
        assert quick.committed()[0][0] == 9
    assert general.served == 10 * len(VERSIONS)


def test_random_sequences_of_commits_have_the_same_effect_and_bytes(sides: tuple[Side, Side]) -> None:
    quick, general = sides
    chance = random.Random(848)
    shapes = [[0], [1], [0, 1], [PARTITIONS], list(range(PARTITIONS)), [0, 0]]
    for _ in range(60):
        shape, version = chance.choice(shapes), chance.choice((5, 8, 9))
        fields = chance.choice(({}, {}, {"generation_id_or_member_epoch": 3, "member_id": "m"}))
        for _ in range(chance.randrange(1, 4)):
            same(sides, version, {index: chance.randrange(-1, 2**63) for index in shape}, **fields)
    assert quick.committed() == general.committed()
    assert quick.served < general.served


def test_a_commit_is_served_by_its_handler_when_its_partition_has_gone(sides: tuple[Side, Side]) -> None:
    quick, _ = sides
    for offset in range(4):
        same(sides, 9, {0: offset})
    assert quick.served == 2
    metadata = quick.harness.broker.metadata
    quick.harness.broker.groups.on_partition_count(metadata.partition_count("__consumer_offsets") + 1)
    quick.commit(9, {0: 4})
    assert quick.served == 3


def test_restarted_broker_has_what_repeated_commits_have_written(tmp_path: Path) -> None:
    side = Side(tmp_path / "one", recognises=True)
    for offset in range(20):
        side.commit(9, {0: offset, 1: offset * 3})
    before = side.committed()
    assert before == {0: (19, -1, ""), 1: (57, -1, "")}
    side.wire.close()
    side.harness.stop()
    again = Harness(tmp_path / "one").start()
    side.harness = again
    again.ask(FindCoordinatorRequest(key="g"), 0)
    again.until(lambda: again.ask(ListGroupsRequest(), 0).error_code == 0)
    assert side.committed() == before
    again.stop()


def test_a_commit_that_the_group_refuses_has_the_error_of_the_general_path(sides: tuple[Side, Side]) -> None:
    for offset in range(4):
        same(sides, 9, {0: offset})
    stale = {"generation_id_or_member_epoch": 1, "member_id": "nobody"}
    for offset in range(4):
        same(sides, 9, {0: offset}, **stale)
    assert ErrorCode.UNKNOWN_MEMBER_ID.value.to_bytes(2) in sides[0].commit(9, {0: 1}, **stale)
