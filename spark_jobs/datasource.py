"""The data source for programs that register it themselves: `spark.dataSource.register(GregorDataSource)`."""

from __future__ import annotations

from gregor.spark_jobs.source.datasource import GregorDataSource as GregorDataSource
