"""Fetch and ListOffsets with isolation level read_committed. After Apache Kafka's ReplicaManager, Partition and the
consumer's fetcher, which drops the records of aborted transactions.
"""

from __future__ import annotations

import pytest

from gregor.broker.fetch.consumer import FetchRead
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FetchRequest, FetchResponse, ListOffsetsRequest
from gregor.protocol.records.batch import build_batch, iter_batches
from gregor.protocol.records.control import EndTransaction, parse_end_marker
from gregor.protocol.records.message_sets import iter_messages
from gregor.replication.partition.partition import Partition
from tests.broker.harness import Harness, bytes_of, fetch_request, records_of

WITH_BATCHES = range(4, 19)
READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


class Log:
    """A partition of a topic of its own, and what transactional producers append to it."""

    def __init__(self, harness: Harness, topic: str, **configs: str) -> None:
        self.harness = harness
        self.topic = topic
        self.topic_id = harness.create_topic(topic, **configs)
        self._sequences: dict[int, int] = {}

    @property
    def partition(self) -> Partition:
        found = self.harness.broker.replicas.get(self.topic, 0)
        assert found is not None
        return found

    def name(self, version: int) -> str | bytes:
        return self.topic_id if version >= 13 else self.topic

    def append(self, producer_id: int, *values: bytes, timestamp_ms: int | None = None) -> None:
        """Append a batch within a transaction of this producer."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        now_ms = self.harness.broker.now_ms()
        batch = build_batch(
            [(None, value) for value in values],
            timestamp_ms=now_ms if timestamp_ms is None else timestamp_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        self.partition.append(batch, now_ms, 1)
        self.harness.turn()

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.partition.append_marker(EndTransaction(producer_id, 0, 0, commit, 0), self.harness.broker.now_ms())
        self.harness.turn()

    def request(self, offset: int, version: int = 12, **fields: int) -> FetchRequest:
        options = {"max_wait_ms": 0, "isolation_level": READ_COMMITTED, **fields}
        return fetch_request([(self.name(version), 0, offset)], **options)

    def fetch(self, offset: int, version: int = 12, **fields: int) -> FetchResponse.PartitionData:
        return only(self.harness.ask(self.request(offset, version, **fields), version))

    def list_offset(self, time: int, version: int = 11, isolation_level: int = READ_COMMITTED) -> tuple[int, int]:
        """The error and the offset."""
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=time)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[wanted])],
        )
        (found,) = self.harness.ask(request, version).topics[0].partitions
        return found.error_code, found.offset


@pytest.fixture
def log(harness: Harness, topic: str) -> Log:
    return Log(harness, topic)


def only(response: FetchResponse) -> FetchResponse.PartitionData:
    assert response.error_code == 0
    (found,) = response.responses
    (data,) = found.partitions
    return data


def aborted(data: FetchResponse.PartitionData) -> list[tuple[int, int]] | None:
    listed = data.aborted_transactions
    return None if listed is None else [(one.producer_id, one.first_offset) for one in listed]


def seen(data: FetchResponse.PartitionData) -> list[bytes | None]:
    """The values that a read_committed consumer returns, by the list of aborted transactions."""
    assert data.error_code == 0
    upcoming = aborted(data) or []
    assert upcoming == sorted(upcoming, key=lambda one: one[1])
    dropped: set[int] = set()
    values: list[bytes | None] = []
    for batch in iter_batches(bytes_of(data)):
        while upcoming and upcoming[0][1] <= batch.last_offset:
            dropped.add(upcoming.pop(0)[0])
        if batch.is_control:
            (record,) = batch.records()
            marker = parse_end_marker(record)
            if marker is not None and not marker.commit:
                dropped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropped):
            values += [record.value for record in batch.records()]
    return values


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_reads_end_at_the_first_open_transaction(log: Log, version: int) -> None:
    log.harness.produce(log.topic, b"plain")
    log.append(7, b"open")
    log.harness.produce(log.topic, b"behind")
    data = log.fetch(0, version)
    assert seen(data) == [b"plain"]
    assert (data.last_stable_offset, data.high_watermark, aborted(data)) == (1, 3, [])
    data = log.fetch(0, version, isolation_level=0)
    assert [record.value for record in records_of(data)] == [b"plain", b"open", b"behind"]
    assert (data.last_stable_offset, data.high_watermark, aborted(data)) == (1, 3, None)
    for offset in (1, 2, 3):
        data = log.fetch(offset, version)
        assert (data.error_code, bytes(bytes_of(data)), aborted(data)) == (0, b"", [])
    log.end(7, commit=True)
    data = log.fetch(0, version)
    assert (seen(data), data.last_stable_offset) == ([b"plain", b"open", b"behind"], 4)


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_aborted_transactions_are_named(log: Log, version: int) -> None:
    log.append(8, b"aborted")
    log.append(7, b"aborted, too")
    log.append(9, b"committed")
    log.end(7, commit=False)
    log.end(9, commit=True)
    log.append(8, b"more of it")
    log.end(8, commit=False)
    data = log.fetch(0, version)
    assert aborted(data) == [(8, 0), (7, 1)]
    assert seen(data) == [b"committed"]
    # From the middle of a transaction on, as long as it has records there.
    assert aborted(log.fetch(4, version)) == [(8, 0)]
    assert aborted(log.fetch(6, version)) == [(8, 0)]
    assert aborted(log.fetch(7, version)) == []
    assert aborted(log.fetch(0, version, isolation_level=0)) is None


def test_errors_have_the_list_that_kafka_sends(log: Log) -> None:
    log.harness.produce(log.topic, b"a")
    for isolation_level in (0, READ_COMMITTED):
        beyond = log.fetch(99, isolation_level=isolation_level)
        assert (beyond.error_code, aborted(beyond)) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
        request = fetch_request([("absent", 0, 0)], max_wait_ms=0, isolation_level=isolation_level)
        absent = only(log.harness.ask(request, 12))
        assert (absent.error_code, aborted(absent)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_list_is_limited_to_the_returned_range(harness: Harness, topic: str) -> None:
    log = Log(harness, topic, index_interval_bytes="0")
    for _ in range(20):
        log.append(7, b"x" * 1000)
        log.end(7, commit=False)
    whole = log.fetch(0)
    assert aborted(whole) == [(7, offset) for offset in range(0, 40, 2)]
    assert seen(whole) == []
    part = log.fetch(4, partition_max_bytes=2500)
    listed = aborted(part)
    assert listed is not None and listed[:2] == [(7, 4), (7, 6)] and len(listed) <= 4
    assert seen(part) == []


def test_list_spans_segments(harness: Harness, topic: str) -> None:
    log = Log(harness, topic, internal_segment_bytes="2048")
    log.append(7, b"x" * 900)
    for _ in range(4):
        harness.produce(topic, b"y" * 900)
    log.append(7, b"x" * 900)
    log.end(7, commit=False)
    assert log.partition.log is not None and log.partition.log.segments_count >= 3
    offset, values = 0, []
    while offset < log.partition.high_watermark:
        data = log.fetch(offset)
        assert aborted(data) == [(7, 0)]
        values += seen(data)
        offset = list(iter_batches(bytes_of(data)))[-1].last_offset + 1
    assert values == [b"y" * 900] * 4


def test_minimum_bytes_count_below_the_last_stable_offset(log: Log) -> None:
    log.append(7, b"x" * 100)
    log.harness.produce(log.topic, b"y" * 1000)
    poll = log.harness.begin(log.request(0, max_wait_ms=10_000, min_bytes=1), 12)
    assert not poll.done()
    log.harness.produce(log.topic, b"z" * 1000)
    log.harness.turn()
    assert not poll.done(), "the high watermark alone has moved"
    log.end(7, commit=True)
    assert seen(only(log.harness.run(poll))) == [b"x" * 100, b"y" * 1000, b"z" * 1000]


def test_appends_behind_an_open_transaction_cause_no_reads(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(7, b"open")
    poll = log.harness.begin(log.request(0, max_wait_ms=10_000, min_bytes=1), 12)
    with monkeypatch.context() as patched:
        patched.setattr(FetchRead, "collect", None)
        log.append(7, b"open")
        log.harness.produce(log.topic, b"behind")
    assert not poll.done()
    log.end(7, commit=True)
    assert seen(only(log.harness.run(poll))) == [b"open", b"open", b"behind"]


def test_minimum_bytes_count_in_an_old_segment_too(harness: Harness, topic: str) -> None:
    log = Log(harness, topic, internal_segment_bytes="2048")
    harness.produce(topic, b"x" * 100)
    log.append(7, b"open")
    for _ in range(4):
        harness.produce(topic, b"y" * 900)
    assert log.partition.log is not None and log.partition.log.segments_count >= 2
    poll = harness.begin(log.request(0, max_wait_ms=10_000, min_bytes=1000), 12)
    assert not poll.done()
    log.end(7, commit=True)
    assert seen(only(harness.run(poll)))[:2] == [b"x" * 100, b"open"]


def test_waiting_fetch_wakes_when_its_transaction_is_aborted(log: Log) -> None:
    log.append(7, b"x")
    log.append(8, b"y")
    polls = [log.harness.begin(log.request(offset, max_wait_ms=10_000), 12) for offset in (0, 1)]
    log.end(8, commit=True)
    assert not any(poll.done() for poll in polls)
    log.end(7, commit=False)
    first, second = (only(log.harness.run(poll)) for poll in polls)
    assert (seen(first), aborted(first), first.last_stable_offset) == ([b"y"], [(7, 0)], 4)
    assert (seen(second), aborted(second)) == ([b"y"], [(7, 0)])


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_sessions_carry_news_when_the_last_stable_offset_moves(log: Log, version: int) -> None:
    log.append(7, b"x")
    first = log.request(0, version)
    first.session_epoch = 0
    response = log.harness.ask(first, version)
    assert (seen(only(response)), only(response).last_stable_offset) == ([], 0)
    request = fetch_request([], max_wait_ms=0, isolation_level=READ_COMMITTED)
    request.session_id, request.session_epoch = response.session_id, 1
    assert log.harness.ask(request, version).responses == []
    request.session_epoch, request.max_wait_ms = 2, 10_000
    poll = log.harness.begin(request, version)
    log.end(7, commit=True)
    data = only(log.harness.run(poll))
    assert (seen(data), data.last_stable_offset) == ([b"x"], 2)


def test_followers_read_to_the_end_and_get_the_last_stable_offset(log: Log) -> None:
    log.harness.produce(log.topic, b"plain")
    log.append(7, b"open")
    log.harness.add_follower(log.topic)
    for version in (10, 12):
        request = fetch_request([(log.topic, 0, 1)], replica_id=5, max_wait_ms=0, isolation_level=READ_COMMITTED)
        request.session_epoch = -1
        data = only(log.harness.ask(request, version))
        assert [record.value for record in records_of(data)] == [b"open"]
        assert (data.last_stable_offset, aborted(data)) == (1, None if version == 10 else aborted(data))


def test_follower_serves_consumers_below_its_last_stable_offset(log: Log) -> None:
    log.append(7, b"a")
    log.end(7, commit=False)
    log.append(8, b"b")
    log.end(8, commit=True)
    log.harness.hand_over(log.topic)
    partition = log.partition
    assert partition.log is not None
    partition.log.offsets.restore_high_watermark(3)
    data = log.fetch(0)
    assert (seen(data), aborted(data), data.last_stable_offset) == ([], [(7, 0)], 2)
    poll = log.harness.begin(log.request(2, max_wait_ms=10_000), 12)
    assert not poll.done()
    partition.append_as_follower(b"", 4, 0, log.harness.broker.now_ms())
    data = only(log.harness.run(poll))
    assert (seen(data), data.last_stable_offset) == ([b"b"], 4)


def test_transaction_whose_marker_is_not_replicated_is_open(log: Log) -> None:
    log.harness.add_follower(log.topic)
    log.append(7, b"x")
    log.end(7, commit=True)
    log.partition.leadership.update_follower(5, 1, log.harness.broker.now_ms())
    data = log.fetch(0)
    assert (seen(data), data.high_watermark, data.last_stable_offset) == ([], 1, 0)
    poll = log.harness.begin(log.request(0, max_wait_ms=10_000), 12)
    log.partition.leadership.update_follower(5, 2, log.harness.broker.now_ms())
    assert seen(only(log.harness.run(poll))) == [b"x"]


@pytest.mark.parametrize("version", range(4))
def test_old_consumers_get_transactional_records_and_no_markers(log: Log, version: int) -> None:
    log.append(7, b"a", b"b")
    log.end(7, commit=True)
    log.append(8, b"aborted")
    log.end(8, commit=False)
    log.append(9, b"open")
    data = log.fetch(0, version)
    assert [(one.offset, one.value) for one in iter_messages(bytes_of(data))] == [
        (0, b"a"),
        (1, b"b"),
        (3, b"aborted"),
        (5, b"open"),
    ]
    assert data.high_watermark == 6


# -- ListOffsets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 12))
def test_latest_offset_is_the_last_stable_one(log: Log, version: int) -> None:
    log.harness.produce(log.topic, b"plain")
    log.append(7, b"open")
    assert log.list_offset(LATEST, version) == (0, 1)
    assert log.list_offset(LATEST, version, isolation_level=0) == (0, 2)
    assert log.list_offset(EARLIEST, version) == (0, 0)
    log.end(7, commit=False)
    assert log.list_offset(LATEST, version) == (0, 3)


def test_times_are_bounded_by_the_last_stable_offset(log: Log) -> None:
    now_ms = log.harness.broker.now_ms()
    log.harness.produce(log.topic, b"plain", timestamp_ms=now_ms - 5000)
    log.append(7, b"open", timestamp_ms=now_ms - 3000)
    assert log.list_offset(now_ms - 6000) == (0, 0)
    assert log.list_offset(now_ms - 4000) == (0, -1)
    assert log.list_offset(now_ms - 4000, isolation_level=0) == (0, 1)
    assert log.list_offset(MAX_TIMESTAMP) == (0, -1)
    assert log.list_offset(MAX_TIMESTAMP, isolation_level=0) == (0, 1)
    log.end(7, commit=True)
    assert log.list_offset(now_ms - 4000) == (0, 1)


@pytest.mark.parametrize("version", range(2, 12))
def test_new_leader_withholds_the_last_stable_offset(log: Log, version: int) -> None:
    log.harness.produce(log.topic, b"committed")
    log.harness.add_follower(log.topic)
    log.append(7, b"not replicated")
    log.harness.hand_over(log.topic)
    log.harness.add_follower(log.topic)  # leads again: its epoch begins at 2, the high watermark is 1
    withheld = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    assert log.list_offset(LATEST, version) == (withheld, -1)
    assert log.list_offset(EARLIEST, version) == (0, 0)
    log.partition.leadership.update_follower(5, 2, log.harness.broker.now_ms())
    assert log.list_offset(LATEST, version) == (0, 1)
