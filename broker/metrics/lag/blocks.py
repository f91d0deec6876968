"""The partitions with offsets of groups, in blocks that stay from scrape to scrape.

A block is as many partitions of a topic as one step handles. Its sums, its windows and the text of its lines are made
anew only where a committed offset or the end of a log has changed since the scrape before; only ages and statuses
change without that, and the times of first unread records. Those are read again within a minute: retention,
DeleteRecords and compaction remove records, at other leaders unseen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gregor.broker.metrics.family import escaped, label_text
from gregor.broker.metrics.lag.first_unread import NO_RECORD, Position
from gregor.broker.metrics.lag.status import REASONS, SampleTimes, Status, Window
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.replication.partition.partition import NO_EPOCH

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.coordinator.group.group import CommittedOffset
    from gregor.protocol.ids import Uuid
    from gregor.replication.partition.metadata_image import TopicState

OFFSET, LAG = "kafka_consumergroup_current_offset", "kafka_consumergroup_lag"
EXPORTED_LAG, LAG_SECONDS = "kafka_consumergroup_group_lag", "kafka_consumergroup_group_lag_seconds"
PARTITION_STATUS = "gregor_consumergroup_partition_status"
MAX_AGE_MS = 60_000
"""Of the time of a first unread record: then it is read again."""

EndsOf = Callable[[Sequence[TopicPartitionKey]], list[int | None]]
"""Returns the high watermarks of partitions, None where it is not known."""
Commits = Sequence[tuple[int, "CommittedOffset"]]
"""The offsets of a group by the partitions of a topic."""
Key = tuple[str, str, int]
"""Group, topic, partition."""


class Series:
    """Of a group in a partition: the window of its positions, and the time of its first unread record."""

    __slots__ = ("is_due", "key", "labels", "leader_epoch", "offset", "time_ms", "topic_id", "window")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.labels = f'="{escaped(key[0])}",topic="{key[1]}",partition="{key[2]}"'
        """Behind the name of the label with the group."""
        self.window = Window()
        self.offset = -1
        """The committed one that `time_ms` belongs to, in the log with `topic_id` and `leader_epoch`."""
        self.topic_id: Uuid = ZERO_UUID
        self.leader_epoch = NO_EPOCH
        self.time_ms: int | None = None
        """As FirstUnread.time_ms."""
        self.is_due = True
        """Whether the time must be read, at a position below the end."""

    def needs_time(self, offset: int, topic_id: Uuid, leader_epoch: int) -> bool:
        """Note the position of a group that is behind; return whether the time must be read."""
        if offset != self.offset or leader_epoch != self.leader_epoch or topic_id != self.topic_id:
            self.offset, self.topic_id, self.leader_epoch = offset, topic_id, leader_epoch
            self.time_ms, self.is_due = None, True
        return self.is_due

    def learn(self, time_ms: int | None) -> None:
        """Note the time of the first unread record, None if it could not be read."""
        if time_ms is not None:
            self.time_ms, self.is_due = time_ms, time_ms == NO_RECORD

    def expire(self) -> None:
        """Have the time read again; it stays until then."""
        self.is_due = True

    @property
    def position(self) -> Position:
        return Position(self.key[1], self.key[2], self.offset, self.topic_id, self.leader_epoch)


class Block:
    """`read`, `compare` and `show`, once each in a scrape."""

    def __init__(self, series: list[Series]) -> None:
        self._series = series
        self._partitions: list[TopicPartitionKey] = [(one.key[1], one.key[2]) for one in series]
        self._commits: Commits = ()
        self._has_commits = self._has_changed = False
        """Whether commits, and whether commits or ends, are others than those that were shown last."""
        self._ends: list[int | None] = []
        self._noted_ends: list[int | None] = []
        self._topic: TopicState | None = None
        """As it was in the metadata image at the scrape before."""
        self._leader_epochs = [NO_EPOCH] * len(series)
        self._known: list[Series] = []
        """Those with a known end: all others have an offset alone."""
        self._waiting: list[Series] = []
        """Those that are behind, and whose time of the first unread record must be read."""
        self._renewed_ms = float("-inf")
        """When the times of all that are behind were due last, or up to half of MAX_AGE_MS before: blocks whose times
        were read in one scrape are due again in several."""
        self._times_ms: list[int] = []
        """Those of the first unread records: the arguments of `_seconds`."""
        self._seconds = ""
        """The lines of the lag in seconds, with formats in place of ages."""
        self._statuses: list[Status] = []
        self._offset_lines = self._lag_lines = self._exported_lines = self._status_lines = b""
        self.offsets_sum = 0
        self.lags: list[int] = []
        """The known ones."""
        self.status = Status.OK
        """The worst one."""
        self.max_age_s: float | None = None
        """The largest known lag in seconds."""

    def holds(self, commits: Commits) -> bool:
        """Return whether the commits are of the partitions of this block, in their order."""
        return len(commits) == len(self._series) and all(
            commit[0] == series.key[2] for commit, series in zip(commits, self._series, strict=True)
        )

    def is_read(self, commits: Commits) -> bool:
        """Return whether the commits are those of the scrape before."""
        return self._commits == commits

    def keyed_series(self) -> Iterable[tuple[Key, Series]]:
        """Yield the series by their keys."""
        return [(one.key, one) for one in self._series]

    @property
    def partitions_count(self) -> int:
        return len(self._series)

    # -- what a scrape reads ---------------------------------------------------------------------------------------

    def read(self, commits: Commits, own_ends_of: EndsOf) -> list[TopicPartitionKey]:
        """Note the commits of a scrape, and the ends of the logs that this broker leads. Return the other
        partitions."""
        if self._commits != commits:
            self._has_commits, self._commits = True, commits
            self.offsets_sum = sum([committed.offset for _, committed in commits])
        self._ends = own_ends_of(self._partitions)
        return self._others() if None in self._ends else []

    def _others(self) -> list[TopicPartitionKey]:
        return [key for key, end in zip(self._partitions, self._ends, strict=True) if end is None]

    def compare(self, ends_of: EndsOf, topic: TopicState | None, times: SampleTimes) -> list[Position]:
        """Note the ends of the other logs, and the topic as it is in the metadata image. Return the positions whose
        time must be read."""
        if None in self._ends:
            fetched = iter(ends_of(self._others()))
            self._ends = [next(fetched) if end is None else end for end in self._ends]
        # An image replaces a topic at each change of one of its partitions, of their sets in sync above all.
        has_moved = topic is not self._topic and self._note_leaders(topic)
        if has_moved or self._has_commits or self._ends != self._noted_ends:
            self._has_changed, self._noted_ends = True, self._ends
            self._note(times)
        # By the distance: a clock that was set back does not keep times for longer.
        if abs(times.latest_ms - self._renewed_ms) >= MAX_AGE_MS:
            self._renew(times)
        return [one.position for one in self._waiting]

    def _note_leaders(self, topic: TopicState | None) -> bool:
        """Note the topic and the epochs of its leaders; return whether one of them is new."""
        before, before_epochs = _topic_id(self._topic), self._leader_epochs
        states = {} if topic is None else topic.partitions
        found = [states.get(index) for _, index in self._partitions]
        self._topic = topic
        self._leader_epochs = [NO_EPOCH if state is None else state.leader_epoch for state in found]
        return self._leader_epochs != before_epochs or _topic_id(topic) != before

    def _note(self, times: SampleTimes) -> None:
        """Note the positions, which have changed."""
        self.lags, self._known, self._waiting = [], [], []
        topic_id = _topic_id(self._topic)
        for series, (_, committed), end, leader_epoch in zip(
            self._series, self._commits, self._ends, self._leader_epochs, strict=True
        ):
            if end is None:
                series.window.note_unknown(times)
                continue
            offset = committed.offset
            lag = end - offset if end > offset else 0
            self._known.append(series)
            self.lags.append(lag)
            series.window.note(times, offset, committed.commit_timestamp_ms, lag)
            if not lag:
                series.learn(NO_RECORD)
            elif series.needs_time(offset, topic_id, leader_epoch):
                self._waiting.append(series)

    def _renew(self, times: SampleTimes) -> None:
        """Have the times of all that are behind read again."""
        self._renewed_ms = times.latest_ms - random.uniform(0, MAX_AGE_MS / 2)
        self._waiting = [one for one, lag in zip(self._known, self.lags, strict=True) if lag]
        for series in self._waiting:
            series.expire()

    # -- what a scrape shows ---------------------------------------------------------------------------------------

    def show(self, page: Page, time_ms_of: Callable[[Position], int | None], times: SampleTimes) -> None:
        """Add the lines to a page. `time_ms_of`: see FirstUnread.time_ms."""
        if self._has_commits:
            offsets = [committed.offset for _, committed in self._commits]
            self._offset_lines = _lines(OFFSET, "consumergroup", self._series, offsets)
        if self._has_changed:
            self._lag_lines = _lines(LAG, "consumergroup", self._known, self.lags)
            self._exported_lines = _lines(EXPORTED_LAG, "group", self._known, self.lags)
        if self._has_changed or self._waiting:
            self._learn(time_ms_of)
        page.extend(OFFSET, [self._offset_lines])
        page.extend(LAG, [self._lag_lines])
        page.extend(EXPORTED_LAG, [self._exported_lines])
        page.extend(LAG_SECONDS, [self._aged(times.latest_ms)])
        self._judge(times)
        self._has_commits = self._has_changed = False
        if self._status_lines:
            page.extend(PARTITION_STATUS, [self._status_lines])

    def _learn(self, time_ms_of: Callable[[Position], int | None]) -> None:
        """Note the times that were read, and make the lines of the lag in seconds."""
        for series in self._waiting:
            series.learn(time_ms_of(series.position))
        self._waiting = [one for one in self._waiting if one.is_due]
        times_ms = [one.time_ms for one in self._known]
        self._times_ms = [time_ms for time_ms in times_ms if time_ms is not None and time_ms != NO_RECORD]
        begin = f"{LAG_SECONDS}{{group"
        self._seconds = "".join(
            [
                f"{begin}{series.labels.replace('%', '%%')}}} {'0.000' if time_ms == NO_RECORD else '%.3f'}\n"
                for series, time_ms in zip(self._known, times_ms, strict=True)
                if time_ms is not None
            ]
        )

    def _aged(self, now_ms: float) -> bytes:
        """Return the lines of the lag in seconds: 0 for a time ahead of this clock."""
        ages_s = [(now_ms - time_ms) / 1000 if time_ms < now_ms else 0.0 for time_ms in self._times_ms]
        self.max_age_s = max(ages_s, default=0.0) if self._seconds else None
        return (self._seconds % tuple(ages_s)).encode()

    def _judge(self, times: SampleTimes) -> None:
        """Note the statuses, and make the lines of those that are not OK."""
        statuses = [one.window.status(times) for one in self._known]
        if statuses != self._statuses or self._has_changed:
            self._statuses = statuses
            self.status = max(statuses, default=Status.OK)
            self._status_lines = "".join(
                [
                    f"{PARTITION_STATUS}{{group{series.labels},{status_labels(status)} 1\n"
                    for series, status in zip(self._known, statuses, strict=True)
                    if status is not Status.OK
                ]
            ).encode()


def _lines(name: str, label: str, series: Sequence[Series], values: Sequence[int]) -> bytes:
    begin = f"{name}{{{label}"
    return "".join([f"{begin}{one.labels}}} {value}\n" for one, value in zip(series, values, strict=True)]).encode()


def _topic_id(topic: TopicState | None) -> Uuid:
    return ZERO_UUID if topic is None else topic.topic_id


@cache
def status_labels(status: Status) -> str:
    """Return the labels of a status, and the end of all labels."""
    return label_text(status=status.label, reason=REASONS[status])[1:]


class Blocks:
    """The blocks of a scrape and of the one before."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, str, int], Block] = {}
        self._before = self._blocks
        self._series: dict[Key, Series] | None = None
        """Those of the scrape before, once a block has other partitions than then."""

    def begin(self) -> None:
        """Begin a scrape: what it does not need is forgotten at the next one."""
        self._before, self._blocks, self._series = self._blocks, {}, None

    def block(self, group_id: str, topic: str, number: int, commits: Commits) -> Block:
        """Return a block of a topic by its number in it."""
        block_id = group_id, topic, number
        block = self._before.get(block_id)
        if block is None or not (block.is_read(commits) or block.holds(commits)):
            known = self._series_before()
            keys = [(group_id, topic, partition) for partition, _ in commits]
            block = Block([known.get(key) or Series(key) for key in keys])
        self._blocks[block_id] = block
        return block

    def _series_before(self) -> dict[Key, Series]:
        if self._series is None:
            self._series = {key: series for block in self._before.values() for key, series in block.keyed_series()}
        return self._series
