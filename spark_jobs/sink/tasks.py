"""The tasks of both sinks: Arrow batches of rows to partitions, and a report of each partition for the driver.

The plain sink has one task for each partition of its input, which encodes rows and writes them. The exactly-once sink
has two stages: the first encodes rows to batches of records, without an identity; Spark then distributes these so that
one task of the second stage alone writes a partition. Spark handles a row for each batch there, not for each record.

A failure of the exactly-once sink is a report as well, and no exception, because Spark would run the task again: a
second attempt of a task must not write under the epoch of the first, of which a part may be written. The first stage
writes nothing; its failures pass the second one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch.archives import forget_archives
from gregor.spark_jobs.sink.batches import ClosedBatch, Collector, EncodableRows, Headers
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.transactions import Transactions, idempotent_identity

if TYPE_CHECKING:
    import pyarrow as pa

    from gregor.spark_jobs.sink.partitioner import Columns, Partitioner

ENCODED_SCHEMA = "topic string, partition int, records int, timestamp long, data binary, failure string, code int"
"""A row is a batch of records, or the failure of the task that should have encoded more of them."""
_ENCODED_COLUMNS = ("topic", "partition", "records", "timestamp", "data", "failure", "code")
_ENCODED_BYTES = 4 * 1024 * 1024
"""Of batches that Spark receives together."""

TASK_COLUMN = "gregor_task"
"""The column of the second stage with the name of its task, in the first row."""

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


@dataclass(frozen=True)
class Topics:
    """The topics of the rows: their numbers of partitions, and the one topic of all rows, or None."""

    counts: Mapping[str, int]
    topic: str | None
    first_partition: int
    """Null keys begin there."""

    def partitioner(self) -> Partitioner:
        """Return the partitioner of this task."""
        from pyspark import TaskContext

        from gregor.spark_jobs.sink.partitioner import Partitioner

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        return Partitioner(self.counts, self.topic, self.first_partition + task)


def encoding_task(options: SinkOptions, topics: Topics) -> Write:
    """Return the function of a task of the first stage, from rows to ENCODED_SCHEMA."""

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partitioner, collector = topics.partitioner(), Collector(options)
        size_bytes = 0
        closed: list[ClosedBatch] = []
        failure: JobError | None = None
        for batch in batches:
            if failure is not None:
                continue  # Spark still sends them
            try:
                append_rows(collector, partitioner.columns(batch))
            except JobError as error:
                failure = error
                continue
            new = collector.closed()
            closed += new
            size_bytes += sum(len(one.data) for one in new)
            if size_bytes >= _ENCODED_BYTES:
                yield _encoded(closed)
                closed, size_bytes = [], 0
        collector.flush()
        yield _encoded(closed + collector.closed(), failure)
        forget_archives()

    return encode


def transactional_task(options: SinkOptions, identity: ProducerIdentity, query_id: str | None = None) -> Write:
    """Return the function of a task of the second stage, which writes under the epoch of an attempt.

    `query_id` is the query of the batch where tasks do not have it as a property: in jobs of Spark Connect.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _arrow(transactional_reports(options, identity, iter(batches), query_id))
        forget_archives()

    return write


def transactional_reports(
    options: SinkOptions, identity: ProducerIdentity, batches: Iterator[pa.RecordBatch], query_id: str | None = None
) -> list[Report]:
    """Write the batches of a task; return the reports."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if query_id is None and context is not None:
        query_id = context.getLocalProperty(QUERY_ID)
    try:
        first = next(batches, None)
        if first is None:
            return []
        refuse_second_attempt(context.attemptNumber() if context is not None else 0, _task_name(first))
        with Cluster(options.settings) as cluster:
            assert identity.transactional_id is not None
            transactions = Transactions(cluster, identity.transactional_id, options.transaction_timeout_ms)
            producer = Producer(cluster, identity, options, transactions.add_partitions)
            producer.write(closed_batches(first))
            for batch in batches:
                producer.write(closed_batches(batch))
            producer.flush()
        return _written(producer, query_id)
    except JobError as failure:
        for _ in batches:  # Spark still sends them
            pass
        return [failure_report(failure)]


def plain_task(options: SinkOptions, topics: Topics) -> Write:
    """Return the function of a task that writes with a producer id of its own."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partitioner = topics.partitioner()
        with Cluster(options.settings) as cluster:
            producer = Producer(cluster, idempotent_identity(cluster), options)
            for batch in batches:
                append_rows(producer, partitioner.columns(batch))
            producer.flush()
        yield _arrow(_written(producer, None))
        forget_archives()

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


class Appendable(Protocol):
    """A collector of records or a producer."""

    def append(
        self, partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers, /
    ) -> None: ...

    def append_rows(self, rows: EncodableRows, /) -> None: ...


def append_rows(target: Appendable, columns: Columns) -> None:
    """Append the rows of an Arrow batch."""
    topics, partitions, keys, values, headers = columns
    if not len(topics):
        return
    if headers is not None:
        records = zip(*(one.to_pylist() for one in (topics, partitions, keys, values, headers)), strict=True)
        for topic, partition, key, value, found in records:
            target.append(TopicPartition(topic, partition), key, value, _headers(found))
        return
    from gregor.spark_jobs.sink.encoding import grouped_rows

    target.append_rows(grouped_rows(topics, partitions, keys, values))


def closed_batches(rows: pa.RecordBatch) -> list[ClosedBatch]:
    """Return the batches in rows of ENCODED_SCHEMA; raise the failure that a row has."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for text, code in zip(columns["failure"].to_pylist(), columns["code"].to_pylist(), strict=True):
        if text is not None:
            raise JobError(text) if code is None else KafkaFailure(code, text)
    names = ("topic", "partition", "records", "timestamp")
    numbers = zip(*(columns[name].to_pylist() for name in names), columns["data"], strict=True)
    return [
        ClosedBatch(TopicPartition(topic, partition), bytearray(data.as_buffer()), records, timestamp_ms)
        for topic, partition, records, timestamp_ms, data in numbers
    ]


def _headers(found: list[dict[str, object]] | None) -> Headers:
    return [(one["key"], one["value"]) for one in found or ()]  # type: ignore[misc]


def _task_name(first: pa.RecordBatch) -> str | None:
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


def _encoded(batches: list[ClosedBatch], failure: JobError | None = None) -> pa.RecordBatch:
    """Return batches as rows of ENCODED_SCHEMA, the failure in a row of its own behind them."""
    import pyarrow as pa

    rows: list[tuple[object, ...]] = [
        (*one.partition, one.records, one.timestamp_ms, one.data, None, None) for one in batches
    ]
    if failure is not None:
        report = failure_report(failure)
        rows.append((None, None, None, None, None, report.failure, report.code))
    types = (pa.string(), pa.int32(), pa.int32(), pa.int64(), pa.binary(), pa.string(), pa.int32())
    columns = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, names=list(_ENCODED_COLUMNS))


def _arrow(reports: list[Report]) -> pa.RecordBatch:
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.int64(), pa.string(), pa.int32(), pa.bool_(), pa.string())
    schema = pa.schema(list(zip(_REPORT_COLUMNS, types, strict=True)))
    columns = [pa.array([report.row()[index] for report in reports], kind) for index, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
