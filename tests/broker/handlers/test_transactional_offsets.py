"""Offsets that a transaction commits, on one broker: from InitProducerId to OffsetFetch, by both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    DeleteGroupsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from tests.broker.harness import Harness, running

TOPIC = "orders"
GROUP = "billing"
OLD, NEW = 3, 5
"""Versions of TxnOffsetCommit and EndTxn of the two protocols."""


class Producer:
    """A transactional producer that commits the offsets of a group."""

    def __init__(self, harness: Harness, transactional_id: str = "tx", version: int = OLD) -> None:
        self.harness = harness
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id, self.epoch = -1, -1
        harness.until(self._begins)

    def _begins(self) -> bool:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = self.harness.ask(request, 4)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code == ErrorCode.NONE

    def add_group(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
        )
        return ErrorCode(self.harness.ask(request, 3).error_code)

    def commit_offset(self, offset: int) -> ErrorCode:
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        return ErrorCode(self.harness.ask(request, self.version).topics[0].partitions[0].error_code)

    def begin(self, offset: int) -> None:
        """Begin a transaction with the offset."""
        if self.version < NEW:
            assert self.add_group() is ErrorCode.NONE
        assert self.commit_offset(offset) is ErrorCode.NONE

    def end(self, *, commit: bool) -> None:
        def ended() -> bool:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            answer = self.harness.ask(request, self.version)
            if self.version >= NEW and not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            # After a restart the transactional ids are loaded behind the first answers.
            passing = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            assert answer.error_code in (ErrorCode.NONE, *passing)
            return answer.error_code == ErrorCode.NONE

        self.harness.until(ended)


def begin(harness: Harness) -> None:
    """Let the coordinators and the topic be there."""
    harness.ask(FindCoordinatorRequest(key=GROUP, key_type=0), 2)
    harness.ask(FindCoordinatorRequest(key="tx", key_type=1), 2)
    harness.create_topic(TOPIC)
    harness.until(lambda: committed(harness) == -1)


def committed(harness: Harness, *, stable: bool = False) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    answer = harness.ask(OffsetFetchRequest(group_id=GROUP, topics=[topic], require_stable=stable), 7)
    if answer.error_code:
        return -1000 - int(answer.error_code)
    (part,) = answer.topics[0].partitions
    return -1000 - int(part.error_code) if part.error_code else int(part.committed_offset)


UNSTABLE = -1000 - ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with running(tmp_path / "node") as harness:
        begin(harness)
        yield harness


@pytest.mark.parametrize("version", [OLD, NEW])
def test_offsets_count_once_their_transaction_is_committed(harness: Harness, version: int) -> None:
    producer = Producer(harness, version=version)
    for number in range(3):
        before = committed(harness)
        producer.begin(10 * number)
        assert committed(harness) == before
        assert committed(harness, stable=True) == UNSTABLE
        producer.end(commit=number != 1)
        assert committed(harness, stable=True) == (0 if number < 2 else 20)


def test_a_group_that_was_not_added_to_the_transaction_is_refused(harness: Harness) -> None:
    producer = Producer(harness)
    assert producer.commit_offset(5) is ErrorCode.INVALID_TXN_STATE
    assert committed(harness, stable=True) == -1
    producer.begin(6)
    producer.end(commit=True)
    assert producer.commit_offset(7) is ErrorCode.INVALID_TXN_STATE
    assert committed(harness, stable=True) == 6


def test_a_producer_that_was_replaced_commits_nothing(harness: Harness) -> None:
    old = Producer(harness)
    old.begin(5)
    Producer(harness)
    assert old.commit_offset(6) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
    harness.until(lambda: committed(harness, stable=True) == -1)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_pending_offsets_survive_a_restart(tmp_path: Path, version: int, commit: bool) -> None:
    with running(tmp_path / "node") as harness:
        begin(harness)
        producer = Producer(harness, version=version)
        producer.begin(5)
        producer.end(commit=True)
        producer.begin(6)
    with running(tmp_path / "node") as harness:
        harness.until(lambda: committed(harness) == 5)
        assert committed(harness, stable=True) == UNSTABLE
        producer.harness = harness
        harness.until(lambda: producer.commit_offset(7) is ErrorCode.NONE)
        producer.end(commit=commit)
        assert committed(harness, stable=True) == (7 if commit else 5)
    with running(tmp_path / "node") as harness:
        harness.until(lambda: committed(harness, stable=True) == (7 if commit else 5))


def test_a_deleted_group_does_not_come_back_with_the_transaction(harness: Harness) -> None:
    producer = Producer(harness)
    producer.begin(5)
    answer = harness.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert answer.results[0].error_code == ErrorCode.NONE
    producer.end(commit=True)
    assert committed(harness, stable=True) == -1


def test_plain_commits_beside_a_transaction_are_ordered_by_their_records(harness: Harness) -> None:
    producer = Producer(harness)
    producer.begin(5)
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=6)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    answer = harness.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    producer.end(commit=True)
    assert committed(harness, stable=True) == 6


def test_the_last_stable_offset_of_the_offsets_topic_passes_the_marker(harness: Harness) -> None:
    producer = Producer(harness)
    producer.begin(5)
    index = harness.broker.groups.partition_for(GROUP)
    log = harness.broker.logs.get(GROUP_METADATA_TOPIC, index)
    assert log is not None
    assert log.last_stable_offset < log.log_end_offset
    producer.end(commit=True)
    harness.until(lambda: log.last_stable_offset == log.log_end_offset)


@pytest.mark.slow
def test_compaction_leaves_all_offsets_as_they_are(tmp_path: Path) -> None:
    """Committed, aborted and one open transaction; the log is compacted below the open one, and loaded again."""
    # Only the order below compacts: a run of the cleaner before it would have done a part of its work.
    settings = {"offsets_topic_num_partitions": "1", "log_cleaner_enable": "false", "log_index_interval_bytes": "200"}
    with running(tmp_path / "node", **settings) as harness:
        begin(harness)
        harness.alter_topic(GROUP_METADATA_TOPIC, internal_segment_bytes="2000")
        producers = [Producer(harness, f"tx{number}", version=NEW) for number in range(3)]
        expected = -1
        for number in range(120):
            producer = producers[number % 3]
            producer.begin(number)
            producer.end(commit=number % 4 != 1)
            expected = number if number % 4 != 1 else expected
        producers[0].begin(1000)
        log = harness.broker.logs.logs[GROUP_METADATA_TOPIC, 0]
        size_bytes = log.size_bytes
        assert harness.run(harness.node.cleaner.compact_now(log)).cleaned
        assert log.size_bytes < size_bytes / 2
        assert (committed(harness), committed(harness, stable=True)) == (expected, UNSTABLE)
    with running(tmp_path / "node", **settings) as harness:
        harness.until(lambda: committed(harness) == expected)
        assert committed(harness, stable=True) == UNSTABLE
        producers[0].harness = harness
        producers[0].end(commit=True)
        assert committed(harness, stable=True) == 1000
