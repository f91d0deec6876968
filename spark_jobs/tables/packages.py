"""The packages that write Delta and Iceberg tables, by the version of Spark."""

from __future__ import annotations

from gregor.spark_jobs.connector import USUAL_SPARK
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import installed_spark
from gregor.spark_jobs.packages import SCALA, Package

DELTA_VERSION = "4.4.0"
ICEBERG_VERSION = "1.11.0"
DELTA_LINES = ("4.0", "4.1", "4.2")
ICEBERG_LINES = ("4.0", "4.1")


def delta_package(spark: str | None = None) -> Package:
    """Return Delta for a version of Spark, by default the installed one; raise JobError if there is none."""
    line = _line("Delta", DELTA_VERSION, DELTA_LINES, spark)
    artifact = f"delta-spark_{line}_{SCALA}"
    return Package("Delta", "io.delta", artifact, DELTA_VERSION, "io.delta.sql.DeltaSparkSessionExtension")


def iceberg_package(spark: str | None = None) -> Package:
    """Return Iceberg for a version of Spark, by default the installed one; raise JobError if there is none."""
    line = _line("Iceberg", ICEBERG_VERSION, ICEBERG_LINES, spark)
    artifact = f"iceberg-spark-runtime-{line}_{SCALA}"
    return Package("Iceberg", "org.apache.iceberg", artifact, ICEBERG_VERSION, "org.apache.iceberg.spark.SparkCatalog")


def _line(title: str, version: str, lines: tuple[str, ...], spark: str | None) -> str:
    """Return the minor version of Spark; raise JobError if the format has no package for it."""
    spark = spark or installed_spark() or USUAL_SPARK
    line = ".".join(spark.split(".")[:2])
    if line not in lines:
        raise JobError(
            f"{title} {version} has no package for Spark {spark}, only for Spark {', '.join(lines)}. "
            f"Use PySpark {USUAL_SPARK}: pip install 'pyspark=={USUAL_SPARK}'"
        )
    return line
