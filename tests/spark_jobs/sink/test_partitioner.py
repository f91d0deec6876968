"""Partitions of keys, as Kafka's default partitioner chooses them."""

import pytest

from gregor.spark_jobs.sink.partitioner import murmur2, partition_for_key


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


def test_partition_is_the_positive_hash_modulo_their_number() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert [partition_for_key(f"k{number}".encode(), 1) for number in range(5)] == [0] * 5
