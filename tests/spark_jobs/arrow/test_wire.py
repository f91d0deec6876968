"""Ranges fetched from a leader: a fake one that follows a script, and a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiMessage,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from gregor.spark_jobs.arrow.decoder import AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.plan import DataLoss, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.wire import WireReader
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from tests.spark_jobs.arrow.twin import batch_of, marker

SETTINGS = ClientSettings((("fake", 9092),), max_partition_fetch_bytes=400)
TOPIC_ID = bytes(range(16))


class FakeClock:
    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> float:
        return self.ms

    def wait_ms(self, duration_ms: float) -> None:
        self.ms += duration_ms


class FakeLeader:
    """Two brokers with one log, of which `leader` leads; `errors` fail the next fetches, one each."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = list(batches)
        self.first = 0
        self.end = max((_offsets(batch)[1] for batch in batches), default=0)
        self.stable: int | None = None
        self.aborted: list[tuple[int, int]] = []
        self.leader = 1
        self.topic_id = TOPIC_ID
        self.exists = True
        self.events: list[Callable[[], int | None]] = []
        """Called one at each fetch: the error of that fetch, if any."""
        self.fetched: list[int] = []
        self.diverging = -1
        self.open = 0

    def connect(self, host: str, port: int, settings: ClientSettings) -> FakeConnection:
        self.open += 1
        return FakeConnection(self, port)

    def answer(self, node: int, request: ApiMessage) -> Any:
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, ListOffsetsRequest):
            offset = self.first if request.topics[0].partitions[0].timestamp == -2 else self.end
            part = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
            return ListOffsetsResponse(
                topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[part])]
            )
        assert isinstance(request, FetchRequest)
        return self._fetch(node, request)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        part = MetadataResponse.MetadataResponsePartition(partition_index=0, leader_id=self.leader, leader_epoch=5)
        topic = MetadataResponse.MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=[part])
        if not self.exists:
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=n, host="fake", port=n) for n in (1, 2)]
        return MetadataResponse(brokers=brokers, topics=[topic] if request.topics else [], controller_id=1)

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        self.fetched.append(wanted.fetch_offset)
        part = FetchResponse.PartitionData(partition_index=0, high_watermark=self.end)
        part.last_stable_offset = self.end if self.stable is None else self.stable
        part.error_code = (self.events.pop(0)() if self.events else None) or ErrorCode.NONE
        limit = part.last_stable_offset if request.isolation_level else self.end
        if node != self.leader:
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.first <= wanted.fetch_offset <= self.end:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        if self.diverging >= 0 and wanted.last_fetched_epoch >= 0:
            part.diverging_epoch = FetchResponse.EpochEndOffset(epoch=1, end_offset=self.diverging)
        part.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in self.aborted
        ]
        if not part.error_code:
            part.records = self._records(wanted.fetch_offset, limit, wanted.partition_max_bytes)
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", topic_id=self.topic_id, partitions=[part])]
        )

    def _records(self, offset: int, limit: int, max_bytes: int) -> bytes:
        data = b"".join(
            batch for batch in self.batches if _offsets(batch)[1] > max(offset, self.first) and
            _offsets(batch)[1] <= limit
        )  # fmt: skip
        first_batch = int.from_bytes(data[8:12]) + 12
        return data[: max(max_bytes, first_batch)]


class FakeConnection:
    features: Mapping[str, int] = {}

    def __init__(self, log: FakeLeader, node: int) -> None:
        self._log = log
        self._node = node
        self._sent: list[ApiMessage] = []

    def version(self, api_key: int, highest: int, lowest: int = 0) -> int:
        return highest

    def exchange(self, request: ApiMessage, version: int) -> Any:
        assert not self._sent
        return self._log.answer(self._node, request)

    def send(self, request: ApiMessage, version: int) -> None:
        self._sent.append(request)

    def receive(self) -> Any:
        return self._log.answer(self._node, self._sent.pop(0))

    def close(self) -> None:
        self._log.open -= 1


def _offsets(batch: bytes) -> tuple[int, int]:
    first = int.from_bytes(batch[:8])
    return first, first + int.from_bytes(batch[23:27]) + 1


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
