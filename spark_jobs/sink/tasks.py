"""The tasks of both sinks: Arrow batches of records to partitions, and a report of each partition for the driver.

A failure is a report as well, and no exception, because Spark would run the task again: a second attempt of a task must
not write under the epoch of the first, of which a part may be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.batches import Headers
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.transactions import Transactions, idempotent_identity

if TYPE_CHECKING:
    import pyarrow as pa

REPORT_SCHEMA = (
    "topic string, partition int, records long, failure string, code int, repeatable boolean, queryId string"
)
_REPORT_COLUMNS = ("topic", "partition", "records", "failure", "code", "repeatable", "queryId")
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"

_TASK_NAME = re.compile(r"task \d+\.(\d+) in stage \d+\.(\d+) \(TID \d+\)")

Write = Callable[[Iterable["pa.RecordBatch"]], Iterable["pa.RecordBatch"]]


@dataclass(frozen=True)
class Report:
    """The records that a task has written to a partition, or its failure."""

    topic: str | None = None
    partition: int | None = None
    records: int = 0
    failure: str | None = None
    code: int | None = None
    repeatable: bool = False
    queryId: str | None = None

    def row(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _REPORT_COLUMNS)


def transactional_task(options: SinkOptions, identity: ProducerIdentity) -> Write:
    """Return the function of a task that writes under the epoch of an attempt."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _arrow(transactional_reports(options, identity, iter(batches)))

    return write


def transactional_reports(
    options: SinkOptions, identity: ProducerIdentity, batches: Iterator[pa.RecordBatch]
) -> list[Report]:
    """Write the records of a task; return the reports."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    try:
        first = next(batches, None)
        if first is None:
            return []
        refuse_second_attempt(context.attemptNumber() if context is not None else 0, _task_name(first))
        with Cluster(options.settings) as cluster:
            assert identity.transactional_id is not None
            transactions = Transactions(cluster, identity.transactional_id, options.transaction_timeout_ms)
            producer = Producer(cluster, identity, options, transactions.add_partitions)
            send_batch(producer, first)
            for batch in batches:
                send_batch(producer, batch)
            producer.flush()
        return _written(producer, query_id)
    except JobError as failure:
        for _ in batches:  # Spark still sends them
            pass
        return [failure_report(failure)]


def plain_task(options: SinkOptions) -> Write:
    """Return the function of a task that writes with a producer id of its own."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Cluster(options.settings) as cluster:
            producer = Producer(cluster, idempotent_identity(cluster), options)
            for batch in batches:
                send_batch(producer, batch)
            producer.flush()
        yield _arrow(_written(producer, None))

    return write


class SecondAttempt(JobError):
    """A task that Spark has started again."""


def refuse_second_attempt(task_attempt: int, task_name: str | None) -> None:
    """Raise SecondAttempt unless this is the first attempt of the task in the first attempt of its stage."""
    found = _TASK_NAME.search(task_name or "")
    if found is None:
        raise JobError(
            f"the name of the task, {task_name!r}, does not have the attempt of its stage, without which this sink "
            "cannot exclude that rows are written twice; use a released version of Spark 4.0 to 4.2"
        )
    if task_attempt or int(found.group(1)) or int(found.group(2)):
        raise SecondAttempt(
            f"Spark has started a task again ({found.group()}); this attempt of it wrote nothing, because the one "
            "before may have written a part"
        )


def send_batch(producer: Producer, batch: pa.RecordBatch) -> None:
    """Send the rows of an Arrow batch."""
    names = batch.schema.names
    topics, partitions, keys, values = (
        batch.column(names.index(name)) for name in ("topic", "partition", "key", "value")
    )
    if not batch.num_rows:
        return
    if topics.null_count:
        raise JobError("a row has no topic: its column `topic` is null; give the option `topic`, or filter such rows")
    if "headers" in names:
        headers = batch.column(names.index("headers")).to_pylist()
        records = zip(topics.to_pylist(), partitions.to_pylist(), keys.to_pylist(), values.to_pylist(), strict=True)
        for (topic, partition, key, value), found in zip(records, headers, strict=True):
            producer.send(TopicPartition(topic, partition), key, value, _headers(found))
        return
    from gregor.spark_jobs.sink.encoding import grouped_rows

    producer.send_rows(grouped_rows(topics, partitions, keys, values))


def _headers(found: list[dict[str, object]] | None) -> Headers:
    return [(one["key"], one["value"]) for one in found or ()]  # type: ignore[misc]


def _task_name(first: pa.RecordBatch) -> str | None:
    from gregor.spark_jobs.sink.rows import TASK_COLUMN

    name: str | None = first.column(first.schema.names.index(TASK_COLUMN))[0].as_py()
    return name


def _written(producer: Producer, query_id: str | None) -> list[Report]:
    return [
        Report(topic, partition, written.records, queryId=query_id)
        for (topic, partition), written in producer.written.items()
    ]


def failure_report(failure: JobError) -> Report:
    """Return the report of a failure."""
    if isinstance(failure, KafkaFailure):
        return Report(failure=failure.text, code=int(failure.code))
    return Report(failure=str(failure), repeatable=isinstance(failure, SecondAttempt))


def _arrow(reports: list[Report]) -> pa.RecordBatch:
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.int64(), pa.string(), pa.int32(), pa.bool_(), pa.string())
    schema = pa.schema(list(zip(_REPORT_COLUMNS, types, strict=True)))
    columns = [pa.array([report.row()[index] for report in reports], kind) for index, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
