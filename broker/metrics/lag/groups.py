"""Groups of consumers, each shown by its coordinator alone, with the names of kafka_exporter and kafka-lag-exporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from gregor.broker.metrics.family import GAUGE, UNTYPED, Family, label_text
from gregor.broker.metrics.kept_lines import batched
from gregor.broker.metrics.lag.first_unread import NO_RECORD, Position
from gregor.broker.metrics.lag.status import REASONS, Sample, Status, Window
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.coordinator.group.group import CommittedOffset, Group
    from gregor.coordinator.group.shard import GroupShard

_PREFIX = "kafka_consumergroup_"
_PARTITION = ("consumergroup", "topic", "partition")
_TOPIC = _PARTITION[:2]
_EXPORTED = ("group", "topic", "partition")
_LAG, _LAG_SECONDS = f"{_PREFIX}group_lag", f"{_PREFIX}group_lag_seconds"
_MAX_LAG, _MAX_LAG_SECONDS = f"{_PREFIX}group_max_lag", f"{_PREFIX}group_max_lag_seconds"
_SUM_LAG = f"{_PREFIX}group_sum_lag"
_STATUS, _PARTITION_STATUS = "gregor_consumergroup_status", "gregor_consumergroup_partition_status"
_SHOWN = "shown by the coordinator of the group"

FAMILIES = (
    Family(f"{_PREFIX}current_offset", GAUGE, _PARTITION, f"Committed offset of a group, {_SHOWN}."),
    Family(f"{_PREFIX}current_offset_sum", UNTYPED, _TOPIC, f"Sum of the committed offsets in a topic, {_SHOWN}."),
    Family(
        f"{_PREFIX}lag",
        GAUGE,
        _PARTITION,
        f"Offsets from the committed one to the high watermark, {_SHOWN}; missing while the leader does not answer.",
    ),
    Family(
        f"{_PREFIX}lag_sum", UNTYPED, _TOPIC, f"Sum of the lags in a topic, {_SHOWN}; missing where one of them is."
    ),
    Family(
        _LAG_SECONDS,
        GAUGE,
        _EXPORTED,
        f"Age of the first record that a group has not read, 0 without one, {_SHOWN}; missing where it is not known.",
    ),
    Family(_LAG, GAUGE, _EXPORTED, "The same as kafka_consumergroup_lag, by the name of kafka-lag-exporter."),
    Family(_MAX_LAG, GAUGE, _EXPORTED[:1], f"The largest of the lags of a group that are known, {_SHOWN}."),
    Family(_MAX_LAG_SECONDS, GAUGE, _EXPORTED[:1], f"The largest known lag of a group in seconds, {_SHOWN}."),
    Family(_SUM_LAG, GAUGE, _EXPORTED[:1], f"Sum of the lags of a group that are known, {_SHOWN}."),
    Family(
        _STATUS,
        GAUGE,
        ("group", "status", "reason"),
        f"1: the status of a group, which is the worst in its partitions, {_SHOWN}.",
    ),
    Family(
        _PARTITION_STATUS,
        GAUGE,
        (*_EXPORTED, "status", "reason"),
        f"1: status of a group in a partition where it is not ok, {_SHOWN}.",
    ),
    Family(f"{_PREFIX}members", GAUGE, _PARTITION[:1], f"Members of a group, {_SHOWN}."),
)


_Key = tuple[str, str, int]
"""Group, topic, partition."""


class _Found:
    """The known lags of a group by partition, in offsets and in seconds, and its worst status."""

    def __init__(self) -> None:
        self.lags: list[int] = []
        self.ages_s: list[float] = []
        self.status = Status.OK


class GroupView:
    """Reads the groups that this broker coordinates."""

    def __init__(
        self,
        groups: GroupCoordinator,
        end_of: Callable[[TopicPartitionKey], int | None],
        time_ms_of: Callable[[Position], int | None],
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """`end_of` returns the high watermark of a partition, None where it is not known; `time_ms_of`: see
        FirstUnread.time_ms."""
        self._groups = groups
        self._end_of = end_of
        self._time_ms_of = time_ms_of
        self._clock_ms = clock_ms
        self._windows: dict[_Key, Window] = {}
        self._known_windows = self._windows
        """Those of the scrape before."""

    def partitions(self) -> Steps[dict[TopicPartitionKey, None]]:
        """Return the partitions in which a group has a committed offset."""
        found: dict[TopicPartitionKey, None] = {}
        for topic, partitions in self._commits():
            if partitions is not None:
                found.update(dict.fromkeys((topic, partition) for partition in partitions))
            yield None
        return found

    def unread(self) -> Steps[dict[Position, None]]:
        """Return the committed offsets that are known to be below the high watermark."""
        found: dict[Position, None] = {}
        for topic, partitions in self._commits():
            for partition, committed in () if partitions is None else partitions.items():
                end = self._end_of((topic, partition))
                if end is not None and committed.offset < end:
                    found[Position(topic, partition, committed.offset)] = None
            yield None
        return found

    def _commits(self) -> Iterator[tuple[str, dict[int, CommittedOffset] | None]]:
        """Yield the offsets of each group in each topic, at most ITEMS_PER_STEP at a time; and None after many groups
        without one."""
        for _, group in self._all_groups():
            for topic, partitions in () if group is None else list(group.offsets.items()):
                yield from ((topic, dict(part)) for part in batched(list(partitions.items()), ITEMS_PER_STEP))
            if group is None:
                yield "", None

    def _all_groups(self) -> Iterator[tuple[GroupShard, Group | None]]:
        """Yield the groups of all loaded shards, and None after ITEMS_PER_STEP of them: the end of a step."""
        for shard in self._groups.loaded_shards():
            for count, group_id in enumerate(shard.queries.group_ids(), 1):
                group = shard.groups.get(group_id)  # it may end between two steps
                if group is not None:
                    yield shard, group
                if not count % ITEMS_PER_STEP:
                    yield shard, None
            yield shard, None

    def collect(self, page: Page) -> Steps[None]:
        """Add the families of this module."""
        self._known_windows, self._windows = self._windows, {}
        for shard, group in self._all_groups():
            if group is None:
                yield None
                continue
            members = shard.queries.members_count(group.group_id)
            page.add(f"{_PREFIX}members", members, label_text(consumergroup=group.group_id))
            found = _Found()
            for topic, partitions in list(group.offsets.items()):
                yield from self._of_topic(page, group.group_id, topic, dict(partitions), found)
            of_group = label_text(group=group.group_id)
            if found.lags:
                page.add(_MAX_LAG, max(found.lags), of_group)
                page.add(_SUM_LAG, sum(found.lags), of_group)
                status = found.status
                page.add(_STATUS, 1, label_text(group=group.group_id, status=status.label, reason=REASONS[status]))
            if found.ages_s:
                page.add(_MAX_LAG_SECONDS, max(found.ages_s), of_group)

    def _of_topic(
        self, page: Page, group_id: str, topic: str, partitions: Mapping[int, CommittedOffset], found: _Found
    ) -> Steps[None]:
        """Add the series of a group in a topic, and what is found to that of the group."""
        lags = found.lags
        of_group = label_text(consumergroup=group_id, topic=topic)
        exported = label_text(group=group_id, topic=topic)
        known_before, sum_before = len(lags), sum(lags)
        offsets = 0
        for count, (partition, committed) in enumerate(partitions.items(), 1):
            labels = f'{of_group[:-1]},partition="{partition}"}}'
            page.add(f"{_PREFIX}current_offset", committed.offset, labels)
            offsets += committed.offset
            end = self._end_of((topic, partition))
            if end is not None:
                lag = max(0, end - committed.offset)
                page.add(f"{_PREFIX}lag", lag, labels)
                labels = f'{exported[:-1]},partition="{partition}"}}'
                page.add(_LAG, lag, labels)
                lags.append(lag)
                age_s = self._age_s(Position(topic, partition, committed.offset)) if lag else 0
                if age_s is not None:
                    page.add(_LAG_SECONDS, age_s, labels)
                    found.ages_s.append(age_s)
                status = self._status((group_id, topic, partition), committed, lag)
                if status is not Status.OK:
                    found.status = max(found.status, status)
                    why = label_text(status=status.label, reason=REASONS[status])
                    page.add(_PARTITION_STATUS, 1, f"{labels[:-1]},{why[1:]}")
            if not count % ITEMS_PER_STEP:
                yield None
        page.add(f"{_PREFIX}current_offset_sum", offsets, of_group)
        if len(lags) - known_before == len(partitions):
            page.add(f"{_PREFIX}lag_sum", sum(lags) - sum_before, of_group)

    def _status(self, key: _Key, committed: CommittedOffset, lag: int) -> Status:
        window = self._known_windows.get(key) or Window()
        self._windows[key] = window
        window.add(Sample(self._clock_ms(), committed.offset, committed.commit_timestamp_ms, lag))
        return window.status()

    def _age_s(self, position: Position) -> float | None:
        """Return the age of the first record from a position on; 0 without one, and for a time
        ahead of this clock."""
        time_ms = self._time_ms_of(position)
        if time_ms == NO_RECORD:
            return 0
        return None if time_ms is None else round(max(0.0, self._clock_ms() - time_ms) / 1000, 3)
