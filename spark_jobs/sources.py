"""Topics as DataFrames, through Spark's own Kafka connector.

Columns, as the connector gives them: key and value (binary), topic, partition, offset, timestamp, timestampType, and
headers when `includeHeaders` asks for them. The `options` go to the connector as they are: those that begin with
`kafka.` are client settings (`kafka.security.protocol`), the others its own (`startingOffsets`, `endingOffsets`,
`failOnDataLoss`, `maxOffsetsPerTrigger`, `startingTimestamp` ...).
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession


def read_topic(
    spark: SparkSession, bootstrap_server: str, topic: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """What the topics (one name, or several with commas) hold now: earliest to latest unless told otherwise."""
    return spark.read.format("kafka").options(**source_options(bootstrap_server, topic, options)).load()


def stream_topic(
    spark: SparkSession, bootstrap_server: str, topic: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """An endless DataFrame of the topics' records. Starting offsets count only for a query without a checkpoint."""
    return spark.readStream.format("kafka").options(**source_options(bootstrap_server, topic, options)).load()


def source_options(bootstrap_server: str, topic: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """The connector's options. A `subscribePattern` or `assign` of the caller's takes the place of the topic's name."""
    given = dict(options or {})
    result = {"kafka.bootstrap.servers": bootstrap_server}
    if "subscribePattern" not in given and "assign" not in given:
        result["subscribe"] = topic
    return result | given
