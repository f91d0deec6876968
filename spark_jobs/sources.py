"""Topics as DataFrames, through Spark's Kafka connector, or with `source="gregor"` through the source without jars.

The columns are those of the connector: key and value (binary), topic, partition, offset, timestamp, timestampType, and
headers with `includeHeaders`. The `options` are passed to the source unchanged: those that begin with `kafka.` are
client settings (`kafka.security.protocol`), the others its own (`startingOffsets`, `endingOffsets`,
`failOnDataLoss`, `maxOffsetsPerTrigger`, `startingTimestamp` ...).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession


def read_topic(
    spark: SparkSession,
    bootstrap_server: str,
    topic: str,
    options: Mapping[str, str] | None = None,
    source: str = "kafka",
) -> DataFrame:
    """Return the records of topics (one name, or several with commas), by default from earliest to latest."""
    return spark.read.format(source).options(**source_options(bootstrap_server, topic, options)).load()


def stream_topic(
    spark: SparkSession,
    bootstrap_server: str,
    topic: str,
    options: Mapping[str, str] | None = None,
    source: str = "kafka",
) -> DataFrame:
    """Return the records of topics as a stream. Starting offsets apply only to a query without a checkpoint."""
    return spark.readStream.format(source).options(**source_options(bootstrap_server, topic, options)).load()


def source_options(bootstrap_server: str, topic: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the connector's options; a `subscribePattern` or `assign` of the caller replaces the name of the topic."""
    given = dict(options or {})
    result = {"kafka.bootstrap.servers": bootstrap_server}
    if "subscribePattern" not in given and "assign" not in given:
        result["subscribe"] = topic
    return result | given
