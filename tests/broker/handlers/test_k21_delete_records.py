"""DeleteRecords: hidden records, refused requests, the wait for followers, and that a crash brings nothing back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteRecordsRequest, ListOffsetsRequest
from tests.broker.harness import Harness, running

EARLIEST = -2


def request(wanted: dict[str, dict[int, int]], timeout_ms: int = 1000) -> DeleteRecordsRequest:
    """`wanted`: offsets by topic and partition."""
    part = DeleteRecordsRequest.DeleteRecordsPartition
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name=name,
                partitions=[part(partition_index=index, offset=offset) for index, offset in offsets.items()],
            )
            for name, offsets in wanted.items()
        ],
        timeout_ms=timeout_ms,
    )


def told(answer: Any) -> dict[tuple[str, int], tuple[ErrorCode, int]]:
    """(error, low watermark) of each partition."""
    return {
        (topic.name, one.partition_index): (ErrorCode(one.error_code), one.low_watermark)
        for topic in answer.topics
        for one in topic.partitions
    }


def delete(harness: Harness, topic: str, offset: int, version: int = 2, **fields: Any) -> tuple[ErrorCode, int]:
    return told(harness.ask(request({topic: {0: offset}}, **fields), version))[topic, 0]


def earliest(harness: Harness, topic: str) -> int:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    asked = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])])
    offset: int = harness.ask(asked, 7).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_lies_below_the_offset_is_gone(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    for value in b"abcde":
        harness.produce(topic, bytes([value]))
    assert delete(harness, topic, 3, version) == (ErrorCode.NONE, 3)
    assert earliest(harness, topic) == 3
    assert harness.fetch(topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in harness.records(topic, 3)] == [b"d", b"e"]
    # An offset that is hidden already changes nothing; -1 means the high watermark.
    assert delete(harness, topic, 1, version) == (ErrorCode.NONE, 3)
    assert delete(harness, topic, -1, version) == (ErrorCode.NONE, 5)
    assert harness.records(topic, 5) == []
    assert harness.produce(topic, b"f").base_offset == 5


def test_offsets_outside_of_the_log_are_refused(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a", b"b")
    assert delete(harness, topic, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(harness, topic, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert earliest(harness, topic) == 0


def test_only_where_the_policy_deletes(harness: Harness, topic: str) -> None:
    for policy, error in (("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)):
        name = f"{topic}{len(policy)}"
        harness.create_topic(name, cleanup_policy=policy)
        harness.produce(name, (b"key", b"value"))
        assert delete(harness, name, 1)[0] == error


def test_partitions_are_answered_one_by_one(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    harness.produce(topic, b"a", b"b")
    asked = request({topic: {0: 1, 1: 1, 7: 0}, "absent": {0: 0}, "__consumer_offsets": {0: 0}})
    asked.topics.append(request({topic: {0: 2}}).topics[0])
    assert told(harness.ask(asked, 2)) == {
        (topic, 0): (ErrorCode.NONE, 2),
        (topic, 1): (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (topic, 7): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("absent", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("__consumer_offsets", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
    }


def test_it_waits_until_the_followers_start_there_too(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a", b"b")
    partition = harness.broker.replicas.get(topic, 0)
    assert partition is not None
    brokers = harness.broker.metadata.brokers
    monkeypatch.setattr(harness.broker.metadata, "brokers", {**brokers, 5: brokers[0]})
    harness.add_follower(topic)
    partition.leadership.update_follower(5, 2, harness.broker.now_ms(), log_start_offset=0)
    asked = harness.begin(request({topic: {0: 1}}), 2, turns=200)
    harness.until(lambda: partition.log_start_offset == 1)
    assert not asked.done()
    partition.leadership.update_follower(5, 2, harness.broker.now_ms(), log_start_offset=1)
    assert told(harness.run(asked)) == {(topic, 0): (ErrorCode.NONE, 1)}
    # A follower that does not catch up delays the answer up to the timeout only; the records are deleted anyway.
    assert delete(harness, topic, 2, timeout_ms=20) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    assert partition.log_start_offset == 2
    asked = harness.begin(request({topic: {0: 2}}, timeout_ms=30_000), 2, turns=200)
    harness.hand_over(topic)
    assert told(harness.run(asked)) == {(topic, 0): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}
    assert delete(harness, topic, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize("crash", [False, True])
def test_deleted_records_stay_deleted(tmp_path: Path, crash: bool) -> None:
    with running(tmp_path / "first") as harness:
        harness.create_topic("orders")
        for _ in range(5):
            harness.produce("orders", b"x")
        assert delete(harness, "orders", 3) == (ErrorCode.NONE, 3)
        copy = harness.copy(tmp_path / "crashed")
    with running(copy if crash else tmp_path / "first") as harness:
        assert earliest(harness, "orders") == 3
        assert [record.offset for record in harness.records("orders", 3)] == [3, 4]


def test_whole_segments_go_with_the_next_retention_run(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, segment_bytes="1048576", retention_ms="-1")
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    for _ in range(3):
        harness.produce(topic, b"x")
        log.roll(harness.broker.now_ms())
    assert delete(harness, topic, 2) == (ErrorCode.NONE, 2)
    assert log.segments_count == 4
    log.retention.delete_due(harness.broker.now_ms())
    assert [segment.base_offset for segment in log.segments] == [2, 3]
