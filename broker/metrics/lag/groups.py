"""Groups of consumers, each shown by its coordinator alone, with the names of kafka_exporter and kafka-lag-exporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.metrics.family import GAUGE, UNTYPED, Family, escaped, label_text
from gregor.broker.metrics.kept_lines import KeptLines, batched
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
_LAG_SECONDS = f"{_PREFIX}group_lag_seconds"
_MAX_LAG, _MAX_LAG_SECONDS = f"{_PREFIX}group_max_lag", f"{_PREFIX}group_max_lag_seconds"
_SUM_LAG = f"{_PREFIX}group_sum_lag"
_STATUS, _PARTITION_STATUS = "gregor_consumergroup_status", "gregor_consumergroup_partition_status"
_SHOWN = "shown by the coordinator of the group"

_LAG_FAMILY = Family(
    f"{_PREFIX}lag",
    GAUGE,
    _PARTITION,
    f"Offsets from the committed one to the high watermark, {_SHOWN}; missing while the leader does not answer.",
)
_EXPORTED_LAG_FAMILY = Family(
    f"{_PREFIX}group_lag", GAUGE, _EXPORTED, "The same as kafka_consumergroup_lag, by the name of kafka-lag-exporter."
)
FAMILIES = (
    Family(f"{_PREFIX}current_offset", GAUGE, _PARTITION, f"Committed offset of a group, {_SHOWN}."),
    Family(f"{_PREFIX}current_offset_sum", UNTYPED, _TOPIC, f"Sum of the committed offsets in a topic, {_SHOWN}."),
    _LAG_FAMILY,
    Family(
        f"{_PREFIX}lag_sum", UNTYPED, _TOPIC, f"Sum of the lags in a topic, {_SHOWN}; missing where one of them is."
    ),
    Family(
        _LAG_SECONDS,
        GAUGE,
        _EXPORTED,
        f"Age of the first record that a group has not read, 0 without one, {_SHOWN}; missing where it is not known.",
    ),
    _EXPORTED_LAG_FAMILY,
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


EndsOf = Callable[[Iterable[TopicPartitionKey]], list[int | None]]
"""Returns the high watermarks of partitions, None where it is not known."""
_Key = tuple[str, str, int]
"""Group, topic, partition."""


class _Series:
    """Of a group in a partition, from scrape to scrape: the window of its positions, and the texts that stay."""

    __slots__ = ("_labels", "_position", "_status", "_status_line", "seconds", "window")

    def __init__(self, key: _Key, offset: int) -> None:
        self.window = Window()
        self._position = Position(key[1], key[2], offset)
        self._labels = _labels("group", key)
        self.seconds = f"{_LAG_SECONDS}{self._labels} "
        """The beginning of the line of the lag in seconds."""
        self._status = Status.OK
        self._status_line = ""

    def at(self, offset: int) -> Position:
        """Return the position of a committed offset."""
        if self._position.offset != offset:
            self._position = self._position._replace(offset=offset)
        return self._position

    def status_line(self, status: Status) -> str:
        """Return the line of a status that is not OK."""
        if status is not self._status:
            self._status = status
            self._status_line = f"{_PARTITION_STATUS}{self._labels[:-1]},{_status_labels(status)} 1\n"
        return self._status_line


class _Block:
    """Some partitions of a topic with an offset of a group, in order: names and series, which stay from scrape to
    scrape, and what the present scrape has read of them."""

    __slots__ = ("commit_times_ms", "ends", "keys", "offsets", "partitions", "series", "topic_partitions")

    def __init__(self, keys: list[_Key], series: list[_Series]) -> None:
        self.keys = keys
        self.partitions = [partition for _, _, partition in keys]
        self.topic_partitions: list[TopicPartitionKey] = [(topic, partition) for _, topic, partition in keys]
        self.series = series
        self.offsets: list[int] = []
        """The committed ones."""
        self.commit_times_ms: list[int] = []
        self.ends: list[int | None] = []
        """The high watermarks."""

    def read(self, commits: Sequence[tuple[int, CommittedOffset]]) -> None:
        """Note the commits of the present scrape."""
        self.offsets = [committed.offset for _, committed in commits]
        self.commit_times_ms = [committed.commit_timestamp_ms for _, committed in commits]

    def read_ends(self, ends_of: EndsOf) -> None:
        """Note the ends of the logs in the present scrape."""
        self.ends = ends_of(self.topic_partitions)

    def unread(self) -> list[Position]:
        """Return the committed offsets that are known to be below the end of the log."""
        rows = zip(self.series, self.offsets, self.ends, strict=True)
        return [series.at(offset) for series, offset, end in rows if end is not None and offset < end]


class _Group(NamedTuple):
    """A group, as the present scrape has read it: the blocks of each topic."""

    group_id: str
    members: int
    topics: list[tuple[str, list[_Block]]]


class _Blocks:
    """The blocks of a scrape and of the one before."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, str, int], _Block] = {}
        self._known = self._blocks
        self._series: dict[_Key, _Series] | None = None
        """Those of the scrape before, once a block has other partitions than then."""

    def begin(self) -> None:
        """Begin a scrape: what it does not need is forgotten at the next one."""
        self._known, self._blocks, self._series = self._blocks, {}, None

    def block(self, group_id: str, topic: str, number: int, commits: Sequence[tuple[int, CommittedOffset]]) -> _Block:
        """Return a block of a topic by its number in it."""
        block_id = group_id, topic, number
        block = self._known.get(block_id)
        if block is None or block.partitions != [partition for partition, _ in commits]:
            known = self._known_series()
            keys = [(group_id, topic, partition) for partition, _ in commits]
            series = [
                known.get(key) or _Series(key, committed.offset)
                for key, (_, committed) in zip(keys, commits, strict=True)
            ]
            block = _Block(keys, series)
        block.read(commits)
        self._blocks[block_id] = block
        return block

    def _known_series(self) -> dict[_Key, _Series]:
        if self._series is None:
            self._series = {
                key: series
                for block in self._known.values()
                for key, series in zip(block.keys, block.series, strict=True)
            }
        return self._series


