"""A folder of Parquet files that only grows, in which a reader finds each row once.

A reader of Parquet knows the rows by the files alone. Each file appears by a rename, whole and once, with a name fixed
by query, batch and task; between two renames a reader sees some files of the batch and not yet the others, and never a
row twice. Rows cannot be updated, and files cannot be compacted, without such a reader seeing rows twice or
not at all meanwhile: both are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.folders.hadoop import HadoopFiles
from gregor.spark_jobs.tables.change import time_columns, with_time_columns
from gregor.spark_jobs.tables.evolution import aligned, evolved
from gregor.spark_jobs.tables.staging import Publisher
from gregor.spark_jobs.tables.target import Batch, Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

WITHOUT_RENAMES = ("s3", "s3a", "s3n", "gs", "oss", "cos", "cosn", "obs", "wasb", "wasbs")
"""Object stores, where a rename is a copy that readers see half."""
APPEND_ONLY = "Parquet files cannot be updated while they are read; use --format delta or iceberg"
NO_COMPACTION = (
    "Parquet files cannot be compacted while they are read: a reader would see rows twice, or not at all. "
    "Use --format delta or iceberg, or fewer and larger batches by a longer --interval"
)


def _require_renames(path: str, scheme: str) -> None:
    if scheme in WITHOUT_RENAMES:
        raise JobError(
            f"{path} is on an object store ({scheme}), which cannot rename a file in one step; use --format delta or "
            "iceberg there"
        )


class ParquetTarget:
    """The folder as a table, see TableTarget."""

    def __init__(self, spark: SparkSession, path: str, layout: Layout) -> None:
        self._spark, self._layout = spark, layout
        self._path = path.rstrip("/")
        parent, _, name = self._path.rpartition("/")
        if not name:
            raise JobError(f"--path {path} is no folder in which files can be; give one with a name")
        _require_renames(path, path.rpartition("://")[0].lower())  # before Spark needs the classes of the store
        self._files = HadoopFiles(spark, parent or ".")
        _require_renames(path, self._files.scheme)
        self._name, self._hidden = name, f".{name}.gregor"
        self._schema = f"{self._hidden}/schema.json"
        self._publisher = Publisher(self._files, name, self._hidden)

    def exists(self) -> bool:
        """Return whether the folder was begun."""
        return self._files.exists(self._schema) or self._has_files()

    def _has_files(self) -> bool:
        return any(one.endswith(".parquet") for one in self._files.names(self._name))

    def ensure_schema(self, schema: StructType) -> None:
        """Store the schema, with the columns of earlier runs; raise JobError if a column has another type."""
        self._publisher.recover()
        if not self._files.exists(self._schema):
            if self.exists():
                raise JobError(
                    f"{self._path} contains Parquet files that this job has not written; give another --path"
                )
            self._files.write(self._schema, schema.json())
            return
        existing = self._stored_schema()
        evolution = evolved(self._path, existing, schema)
        for path, field in evolution.added:
            if path:
                raise JobError(
                    f"the column {'.'.join(path)} of {self._path} has no field {field.name}, and Parquet files cannot "
                    "get one inside of a struct: readers expect it in the older files. Use --format delta or iceberg, "
                    "or give the column another name, or write to another --path"
                )
        if evolution.added:
            self._files.write(self._schema, evolution.schema.json())

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last batch of the query; None without one."""
        last = self._publisher.last()
        return last.batch_id if last is not None and last.query_id == query_id else None

    def rows(self) -> DataFrame:
        """Return the rows of all files. Spark reads no folder without any, as one that was begun only."""
        if not self._has_files():
            return self._spark.createDataFrame([], self._stored_schema())
        return self._spark.read.option("mergeSchema", "true").parquet(self._path)

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Publish the rows, unless the batch is there already."""

        def stage(folder: str) -> None:
            rows = with_time_columns(aligned(frame, self._stored_schema()), self._layout)
            writer = rows.write.mode("overwrite")
            writer.partitionBy(*time_columns(self._layout)).parquet(self._files.location(folder))

        self._publisher.publish(batch, stage)

    def _stored_schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._files.read(self._schema)))

    def merge(self, changes: DataFrame, key_columns: Sequence[str], batch: Batch, always: bool = False) -> None:
        """Raise JobError: the files cannot be updated."""
        raise JobError(APPEND_ONLY)

    def compact(self) -> None:
        """Raise JobError: a reader would see the rows of old and new files."""
        raise JobError(NO_COMPACTION)
