"""Offsets of partitions as the JSON of options and of checkpoints: {"topic": {"0": 23, "1": -1}}.

The offset of a stream has besides, under a key that no topic can have, the ids of the topics, so that a topic that was
deleted and created again is noticed:

    {"#topicIds": {"topic": "22 characters of base64"}, "topic": {"0": 23}}

The end of the first batch of a query also has, under `#begin`, the position at which the batch begins. Spark stores the
ends alone, and calls `initialOffset` again when it repeats that batch after a restart; the newest offsets, or the
partitions of the topic, may be others by then. The end of another batch has it only if the stream could not know where
that batch begins; it is of no meaning there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gregor.protocol.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.errors import JobError

TOPIC_IDS = "#topicIds"
BEGIN = "#begin"
EXAMPLE_OF_OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
EXAMPLE_OF_POSITION = '{"topicA":{"0":23,"1":45},"topicB":{"0":67}}'
EXAMPLE_OF_TIMESTAMPS = '{"topicA":{"0":123456789,"1":123456789},"topicB":{"0":123456789}}'
EXAMPLE_OF_PARTITIONS = '{"topicA":[0,1],"topicB":[0,1]}'

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1

Offsets = Mapping[TopicPartition, int]


def parse_offsets(text: str, option: str, example: str = EXAMPLE_OF_OFFSETS) -> dict[TopicPartition, int]:
    """Return the number of each partition, an offset or a timestamp; raise JobError for other text."""
    try:
        return offsets_from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        raise JobError(f"{option} is {text!r}; expected is JSON such as {example}") from None


def offsets_from_json(value: Any) -> dict[TopicPartition, int]:
    """Return the offsets of {"topic": {"0": 23}}; raise ValueError or TypeError for another form."""
    found = {}
    for topic, partitions in value.items():
        if topic in (TOPIC_IDS, BEGIN):
            continue
        for partition, number in partitions.items():
            if isinstance(number, bool) or not isinstance(number, int) or not -_MAX_LONG <= number <= _MAX_LONG:
                raise ValueError(number)
            found[TopicPartition(topic, _partition(partition))] = number
    return found


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return {"topic": {"0": 23}}, sorted: Spark compares offsets by their text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def parse_assignment(text: str) -> list[TopicPartition]:
    """Return the partitions of the option `assign`; raise JobError for other text."""
    try:
        value = json.loads(text)
        return [TopicPartition(topic, _partition(number)) for topic, numbers in value.items() for number in numbers]
    except (ValueError, TypeError, AttributeError):
        raise JobError(f"assign is {text!r}; expected is JSON such as {EXAMPLE_OF_PARTITIONS}") from None


def parse_position(text: str, option: str) -> StreamOffset:
    """Return the position of an option, in the form of a checkpoint; raise JobError for other text."""
    try:
        position = StreamOffset.from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError, JobError):
        raise JobError(f"{option} is {text!r}; expected is JSON such as {EXAMPLE_OF_POSITION}") from None
    for partition, offset in position.offsets.items():
        if offset < 0:
            raise JobError(
                f"{option} has the offset {offset} for {names([partition])}, which is no position: a stream that is "
                "started again must end at the same records. Give the number of the offset; the trigger available-now "
                "ends a stream at what is there when it starts"
            )
    return position


def _partition(value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise ValueError(value)
    number = int(value)
    if not 0 <= number <= _MAX_INT:
        raise ValueError(value)
    return number


def names(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for a message, as `topic-0, topic-1`."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))


@dataclass(frozen=True)
class StreamOffset:
    """The position of a stream: for each partition the offset to read next, for each topic its id if it has one."""

    offsets: Offsets
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    begin: StreamOffset | None = None
    """Of the end of the first batch of a query, the position at which that batch begins, see Stream.plan."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Return the position of a checkpoint, also of one of the official connector, which knows no topic ids."""
        try:
            ids = {topic: uuid_from_text(text) for topic, text in value.get(TOPIC_IDS, {}).items()}
            begin = cls.from_json(value[BEGIN]) if BEGIN in value else None
            return cls(offsets_from_json(value), ids, begin)
        except (ValueError, TypeError, AttributeError):
            raise JobError(
                f"the checkpoint has the offset {dict(value)!r}, which is not one of this source; give the query a "
                "checkpoint of its own"
            ) from None

    def to_json(self) -> dict[str, dict[str, Any]]:
        ids = {topic: uuid_to_text(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        ids = {topic: text for topic, text in ids.items() if self.topic_ids[topic] != ZERO_UUID}
        begin = {} if self.begin is None else {BEGIN: self.begin.to_json()}
        return begin | ({TOPIC_IDS: ids} if ids else {}) | offsets_to_json(self.offsets)

    def id_of(self, topic: str) -> Uuid:
        """Return the id of a topic, ZERO_UUID if it is unknown."""
        return self.topic_ids.get(topic, ZERO_UUID)

    def not_before(self, earlier: StreamOffset) -> StreamOffset:
        """Return this position, without a step back from an earlier one of the same topics."""
        again = earlier.recreated(self)
        kept = {partition: offset for partition, offset in earlier.offsets.items() if partition.topic not in again}
        offsets = {
            **kept,
            **{partition: max(offset, kept.get(partition, 0)) for partition, offset in self.offsets.items()},
        }
        return StreamOffset(offsets, {**earlier.topic_ids, **self.topic_ids})

    def is_reached_by(self, position: StreamOffset) -> bool:
        """Return whether a position is at this one or behind it; topics that were made again meanwhile do not count."""
        again = self.recreated(position)
        return all(
            partition.topic in again or position.offsets.get(partition, -1) >= offset
            for partition, offset in self.offsets.items()
        )

    def recreated(self, later: StreamOffset) -> set[str]:
        """Return the topics that have another id in a later position."""
        return {
            topic
            for topic, topic_id in self.topic_ids.items()
            if later.id_of(topic) not in (ZERO_UUID, topic_id) and topic_id != ZERO_UUID
        }
