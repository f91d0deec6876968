"""The output of `gregor groups --describe`: offsets and lag, members, or the state of groups."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from gregor.broker.cli.client import collect_results, require_results
from gregor.broker.cli.coordinators import when_ready
from gregor.broker.cli.groups.seconds_behind import NOTHING_UNREAD, FirstUnread
from gregor.broker.cli.groups.status import read_statuses, status_table
from gregor.broker.cli.groups.views import DEAD, EMPTY, STABLE, GroupView, describe_groups
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.metrics.lag.status import Sample
from gregor.protocol.topic_partition import TopicPartitionKey

MISSING = "-"


def describe(admin: AdminClient, names: Sequence[str], given: Mapping[str, Any], timeout_s: float) -> int:
    """Print one table per group; return exit code 1 if one of them does not exist."""
    code = 0
    bootstrap, config_file = given["bootstrap"], given["config_file"]
    statuses = {}
    if given["status"] is not None:
        statuses = read_statuses(partial(read_samples, admin, timeout_s=timeout_s), names, given["status"])
    with FirstUnread(bootstrap, config_file, timeout_s) as first_unread:
        for group in describe_groups(admin, names, bootstrap, config_file, timeout_s):
            if group.state == DEAD:
                print(
                    f"gregor groups: group '{group.group_id}' does not exist. `gregor groups --list` shows the groups "
                    "that exist.",
                    file=sys.stderr,
                )
                code = 1
                continue
            _remark(group)
            if given["members"]:
                columns, rows = member_table(group, given["verbose"])
            elif given["status"] is not None:
                columns, rows = status_table(group, statuses.get(group.group_id, {}), given["status"])
            elif given["state"]:
                columns, rows = state_table(group, given["verbose"])
            else:
                positions = read_positions(admin, group, first_unread, timeout_s)
                columns, rows = offset_table(group, positions, given["verbose"])
            if rows and on_terminal():
                print_table(columns, rows)
            elif rows or (given["members"] and not on_terminal()):  # Kafka's tool prints the titles without members too
                print()
                print_table(columns, rows)
    return code


def read_samples(admin: AdminClient, group: str, timeout_s: float) -> dict[TopicPartitionKey, Sample]:
    """Read where a group stands in each partition whose end is known. The times of its commits are not: 0."""
    committed = committed_offsets(admin, group, timeout_s)
    ends = {key: info.offset for key, info in log_offsets(admin, committed, OffsetSpec.latest()).items()}
    now_ms = time.time() * 1000
    return {
        key: Sample(now_ms, part.offset, 0, max(0, ends[key] - part.offset))
        for key, part in committed.items()
        if key in ends
    }


class Positions(NamedTuple):
    """Where a group stands: its committed offsets, the ends of the logs, and how many seconds it is behind."""

    committed: Mapping[TopicPartitionKey, TopicPartition]
    ends: Mapping[TopicPartitionKey, int]
    seconds_behind: Mapping[TopicPartitionKey, float]


def read_positions(admin: AdminClient, group: GroupView, first_unread: FirstUnread, timeout_s: float) -> Positions:
    """Read the committed offsets of a group, the ends of their logs, and the ages of the first unread records."""
    committed = committed_offsets(admin, group.group_id, timeout_s)
    keys = {*committed, *(key for member in group.members for key in member.assigned)}
    ends = {key: info.offset for key, info in log_offsets(admin, keys, OffsetSpec.latest()).items()}
    offsets = {key: part.offset for key, part in committed.items()}
    timestamps_ms = first_unread.timestamps_ms(group.group_id, offsets, ends)
    return Positions(committed, ends, ages_s(timestamps_ms, time.time() * 1000))


def ages_s(timestamps_ms: Mapping[TopicPartitionKey, int], now_ms: float) -> dict[TopicPartitionKey, float]:
    """Return the age of each record; 0 where nothing is unread, and for timestamps ahead of this host's clock."""
    return {
        key: 0.0 if timestamp_ms == NOTHING_UNREAD else max(0.0, (now_ms - timestamp_ms) / 1000)
        for key, timestamp_ms in timestamps_ms.items()
    }


def committed_offsets(admin: AdminClient, group: str, timeout_s: float) -> dict[TopicPartitionKey, TopicPartition]:
    """Fetch the committed offsets of a group, with leader epochs."""
    request = [ConsumerGroupTopicPartitions(group)]
    answer = when_ready(
        lambda: require_results(admin.list_consumer_group_offsets(request, request_timeout=timeout_s))[group],
        timeout_s=timeout_s,
    )
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


