"""gregor.broker.cli.doctor.hot_partitions: the thresholds, and two samples of a broker."""

from __future__ import annotations

import pytest

from gregor.broker.cli.doctor.checks import Level, ObservedBroker, ObservedCluster
from gregor.broker.cli.doctor.hot_partitions import (
    HOT_MULTIPLE,
    MIN_HOT_BYTES_PER_S,
    MIN_INTERVAL_S,
    check_hot_partitions,
    examine_hot_partitions,
)
from gregor.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.broker.cli.fake_client import FakeClient, metadata
from tests.broker.cli.findings import wrong

HOT = float(MIN_HOT_BYTES_PER_S)


def named(*rates: float) -> list[str]:
    leaders = {("t", index): 7 for index in range(len(rates))}
    found = check_hot_partitions({("t", index): rate for index, rate in enumerate(rates)}, leaders)
    assert all(finding.level is Level.NOTE for finding in found) and wrong(found) == []
    return [finding.text.split()[1] for finding in found]


@pytest.mark.parametrize(
    ("rates", "hot"),
    [
        ((HOT, 0, 0), ["t-0"]),
        ((HOT - 1, 0, 0), []),
        ((HOT, HOT / HOT_MULTIPLE), ["t-0"]),
        ((HOT, HOT / HOT_MULTIPLE + 1), []),
        ((1, 20 * HOT, 1, HOT), ["t-1"]),
        ((HOT, HOT, HOT), []),
        ((HOT,), []),
    ],
)
def test_thresholds(rates: tuple[float, ...], hot: list[str]) -> None:
    assert named(*rates) == hot


def folder(hot_bytes: int, other_bytes: int, moving_bytes: int = 0) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    make = DescribeLogDirsResponse
    partitions = [
        make.DescribeLogDirsPartition(partition_index=0, partition_size=other_bytes),
        make.DescribeLogDirsPartition(partition_index=1, partition_size=hot_bytes),
        make.DescribeLogDirsPartition(partition_index=0, partition_size=moving_bytes, is_future_key=True),
    ]
    topic = make.DescribeLogDirsTopic(name="t", partitions=partitions)
    return make.DescribeLogDirsResult(log_dir="/d", topics=[topic])


def test_second_sample_is_taken_after_the_interval_and_names_partition_and_leader() -> None:
    broker = ObservedBroker(2, "kafka2", 9092, ["10.0.0.2"], log_dirs=[folder(0, 500, 9)], sized_at_s=100.0)
    now_s = [100.25]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += seconds

    later = DescribeLogDirsResponse(results=[folder(2_000_000, 300, 10**9)])  # retention deletes, too
    client = FakeClient({DescribeLogDirsRequest: lambda *_: later}, brokers=[2])
    seen = ObservedCluster("b", "10.0.0.2", metadata({"t": [2, 2]}), [broker])
    (finding,) = examine_hot_partitions(client, seen, lambda: now_s[0], sleep)
    assert slept == [MIN_INTERVAL_S - 0.25]
    assert finding.text == (
        "partition t-1 is hot: it gets 2 MB in a second, 100% of its topic's 2 partitions, all of it by broker 2"
    )


def test_no_time_is_spent_where_no_topic_has_two_partitions() -> None:
    broker = ObservedBroker(2, "kafka2", 9092, ["10.0.0.2"], log_dirs=[folder(0, 0)])
    seen = ObservedCluster("b", "10.0.0.2", metadata({"t": [2]}), [broker])
    client = FakeClient({}, brokers=[2])
    assert examine_hot_partitions(client, seen, lambda: 0.0, lambda _: pytest.fail("sleeps")) == []
    assert client.sent == []
