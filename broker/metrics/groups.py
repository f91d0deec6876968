"""Groups of consumers, each shown by its coordinator alone, with the names of kafka_exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.broker.metrics.family import GAUGE, UNTYPED, Family, label_text
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.coordinator.group.group import CommittedOffset, Group

_PREFIX = "kafka_consumergroup_"
_PARTITION = ("consumergroup", "topic", "partition")
_TOPIC = _PARTITION[:2]
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
    Family(f"{_PREFIX}members", GAUGE, _PARTITION[:1], f"Members of a group, {_SHOWN}."),
)


class GroupView:
    """Reads the groups that this broker coordinates."""

    def __init__(self, groups: GroupCoordinator, end_of: Callable[[TopicPartitionKey], int | None]) -> None:
        """`end_of` returns the high watermark of a partition, None where it is not known."""
        self._groups = groups
        self._end_of = end_of

    def partitions(self) -> Steps[dict[TopicPartitionKey, None]]:
        """Return the partitions in which a group has a committed offset."""
        found: dict[TopicPartitionKey, None] = {}
        for shard in self._groups.loaded_shards():
            for count, group_id in enumerate(shard.queries.group_ids(), 1):
                group = shard.groups.get(group_id)  # it may end between two steps
                for topic, partitions in () if group is None else list(group.offsets.items()):
                    found.update(dict.fromkeys((topic, partition) for partition in partitions))
                    if len(partitions) >= ITEMS_PER_STEP:
                        yield None
                if not count % ITEMS_PER_STEP:
                    yield None
            yield None
        return found

    def collect(self, page: Page) -> Steps[None]:
        """Add the families of this module."""
        for shard in self._groups.loaded_shards():
            for count, group_id in enumerate(shard.queries.group_ids(), 1):
                group = shard.groups.get(group_id)
                if group is not None:
                    members = shard.queries.members_count(group_id)
                    page.add(f"{_PREFIX}members", members, label_text(consumergroup=group_id))
                    yield from self._offsets(page, group)
                if not count % ITEMS_PER_STEP:
                    yield None
            yield None

    def _offsets(self, page: Page, group: Group) -> Steps[None]:
        for topic, partitions in list(group.offsets.items()):
            yield from self._of_topic(page, group.group_id, topic, dict(partitions))

    def _of_topic(
        self, page: Page, group_id: str, topic: str, partitions: Mapping[int, CommittedOffset]
    ) -> Steps[None]:
        of_group = label_text(consumergroup=group_id, topic=topic)
        offsets = lags = known = 0
        for count, (partition, committed) in enumerate(partitions.items(), 1):
            labels = f'{of_group[:-1]},partition="{partition}"}}'
            page.add(f"{_PREFIX}current_offset", committed.offset, labels)
            offsets += committed.offset
            end = self._end_of((topic, partition))
            if end is not None:
                lag = max(0, end - committed.offset)
                page.add(f"{_PREFIX}lag", lag, labels)
                lags += lag
                known += 1
            if not count % ITEMS_PER_STEP:
                yield None
        page.add(f"{_PREFIX}current_offset_sum", offsets, of_group)
        if known == len(partitions):
            page.add(f"{_PREFIX}lag_sum", lags, of_group)
