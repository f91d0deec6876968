"""An Iceberg table. Each batch is one snapshot whose summary has the query and the batch.

An append has these properties as options of the writer, a MERGE as settings of the session
(`spark.sql.iceberg.snapshot-property.*`): Iceberg puts both into the snapshot (SparkWriteConf.extraSnapshotMetadata).
Before a batch is written it is searched for in all ancestors of the current snapshot; `lineage.py` defines what a
history proves whose older snapshots have expired. The driver of the query commits, and a checkpoint has one driver at
a time: two that run one query at once, which Spark detects only at the end of a batch, can both append the batch.

The table is at a path, in a Hadoop catalog of its own, whose commits need a file system with an atomic rename; or it
has a name in a catalog of the user's settings (`spark.sql.catalog.NAME`), which object stores need.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.folders.hadoop import HadoopFiles
from gregor.spark_jobs.tables.change import apply_changes, quoted
from gregor.spark_jobs.tables.evolution import aligned, evolved
from gregor.spark_jobs.tables.lineage import BASELINE, BATCH, QUERY, Baseline, Snapshot, last_batches, parse_baseline
from gregor.spark_jobs.tables.target import Batch, Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
SNAPSHOT_OPTION = "snapshot-property."
SNAPSHOT_SETTING = "spark.sql.iceberg.snapshot-property."
MAX_AGE = "history.expire.max-snapshot-age-ms"
DEFAULT_MAX_AGE_MS = 5 * 24 * 3_600_000


class IcebergTarget:
    """The table at a path, or of the name CATALOG.NAMESPACE.TABLE, see TableTarget."""

    def __init__(self, spark: SparkSession, path: str, layout: Layout) -> None:
        self._spark, self._title, self._layout = spark, path.rstrip("/"), layout
        self._catalog: dict[str, str] = {}
        if is_name(spark, path):
            self._name = ".".join(quoted(part) for part in path.split("."))
        else:
            self._name, self._catalog = _path_table(spark, path)
        self._query_id: str | None = None
        """The query of the last batch, whose newest snapshot no expiry here removes."""

    def exists(self) -> bool:
        """Return whether the table exists."""
        self._set_catalog(self._spark)
        return self._spark.catalog.tableExists(self._name)

    def ensure_schema(self, schema: StructType) -> None:
        """Create the table, or add the columns that it lacks; raise JobError if a column has another type."""
        from pyspark.sql.functions import partitioning

        wanted = _stored_schema(self._spark, schema)
        if not self.exists():
            writer = self._spark.createDataFrame([], wanted).writeTo(self._name).using("iceberg")
            if self._layout.unit is not None:
                transform = partitioning.days if self._layout.unit == "day" else partitioning.hours
                writer = writer.partitionedBy(transform(self._layout.column))
            writer.create()
            return
        added = evolved(self._title, self.rows().schema, wanted).added
        if added:
            update = self._load(self._spark).updateSchema()
            for path, new in added:
                for field in _iceberg_schema(self._spark, type(wanted)([new])).columns():
                    update = update.addColumn(".".join(path) or None, field.name(), field.type())
            update.commit()

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last batch of the query; None without one.

        Raise JobError if the snapshots that would prove it have expired.
        """
        return self._last_batch(self._load(self._spark), query_id)

    def rows(self) -> DataFrame:
        """Return the rows of the table now."""
        self._load(self._spark)
        return self._spark.table(self._name)

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Append the rows in one snapshot, unless the table has the batch."""
        session = frame.sparkSession
        if not self._is_new(session, batch):
            return
        writer = self._aligned(session, frame).writeTo(self._name)
        for name, value in _properties(batch).items():
            writer = writer.option(SNAPSHOT_OPTION + name, value)
        writer.append()

    def merge(self, changes: DataFrame, key_columns: Sequence[str], batch: Batch, always: bool = False) -> None:
        """Apply the changes in one snapshot, unless the table has the batch."""
        session = changes.sparkSession
        if not self._is_new(session, batch):
            return
        properties = {SNAPSHOT_SETTING + name: value for name, value in _properties(batch).items()}
        apply_changes(self._aligned(session, changes), self._name, key_columns, properties, always)

    def compact(self) -> None:
        """Rewrite small files to larger ones, in a snapshot that changes no row, and expire old snapshots."""
        table = self._load(self._spark)
        _rewrite_small_files(self._spark, table)
        self._expire(self._load(self._spark))

    def _expire(self, table: Any) -> None:
        """Expire snapshots older than the table's property permits, after their batches are in the baselines.

        The newest snapshot of the query that writes here stays in any case.
        """
        properties = dict(table.properties())
        cutoff_ms = time.time_ns() // 1_000_000 - int(properties.get(MAX_AGE, DEFAULT_MAX_AGE_MS))
        kept = next((one for one in _ancestors(table) if one.query_id and one.query_id == self._query_id), None)
        if kept is not None:
            cutoff_ms = min(cutoff_ms, kept.timestamp_ms)
        if table.expireSnapshots().expireOlderThan(cutoff_ms).apply().isEmpty():
            return
        baselines = {
            name.removeprefix(BASELINE): parse_baseline(value)
            for name, value in properties.items()
            if name.startswith(BASELINE)
        }
        current = _current_id(table)
        update = table.updateProperties()
        for query_id, batch_id in last_batches(_ancestors(table), baselines).items():
            update = update.set(BASELINE + query_id, Baseline(batch_id, current).text)
        update.commit()
        table.expireSnapshots().expireOlderThan(cutoff_ms).commit()

    def _is_new(self, session: SparkSession, batch: Batch) -> bool:
        """Return whether the table lacks the batch; store the baseline of a query before its first one."""
        table = self._load(session)
        last = self._last_batch(table, batch.query_id)
        self._query_id = batch.query_id
        if last is not None and last >= batch.batch_id:
            return False
        if table.properties().get(BASELINE + batch.query_id) is None:
            baseline = Baseline(last, _current_id(table))
            table.updateProperties().set(BASELINE + batch.query_id, baseline.text).commit()
        return True

    def _last_batch(self, table: Any, query_id: str) -> int | None:
        stored = table.properties().get(BASELINE + query_id)
        baseline = parse_baseline(stored) if stored is not None else None
        found = last_batches(_ancestors(table), {query_id: baseline})
        if query_id not in found:
            raise JobError(
                f"{self._title}: the last batch of the query {query_id} in the table is unknown, because the snapshots "
                "that had it have expired; writing the next batch could write rows twice.\n"
                "Start anew with another --checkpoint and --path; or, if you know which batch was the last, set the "
                f"table's property {BASELINE}{query_id} to BATCH@{_current_id(table)}, and start again. Keep snapshots "
                "longer than the query pauses."
            )
        return found[query_id]

    def _aligned(self, session: SparkSession, frame: DataFrame) -> DataFrame:
        """Return the rows with null in the fields that only the table has."""
        return aligned(frame, session.table(self._name).schema)

    def _load(self, session: SparkSession) -> Any:
        """Return Iceberg's object of the table with its newest metadata, the one of the session's catalog."""
        self._set_catalog(session)
        return _loaded(session, self._name)

    def _set_catalog(self, session: SparkSession) -> None:
        for key, value in self._catalog.items():
            session.conf.set(key, value)


def is_name(spark: SparkSession, path: str) -> bool:
    """Return whether a path is the name of a table in a catalog of Spark's settings."""
    catalog, _, rest = path.partition(".")
    is_identifier = re.fullmatch(r"\w+", catalog) is not None and rest != "" and "/" not in rest
    return is_identifier and spark.conf.get(f"spark.sql.catalog.{catalog}", None) is not None


