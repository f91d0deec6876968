"""Rows encoded from Arrow columns, beside the slow twin that encodes one record after the other."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.compression import GZIP, NONE
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.partitioner import Partitioner
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.tasks import append_rows
from gregor.spark_jobs.sink.transactions import idempotent_identity
from tests.spark_jobs.sink.fake_broker import FakeBroker

Row = tuple[str, int, bytes | None, bytes | None]
TOPICS = {"a": 3, "b": 1}
PLACES = [TopicPartition(topic, index) for topic, count in TOPICS.items() for index in range(count)]

contents = st.one_of(
    st.none(),
    st.binary(max_size=70),
    st.sampled_from([63, 64, 127, 128, 8191, 8192, 20_000]).map(lambda size: b"x" * size),
)
rows = st.tuples(st.sampled_from(PLACES), contents, contents).map(lambda row: (*row[0], row[1], row[2]))


def partitioner() -> Partitioner:
    return Partitioner(TOPICS, None, 0)


def arrow(part: list[Row]) -> pa.RecordBatch:
    types = {"topic": pa.string(), "partition": pa.int32(), "key": pa.binary(), "value": pa.binary()}
    columns = [[row[index] for row in part] for index in range(len(types))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def producer_on(broker: FakeBroker, **options: int) -> Producer:
    cluster = broker.cluster()
    return Producer(cluster, idempotent_identity(cluster), SinkOptions(cluster.settings, **options), now_ms=lambda: 5)  # type: ignore[arg-type]


def written(parts: list[list[Row]], in_columns: bool, codec: int, batch_bytes: int) -> FakeBroker:
    broker = FakeBroker(TOPICS)
    producer = producer_on(broker, codec=codec, batch_bytes=batch_bytes)
    for part in parts:
        if in_columns:
            append_rows(producer, partitioner().columns(arrow(part)))
        else:
            for topic, partition, key, value in part:
                producer.append(TopicPartition(topic, partition), key, value)
    producer.flush()
    return broker


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(rows, max_size=30), min_size=1, max_size=4),
    st.sampled_from([NONE, GZIP]),
    st.sampled_from([100, 1000, 262_144]),
)
def test_records_are_those_of_the_slow_twin(parts: list[list[Row]], codec: int, batch_bytes: int) -> None:
    fast, slow = (written(parts, in_columns, codec, batch_bytes) for in_columns in (True, False))
    for topic, partition in PLACES:
        found, expected = (list(broker.topics[topic][partition].committed()) for broker in (fast, slow))
        assert found == expected
        for batch in fast.topics[topic][partition].batches:
            assert batch.record_count == 1 or len(batch.plain_body()) + 61 <= batch_bytes


def test_bytes_of_a_batch_are_those_of_the_slow_twin() -> None:
    part: list[Row] = [("b", 0, b"k%d" % number if number % 3 else None, b"v" * number) for number in range(300)]
    fast, slow = (written([part[:100], part[100:]], in_columns, NONE, 262_144) for in_columns in (True, False))
    found, expected = (broker.topics["b"][0].batches for broker in (fast, slow))
    assert [bytes(batch.memory()) for batch in found] == [bytes(batch.memory()) for batch in expected]
    assert [batch.record_count for batch in found] == [300]


def test_column_that_is_a_slice_is_encoded_from_its_start() -> None:
    part: list[Row] = [("b", 0, b"k%d" % number, b"v%d" % number) for number in range(10)]
    broker = FakeBroker(TOPICS)
    producer = producer_on(broker)
    append_rows(producer, partitioner().columns(arrow(part).slice(4, 3)))
    producer.flush()
    assert [record.value for record in broker.topics["b"][0].committed()] == [b"v4", b"v5", b"v6"]


def test_rows_that_no_partition_takes_are_refused() -> None:
    for row, complaint in (
        (("a", 3, None, b"v"), "a row has the partition 3, but the partitions of a are 0 to 2: correct"),
        (("a", -1, None, b"v"), "a row has the partition -1, but the partitions of a are 0 to 2: .*leave it null"),
        (("c", 0, None, b"v"), "the topic c does not exist"),
        (("a", 1, b"k", b"v" * 2_000_000), "a record for a-1 has 2000027 bytes, which is more than kafka.max.request"),
    ):
        with pytest.raises(JobError, match=complaint):
            append_rows(producer_on(FakeBroker(TOPICS)), partitioner().columns(arrow([("a", 0, None, b"v"), row])))


def test_row_without_a_topic_is_refused() -> None:
    batch = arrow([("a", 0, None, b"v")]).set_column(0, "topic", pa.array([None], pa.string()))
    with pytest.raises(JobError, match="a row has no topic: its column `topic` is null"):
        partitioner().columns(batch)
