"""A part of one partition, and how it is read: what the driver plans and a task executes. All of it can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from gregor.protocol.ids import ZERO_UUID
from gregor.spark_jobs.errors import JobError

if TYPE_CHECKING:
    from gregor.spark_jobs.client.settings import ClientSettings

Mode = Literal["auto", "wire", "files"]

MAX_BATCH_ROWS = 100_000


@dataclass(frozen=True)
class PartitionRange:
    """The records from `start_offset` on and below `end_offset`. Both are offsets, none of the names -1 and -2."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: bytes = ZERO_UUID
    """A topic of another id is not read: it was deleted and made again. ZERO_UUID: unknown."""
    leader_hint: int = -1
    """The leader when the range was planned; -1: unknown. The task finds the present one itself."""

    def is_of(self, topic_id: bytes) -> bool:
        """Return whether the range is one of the topic with this id, as far as both ids are known."""
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)


@dataclass(frozen=True)
class Filters:
    """Bounds of rows that are wanted, all inclusive; rows outside of them may be left out, and are."""

    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None


NO_FILTERS = Filters()


@dataclass(frozen=True)
class ReadPlan:
    """One range, and how it is read."""

    settings: ClientSettings
    range: PartitionRange
    mode: Mode = "auto"
    read_committed: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] | None = None
    """The columns wanted, of `schema(include_headers)`, in this order; None: all."""
    filters: Filters = NO_FILTERS
    max_batch_rows: int = MAX_BATCH_ROWS
    """Of one Arrow record batch."""
    folder: str | None = None
    """The data folder of a stopped broker, which is read without a cluster; None: the cluster of `settings`."""

    def narrowed(self) -> ReadPlan:
        """Return the plan with the range within the offsets of the filters."""
        start, end = self.range.start_offset, self.range.end_offset
        if self.filters.min_offset is not None:
            start = max(start, self.filters.min_offset)
        if self.filters.max_offset is not None:
            end = min(end, self.filters.max_offset + 1)
        return replace(self, range=replace(self.range, start_offset=start, end_offset=end))


class DataLoss(JobError):
    """Records of the range are not there: deleted by retention or truncated, or their topic was deleted."""

    def __init__(self, topic: str, partition: int, wanted: tuple[int, int], found: str) -> None:
        """`wanted` are the start and the exclusive end of what is missing, `found` describes what is there instead."""
        super().__init__(
            f"partition {topic}-{partition}: offsets {wanted[0]} to {wanted[1] - 1} cannot be read: {found}. Some data "
            f"may have been lost because it is not available in Kafka any more; set failOnDataLoss to false to "
            f"continue without it"
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.found = found

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str, int, tuple[int, int], str]]:
        return DataLoss, (self.topic, self.partition, self.wanted, self.found)


class CorruptRecords(JobError):
    """A batch cannot be read; the other batches of its partition may be whole."""

    def __init__(self, topic: str, partition: int, offset: int, problem: str) -> None:
        super().__init__(
            f"partition {topic}-{partition}: the batch at offset {offset} cannot be read: {problem}. It was damaged on "
            f"the disk of its leader or by its producer: read from a replica that has it whole, or start behind it"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.problem = problem

    def __reduce__(self) -> tuple[type[CorruptRecords], tuple[str, int, int, str]]:
        return CorruptRecords, (self.topic, self.partition, self.offset, self.problem)
