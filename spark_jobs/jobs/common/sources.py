"""The records of topics as a stream or a batch, by the source that the options name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.bootstrap import require_broker
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.once import fixed_end, is_repeated
from gregor.spark_jobs.source.lag import Lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gregor.spark_jobs.jobs.common.options import Options

METADATA_TIMEOUT_MS = 10_000
_NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
BY_OTHER_NAMES = ("subscribePattern", "assign")
"""Options of the source that replace --topic."""


def record_stream(spark: SparkSession, options: Options, topic: str | None = None) -> DataFrame:
    """Return the records of the topics as a stream, with the columns of the connector."""
    from gregor.spark_jobs.source.options import STREAM_END
    from gregor.spark_jobs.sources import source_options, stream_topic

    name, given = topic or options.topic, stream_options(options)
    if is_repeated(spark, options):
        given[STREAM_END] = fixed_end(spark, options, name, source_options(options.bootstrap_server, name, given))
    return stream_topic(spark, options.bootstrap_server, name, given, options.source)


def stream_options(options: Options) -> dict[str, str]:
    """Return the options of the source of a stream, without those that select topics by --topic."""
    source = options.client | {"startingOffsets": options.starting_offsets}
    if options.max_offsets_per_trigger is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_offsets_per_trigger)
    return source | options.source_options


def record_batch(
    spark: SparkSession, options: Options, topic: str | None = None, limits: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the records that the topics have now, or the part of them that options of the source select."""
    from gregor.spark_jobs.sources import read_topic

    return read_topic(
        spark, options.bootstrap_server, topic or options.topic, options.client | dict(limits or {}), options.source
    )


def lag_of(options: Options) -> Lag | None:
    """Return the lag of a job that reads topics; None where only Spark's connector has the security of the client."""
    if not options.topics:
        return None
    try:
        return Lag(stream_options(options) | {"kafka.bootstrap.servers": options.bootstrap_server})
    except JobError:
        return None


def require_topics(servers: str, topics: list[str], client: dict[str, str]) -> None:
    """Raise JobError unless a broker answers, accepts the client, and all topics exist.

    Spark's connector needs a minute to report a missing topic. Security that only the connector has is left to it.
    """
    require_broker(servers)
    options = {"kafka.default.api.timeout.ms": str(METADATA_TIMEOUT_MS)} | client
    try:
        settings = ClientSettings.from_options(options | {"kafka.bootstrap.servers": servers})
    except KafkaFailure as failure:
        if failure.code != ErrorCode.SECURITY_DISABLED:
            raise
        return
    with Cluster(settings) as cluster:
        found = cluster.topics(topics)
    missing = [name for name in topics if name not in found or found[name].error_code in _NO_SUCH_TOPIC]
    if missing:
        what = f"the topic {missing[0]} does" if len(missing) == 1 else f"the topics {', '.join(missing)} do"
        raise JobError(
            f"{what} not exist at {servers}; create it with "
            f"`gregor topics --bootstrap-server {servers} --create --topic {missing[0]}`, or correct the name"
        )
