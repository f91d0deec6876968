"""`gregor transactions` without a broker: its arguments, and the tables of a cluster without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.broker.cli.transactions import command
from gregor.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.cli.fake_client import FakeClient
from tests.broker.cli.transactions.a_cluster import NOW_MS, Cluster, producer, state

MINUTE_MS = 60_000


def written(request: Any, node_id: int | None) -> WriteTxnMarkersResponse:
    part = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=0)
    topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name="t", partitions=[part])
    return WriteTxnMarkersResponse(markers=[WriteTxnMarkersResponse.WritableTxnMarkerResult(topics=[topic])])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    old = NOW_MS - 21 * MINUTE_MS
    cluster = Cluster(
        {"t": [1, 2]},
        {
            TopicPartition("t", 0): [
                producer(7, 5, last_timestamp=old, coordinator_epoch=-1),
                producer(8, 6, last_timestamp=old),
                producer(9, 9),
                producer(10),
            ]
        },
        {
            "open": state("open", 8, {"t": [1, 0]}, transaction_start_time_ms=NOW_MS - 250),
            "idle": state("idle", 10, {}, transaction_state="Empty", transaction_start_time_ms=-1),
        },
    )
    made = cluster.client(
        {
            WriteTxnMarkersRequest: written,
            InitProducerIdRequest: lambda request, node_id: InitProducerIdResponse(producer_id=8, producer_epoch=4),
        }
    )
    monkeypatch.setattr(command, "WireClient", lambda bootstrap, config_file: made)
    monkeypatch.setattr(command, "now_ms", lambda: NOW_MS)
    return made


def table(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """Run the command; return the cells of its rows. Each column is padded and ends with a tab."""
    assert main(["transactions", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line.expandtabs(1)) for line in lines}) <= 1 and all(line.endswith("\t") for line in lines)
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in lines]


def test_list(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, "list") == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
        ["open", "2", "8", "Ongoing"],
        ["idle", "2", "10", "Empty"],
    ]


def test_describe(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    heading, row = table(capsys, "describe", "--transactional-id", "open")
    assert heading == [
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
    ]
    assert row == ["2", "open", "8", "3", "Ongoing", "60000", str(NOW_MS - 250), "250", "t-0,t-1"]
    _, row = table(capsys, "describe", "--transactional-id", "idle")
    assert row == ["2", "idle", "10", "3", "Empty", "60000", "None", "None", ""]


def test_describe_producers(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    heading, *rows = table(capsys, "describe-producers", "--topic", "t", "--partition", "0")
    assert heading == [
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
        "CurrentTransactionStartOffset",
    ]
    assert rows[0] == ["7", "3", "-1", "9", str(NOW_MS - 21 * MINUTE_MS), "5"]
    assert rows[-1] == ["10", "3", "0", "9", str(NOW_MS), "None"]


def test_find_hanging(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    heading, *rows = table(capsys, "find-hanging", "--topic", "t")
    assert heading == [
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp"),
        "Duration(min)",
    ]
    assert rows == [["t", "0", "7", "3", "-1", "5", str(NOW_MS - 21 * MINUTE_MS), "21"]]
    assert table(capsys, "find-hanging", "--topic", "t", "--partition", "1") == [heading]
    assert table(capsys, "find-hanging", "--broker-id", "9") == [heading]
    all_ages = table(capsys, "find-hanging", "--broker-id", "2", "--max-transaction-timeout", "-1")
    assert [row[2] for row in all_ages[1:]] == ["7", "9"]


@pytest.mark.parametrize(
    "identity",
    [("--start-offset", "5"), ("--producer-id", "7", "--producer-epoch", "3", "--coordinator-epoch", "-1")],
)
def test_abort(client: FakeClient, identity: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "abort", "--topic", "t", "--partition", "0", *identity]) == 0
    assert capsys.readouterr().out == ""
    [request] = client.requests(WriteTxnMarkersRequest)
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)


def test_force_terminate(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "forceTerminateTransaction", "--transactionalId", "open"]) == 0
    assert capsys.readouterr().out == ""
    assert [one.transactional_id for one in client.requests(InitProducerIdRequest)] == ["open"]


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--command-config", "x"], "Missing command"),
        (["lsit"], "No such command 'lsit'"),
        (["describe"], "Missing option '--transactional-id'"),
        (["describe-producers", "--topic", "t"], "Missing option '--partition'"),
        (["describe-producers", "--topic", "t", "--partition", "4"], "t-4 does not exist"),
        (
            ["describe-producers", "--topic", "t", "--partition", "0", "--broker-id", "9"],
            "t-0 does not exist on broker 9",
        ),
        (["describe-producers", "--topic", "u", "--partition", "0"], "topic u cannot be described"),
        (["list", "--duration-filter", str(2**63)], "x<=9223372036854775807"),
        (["abort", "--topic", "t", "--partition", "0", "--producer-epoch", "32768"], "-32768<=x<=32767"),
        (["abort", "--topic", "t", "--partition", "0"], "Give --start-offset, or for brokers before 3.0"),
        (["abort", "--topic", "t", "--partition", "0", "--producer-id", "7"], "Missing option '--producer-epoch'"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "7", "--producer-epoch", "1"],
            "Missing option '--coordinator-epoch'",
        ),
        (["abort", "--topic", "t", "--partition", "0", "--start-offset", "8"], "is open from offset 8 on"),
        (["find-hanging"], "Give --topic or --broker-id"),
        (["find-hanging", "--broker-id", "1", "--partition", "0"], "--partition needs --topic"),
        (["forceTerminateTransaction"], "Missing option '--transactionalId'"),
    ],
)
def test_wrong_arguments(
    client: FakeClient, arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transactions", *arguments]) == 1
    assert cause in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--bootstrap-server", "kafka1:9", "list"], ["list", "--bootstrap-server", "kafka1:9"]]
)
def test_bootstrap_server_is_before_or_behind_the_sub_command(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    seen = []

    def connect(bootstrap: str, config_file: str | None) -> FakeClient:
        seen.append((bootstrap, config_file))
        return Cluster({}).client()

    monkeypatch.setattr(command, "WireClient", connect)
    assert main(["transactions", *arguments]) == 0
    assert main(["transactions", "list"]) == 0
    assert seen == [("kafka1:9", None), ("localhost:9092", None)]
