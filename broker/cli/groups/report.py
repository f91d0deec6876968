"""The output of `gregor groups --describe`: offsets and lag, members, or the state of groups."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ListOffsetsResultInfo,
    MemberDescription,
    OffsetSpec,
)

from gregor.broker.cli.client import collect_results, require_results
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.protocol.topic_partition import TopicPartitionKey

MISSING = "-"
STATE_NAMES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
}


def state_name(group: ConsumerGroupDescription | ConsumerGroupListing) -> str:
    """Return Kafka's name of the group's state; "Unknown" for the states of the newer group protocols."""
    names: Mapping[Any, str] = STATE_NAMES
    return names.get(group.state, "Unknown")


def describe(admin: AdminClient, names: Sequence[str], given: Mapping[str, Any], timeout_s: float) -> int:
    """Print one table per group; return exit code 1 if one of them does not exist."""
    described = require_results(admin.describe_consumer_groups(list(names), request_timeout=timeout_s))
    code = 0
    for name in sorted(described):
        group = described[name]
        if group.state == ConsumerGroupState.DEAD:
            print(
                f"gregor groups: group '{name}' does not exist. `gregor groups --list` shows the groups that exist.",
                file=sys.stderr,
            )
            code = 1
            continue
        _remark(group)
        if given["members"]:
            columns, rows = member_table(group, given["verbose"])
        elif given["state"]:
            columns, rows = state_table(group, given["verbose"])
        else:
            committed = committed_offsets(admin, name, timeout_s)
            keys = {*committed, *(key for member in group.members for key in assigned(member))}
            ends = {key: info.offset for key, info in log_offsets(admin, keys, OffsetSpec.latest()).items()}
            columns, rows = offset_table(group, committed, ends, given["verbose"])
        if rows and on_terminal():
            print_table(columns, rows)
        elif rows or (given["members"] and not on_terminal()):  # without members Kafka's tool still prints the titles
            print()
            print_table(columns, rows)
    return code


def committed_offsets(admin: AdminClient, group: str, timeout_s: float) -> dict[TopicPartitionKey, TopicPartition]:
    """Fetch the committed offsets of a group, with leader epochs."""
    request = [ConsumerGroupTopicPartitions(group)]
    answer = require_results(admin.list_consumer_group_offsets(request, request_timeout=timeout_s))[group]
    return {(part.topic, part.partition): part for part in answer.topic_partitions or [] if part.offset >= 0}


def log_offsets(
    admin: AdminClient, keys: Iterable[TopicPartitionKey], spec: OffsetSpec
) -> dict[TopicPartitionKey, ListOffsetsResultInfo]:
    """Fetch offsets of logs by `spec`, without partitions that are deleted or have no leader."""
    wanted = {TopicPartition(topic, partition): spec for topic, partition in keys}
    if not wanted:
        return {}
    done, _ = collect_results(admin.list_offsets(wanted))
    return {(part.topic, part.partition): info for part, info in done.items()}


def assigned(member: MemberDescription) -> list[TopicPartitionKey]:
    """Return the partitions of a member, sorted."""
    return sorted((part.topic, part.partition) for part in member.assignment.topic_partitions)


def offset_table(
    group: ConsumerGroupDescription,
    committed: Mapping[TopicPartitionKey, TopicPartition],
    ends: Mapping[TopicPartitionKey, int],
    verbose: bool,
) -> tuple[list[Column], list[list[object]]]:
    """Return a row per partition: first those of the member with most of them, last those without a member."""
    columns = [Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10, number=True)]
    columns += [Column("LEADER-EPOCH", 15, number=True)] if verbose else []
    columns += [Column(name, 15, number=True) for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]
    columns += [Column("CONSUMER-ID", 15), Column("HOST", 15), Column("CLIENT-ID")]
    rows: list[list[object]] = []

    def add(key: TopicPartitionKey | None, owner: tuple[str, str, str]) -> None:
        part = committed.get(key) if key else None
        end = ends.get(key) if key else None
        row: list[object] = [group.group_id, *(key or (MISSING, MISSING))]
        if verbose:
            row.append(MISSING if part is None or part.leader_epoch is None else part.leader_epoch)
        row += [MISSING if part is None else part.offset, MISSING if end is None else end]
        row.append(MISSING if part is None or end is None else end - part.offset)
        rows.append([*row, *owner])

    owned: set[TopicPartitionKey] = set()
    for member in sorted(group.members, key=lambda member: -len(member.assignment.topic_partitions)):
        for key in assigned(member):
            owned.add(key)
            add(key, (member.member_id, member.host, member.client_id))
    for key in sorted(committed.keys() - owned):
        add(key, (MISSING, MISSING, MISSING))
    return columns, rows


def member_table(group: ConsumerGroupDescription, verbose: bool) -> tuple[list[Column], list[list[object]]]:
    """Return a row per member. Instance ids appear if a member has one; epochs belong to newer group protocols."""
    static = any(member.group_instance_id for member in group.members)
    columns = [Column("GROUP", 15), Column("CONSUMER-ID", 15)]
    columns += [Column("GROUP-INSTANCE-ID", 17)] if static else []
    columns += [Column("HOST", 15), Column("CLIENT-ID", 15), Column("#PARTITIONS", 15, number=True)]
    if verbose:
        columns += [Column("CURRENT-EPOCH", 15), Column("CURRENT-ASSIGNMENT", 20)]
        columns += [Column("TARGET-EPOCH", 15), Column("TARGET-ASSIGNMENT", 20)]
    rows: list[list[object]] = []
    for member in group.members:
        row: list[object] = [group.group_id, member.member_id]
        row += [member.group_instance_id or ""] if static else []
        row += [member.host, member.client_id, len(member.assignment.topic_partitions)]
        if verbose:
            target = member.target_assignment.topic_partitions if member.target_assignment else []
            row += [MISSING, partitions_text(assigned(member))]
            row += [MISSING, partitions_text((part.topic, part.partition) for part in target)]
        rows.append(row)
    return columns, rows


def state_table(group: ConsumerGroupDescription, verbose: bool) -> tuple[list[Column], list[list[object]]]:
    """Return one row with the coordinator and the state of the group."""
    node = group.coordinator
    coordinator = f"{node.host}:{node.port}  ({node.id})" if node else MISSING
    columns = [Column("GROUP", 15), Column("COORDINATOR (ID)", 25)]
    columns += [Column("ASSIGNMENT-STRATEGY", 20), Column("STATE", 20)]
    row: list[object] = [group.group_id, coordinator, group.partition_assignor or MISSING, state_name(group)]
    if verbose:
        columns += [Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
        row += [MISSING, MISSING]
    columns.append(Column("#MEMBERS", number=True))
    return columns, [[*row, len(group.members)]]


def partitions_text(keys: Iterable[TopicPartitionKey]) -> str:
    """Return partitions as `orders:0,1;returns:2`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        by_topic.setdefault(topic, []).append(partition)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items()) or MISSING


def _remark(group: ConsumerGroupDescription) -> None:
    if group.state == ConsumerGroupState.EMPTY:
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state != ConsumerGroupState.STABLE:
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
