"""The table of `gregor cluster`: the processes of the brokers beside the metadata of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gregor.broker.cli.reassignments import Reassignment, list_reassignments, replication_factor
from gregor.broker.cli.tables import Column
from gregor.broker.cli.wire import WireClient
from gregor.broker.launch.supervisor import State
from gregor.protocol.messages import MetadataRequest, MetadataResponse
from gregor.protocol.topic_partition import TopicPartitionKey

COLUMNS = (
    Column("BROKER", number=True),
    Column("PID", number=True),
    Column("STATE"),
    Column("LISTENER"),
    Column("LEADS", number=True),
    Column("REPLICAS", number=True),
    Column("IN-SYNC", number=True),
    Column(""),
)
_UNKNOWN = "-"


@dataclass(slots=True, frozen=True)
class Member:
    """The process of one broker."""

    broker_id: int
    pid: int | None
    state: State
    listener: str
    exit_text: str = ""


@dataclass(slots=True)
class Shares:
    """The partitions of one broker."""

    leads: int = 0
    replicas: int = 0
    in_sync: int = 0


@dataclass(slots=True)
class ClusterSnapshot:
    """The metadata of the cluster, as one of its brokers has it."""

    controller_id: int = -1
    live: frozenset[int] = frozenset()
    topics: int = 0
    partitions: int = 0
    under_replicated: int = 0
    offline: int = 0
    shares: dict[int, Shares] = field(default_factory=dict)


def fetch_snapshot(client: WireClient) -> ClusterSnapshot:
    """Fetch the state of the cluster; the reassignments only where some partition has replicas that are not in sync."""
    metadata: MetadataResponse = client.send(MetadataRequest(topics=None))
    snapshot = snapshot_of(metadata)
    return snapshot_of(metadata, list_reassignments(client)) if snapshot.under_replicated else snapshot


def snapshot_of(
    metadata: MetadataResponse, reassignments: Mapping[TopicPartitionKey, Reassignment] | None = None
) -> ClusterSnapshot:
    """Summarise a metadata response about all topics. Replicas that a reassignment is adding need not be in sync."""
    moving = reassignments or {}
    snapshot = ClusterSnapshot(
        controller_id=metadata.controller_id,
        live=frozenset(broker.node_id for broker in metadata.brokers),
        topics=len(metadata.topics),
    )
    leads, replicas, in_sync = Counter[int](), Counter[int](), Counter[int]()
    for topic in metadata.topics:
        for partition in topic.partitions:
            snapshot.partitions += 1
            move = moving.get((topic.name or "", partition.partition_index))
            snapshot.under_replicated += len(partition.isr_nodes) < replication_factor(partition.replica_nodes, move)
            if partition.leader_id < 0:
                snapshot.offline += 1
            else:
                leads[partition.leader_id] += 1
            replicas.update(partition.replica_nodes)
            in_sync.update(partition.isr_nodes)
    for broker_id in {*leads, *replicas, *in_sync}:
        snapshot.shares[broker_id] = Shares(leads[broker_id], replicas[broker_id], in_sync[broker_id])
    return snapshot


def rows(members: Sequence[Member], snapshot: ClusterSnapshot | None) -> list[list[str]]:
    """Return a row for each broker; without a snapshot the numbers of partitions are unknown."""
    found = []
    for member in members:
        shares = snapshot.shares.get(member.broker_id, Shares()) if snapshot is not None else None
        counts = [_UNKNOWN] * 3 if shares is None else [str(shares.leads), str(shares.replicas), str(shares.in_sync)]
        found.append(
            [
                str(member.broker_id),
                _UNKNOWN if member.pid is None else str(member.pid),
                member.state.value,
                member.listener or _UNKNOWN,
                *counts,
                _note(member, snapshot),
            ]
        )
    return found


def _note(member: Member, snapshot: ClusterSnapshot | None) -> str:
    if member.state is State.DOWN:
        return member.exit_text
    if snapshot is None or member.state is not State.READY:
        return ""
    if member.broker_id not in snapshot.live:
        return "not in the cluster"
    return "controller" if member.broker_id == snapshot.controller_id else ""


def summary(snapshot: ClusterSnapshot | None) -> str:
    """Return the state of the cluster in one line."""
    if snapshot is None:
        return "no broker answers"
    problems = [
        f"{count} {what}"
        for count, what in ((snapshot.under_replicated, "under-replicated"), (snapshot.offline, "without a leader"))
        if count
    ]
    state = ", ".join(problems) or "all in sync"
    return f"{_plural(snapshot.topics, 'topic')}, {_plural(snapshot.partitions, 'partition')}: {state}"


def changes(before: ClusterSnapshot | None, after: ClusterSnapshot | None, names: Mapping[int, str]) -> list[str]:
    """Return the differences between two snapshots as lines, for output that is no terminal."""
    lines = []
    if after is not None and (before is None or before.controller_id != after.controller_id):
        name = names.get(after.controller_id, f"broker {after.controller_id}")
        lines.append(f"controller: {name if after.controller_id >= 0 else 'none'}")
    if summary(before) != summary(after):
        lines.append(summary(after))
    return lines


def last_error(log: Path) -> str:
    """Return the last error in a log, else its last line: mostly the cause of the end; "" without a log."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines()[-50:] if line.strip()]
    except OSError:
        return ""
    errors = [line for line in lines if " ERROR " in line or " CRITICAL " in line]
    return (errors or lines or [""])[-1]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
