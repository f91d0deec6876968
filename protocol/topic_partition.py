"""The name of a partition, in one type for all packages."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions. It equals, and hashes as, the plain tuple of both."""

    topic: str
    partition: int


TopicPartitionKey = tuple[str, int]
"""A TopicPartition or the plain tuple of both, which is ten times cheaper to make: for dictionaries that are searched
with each request."""
