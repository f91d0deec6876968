"""Spark's Kafka connector: which version runs on which Spark, and its jars."""

from __future__ import annotations

from pathlib import Path

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import installed_spark
from gregor.spark_jobs.packages import SCALA, Package, Runner, package_folder, package_jars

ARTIFACT = f"spark-sql-kafka-0-10_{SCALA}"
PROVIDER_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
# By the minor version of Spark; a connector runs on each of its patches. Each is the newest that resolves with all that
# it depends on: 4.1.2 names a token provider of that version, which the central repository does not have.
CONNECTORS = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0"}
USUAL_SPARK = "4.1.1"  # of the development environment; Delta 4.4.0 and Iceberg 1.11.0 run on it


def connector_version(spark: str | None = None) -> str:
    """Return the connector's version for a version of Spark, by default the installed one.

    Raise JobError if no connector is known for it.
    """
    spark = spark or installed_spark() or USUAL_SPARK
    version = CONNECTORS.get(".".join(spark.split(".")[:2]))
    if version is None:
        raise JobError(
            f"there is no known Kafka connector for Spark {spark}, only for Spark {', '.join(CONNECTORS)}.\n"
            f"Give the connector of your Spark with spark-submit --packages, or use PySpark {USUAL_SPARK}: "
            f"pip install 'pyspark=={USUAL_SPARK}'"
        )
    return version


def connector_package(version: str | None = None) -> Package:
    """Return the connector of a version, by default the one for the installed Spark."""
    return Package(
        "the Kafka connector of Spark", "org.apache.spark", ARTIFACT, version or connector_version(), PROVIDER_CLASS
    )


def connector_folder(cache: Path | None = None, version: str | None = None) -> Path:
    """Return the folder of the connector's jars; if it exists, it is complete."""
    return package_folder(connector_package(version), cache)


def connector_jars(java: str, cache: Path | None = None, run: Runner | None = None) -> list[Path]:
    """Return the connector's jars for the installed Spark, downloaded with the given Java if they are missing."""
    return package_jars(connector_package(), java, cache, run)
