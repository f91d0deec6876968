"""Batches of one partition: what a broker checks of them."""

import pytest

from gregor.protocol.records import compression
from gregor.protocol.records.batch import RecordBatch
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.sink.batches import PartitionBatches, max_size_bytes
from gregor.spark_jobs.sink.identity import ProducerIdentity

TRANSACTIONAL = ProducerIdentity(7, 3, "query")
PLACE = TopicPartition("t", 0)


def sealed(batches: PartitionBatches, identity: ProducerIdentity, codec: int = compression.NONE) -> bytearray:
    closed = batches.close_batch()
    closed.seal(identity, codec, 0)
    return closed.data


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.LZ4, compression.ZSTD])
def test_batch_is_sealed_with_the_sequence_of_its_producer(codec: int) -> None:
    batches = PartitionBatches(PLACE, codec)
    for number in range(3):
        batches.append(b"k%d" % number, b"v" * 100, [("h", None), ("ü", b"1")], 1000 + number)
    closed = batches.close_batch()
    closed.seal(TRANSACTIONAL, codec, 5)
    batch = RecordBatch(closed.data)
    assert (closed.records, batch.record_count, batch.base_sequence, batch.last_sequence) == (3, 3, 5, 7)
    assert (batch.producer_id, batch.producer_epoch) == (7, 3)
    assert batch.is_transactional and not batch.is_control and batch.crc_ok() and batch.compression == codec
    records = list(batch.records())
    assert [record.key for record in records] == [b"k0", b"k1", b"k2"]
    assert records[0].headers == [("h", None), ("ü", b"1")]
    assert {record.timestamp for record in records} == {1000} == {batch.max_timestamp}
    assert batches.size_bytes == 0
    batches.append(None, None, (), 2000)
    following = RecordBatch(sealed(batches, TRANSACTIONAL, codec))
    assert following.base_timestamp == 2000
    assert [(record.key, record.value) for record in following.records()] == [(None, None)]


def test_batch_without_transactions_has_no_transactional_bit() -> None:
    batches = PartitionBatches(PLACE, compression.NONE)
    batches.append(b"k", b"v", (), 0)
    assert not RecordBatch(sealed(batches, ProducerIdentity(7, 0))).is_transactional


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 100_000])
def test_bound_of_a_record_is_not_exceeded(size: int) -> None:
    for key, headers in ((None, ()), (b"k" * size, [("h" * size, b"v" * size), ("ü", None)])):
        batches = PartitionBatches(PLACE, compression.NONE)
        batches.append(b"first", b"", (), 0)
        before = batches.size_bytes
        batches.append(key, b"v" * size, headers, 0)
        assert batches.size_bytes - before <= max_size_bytes(key, b"v" * size, headers)
