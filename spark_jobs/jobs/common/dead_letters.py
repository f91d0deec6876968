"""The dead-letter topic: the records whose values cannot be decoded, with their bytes and the reason.

Beside an exactly-once sink to the same cluster they are rows of the result, in the transaction of their batch: once.
Else the tasks that decode a batch produce them and wait for the acknowledgements, so that all are stored before the
batch commits; a repeated task or batch produces them again: at least once. The headers have the names of Kafka Connect
(DeadLetterQueueReporter), as tools know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LETTER = ("raw_key", "raw_value", "topic", "partition", "offset", "headers", "problem")
GUARANTEE = "dead letters: at least once, stored before their batch commits"
GUARANTEE_IN_TRANSACTION = "dead letters: exactly once, in the transaction of their batch"
MAX_REQUEST_BYTES = 100 * 1024 * 1024
"""Of the producer, unless the user sets another limit: that of brokers by default (socket.request.max.bytes). A letter
may be as large as the input topic permits."""
HEADERS = "array<struct<key:string,value:binary>>"


def producer_options(servers: str, client: Mapping[str, str]) -> SinkOptions:
    """Return the options of the producer; raise JobError for client settings that it does not have."""
    given = {"kafka.max.request.size": str(MAX_REQUEST_BYTES), **client, "kafka.bootstrap.servers": servers}
    try:
        return SinkOptions.from_options(given)
    except JobError as error:
        raise JobError(f"the dead-letter topic cannot be written: {error}") from error


def diverted(rows: DataFrame, kept: list[str], job: str, topic: str, options: SinkOptions) -> DataFrame:
    """Return these columns of the rows without a problem; those with one are produced to the dead-letter topic.

    Raise JobError on PySpark 4.0, which has no functions over Arrow arrays.
    """
    from pyspark.sql import functions as F

    if not hasattr(F, "arrow_udf"):
        raise JobError("--dead-letter-topic needs PySpark 4.1 or newer; install it with: pip install 'pyspark==4.1.*'")
    from gregor.spark_jobs.jobs.common.letters import storing

    letter = F.struct(*[name for name in LETTER if name in rows.columns])
    store = F.arrow_udf(storing(job, topic, options), "boolean").asNondeterministic()
    with_letter = rows.select(*kept, F.when(F.col("problem").isNotNull(), letter).alias("letter"))
    return with_letter.filter(store("letter")).select(kept)


def counted(rows: DataFrame, of: str) -> DataFrame:
    """Return the rows, whose number is observed, and that of those with a problem; `of` is a name among all rows."""
    from pyspark.sql import functions as F

    from gregor.spark_jobs.progress import DEAD_LETTERS

    return rows.observe(f"{DEAD_LETTERS} {of}", F.count("problem").alias("records"), F.count("*").alias("rows"))


def letter_records(rows: DataFrame, job: str, topic: str) -> DataFrame:
    """Return the rows with a problem as records for the dead-letter topic, with the columns of `RECORD`."""
    from pyspark.sql import functions as F

    from gregor.spark_jobs.jobs.common.letters import HEADER

    added = {
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "connector.name": F.lit(job),
        "exception.message": F.col("problem"),
    }
    headers = [
        F.struct(F.lit(HEADER + name).alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in added.items()
    ]
    own = F.coalesce(F.col("headers"), F.array()).cast(HEADERS)
    return rows.filter(F.col("problem").isNotNull()).select(
        F.col("raw_key").alias("key"),
        F.col("raw_value").alias("value"),
        F.lit(topic).alias("topic"),
        F.lit(None).cast("int").alias("partition"),
        F.concat(own, F.array(*headers).cast(HEADERS)).alias("headers"),
    )


def refused(rows: DataFrame, kept: list[str]) -> DataFrame:
    """Return these columns of the rows; the first one with a problem fails the query."""
    from pyspark.sql import functions as F

    where = F.concat_ws("", "topic", F.lit("-"), F.col("partition"), F.lit(" at offset "), F.col("offset"))
    text = F.concat(
        F.lit("the record "), where, F.lit(" cannot be decoded: "), "problem",
        F.lit("; --dead-letter-topic NAME stores such records and continues"),
    )  # fmt: skip
    checked = rows.filter(F.when(F.col("problem").isNull(), True).otherwise(F.raise_error(text).cast("boolean")))
    return checked.select(kept)