class _Found:
    """Of a group: its partitions with an offset, the sum of these, the known lags in offsets and in seconds, and the
    worst status."""

    def __init__(self) -> None:
        self.partitions = self.offsets = 0
        self.lags: list[int] = []
        self.ages_s: list[float] = []
        self.status = Status.OK

    def add_offsets(self, offsets: Sequence[int]) -> None:
        """Add the committed offsets of some partitions."""
        self.partitions += len(offsets)
        self.offsets += sum(offsets)

    def add_status(self, status: Status) -> None:
        """Add the status of a partition: the worst one is that of the group."""
        self.status = max(self.status, status)


class GroupView:
    """Reads the groups that this broker coordinates: `partitions`, `unread` and `collect`, once each in a scrape."""

    def __init__(
        self,
        groups: GroupCoordinator,
        ends_of: EndsOf,
        time_ms_of: Callable[[Position], int | None],
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """`time_ms_of`: see FirstUnread.time_ms."""
        self._groups = groups
        self._ends_of = ends_of
        self._time_ms_of = time_ms_of
        self._clock_ms = clock_ms
        self._offsets: KeptLines[_Key] = KeptLines(FAMILIES[:1], partial(_labels, "consumergroup"))
        self._lags: KeptLines[_Key] = KeptLines([_LAG_FAMILY], partial(_labels, "consumergroup"))
        self._exported: KeptLines[_Key] = KeptLines([_EXPORTED_LAG_FAMILY], partial(_labels, "group"))
        self._blocks = _Blocks()
        self._read: list[_Group] = []

    def partitions(self) -> Steps[dict[TopicPartitionKey, None]]:
        """Read the groups, and return the partitions in which one has a committed offset."""
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
                    found.update(dict.fromkeys(block.topic_partitions))
                    yield None
                topics.append((topic, blocks))
            self._read.append(_Group(group.group_id, shard.queries.members_count(group.group_id), topics))
        return found

    def unread(self) -> Steps[dict[Position, None]]:
        """Read the ends of the logs, and return the committed offsets that are known to be below them."""
        found: dict[Position, None] = {}
        for group in self._read:
            for _, blocks in group.topics:
                for block in blocks:
                    block.read_ends(self._ends_of)
                    found.update(dict.fromkeys(block.unread()))
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
                before = found.partitions, found.offsets, len(found.lags), sum(found.lags)
                for block in blocks:
                    self._of_block(page, block, found)
                    yield None
                labels = label_text(consumergroup=group.group_id, topic=topic)
                page.add(f"{_PREFIX}current_offset_sum", found.offsets - before[1], labels)
                if len(found.lags) - before[2] == found.partitions - before[0]:
                    page.add(f"{_PREFIX}lag_sum", sum(found.lags) - before[3], labels)
            self._of_group(page, label_text(group=group.group_id), found)
            if not count % ITEMS_PER_STEP:
                yield None
        for kept in (self._offsets, self._lags, self._exported):
            yield from kept.end(page)

    def _of_group(self, page: Page, labels: str, found: _Found) -> None:
        if found.lags:
            page.add(_MAX_LAG, max(found.lags), labels)
            page.add(_SUM_LAG, sum(found.lags), labels)
            page.add(_STATUS, 1, f"{labels[:-1]},{_status_labels(found.status)}")
        if found.ages_s:
            page.add(_MAX_LAG_SECONDS, round(max(found.ages_s), 3), labels)

    def _of_block(self, page: Page, block: _Block, found: _Found) -> None:
        """Add the series of some partitions, and what is found to that of the group."""
        offsets, ends = block.offsets, block.ends
        self._offsets.put(block.keys, [(offset,) for offset in offsets])
        found.add_offsets(offsets)
        keys = block.keys
        if None in ends:
            keys = [key for key, end in zip(keys, ends, strict=True) if end is not None]
        now_ms, time_ms_of = self._clock_ms(), self._time_ms_of
        lags, seconds, statuses = list[int](), list[str](), list[str]()
        ages_s = found.ages_s
        for series, end, offset, committed_ms in zip(block.series, ends, offsets, block.commit_times_ms, strict=True):
            if end is None:
                continue
            lag = end - offset if end > offset else 0
            lags.append(lag)
            time_ms = time_ms_of(series.at(offset)) if lag else NO_RECORD
            if time_ms is not None:
                # 0 without a record, and for a time ahead of this clock.
                age_s = 0.0 if time_ms == NO_RECORD or time_ms > now_ms else (now_ms - time_ms) / 1000
                ages_s.append(age_s)
                seconds.append(f"{series.seconds}{age_s:.3f}\n")
            window = series.window
            window.add(Sample(now_ms, offset, committed_ms, lag))
            status = window.status()
            if status is not Status.OK:
                found.add_status(status)
                statuses.append(series.status_line(status))
        rows = [(lag,) for lag in lags]
        self._lags.put(keys, rows)
        self._exported.put(keys, rows)
        page.extend(_LAG_SECONDS, ["".join(seconds).encode()])
        if statuses:
            page.extend(_PARTITION_STATUS, ["".join(statuses).encode()])
        found.lags.extend(lags)


def _labels(group: str, key: _Key) -> str:
    """`group`: the name of the label with the group."""
    return f'{{{group}="{escaped(key[0])}",topic="{key[1]}",partition="{key[2]}"}}'


def _status_labels(status: Status) -> str:
    return label_text(status=status.label, reason=REASONS[status])[1:]
