"""Delta tables: random histories beside plain Python, repeated batches, schemas, rows that are gone from a topic."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables.delta import DeltaTarget
from gregor.spark_jobs.tables.target import DELETE, Batch, Layout
from gregor.spark_jobs.tables.writer import TableWriter, reconcile
from tests.spark_jobs.tables.histories import KEYS, START_S, Change, cut, history, latest
from tests.spark_jobs.tables.sessions import delta_session

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

QUERY = "a-query"
SCHEMA = "history INT, name STRING, text STRING, _topic_partition INT, _offset LONG, seconds LONG"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return delta_session(spark)


def frame(session: SparkSession, changes: Iterable[Change]) -> DataFrame:
    rows = session.createDataFrame([tuple(change) for change in changes], SCHEMA)
    timed = rows.withColumn("_timestamp", F.timestamp_seconds("seconds")).drop("seconds")
    return timed.withColumn(DELETE, F.col("text").isNull())


def contents(target: DeltaTarget) -> dict[tuple[int, str], str]:
    rows = target.rows().collect()
    assert len({(row["history"], row["name"]) for row in rows}) == len(rows)
    return {(row["history"], row["name"]): row["text"] for row in rows}


def commits(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


def test_a_table_has_the_latest_row_of_each_key_however_the_records_are_cut(
    session: SparkSession, tmp_path: Path
) -> None:
    chance, path = random.Random(7), tmp_path / "table"
    batches: list[list[Change]] = [[], []]
    for number in range(200):
        # Deletions are exact in one partition, and in one batch.
        own = history(chance, number, tombstones=number >= 100, partitions=1 if 100 <= number < 150 else 3)
        parts = [[], own] if number >= 150 else cut(chance, own, 2)
        for batch, part in zip(batches, parts, strict=True):
            batch += part
    target = DeltaTarget(session, str(path), Layout())
    target.ensure_schema(frame(session, []).drop(DELETE).schema)
    write = TableWriter(target, KEYS, None, lambda batch: QUERY)
    for number, batch in enumerate(batches):
        write(frame(session, batch), number)
    assert target.last_batch(QUERY) == 1
    assert target.last_batch("another") is None
    # As after an end between the commit of the table and that of the checkpoint; Delta itself refuses the batch too.
    done, other = commits(path), frame(session, [Change(0, "a", "again", 9, 0, START_S + 99)])
    write(other, 1)
    target.merge(other, KEYS, Batch(QUERY, 1))
    assert commits(path) == done
    everything = [change for batch in batches for change in batch]
    assert contents(target) == latest(everything)

    left = [change for change in everything if change.history % 4]  # the others were deleted, and so their tombstones
    newer = [Change(1, "a", "not read yet", 0, 99, START_S + 99)]
    reconcile(target, frame(session, [*left, *newer]), KEYS)
    assert contents(target) == latest(left)


def test_rows_are_appended_once_with_new_columns_by_day(session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    changes = [Change(0, "a", "x", 0, 0, START_S), Change(0, "a", None, 0, 1, START_S + 86_400)]
    rows = frame(session, changes).drop(DELETE)
    target = DeltaTarget(session, str(path), Layout("day"))
    target.ensure_schema(rows.schema)
    for _ in range(2):
        target.append(rows, Batch(QUERY, 0))
    with pytest.raises(JobError, match="the column text of .* is string, and the rows of this run have int"):
        target.ensure_schema(rows.withColumn("text", F.lit(1)).schema)
    more = rows.withColumn("more", F.col("_offset") * 2)
    target.ensure_schema(more.schema)
    target.append(more, Batch(QUERY, 1))
    target.compact()
    assert len(target.rows().inputFiles()) == 2
    found = [(str(row["day"]), row["_offset"], row["more"]) for row in target.rows().collect()]
    assert sorted(found, key=str) == [
        ("2023-11-14", 0, 0),
        ("2023-11-14", 0, None),
        ("2023-11-15", 1, 2),
        ("2023-11-15", 1, None),
    ]
