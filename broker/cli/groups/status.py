"""The status of groups by two samples of their positions, some seconds apart.

The coordinator's metrics judge a longer time, and by the times of the commits (metrics.lag.status). Here a group that
is behind and did not advance is stalled if it has members, and stopped if it has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gregor.broker.cli.groups.views import GroupView
from gregor.broker.cli.tables import Column
from gregor.broker.metrics.lag.status import Sample, Status, status_of
from gregor.protocol.topic_partition import TopicPartitionKey

DEFAULT_INTERVAL_S = "10"
"""Twice the default of auto.commit.interval.ms."""

Samples = Mapping[TopicPartitionKey, Sample]
Pairs = dict[TopicPartitionKey, tuple[Sample, Sample]]

_REASONS = {
    Status.OK: "it reads to the end, or its committed offsets advance",
    Status.REWINDING: "a committed offset went back",
    Status.BLOCKED: "it is behind and has members, but no committed offset advanced",
    Status.STOPPED: "it is behind and has no members, and no committed offset advanced",
}


def read_statuses(
    read: Callable[[str], Samples],
    names: Sequence[str],
    interval_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Pairs]:
    """Read the positions of groups twice; return those of partitions that are in both samples."""
    before = {name: read(name) for name in names}
    sleep(interval_s)
    found: dict[str, Pairs] = {}
    for name in names:
        after = read(name)
        found[name] = {key: (sample, after[key]) for key, sample in before[name].items() if key in after}
    return found


def status_table(group: GroupView, pairs: Pairs, interval_s: float) -> tuple[list[Column], list[list[object]]]:
    """Return a row with the worst status of a group, the partitions that have it, and the reason."""
    columns = [Column("GROUP", 15), Column("STATUS", 10), Column("LAG", 15, number=True)]
    columns += [Column("#PARTITIONS", 15, number=True), Column("REASON")]
    statuses = {key: _status(pair, has_members=bool(group.members)) for key, pair in pairs.items()}
    worst = max(statuses.values(), default=Status.OK)
    lag = sum(after.lag for _, after in pairs.values())
    count = sum(status is worst for status in statuses.values())
    reason = f"in {interval_s:g} s: {_REASONS[worst]}" if pairs else "it has no committed offsets"
    return columns, [[group.group_id, worst.label, lag, count, reason]]


def _status(pair: tuple[Sample, Sample], *, has_members: bool) -> Status:
    status = status_of(pair)
    return Status.BLOCKED if status is Status.STOPPED and has_members else status
