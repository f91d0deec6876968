"""gregor.broker.cli.cluster_view: the processes compared with the cluster's own metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gregor.broker.cli.cluster_view import (
    COLUMNS,
    ClusterSnapshot,
    Member,
    changes,
    fetch_snapshot,
    last_error,
    rows,
    snapshot_of,
    summary,
)
from gregor.broker.cli.reassignments import Reassignment
from gregor.broker.launch.supervisor import State
from gregor.protocol.messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)
from gregor.protocol.topic_partition import TopicPartitionKey
from tests.broker.cli.fake_client import FakeClient, metadata


def picture(
    *partitions: tuple[int, list[int]],
    live: tuple[int, ...] = (0, 1, 2),
    controller: int = 1,
    moves: Mapping[TopicPartitionKey, Reassignment] | None = None,
) -> ClusterSnapshot:
    """Partitions are (leader, ISR), with replicas on brokers 0, 1 and 2."""
    return snapshot_of(
        MetadataResponse(
            controller_id=controller,
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=node_id) for node_id in live],
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    name="t",
                    partitions=[
                        MetadataResponse.MetadataResponsePartition(
                            partition_index=index, leader_id=leader, replica_nodes=[0, 1, 2], isr_nodes=isr
                        )
                        for index, (leader, isr) in enumerate(partitions)
                    ],
                )
            ],
        ),
        moves,
    )


def member(broker_id: int, state: State = State.READY, exit_text: str = "") -> Member:
    pid = None if state is State.DOWN else 100 + broker_id
    return Member(broker_id, pid, state, f"localhost:909{broker_id}", exit_text)


def test_partitions_are_counted_per_broker() -> None:
    seen = picture((0, [0, 1, 2]), (0, [0, 2]), (-1, [2]), live=(0, 2), controller=0)
    members = [member(0), member(1, State.DOWN, "killed by SIGKILL"), member(2)]
    found = rows(members, seen)
    assert found == [
        ["0", "100", "ready", "localhost:9090", "2", "3", "2", "controller"],
        ["1", "-", "down", "localhost:9091", "0", "3", "1", "killed by SIGKILL"],
        ["2", "102", "ready", "localhost:9092", "0", "3", "3", ""],
    ]
    assert all(len(row) == len(COLUMNS) for row in found)
    assert summary(seen) == "1 topic, 3 partitions: 2 under-replicated, 1 without a leader"


def test_replicas_that_are_being_added_need_not_be_in_sync() -> None:
    moves = {("t", index): Reassignment([0, 1, 2], [2], [0]) for index in range(2)}
    seen = picture((0, [0, 1]), (0, [0]), (0, [0, 1, 2]), moves=moves)
    assert summary(seen) == "1 topic, 3 partitions: 1 under-replicated"


@pytest.mark.parametrize(
    ("adding", "in_sync", "state"),
    [([2], [1], "all in sync"), ([], [1], "1 under-replicated"), ([], [1, 2], "all in sync")],
)
def test_reassignments_are_listed_where_partitions_have_replicas_out_of_sync(
    adding: list[int], in_sync: list[int], state: str
) -> None:
    described = metadata({"t": [1]})
    described.topics[0].partitions[0].isr_nodes = in_sync
    moving = ListPartitionReassignmentsResponse.OngoingTopicReassignment(
        name="t",
        partitions=[
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=0, replicas=[1, 2], adding_replicas=adding
            )
        ],
    )
    client = FakeClient(
        {
            MetadataRequest: lambda _request, _node: described,
            ListPartitionReassignmentsRequest: lambda _request, _node: ListPartitionReassignmentsResponse(
                topics=[moving]
            ),
        }
    )
    assert summary(fetch_snapshot(client)) == f"1 topic, 1 partition: {state}"
    assert len(client.requests(ListPartitionReassignmentsRequest)) == (in_sync == [1])


def test_state_before_a_broker_answers() -> None:
    starting = Member(0, 7, State.STARTING, "")
    assert rows([starting], None) == [["0", "7", "starting", "-", "-", "-", "-", ""]]
    assert summary(None) == "no broker answers"


def test_running_broker_outside_the_cluster_is_marked() -> None:
    assert rows([member(2)], picture(live=(0, 1)))[0][-1] == "not in the cluster"


def test_lines_contain_only_changes() -> None:
    names = {0: "broker 0", 1: "broker 1"}
    whole, behind = picture((0, [0, 1, 2])), picture((0, [0, 2]))
    moved = picture((0, [0, 2]), controller=0)
    assert changes(None, whole, names) == ["controller: broker 1", "1 topic, 1 partition: all in sync"]
    assert changes(whole, whole, names) == []
    assert changes(whole, behind, names) == ["1 topic, 1 partition: 1 under-replicated"]
    assert changes(behind, moved, names) == ["controller: broker 0"]
    assert changes(moved, None, names) == ["no broker answers"]
    assert changes(moved, picture((0, [0, 2]), controller=-1), names) == ["controller: none"]


def test_last_error_of_a_log_is_its_last_line_without_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_error(log) == ""
    log.write_text("[1] INFO a\n[2] ERROR the reason\n[3] INFO b\n\n")
    assert last_error(log) == "[2] ERROR the reason"
    log.write_text("Traceback\nImportError: no\n")
    assert last_error(log) == "ImportError: no"
    log.write_text("")
    assert last_error(log) == ""
