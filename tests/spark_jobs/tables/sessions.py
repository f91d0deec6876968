"""A session for Delta tables in the JVM of the shared one: Spark reads the extensions when it makes a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from gregor.spark_jobs.session import add_packages
from gregor.spark_jobs.tables.delta import SETTINGS
from gregor.spark_jobs.tables.packages import delta_package

EXTENSIONS = "spark.sql.extensions"


def delta_session(spark: SparkSession) -> SparkSession:
    """Return a session of its own on the same context, for small tables."""
    add_packages(spark, [delta_package()])
    context = spark._jsc.sc()
    context.conf().set(EXTENSIONS, SETTINGS[EXTENSIONS])
    try:
        raw = spark._jvm.org.apache.spark.sql.classic.SparkSession(context)  # type: ignore[union-attr]
        made = SparkSession(spark.sparkContext, raw)
        for key, value in SETTINGS.items():  # the first one makes the state of the session, with the extensions
            if key != EXTENSIONS:
                made.conf.set(key, value)
    finally:
        context.conf().remove(EXTENSIONS)
    spark._jvm.SparkSession.setActiveSession(raw)  # type: ignore[union-attr]
    for key in ("spark.databricks.delta.snapshotPartitions", "spark.sql.shuffle.partitions"):
        made.conf.set(key, "1")
    return made
