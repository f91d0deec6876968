"""gregor.broker.cli.transactions.abort: the abort marker of one partition."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.cli import coordinators
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.transactions.abort import Marker, abort, find_marker
from gregor.broker.cli.wire import BrokerRefusal
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.cli.transactions.a_cluster import Cluster, producer

PARTITION = TopicPartition("t", 1)
MARKER = Marker(PARTITION, 7, 3, 4)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "PAUSE_S", 0)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster({"t": [1, 2]}, {PARTITION: [producer(6), producer(7, 5, coordinator_epoch=4), producer(8, 6)]})


def writes(*codes: int) -> dict[Any, Any]:
    left = list(codes)

    def answer(request: Any, node_id: int | None) -> WriteTxnMarkersResponse:
        assert node_id == 2, "the leader"
        part = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=1, error_code=left.pop(0))
        topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name="t", partitions=[part])
        marker = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=7, topics=[topic])
        return WriteTxnMarkersResponse(markers=[marker])

    return {WriteTxnMarkersRequest: answer}


def test_marker_of_an_offset(cluster: Cluster) -> None:
    assert find_marker(cluster.client(), PARTITION, 5) == MARKER
    with pytest.raises(CommandError, match="no transaction of t-1 is open from offset 7 on"):
        find_marker(cluster.client(), PARTITION, 7)
    with pytest.raises(BrokerRefusal, match="t-4 does not exist"):
        find_marker(cluster.client(), TopicPartition("t", 4), 5)


def test_coordinator_epoch_of_a_first_transaction_is_0() -> None:
    assert Marker.of(PARTITION, 7, 3, -1).coordinator_epoch == 0
    assert Marker.of(PARTITION, 7, 3, 9).coordinator_epoch == 9


def test_marker_is_written_by_the_leader(cluster: Cluster) -> None:
    client = cluster.client(writes(0))
    abort(client, MARKER)
    [request] = client.requests(WriteTxnMarkersRequest)
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 4)
    assert not marker.transaction_result and marker.transaction_version == 0
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]


def test_marker_is_written_again_after_an_election(cluster: Cluster) -> None:
    client = cluster.client(writes(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0))
    abort(client, MARKER)
    assert len(client.requests(WriteTxnMarkersRequest)) == 2


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "newer epoch of the producer than 3"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "newer epoch than 4"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "the leader refuses the marker"),
    ],
)
def test_refusals(cluster: Cluster, code: ErrorCode, cause: str) -> None:
    with pytest.raises(BrokerRefusal, match=f"producer 7 in t-1 was not aborted: .*{cause}.*{code.name}"):
        abort(cluster.client(writes(code)), MARKER)