def _path_table(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    """Return the name of the table at a path, and the settings of a catalog for the folder that holds it."""
    warehouse, name = HadoopFiles(spark, path).qualified()
    if warehouse is None:
        raise JobError(f"{path} cannot be a table; give a folder below it")
    catalog = f"gregor_{hashlib.sha256(warehouse.encode()).hexdigest()[:12]}"
    setting = f"spark.sql.catalog.{catalog}"
    settings = {f"{setting}.type": "hadoop", f"{setting}.warehouse": warehouse, f"{setting}.cache-enabled": "false"}
    return f"{catalog}.{quoted(name)}", {setting: CATALOG_CLASS, **settings}


def _loaded(spark: SparkSession, name: str) -> Any:
    """Return Iceberg's object of a table with its newest metadata."""
    jvm: Any = spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    table.refresh()
    return table


def _rewrite_small_files(spark: SparkSession, table: Any) -> None:
    jvm: Any = spark._jvm
    jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession).rewriteDataFiles(table).execute()


def _current_id(table: Any) -> int | None:
    current = table.currentSnapshot()
    return None if current is None else int(current.snapshotId())


def _ancestors(table: Any) -> Iterator[Snapshot]:
    """Yield the current snapshot and its ancestors, up to the first or the first that has expired."""
    current = table.currentSnapshot()
    while current is not None:
        parent_id = current.parentId()
        summary = current.summary()
        batch_id = summary.get(BATCH)
        yield Snapshot(
            int(current.snapshotId()),
            parent_id,
            int(current.timestampMillis()),
            summary.get(QUERY),
            None if batch_id is None else int(batch_id),
        )
        current = None if parent_id is None else table.snapshot(parent_id)


def _iceberg_schema(spark: SparkSession, schema: StructType) -> Any:
    """Return a schema as Iceberg has it; each column may be null."""
    jvm: Any = spark._jvm
    parsed = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()).asNullable()
    return jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(parsed)


def _stored_schema(spark: SparkSession, schema: StructType) -> StructType:
    """Return a schema as a table has it: Iceberg has fewer types than Spark."""
    jvm: Any = spark._jvm
    stored = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(_iceberg_schema(spark, schema))
    return type(schema).fromJson(json.loads(stored.json()))


def _properties(batch: Batch) -> dict[str, str]:
    return {QUERY: batch.query_id, BATCH: str(batch.batch_id)}
