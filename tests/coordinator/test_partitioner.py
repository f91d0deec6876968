"""Partitions of internal topics."""

import pytest

from gregor.coordinator.partitioner import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hash_code"),
    # From String.hashCode of a JVM.
    [
        ("", 0),
        ("g", 103),
        ("my-group", -1906497762),
        ("console-consumer-51234", 162118806),
        ("grüße", 98768023),
        ("\U0001f600-group", -1198440043),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hash_of_java(text: str, hash_code: int) -> None:
    assert java_hash(text) == hash_code


def test_the_smallest_number_belongs_to_partition_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0
