"""Partitions of keys, as Kafka's default partitioner chooses them."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import Record, RecordBatch
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.batches import Collector
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.partitioner import STICKY_ROWS, Partitioner, hashes_of, murmur2, partition_for_key
from gregor.spark_jobs.sink.tasks import append_rows


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_apache_kafka(key: bytes, hashed: int) -> None:
    """The values are those of its own test, UtilsTest.testMurmur2."""
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert hashes_of(pa.array([b"other", key], pa.binary())).tolist()[1] == hashed & 0xFFFFFFFF


def test_partition_is_the_positive_hash_modulo_their_number() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert [partition_for_key(f"k{number}".encode(), 1) for number in range(5)] == [0] * 5


keys = st.one_of(st.none(), st.binary(max_size=40), st.integers(500, 530).map(lambda size: b"k" * size))


@settings(max_examples=50, deadline=None)
@given(st.lists(keys, max_size=30), st.integers(0, 3))
def test_hashes_of_a_column_are_those_of_its_keys(column: list[bytes | None], start: int) -> None:
    found = hashes_of(pa.array(column, pa.binary()).slice(start)).tolist()
    assert [one for one, key in zip(found, column[start:], strict=True) if key is not None] == [
        murmur2(key) for key in column[start:] if key is not None
    ]


def rows(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    partitioner = Partitioner({"t": 3}, "t", 2)
    values = pa.array([b"v"] * (STICKY_ROWS - 1), pa.binary())
    found = [partitioner.columns(rows(value=values)).partitions.to_pylist() for _ in range(2)]
    assert [*found[0], *found[1]] == [2] * STICKY_ROWS + [0] * (STICKY_ROWS - 2)


def test_partition_of_a_row_is_its_column_or_its_key_or_the_next() -> None:
    partitioner = Partitioner({"t": 7, "u": 2}, None, 1)
    columns = partitioner.columns(
        rows(
            topic=pa.array(["t", "u", "t", "u"]),
            partition=pa.array([None, 1, None, None], pa.int32()),
            key=pa.array([b"21", b"21", None, b"21"], pa.binary()),
            value=pa.array([b"v"] * 4, pa.binary()),
        )
    )
    assert columns.partitions.to_pylist() == [partition_for_key(b"21", 7), 1, 1, partition_for_key(b"21", 2)]
    assert columns.topics.to_pylist() == ["t", "u", "t", "u"]


def test_option_replaces_the_topic_of_the_rows() -> None:
    columns = Partitioner({"t": 1}, "t", 0).columns(
        rows(topic=pa.array([None, "x"]), value=pa.array([b"v", None], pa.binary()))
    )
    assert (columns.topics.to_pylist(), columns.keys.to_pylist()) == (["t", "t"], [None, None])
    with pytest.raises(JobError, match="the topic x does not exist; create it: gregor topics --create --topic x"):
        Partitioner({"t": 1}, None, 0).columns(rows(topic=pa.array(["x"]), value=pa.array([b"v"], pa.binary())))


@pytest.mark.parametrize("with_headers", [False, True])
def test_rows_with_large_types_are_the_records_of_the_usual_ones(with_headers: bool) -> None:
    """Spark sends them with spark.sql.execution.arrow.useLargeVarTypes."""
    names = [None, b"", *(b"k%d" % number for number in range(20))]

    def produced(text: pa.DataType, octets: pa.DataType) -> dict[TopicPartition, list[Record]]:
        columns = {
            "topic": pa.array(["t", "u"] * 11, text),
            "key": pa.array(names, octets),
            "value": pa.array(names[::-1], octets),
        }
        if with_headers:
            header = pa.list_(pa.struct([("key", text), ("value", octets)]))
            columns["headers"] = pa.array([[{"key": "h", "value": b"x"}]] * 22, header)
        collector = Collector(SinkOptions.from_options({"kafka.bootstrap.servers": "b:9092"}), now_ms=lambda: 0)
        for offset in (0, 5):  # a slice has its buffers before it
            append_rows(collector, Partitioner({"t": 5, "u": 7}, None, 0).columns(rows(**columns).slice(offset)))
        collector.flush()
        found = {}
        for batch in collector.closed():
            batch.seal(ProducerIdentity(1, 0), 0, 0)
            found[batch.partition] = list(RecordBatch(bytes(batch.data)).records())
        return found

    usual = produced(pa.string(), pa.binary())
    assert len(usual) > 5
    assert produced(pa.large_string(), pa.large_binary()) == usual
