"""Reads the range of a plan, in the task that executes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from gregor.spark_jobs.arrow.plan import ReadPlan


def read(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read a range: yield its rows in the order of their offsets, in record batches that are not empty. Ends when the
    end offset is reached, also when the last offsets have no records. Raises DataLoss, and JobError otherwise."""
    raise NotImplementedError("it follows with the decoder")
