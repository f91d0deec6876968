"""OffsetForLeaderEpoch, every version. After Kafka's LeaderEpochFileCache.endOffsetFor."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import OffsetForLeaderEpochRequest
from tests.broker.harness import Harness

VERSIONS = range(0, 5)


def ask(
    harness: Harness, version: int, topic: str, epoch: int, *, partition: int = 0, current: int = -1
) -> tuple[ErrorCode, int, int]:
    make = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    wanted = make(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    if version >= 3:
        request.replica_id = -1
    (found,) = harness.ask(request, version).topics
    (answer,) = found.partitions
    assert (found.topic, answer.partition) == (topic, partition)
    return ErrorCode(answer.error_code), answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_where_epochs_ended(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a", b"b")
    harness.add_follower(topic)
    harness.add_follower(topic)  # epoch 1 got no record
    harness.produce(topic, b"c")
    found = {epoch: ask(harness, version, topic, epoch) for epoch in range(-1, 4)}
    ends = {-1: (-1, -1), 0: (0, 2), 1: (0, 2), 2: (2, 3), 3: (-1, -1)}
    if version < 1:  # which has no room for the epoch
        ends = {epoch: (-1, end_offset) for epoch, (_, end_offset) in ends.items()}
    assert found == {epoch: (ErrorCode.NONE, *end) for epoch, end in ends.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_errors(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(harness, version, "absent", 0) == unknown
    assert ask(harness, version, topic, 0, partition=5) == unknown
    if version >= 2:
        assert ask(harness, version, topic, 0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        harness.add_follower(topic)
        assert ask(harness, version, topic, 0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    harness.hand_over(topic)
    assert ask(harness, version, topic, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
