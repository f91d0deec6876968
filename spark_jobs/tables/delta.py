"""A Delta table. Each batch is one commit with the transaction of Delta's protocol that has the query and the batch.

`txnAppId` is the id of the query, `txnVersion` the number of the batch. An append has them as options of the writer, a
MERGE as settings of the session (`spark.databricks.delta.write.*`): Delta puts them into the commit, and skips a batch
whose number the table has already (DeltaCommand.hasBeenExecuted).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.tables.change import apply_changes, time_columns, with_time_columns
from gregor.spark_jobs.tables.evolution import aligned, evolved
from gregor.spark_jobs.tables.target import Batch, Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "4",
}
"""Settings of a session: without the first two it has no MERGE and no OPTIMIZE of Delta tables. The last is the number
of tasks that read the log, for each batch; Delta's 50 are for tables with a hundred thousand files."""
TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"


class DeltaTarget:
    """The table at a path, see TableTarget."""

    def __init__(self, spark: SparkSession, path: str, layout: Layout) -> None:
        self._spark, self._layout = spark, layout
        self._path = path.rstrip("/")
        self._table = "delta.`" + self._path.replace("`", "``") + "`"

    def exists(self) -> bool:
        """Return whether the table has a commit."""
        return int(self._snapshot().version()) >= 0

    def ensure_schema(self, schema: StructType) -> None:
        """Create the table, or add the columns that it lacks; raise JobError if a column has another type."""
        empty = with_time_columns(self._spark.createDataFrame([], schema), self._layout)
        if self.exists():
            evolution = evolved(self._path, self.rows().schema, empty.schema)
            if not evolution.added:
                return
            empty = self._spark.createDataFrame([], evolution.schema)
        writer = empty.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.partitionBy(*time_columns(self._layout)).save(self._path)

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last batch of the query; None without one."""
        found = self._snapshot().transactions().get(query_id)
        return int(found.get()) if found.isDefined() else None

    def rows(self) -> DataFrame:
        """Return the rows of the table now."""
        return self._spark.read.format("delta").load(self._path)

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Append the rows in one commit, unless the table has the batch."""
        writer = self._as_stored(frame).write.format("delta").mode("append")
        writer.option("txnAppId", batch.query_id).option("txnVersion", str(batch.batch_id)).save(self._path)

    def merge(self, changes: DataFrame, key_columns: Sequence[str], batch: Batch, always: bool = False) -> None:
        """Apply the changes in one commit, unless the table has the batch."""
        transaction = {TXN_APP_ID: batch.query_id, TXN_VERSION: str(batch.batch_id)}
        apply_changes(self._as_stored(changes), self._table, key_columns, transaction, always)

    def compact(self) -> None:
        """Rewrite small files to larger ones, in a commit that changes no row."""
        self._spark.sql(f"OPTIMIZE {self._table}")

    def _as_stored(self, frame: DataFrame) -> DataFrame:
        """Return the rows with the columns that partition the table, and null in those that only the table has."""
        return aligned(with_time_columns(frame, self._layout), self.rows().schema)

    def _snapshot(self) -> Any:
        """Return the newest snapshot of Delta's log; its version is -1 without a table."""
        spark = self._spark
        log: Any = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        return log.forTableWithSnapshot(spark._jsparkSession, self._path)._2()
