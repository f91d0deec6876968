"""Keys that are in two partitions, as after growth of a topic: the stated rule, and its limits, for both formats that
merge. Random histories are in `test_delta.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gregor.spark_jobs.session import add_packages
from gregor.spark_jobs.tables.formats import open_target
from gregor.spark_jobs.tables.packages import iceberg_package
from gregor.spark_jobs.tables.target import DELETE, OFFSET, PARTITION, TIMESTAMP, Layout, TableTarget
from gregor.spark_jobs.tables.writer import TableWriter, reconcile
from tests.spark_jobs.tables.sessions import delta_session

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.by_day(2, group="long jobs of Spark")]

START_S = 1_700_000_000
BEFORE, GROWN = 0, 1
"""The partition of all keys before the growth, and the one to which their later records go."""


class Record(NamedTuple):
    """A record; a `text` of None is a tombstone."""

    key: str
    text: str | None
    partition: int
    offset: int
    time_s: int


OLD = [
    Record("moved", "old", BEFORE, 0, 10),
    Record("deleted", "old", BEFORE, 1, 10),
    Record("late writer", "old", BEFORE, 2, 10),
    Record("same time", "old", BEFORE, 3, 10),
    Record("deleted at the same time", "old", BEFORE, 4, 10),
    Record("stays", "old", BEFORE, 5, 10),
    Record("deleted by a late writer", "old", BEFORE, 6, 10),
    Record("made again", None, BEFORE, 7, 10),
]
NEW = [
    Record("moved", "new", GROWN, 0, 20),
    Record("deleted", None, GROWN, 1, 20),
    Record("late writer", "new", GROWN, 2, 20),
    Record("late writer", "a producer that does not know of the growth", BEFORE, 8, 30),
    Record("same time", "the higher partition", GROWN, 3, 10),
    Record("deleted at the same time", None, GROWN, 4, 10),
    Record("deleted by a late writer", "new", GROWN, 5, 20),
    Record("deleted by a late writer", None, BEFORE, 9, 30),
    Record("made again", "new", GROWN, 6, 20),
]
RULE = {
    "moved": "new",
    "late writer": "a producer that does not know of the growth",
    "same time": "the higher partition",
    "stays": "old",
    "made again": "new",
}


class Table:
    """A new table of a format, and the writer of a query to it."""

    def __init__(self, spark: SparkSession, name: str, path: Path) -> None:
        if name == "iceberg":
            add_packages(spark, [iceberg_package()])
        self._session = delta_session(spark) if name == "delta" else spark
        self._target: TableTarget = open_target(name, self._session, str(path), Layout())
        self._target.ensure_schema(self._frame([]).drop(DELETE).schema)
        self._writer = TableWriter(self._target, ["key"], None, lambda batch: "a-query")
        self._numbers = itertools.count()

    def write(self, *batches: list[Record]) -> dict[str, str]:
        """Write batches and return the rows of the table."""
        for batch in batches:
            self._writer(self._frame(batch), next(self._numbers))
        return self._rows()

    def reconcile(self, topic: list[Record]) -> dict[str, str]:
        """Reconcile with the records that the topic has, and return the rows."""
        reconcile(self._target, self._frame(topic), ["key"])
        return self._rows()

    def _rows(self) -> dict[str, str]:
        rows = self._target.rows().collect()
        assert len({row["key"] for row in rows}) == len(rows)
        return {row["key"]: row["text"] for row in rows}

    def _frame(self, records: Iterable[Record]) -> DataFrame:
        schema = f"key STRING, text STRING, {PARTITION} INT, {OFFSET} LONG, seconds LONG"
        rows = self._session.createDataFrame([tuple(record) for record in records], schema).coalesce(1)
        timed = rows.withColumn(TIMESTAMP, F.timestamp_seconds(F.col("seconds") + START_S)).drop("seconds")
        return timed.withColumn(DELETE, F.col("text").isNull())


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_the_partition_with_the_latest_timestamp_of_a_key_wins_and_its_tombstone_deletes(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    assert Table(spark, form, tmp_path / "table").write(OLD, NEW) == RULE


def test_an_older_record_that_is_read_after_the_tombstone_of_another_partition_is_deleted_by_reconcile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The limit of the rule: a deleted row leaves nothing behind. Rows that are not deleted have no such limit."""
    table = Table(spark, "iceberg", tmp_path / "table")
    first = [one for one in NEW if one.partition == GROWN]
    rest = [*OLD, *[one for one in NEW if one.partition == BEFORE]]
    assert table.write(first, rest) == RULE | {"deleted": "old", "deleted at the same time": "old"}
    assert table.reconcile(OLD + NEW) == RULE


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_rows_of_a_topic_that_was_made_again_are_replaced_by_reconcile(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """By their offsets and times they would win against the records of the new topic."""
    table = Table(spark, form, tmp_path / "table")
    keys = ("replaced", "tombstone", "gone", "moved", "later")
    table.write([Record(key, "before", GROWN, 100 + at, 90) for at, key in enumerate(keys)])
    again = [
        Record("replaced", "again, first", GROWN, 0, 10),
        Record("replaced", "again", GROWN, 1, 10),
        Record("tombstone", None, GROWN, 2, 10),
        Record("moved", "again", BEFORE, 0, 10),
        Record("later", "again", GROWN, 104, 10),
        Record("new", "again", GROWN, 105, 10),
    ]
    before_first_batch = {"replaced": "again", "moved": "again", "later": "before"}
    assert table.reconcile(again) == before_first_batch
    assert table.write(again[:2], again) == dict.fromkeys(("replaced", "moved", "later", "new"), "again")
