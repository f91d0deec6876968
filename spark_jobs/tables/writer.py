"""The batches of a query into a table, as a function for `foreachBatch`, and what a query has missed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from gregor.spark_jobs.tables.change import corrections, newest_by_partition, winners
from gregor.spark_jobs.tables.target import Batch, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITIONS = "_gregor_partitions"


class TableWriter:
    """Writes batches of rows from `table_rows`: appends them, or merges them by their key columns."""

    def __init__(
        self,
        target: TableTarget,
        key_columns: Sequence[str],
        compact_every: int | None,
        query_id: Callable[[DataFrame], str],
    ) -> None:
        self._target, self._key_columns = target, list(key_columns)
        self._compact_every = compact_every
        self._query_id = query_id

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch, unless the table has it, and compact the table after each so many batches."""
        batch = Batch(self._query_id(frame), batch_id)
        last = self._target.last_batch(batch.query_id)
        if last is None or last < batch_id:
            if self._key_columns:
                self._merge(frame, batch)
            else:
                self._target.append(frame, batch)
        if self._compact_every is not None and (batch_id + 1) % self._compact_every == 0:
            self._target.compact()

    def _merge(self, frame: DataFrame, batch: Batch) -> None:
        keys = self._key_columns
        newest = newest_by_partition(frame, keys).persist()
        try:
            in_two = newest.groupBy(*keys).agg(F.count("*").alias(_PARTITIONS)).filter(F.col(_PARTITIONS) > 1)
            changes = newest if in_two.isEmpty() else winners(newest, keys, self._target.rows())
            self._target.merge(changes, keys, batch)
        finally:
            newest.unpersist()


def reconcile(target: TableTarget, rows: DataFrame, key_columns: Sequence[str], kept: DataFrame | None = None) -> None:
    """Delete or replace the rows of the table that the topic has not; `rows` are all of it, from `table_rows`. The rows
    with the keys of `kept` stay."""
    stored = target.rows()
    if kept is not None:
        stored = stored.join(kept.select(*key_columns), list(key_columns), "left_anti")
    changes = corrections(stored, newest_by_partition(rows, key_columns), key_columns)
    target.merge(changes, key_columns, Batch(f"reconcile-{uuid.uuid4()}", 0), always=True)
