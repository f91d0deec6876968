"""The formats of tables: their targets, their limits, and the settings of a session that they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gregor.spark_jobs.packages import Package
from gregor.spark_jobs.tables.delta import SETTINGS as DELTA_SETTINGS
from gregor.spark_jobs.tables.delta import DeltaTarget
from gregor.spark_jobs.tables.iceberg import IcebergTarget
from gregor.spark_jobs.tables.packages import delta_package, iceberg_package
from gregor.spark_jobs.tables.parquet import APPEND_ONLY, NO_COMPACTION, ParquetTarget
from gregor.spark_jobs.tables.target import Layout, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableFormat:
    """A format: `open` returns the table at a path."""

    open: Callable[[SparkSession, str, Layout], TableTarget]
    settings: Mapping[str, str] = field(default_factory=dict)
    package: Callable[[], Package] | None = None
    """The package without which Spark does not have the format; raises JobError if there is none for this Spark."""
    can_merge: bool = True

    def problem(self, has_keys: bool, is_compacted: bool) -> str | None:
        """Return what the format cannot do, or None."""
        if self.can_merge:
            return None
        return f"--key-columns: {APPEND_ONLY}" if has_keys else f"--compact: {NO_COMPACTION}" if is_compacted else None


FORMATS: dict[str, TableFormat] = {
    "parquet": TableFormat(ParquetTarget, can_merge=False),
    "delta": TableFormat(DeltaTarget, DELTA_SETTINGS, delta_package),
    "iceberg": TableFormat(IcebergTarget, package=iceberg_package),
}


def open_target(name: str, spark: SparkSession, path: str, layout: Layout) -> TableTarget:
    """Return the table of a format at a path."""
    return FORMATS[name].open(spark, path, layout)


def settings_of(name: str) -> Mapping[str, str]:
    """Return the settings of a session that the format needs."""
    return FORMATS[name].settings


def packages_of(name: str) -> list[Package]:
    """Return the packages that the format needs."""
    package = FORMATS[name].package
    return [] if package is None else [package()]
