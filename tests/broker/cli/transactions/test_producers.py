"""gregor.broker.cli.transactions.producers: partitions, their leaders, and the producers of each."""

from __future__ import annotations

import pytest

from gregor.broker.cli.transactions import producers
from gregor.broker.cli.transactions.producers import describe_producers, open_transactions, partition_leaders
from gregor.broker.cli.wire import BrokerRefusal
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from tests.broker.cli.transactions.a_cluster import Cluster, producer


def test_partitions_have_their_leader_or_the_given_replica() -> None:
    client = Cluster({"a": [1, 2], "b": [2]}).client()
    assert partition_leaders(client, None) == {("a", 0): 1, ("a", 1): 2, ("b", 0): 2}
    assert partition_leaders(client, "a", partition=1) == {("a", 1): 2}
    assert partition_leaders(client, "a", broker_id=1) == {("a", 0): 1, ("a", 1): 1}
    assert partition_leaders(client, "a", broker_id=7) == {}
    with pytest.raises(BrokerRefusal, match="topic c cannot be described"):
        partition_leaders(client, "c")


def test_each_broker_describes_its_partitions_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PARTITIONS_PER_REQUEST", 2)
    client = Cluster({}, {("a", 3): [producer(7, start_offset=12)]}).client()
    found, refused = describe_producers(client, {("a", index): 1 + index % 2 for index in range(6)})  # type: ignore[misc]
    assert len(found) == 6 and refused == {}
    asked = [(node_id, request.topics[0].partition_indexes) for request, node_id in client.sent]  # type: ignore[attr-defined]
    assert asked == [(1, [0, 2]), (1, [4]), (2, [1, 3]), (2, [5])]
    [one] = open_transactions(found)
    assert one.identity == (("a", 3), 7, 12)


def test_partitions_that_cannot_be_described_are_refusals() -> None:
    moved = DescribeProducersResponse.PartitionResponse(
        partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="it has moved"
    )
    answer = DescribeProducersResponse(topics=[DescribeProducersResponse.TopicResponse(name="a", partitions=[moved])])
    client = Cluster({}).client({DescribeProducersRequest: lambda request, node_id: answer})
    found, refused = describe_producers(client, {("a", 0): 1, ("b", 0): -1, ("c", 0): 9})  # type: ignore[dict-item]
    assert found == {}
    assert {key: str(refusal) for key, refusal in refused.items()} == {
        ("a", 0): "it has moved (NOT_LEADER_OR_FOLLOWER).",
        ("b", 0): "the partition has no leader (LEADER_NOT_AVAILABLE).",
        ("c", 0): "broker 9 is not alive (LEADER_NOT_AVAILABLE).",
    }
