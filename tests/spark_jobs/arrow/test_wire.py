"""Ranges fetched from a leader: a fake one that follows a script, and a real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.spark_jobs.arrow.decoder import AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.plan import CorruptRecords, DataLoss, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.wire import WireReader
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from tests.spark_jobs.arrow.fake_leader import SETTINGS, TOPIC_ID, FakeClock, FakeLeader
from tests.spark_jobs.arrow.twin import batch_of, marker


def offsets_read(log: FakeLeader, start: int, end: int, **options: Any) -> list[int]:
    return list(reading(log, start, end, **options))


def reading(log: FakeLeader, start: int, end: int, topic_id: bytes = TOPIC_ID, **options: Any) -> Iterator[int]:
    plan = ReadPlan(SETTINGS, PartitionRange("t", 0, start, end, topic_id), **options)
    aborted = AbortedTransactions() if plan.read_committed else None
    decoder = Decoder(RowBuilder("t", 0, None, False, 1000), start, end, aborted=aborted)
    with Cluster(SETTINGS, FakeClock(), log.connect) as cluster:
        for rows in WireReader(cluster, plan, decoder, aborted).read():
            yield from rows.column("offset").to_pylist()
    assert log.open == 0


def log_of(*sizes: int) -> FakeLeader:
    batches, first = [], 0
    for size in sizes:
        batches.append(batch_of(first, size))
        first += size
    return FakeLeader(*batches)


def test_every_offset_of_a_range_is_read_once_in_order() -> None:
    for start, end in ((0, 30), (0, 1), (7, 23), (29, 30), (12, 12)):
        assert offsets_read(log_of(10, 5, 5, 10), start, end) == list(range(start, end))


@pytest.mark.parametrize("version", [4, 8, 9, 11, 12])
def test_older_brokers_are_fetched_from_in_many_requests(version: int) -> None:
    """They have no ids of topics, and before 12 no epoch of the last batch (Kafka 0.11 to 2.6)."""
    log = log_of(10, 5, 5, 10)
    log.batches = [batch[:12] + (3).to_bytes(4) + batch[16:] for batch in log.batches]  # the leader epoch
    log.fetch_version, log.topic_id = version, ZERO_UUID
    assert offsets_read(log, 0, 30) == list(range(30))
    assert len(log.fetched) > 1


def test_nothing_is_fetched_behind_the_range() -> None:
    log = log_of(10, 10, 10, 10)
    assert offsets_read(log, 0, 20) == list(range(20))
    assert log.fetched == [0, 10]


def test_next_request_is_sent_before_the_response_is_decoded() -> None:
    log = log_of(10, 10, 10)
    rows = reading(log, 0, 30)
    assert next(rows) == 0
    rows.close()
    assert log.open == 0


@pytest.mark.parametrize("end", [12, 20])
def test_range_that_ends_in_a_gap_ends(end: int) -> None:
    """Compaction has removed the last records of the log, so that no batch follows offset 10."""
    log = log_of(10)
    log.end = 20
    assert offsets_read(log, 0, end) == list(range(10))
    assert log.fetched[:2] == [0, 10] and 5 <= len(log.fetched) <= 15


def test_fetches_that_return_no_records_in_time_are_repeated() -> None:
    """As those of tiered storage, whose reads may last longer than a fetch waits (KIP-1018)."""
    log = log_of(10, 10, 10)
    log.empty = [False, True, True, True, False, True]
    assert offsets_read(log, 0, 30) == list(range(30))
    assert log.fetched == [0, 10, 10, 10, 10, 20, 20]
    assert log.wait_ms == 500


def test_empty_fetches_before_and_after_a_long_failure_are_not_counted_together() -> None:
    log = log_of(10, 10)
    log.empty = [True] * 20
    log.events = [lambda: None, *[lambda: ErrorCode.NOT_LEADER_OR_FOLLOWER] * 12, lambda: setattr(log, "empty", [True])]
    assert offsets_read(log, 0, 20) == list(range(20))


def test_gap_within_the_range_is_no_loss() -> None:
    log = FakeLeader(batch_of(0, 3), batch_of(50, 3), marker(53, 1, True))
    assert offsets_read(log, 0, 54) == [0, 1, 2, 50, 51, 52]


def test_aborted_records_are_left_out_with_read_committed_only() -> None:
    aborted = batch_of(3, 3, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log = FakeLeader(batch_of(0, 3), aborted, marker(6, 9, False), batch_of(7, 2))
    log.aborted = [(9, 3)]
    assert offsets_read(log, 0, 9, read_committed=True) == [0, 1, 2, 7, 8]
    log.aborted = []
    assert offsets_read(log, 0, 9) == [0, 1, 2, 3, 4, 5, 7, 8]


@pytest.mark.parametrize("first", [0, 7], ids=["compacted", "deleted"])
def test_abort_marker_that_is_removed_between_two_fetches_leaves_no_transaction_open(first: int) -> None:
    """A later transaction of the same producer is committed."""

    def transaction(start: int, sequence: int) -> bytes:
        identity = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence}
        return batch_of(start, 3, value_bytes=100, transactional=True, **identity)

    log = FakeLeader(
        batch_of(0, 3), transaction(3, 0), marker(6, 9, False), batch_of(7, 3), transaction(10, 3), marker(13, 9, True)
    )
    log.aborted = [(9, 3)]

    def remove_marker() -> None:
        log.first, log.aborted = first, []
        del log.batches[2]

    log.events = [lambda: None, lambda: None, remove_marker]
    found = offsets_read(log, 0, 14, read_committed=True, fail_on_data_loss=False)
    assert found == [0, 1, 2, 7, 8, 9, 10, 11, 12]
    assert log.fetched[:3] == [0, 3, 6]


def test_records_that_are_not_stable_yet_are_waited_for_until_the_deadline() -> None:
    log = log_of(10, 10)
    log.stable = 10
    with pytest.raises(KafkaFailure, match=r"t-0 has the last stable offset 10, below the end offset 20; given up"):
        offsets_read(log, 0, 20, read_committed=True)
    log.events = [lambda: None] * 5 + [lambda: setattr(log, "stable", None)]
    assert offsets_read(log, 0, 20, read_committed=True) == list(range(20))


def test_leader_that_moves_is_followed() -> None:
    log = log_of(10, 10, 10)
    log.events = [lambda: None, lambda: setattr(log, "leader", 2)]
    assert offsets_read(log, 0, 30) == list(range(30))


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
                                  ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID])  # fmt: skip
def test_retriable_errors_are_retried(code: ErrorCode) -> None:
    log = log_of(10, 10)
    log.events = [lambda: None, lambda: code, lambda: code]
    assert offsets_read(log, 0, 20) == list(range(20))


def test_fetches_that_a_quota_holds_are_repeated_and_count_against_no_deadline() -> None:
    log = log_of(10, 10, 10)
    log.throttle_ms = [0, *[SETTINGS.default_api_timeout_ms] * 3]
    log.events = [lambda: None, lambda: ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert offsets_read(log, 0, 30) == list(range(30))
    assert log.fetched == [0, 10, 10, 20]


def test_other_errors_fail() -> None:
    log = log_of(10)
    log.events = [lambda: ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaFailure, match=r"t-0 cannot be fetched from offset 0 \(TOPIC_AUTHORIZATION_FAILED\)"):
        offsets_read(log, 0, 10)


def test_deleted_records_are_data_loss_or_skipped() -> None:
    log = log_of(10, 10, 10)
    log.first = 12
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 11 cannot be read: the log has offsets 12 to 29") as failed:
        offsets_read(log, 0, 25)
    assert failed.value.wanted == (0, 12)
    assert offsets_read(log, 0, 25, fail_on_data_loss=False) == list(range(12, 25))
    assert offsets_read(log, 0, 11, fail_on_data_loss=False) == []


def test_truncated_log_is_data_loss_or_the_end() -> None:
    log = log_of(10)
    with pytest.raises(DataLoss, match="offsets 15 to 19 cannot be read: the log has offsets 0 to 9"):
        offsets_read(log, 15, 20)
    assert offsets_read(log, 15, 20, fail_on_data_loss=False) == []


def test_log_that_diverges_from_what_was_read_is_data_loss() -> None:
    log = log_of(10, 10, 10)
    log.events = [lambda: setattr(log, "diverging", 7)]
    log.batches = [batch_of(0, 10, leader_epoch=3), batch_of(10, 10, leader_epoch=3)]
    with pytest.raises(DataLoss, match="was truncated to offset 7 after records behind it were read"):
        offsets_read(log, 0, 20)


def test_topic_made_again_is_data_loss() -> None:
    with pytest.raises(DataLoss, match="the topic was deleted and made again"):
        offsets_read(log_of(10), 0, 10, topic_id=bytes(15) + b"x")


def test_deleted_topic_is_data_loss_after_the_deadline() -> None:
    log = log_of(10)
    log.exists = False
    with pytest.raises(DataLoss, match="the cluster does not describe t-0"):
        offsets_read(log, 0, 10)
    assert offsets_read(log, 0, 10, fail_on_data_loss=False) == []


@pytest.mark.parametrize("data", [b"x" * 11, batch_of(0, 2)[:-1], batch_of(0, 2)], ids=["short", "cut", "before"])
def test_bytes_without_a_batch_are_no_end_of_the_range(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(10, 10)
    monkeypatch.setattr(log, "_records", lambda *_: data)
    with pytest.raises(CorruptRecords, match="without a complete batch that reaches this offset"):
        offsets_read(log, 5, 20)
