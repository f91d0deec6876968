"""Iceberg tables on a real Spark: each batch once, however it ends, and however snapshots expire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.session import add_packages
from gregor.spark_jobs.tables.iceberg import CATALOG_CLASS, MAX_AGE, IcebergTarget
from gregor.spark_jobs.tables.lineage import BATCH, QUERY
from gregor.spark_jobs.tables.packages import iceberg_package
from gregor.spark_jobs.tables.target import DELETE, OFFSET, PARTITION, TIMESTAMP, Batch, Layout

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

COLUMNS = f"key string, amount bigint, {PARTITION} int, {OFFSET} bigint, {TIMESTAMP} timestamp"
NOON = datetime(2024, 5, 1, 12)


@pytest.fixture(scope="module", autouse=True)
def package(spark: SparkSession) -> Iterator[None]:
    add_packages(spark, [iceberg_package()])
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", partitions or "2")


def rows_of(spark: SparkSession, *numbers: int, offset: int = 0, at: datetime = NOON) -> DataFrame:
    """Return a row for each number, which is its key, in one task."""
    rows = [(f"k{number}", number, 0, offset + place, at) for place, number in enumerate(numbers)]
    return spark.createDataFrame(rows, COLUMNS).coalesce(1)


def amounts(target: IcebergTarget) -> list[tuple[str, int]]:
    """Return key and amount of all rows, in order."""
    return sorted((row.key, row.amount) for row in target.rows().collect())


def failing(frame: DataFrame) -> DataFrame:
    """Return the rows with a value that fails when a task computes it."""
    return frame.withColumn("amount", F.when(F.col("amount") >= 0, F.raise_error("broken off")).cast("bigint"))


def loaded(spark: SparkSession, path: Path) -> Any:
    """Return Iceberg's own object of the table at a path, as another program has it."""
    tables = spark._jvm.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    return tables.load(str(path))


def marks(table: Any) -> list[tuple[str, str | None, str | None]]:
    """Return operation, query and batch of each snapshot, the oldest first."""
    return [
        (one.operation(), one.summary().get(QUERY), one.summary().get(BATCH))
        for one in sorted(table.snapshots(), key=lambda one: one.sequenceNumber())
    ]


def expire_all(table: Any) -> None:
    """Expire all snapshots but the current one, as a maintenance job of other people does."""
    table.expireSnapshots().expireOlderThan(table.currentSnapshot().timestampMillis() + 1).commit()
    table.refresh()


def foreign_commit(table: Any) -> None:
    table.newAppend().commit()
    table.refresh()


def test_batches_are_written_once_whether_they_broke_off_before_or_after_the_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    target = IcebergTarget(spark, str(path), Layout("day"))
    assert not target.exists()
    first = rows_of(spark, 1, 2, 3)
    target.ensure_schema(first.schema)
    assert target.last_batch("q") is None
    for _ in range(2):  # the first process dies after the commit, the second one repeats the batch
        IcebergTarget(spark, str(path), Layout("day")).append(first, Batch("q", 0))
    changes = rows_of(spark, 2, 3, 4, offset=10).withColumns(
        {"amount": F.col("amount") * 10, DELETE: F.col("key") == "k3"}
    )
    with pytest.raises(PySparkException, match="broken off"):
        target.merge(failing(changes), ["key"], Batch("q", 1))
    assert target.last_batch("q") == 0
    for _ in range(2):
        IcebergTarget(spark, str(path), Layout("day")).merge(changes, ["key"], Batch("q", 1))
    assert amounts(target) == [("k1", 1), ("k2", 20), ("k4", 40)]
    target.merge(changes.limit(0), ["key"], Batch("q", 2))
    target.append(first.limit(0), Batch("q", 3))
    written = [(query_id, batch_id) for _, query_id, batch_id in marks(loaded(spark, path)) if query_id]
    assert written == [("q", "0"), ("q", "1"), ("q", "2"), ("q", "3")]
    assert (target.last_batch("q"), target.last_batch("other")) == (3, None)


def test_batches_are_told_from_expired_ones_after_compaction_and_foreign_maintenance(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "events"
    target = IcebergTarget(spark, str(path), Layout())
    target.ensure_schema(rows_of(spark, 0).schema)
    target.append(rows_of(spark, 100), Batch("paused", 7))
    for number in range(4):
        target.append(rows_of(spark, number), Batch("q", number))
    table = loaded(spark, path)
    table.updateProperties().set(MAX_AGE, "0").commit()
    target.compact()

    table.refresh()
    assert marks(table) == [("append", "q", "3"), ("replace", None, None)]
    assert table.currentSnapshot().summary().get("total-data-files") == "1"
    rows = [("k0", 0), ("k1", 1), ("k100", 100), ("k2", 2), ("k3", 3)]
    assert amounts(target) == rows
    target.append(rows_of(spark, 100), Batch("paused", 7))  # its snapshot has expired, and is in the baseline
    target.append(rows_of(spark, 3), Batch("q", 3))
    assert (target.last_batch("paused"), target.last_batch("q")) == (7, 3)

    foreign_commit(table)
    expire_all(table)
    with pytest.raises(JobError, match=r"last batch of the query q .* is unknown.* expired(?s:.*)--checkpoint"):
        target.append(rows_of(spark, 3), Batch("q", 3))
    target.append(rows_of(spark, 4), Batch("new", 0))  # this query has never written
    foreign_commit(table)
    target.append(rows_of(spark, 4), Batch("new", 0))
    assert amounts(target) == [*rows, ("k4", 4)]


def test_columns_of_a_table_in_a_named_catalog_are_added_and_changed_types_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    setting = "spark.sql.catalog.lake"
    spark.conf.set(setting, CATALOG_CLASS)
    spark.conf.set(f"{setting}.type", "hadoop")
    spark.conf.set(f"{setting}.warehouse", str(tmp_path))
    target = IcebergTarget(spark, "lake.shop.orders", Layout("hour"))
    old = rows_of(spark, 1).withColumn("size", F.lit(1).cast("short"))
    target.ensure_schema(old.schema)
    target.ensure_schema(old.schema)  # a table has no short integers
    target.append(old, Batch("q", 0))

    other = IcebergTarget(spark, str(tmp_path / "shop" / "orders"), Layout("hour"))
    tags = F.array(F.struct(F.lit("a").alias("name")))
    new = rows_of(spark, 2, at=NOON + timedelta(hours=1)).withColumn("tags", tags)
    other.ensure_schema(new.schema)
    other.append(new, Batch("q", 1))
    assert target.last_batch("q") == 1  # despite the cache of the catalog
    target.ensure_schema(new.schema)
    found = sorted((row.key, row.size, row.tags and row.tags[0].name) for row in target.rows().collect())
    assert found == [("k1", 1, None), ("k2", None, "a")]
    folders = {file.parent.name for file in (tmp_path / "shop" / "orders" / "data").rglob("*.parquet")}
    assert len(folders) == 2 and all(name.startswith(f"{TIMESTAMP}_hour=") for name in folders)
    with pytest.raises(JobError, match=r"the column amount of lake\.shop\.orders is bigint, and .* have string"):
        target.ensure_schema(rows_of(spark, 1).withColumn("amount", F.lit("1")).schema)
