"""Rows of a DataFrame as records: the official connector's columns, with topic and partition of each."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.grouping import group_sql
from gregor.spark_jobs.sink.tasks import TASK_COLUMN, Topics

_GROUP_COLUMN = "gregor_group"
_TEXT_OR_BYTES = "string or binary"
_FIRST_ROW = "(monotonically_increasing_id() & 8589934591L) = 0"


def records_of(rows: DataFrame, topic: str | None) -> DataFrame:
    """Return the column value and, if there are any, key, topic, partition and headers.

    The option `topic` replaces the column, as in the connector.
    """
    check_columns(rows.schema, topic)
    names = set(rows.columns)
    columns = [F.col(name).cast("binary").alias(name) for name in ("key", "value") if name in names]
    own = ["partition", "headers"] if topic is not None else ["topic", "partition", "headers"]
    return rows.select(*columns, *[F.col(name) for name in own if name in names])


def topics_of(topic: str | None, cluster: Cluster, first_partition: int) -> Topics:
    """Return the topics to which rows may go. A topic that does not exist has no count: the task that finds its first
    row reports it."""
    counts = _partition_counts(cluster)
    if topic is not None:
        counts = {topic: _partition_count(cluster, topic)}
    return Topics(counts, topic, first_partition)


def grouped(encoded: DataFrame, tasks: int) -> DataFrame:
    """Distribute batches of records so that one task alone has those of a partition; a failure goes to any task.

    The first row bears the name of the task, in which Spark has the numbers of both attempts: Python workers do not
    receive that of the stage.
    """
    group = f"coalesce({group_sql('topic', 'partition', tasks)}, 0)"
    by_task = encoded.withColumn(_GROUP_COLUMN, F.expr(group)).repartition(tasks, _GROUP_COLUMN).drop(_GROUP_COLUMN)
    task = F.expr(f"if({_FIRST_ROW}, reflect('java.lang.Thread', 'currentThread'), null)")
    return by_task.withColumn(TASK_COLUMN, task)


def task_count(rows: DataFrame, topic: str | None, cluster: Cluster) -> int:
    """Return the number of tasks that write: that of Spark's shuffles, at most one for each partition."""
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return tasks if topic is None else min(tasks, _partition_count(cluster, topic))


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise JobError for columns that are no records."""
    types = {column.name: column.dataType for column in schema}
    if "value" not in types:
        raise JobError(
            f"the rows have no column `value`, only {', '.join(types) or 'none'}; give this name to the column of "
            "what is written"
        )
    if topic is None and "topic" not in types:
        raise JobError("the rows have no column `topic`; add it, or give the option `topic`")
    for name in ("key", "value"):
        _require(name, types.get(name), _TEXT_OR_BYTES, StringType, BinaryType)
    _require("topic", types.get("topic"), "string", StringType)
    _require("partition", types.get("partition"), "int", IntegerType)
    headers = types.get("headers")
    if headers is not None and not _is_headers(headers):
        raise JobError(
            f"the column `headers` is {headers.simpleString()}, it must be array<struct<key:string,value:binary>>; "
            "cast it"
        )


def _require(name: str, found: DataType | None, wanted: str, *kinds: type[DataType]) -> None:
    if found is not None and not isinstance(found, kinds):
        raise JobError(f"the column `{name}` is {found.simpleString()}, it must be {wanted}; cast it")


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(part.name, type(part.dataType)) for part in kind.elementType]
    return parts == [("key", StringType), ("value", BinaryType)]


def _partition_count(cluster: Cluster, topic: str) -> int:
    counts = _partition_counts(cluster)
    if topic not in counts:
        raise JobError(f"the topic {topic} does not exist; create it: gregor topics --create --topic {topic}")
    return counts[topic]


def _partition_counts(cluster: Cluster) -> Mapping[str, int]:
    topics = cluster.retrying().run(cluster.topics)
    internal = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions and name not in internal}
