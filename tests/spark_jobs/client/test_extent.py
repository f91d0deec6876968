"""gregor.spark_jobs.client.extent: what was appended to a topic since it was last read."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.extent import Extent, appended, extent_of, size_of
from gregor.spark_jobs.client.failure import KafkaFailure
from tests.spark_jobs.client.brokers import Brokers, Partition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
ID, OTHER_ID = b"i" * 16, b"o" * 16
KNOWN = Extent(ID, {T0: (2, 5), T1: (0, 0)})


def test_the_extent_of_a_topic_and_its_growth() -> None:
    brokers = Brokers()
    brokers.add("t", Partition(2, 5), Partition(0, 7))
    cluster = brokers.cluster()
    first = extent_of(cluster, "t")
    assert (first.ranges, first.size) == ({T0: (2, 5), T1: (0, 7)}, 10)
    brokers.topics["t"].partitions[2] = Partition(0, 1)
    brokers.topics["t"].partitions[0].latest = 9
    added = appended(first, extent_of(cluster, "t"))
    assert added == {T0: (5, 9), T2: (0, 1)}
    assert size_of(added) == 5


def test_a_missing_topic_is_an_error() -> None:
    with pytest.raises(KafkaFailure) as failed:
        extent_of(Brokers().cluster(), "t")
    assert failed.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_was_appended() -> None:
    assert appended(KNOWN, KNOWN) == {}


@pytest.mark.parametrize(
    "now",
    [
        Extent(OTHER_ID, KNOWN.ranges),
        Extent(ID, {T0: (3, 5), T1: (0, 0)}),
        Extent(ID, {T0: (2, 4), T1: (0, 0)}),
        Extent(ID, {T0: (2, 5)}),
    ],
    ids=["made anew", "records deleted", "truncated", "a partition is gone"],
)
def test_what_was_known_is_not_all_there(now: Extent) -> None:
    assert appended(KNOWN, now) is None


def test_a_topic_without_an_id_is_the_same_one() -> None:
    assert appended(KNOWN, Extent(bytes(16), {T0: (2, 6), T1: (0, 0)})) == {T0: (5, 6)}
    assert appended(None, KNOWN) is None
