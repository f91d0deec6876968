"""A table as the job writes to it, whatever its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PARTITION, OFFSET, TIMESTAMP = "_topic_partition", "_offset", "_timestamp"
POSITION = (PARTITION, OFFSET, TIMESTAMP)
"""The columns of every table that hold the place of a row in its topic. Iceberg reserves the name _partition."""
DELETE = "_gregor_delete"
"""The column of changes that is true if the row is to be deleted; no column of the table."""
DAY, HOUR = "day", "hour"
"""The columns that partition a table by time, in UTC: a date, and the hour of that day. They begin with a letter,
because readers of folders skip names that begin with an underscore."""
UNITS = ("day", "hour")


@dataclass(frozen=True)
class Batch:
    """A micro-batch of a query: the id is the one in the checkpoint, the number grows by 1."""

    query_id: str
    batch_id: int


@dataclass(frozen=True)
class Layout:
    """The partitioning of a new table: by the `day` or the `hour` of a timestamp column, or none."""

    unit: str | None = None
    column: str = TIMESTAMP


class TableTarget(Protocol):
    """A table in one of the formats. A batch that is applied again changes nothing."""

    def exists(self) -> bool:
        """Return whether the table exists."""
        ...

    def ensure_schema(self, schema: StructType) -> None:
        """Create the table, or add the fields that it lacks, at any depth that the format can add them.

        Raise JobError for a field that cannot be added, or has another type.
        """
        ...

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last batch of a query that the table contains; None without one."""
        ...

    def rows(self) -> DataFrame:
        """Return the rows of the table, with the columns of its place in the topic."""
        ...

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Append rows in one commit, unless the table contains the batch."""
        ...

    def merge(self, changes: DataFrame, key_columns: Sequence[str], batch: Batch, always: bool = False) -> None:
        """Apply changes, one row a key with DELETE, in one commit, unless the table contains the batch.

        A change counts if its position wins, or `always`.
        """
        ...

    def compact(self) -> None:
        """Rewrite small files to larger ones; raise JobError if the format cannot do that safely."""
        ...
