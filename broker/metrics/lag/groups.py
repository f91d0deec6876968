"""Groups of consumers, each shown by its coordinator alone, with the names of kafka_exporter and kafka-lag-exporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.metrics.family import GAUGE, UNTYPED, Family, label_text
from gregor.broker.metrics.kept_lines import batched
from gregor.broker.metrics.lag.blocks import (
    EXPORTED_LAG,
    LAG,
    LAG_SECONDS,
    OFFSET,
    PARTITION_STATUS,
    Block,
    Blocks,
    EndsOf,
    status_labels,
)
from gregor.broker.metrics.lag.first_unread import Position
from gregor.broker.metrics.lag.status import SampleTimes, Status
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.coordinator.group.group import Group
    from gregor.coordinator.group.shard import GroupShard
    from gregor.replication.partition.metadata_image import TopicState

_PREFIX = "kafka_consumergroup_"
_PARTITION = ("consumergroup", "topic", "partition")
_TOPIC = _PARTITION[:2]
_EXPORTED = ("group", "topic", "partition")
_MAX_LAG, _MAX_LAG_SECONDS = f"{_PREFIX}group_max_lag", f"{_PREFIX}group_max_lag_seconds"
_SUM_LAG, _TOPIC_SUM_LAG = f"{_PREFIX}group_sum_lag", f"{_PREFIX}group_topic_sum_lag"
_STATUS = "gregor_consumergroup_status"
_SHOWN = "shown by the coordinator of the group"

FAMILIES = (
    Family(OFFSET, GAUGE, _PARTITION, f"Committed offset of a group, {_SHOWN}."),
    Family(f"{_PREFIX}current_offset_sum", UNTYPED, _TOPIC, f"Sum of the committed offsets in a topic, {_SHOWN}."),
    Family(
        LAG,
        GAUGE,
        _PARTITION,
        f"Offsets from the committed one to the high watermark, {_SHOWN}; missing while the leader does not answer.",
    ),
    Family(
        f"{_PREFIX}lag_sum", UNTYPED, _TOPIC, f"Sum of the lags in a topic, {_SHOWN}; missing where one of them is."
    ),
    Family(
        LAG_SECONDS,
        GAUGE,
        _EXPORTED,
        f"Age of the first record that a group has not read, 0 without one, {_SHOWN}; missing where it is not known.",
    ),
    Family(EXPORTED_LAG, GAUGE, _EXPORTED, "The same as kafka_consumergroup_lag, by the name of kafka-lag-exporter."),
    Family(_MAX_LAG, GAUGE, _EXPORTED[:1], f"The largest of the lags of a group that are known, {_SHOWN}."),
    Family(_MAX_LAG_SECONDS, GAUGE, _EXPORTED[:1], f"The largest known lag of a group in seconds, {_SHOWN}."),
    Family(_SUM_LAG, GAUGE, _EXPORTED[:1], f"Sum of the lags of a group that are known, {_SHOWN}."),
    Family(
        _TOPIC_SUM_LAG,
        GAUGE,
        _EXPORTED[:2],
        "The same as kafka_consumergroup_lag_sum, by the name of kafka-lag-exporter.",
    ),
    Family(
        _STATUS,
        GAUGE,
        ("group", "status", "reason"),
        f"1: the status of a group, which is the worst in its partitions, {_SHOWN}.",
    ),
    Family(
        PARTITION_STATUS,
        GAUGE,
        (*_EXPORTED, "status", "reason"),
        f"1: status of a group in a partition where it is not ok, {_SHOWN}.",
    ),
    Family(f"{_PREFIX}members", GAUGE, _PARTITION[:1], f"Members of a group, {_SHOWN}."),
)


class _Group(NamedTuple):
    """A group, as the present scrape has read it: the blocks of each topic."""

    group_id: str
    members: int
    topics: list[tuple[str, list[Block]]]


class _Found:
    """Of a group: the known lags in offsets and in seconds, and the worst status."""

    def __init__(self) -> None:
        self.has_lag = False
        self.lags_sum = self.max_lag = 0
        self.max_age_s: float | None = None
        self.status = Status.OK

    def add(self, block: Block) -> None:
        """Add the partitions of a block."""
        if block.lags:
            self.has_lag = True
            self.lags_sum += sum(block.lags)
            self.max_lag = max(self.max_lag, max(block.lags))
            self.status = max(self.status, block.status)
        if block.max_age_s is not None:
            self.max_age_s = block.max_age_s if self.max_age_s is None else max(self.max_age_s, block.max_age_s)


class GroupView:
    """Reads the groups that this broker coordinates: `others`, `unread` and `collect`, once each in a scrape."""

    def __init__(
        self,
        groups: GroupCoordinator,
        own_ends_of: EndsOf,
        ends_of: EndsOf,
        time_ms_of: Callable[[Position], int | None],
        topic_of: Callable[[str], TopicState | None],
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """`own_ends_of`: those of the logs that this broker leads; `time_ms_of`: see FirstUnread.time_ms; `topic_of`:
        see MetadataImage.topic."""
        self._groups = groups
        self._own_ends_of = own_ends_of
        self._ends_of = ends_of
        self._time_ms_of = time_ms_of
        self._topic_of = topic_of
        self._clock_ms = clock_ms
        self._times = SampleTimes()
        self._blocks = Blocks()
        self._read: list[_Group] = []

    def others(self) -> Steps[dict[TopicPartitionKey, None]]:
        """Read the groups; return the partitions with a committed offset that other brokers lead."""
        found: dict[TopicPartitionKey, None] = {}
        self._blocks.begin()
        self._read = []
        for shard, group in self._all_groups():
            if group is None:
                yield None
                continue
            topics = []
            for topic, partitions in list(group.offsets.items()):
                blocks = []
                for number, commits in enumerate(batched(list(partitions.items()), ITEMS_PER_STEP)):
                    block = self._blocks.block(group.group_id, topic, number, commits)
                    blocks.append(block)
                    found.update(dict.fromkeys(block.read(commits, self._own_ends_of)))
                    yield None
                topics.append((topic, blocks))
            self._read.append(_Group(group.group_id, shard.queries.members_count(group.group_id), topics))
        return found

    def unread(self) -> Steps[dict[Position, None]]:
        """Read the other ends of logs; return the positions below the end whose record's time is not known."""
        found: dict[Position, None] = {}
        self._times.add(self._clock_ms())
        for group in self._read:
            for topic, blocks in group.topics:
                for block in blocks:
                    found.update(dict.fromkeys(block.compare(self._ends_of, self._topic_of(topic), self._times)))
                    yield None
        return found

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
        for count, group in enumerate(self._read, 1):
            page.add(f"{_PREFIX}members", group.members, label_text(consumergroup=group.group_id))
            found = _Found()
            for topic, blocks in group.topics:
                for block in blocks:
                    block.show(page, self._time_ms_of, self._times)
                    found.add(block)
                    yield None
                labels = label_text(consumergroup=group.group_id, topic=topic)
                page.add(f"{_PREFIX}current_offset_sum", sum(block.offsets_sum for block in blocks), labels)
                if all(len(block.lags) == block.partitions_count for block in blocks):
                    lag_sum = sum(sum(block.lags) for block in blocks)
                    page.add(f"{_PREFIX}lag_sum", lag_sum, labels)
                    page.add(_TOPIC_SUM_LAG, lag_sum, label_text(group=group.group_id, topic=topic))
            self._of_group(page, label_text(group=group.group_id), found)
            if not count % ITEMS_PER_STEP:
                yield None

    def _of_group(self, page: Page, labels: str, found: _Found) -> None:
        if found.has_lag:
            page.add(_MAX_LAG, found.max_lag, labels)
            page.add(_SUM_LAG, found.lags_sum, labels)
            page.add(_STATUS, 1, f"{labels[:-1]},{status_labels(found.status)}")
        if found.max_age_s is not None:
            page.add(_MAX_LAG_SECONDS, round(found.max_age_s, 3), labels)