def offset_table(group: GroupView, positions: Positions, verbose: bool) -> tuple[list[Column], list[list[object]]]:
    """Return a row per partition: first those of the member with most of them, last those without a member.

    The seconds behind, which Kafka's tool does not show, are the last column, so that the others keep their places.
    """
    committed, ends, seconds_behind = positions
    columns = [Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10, number=True)]
    columns += [Column("LEADER-EPOCH", 15, number=True)] if verbose else []
    columns += [Column(name, 15, number=True) for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]
    columns += [Column("CONSUMER-ID", 15), Column("HOST", 15), Column("CLIENT-ID", 15)]
    columns.append(Column("LAG-SECONDS", number=True))
    rows: list[list[object]] = []

    def add(key: TopicPartitionKey | None, owner: tuple[str, str, str]) -> None:
        part = committed.get(key) if key else None
        end = ends.get(key) if key else None
        row: list[object] = [group.group_id, *(key or (MISSING, MISSING))]
        if verbose:
            row.append(MISSING if part is None or part.leader_epoch is None else part.leader_epoch)
        row += [MISSING if part is None else part.offset, MISSING if end is None else end]
        row.append(MISSING if part is None or end is None else end - part.offset)
        seconds = seconds_behind.get(key) if key else None
        rows.append([*row, *owner, MISSING if seconds is None else f"{seconds:.3f}"])

    owned: set[TopicPartitionKey] = set()
    for member in sorted(group.members, key=lambda member: -len(member.assigned)):
        for key in member.assigned:
            owned.add(key)
            add(key, (member.member_id, member.host, member.client_id))
    for key in sorted(committed.keys() - owned):
        add(key, (MISSING, MISSING, MISSING))
    return columns, rows


def member_table(group: GroupView, verbose: bool) -> tuple[list[Column], list[list[object]]]:
    """Return a row per member. Instance ids appear if a member has one, the protocol of each member while the group
    moves from one protocol to the other; epochs are of consumer groups."""
    static = any(member.instance_id for member in group.members)
    mixed = verbose and len({member.is_upgraded for member in group.members} - {None}) > 1
    columns = [Column("GROUP", 15), Column("CONSUMER-ID", 15)]
    columns += [Column("GROUP-INSTANCE-ID", 17)] if static else []
    columns += [Column("HOST", 15), Column("CLIENT-ID", 15), Column("#PARTITIONS", 15, number=True)]
    if verbose:
        columns += [Column("CURRENT-EPOCH", 15), Column("CURRENT-ASSIGNMENT", 20)]
        columns += [Column("TARGET-EPOCH", 15), Column("TARGET-ASSIGNMENT", 20)]
    columns += [Column("UPGRADED")] if mixed else []
    rows: list[list[object]] = []
    for member in group.members:
        row: list[object] = [group.group_id, member.member_id]
        row += [member.instance_id or ""] if static else []
        row += [member.host, member.client_id, len(member.assigned)]
        if verbose:
            row += [_or_missing(member.epoch), partitions_text(member.assigned)]
            row += [_or_missing(group.target_epoch), partitions_text(member.target)]
        row += [MISSING if member.is_upgraded is None else str(member.is_upgraded).lower()] if mixed else []
        rows.append(row)
    return columns, rows


def state_table(group: GroupView, verbose: bool) -> tuple[list[Column], list[list[object]]]:
    """Return one row with the coordinator and the state of the group."""
    columns = [Column("GROUP", 15), Column("COORDINATOR (ID)", 25)]
    columns += [Column("ASSIGNMENT-STRATEGY", 20), Column("STATE", 20)]
    row: list[object] = [group.group_id, group.coordinator or MISSING, group.assignor or MISSING, group.state]
    if verbose:
        columns += [Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
        row += [_or_missing(group.epoch), _or_missing(group.target_epoch)]
    columns.append(Column("#MEMBERS", number=True))
    return columns, [[*row, len(group.members)]]


def _or_missing(epoch: int | None) -> object:
    return MISSING if epoch is None else epoch


def partitions_text(keys: Iterable[TopicPartitionKey]) -> str:
    """Return partitions as `orders:0,1;returns:2`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        by_topic.setdefault(topic, []).append(partition)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items()) or MISSING


def _remark(group: GroupView) -> None:
    if group.state == EMPTY:
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state != STABLE:
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
