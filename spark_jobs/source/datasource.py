"""The data source `gregor` for Spark: the only module of the room that imports PySpark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.retries import SystemClock
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch.archives import forget_archives
from gregor.spark_jobs.launch.unpickling import Portable, cannot_load
from gregor.spark_jobs.source.batch import plan_batch
from gregor.spark_jobs.source.filters import Pushed, push
from gregor.spark_jobs.source.offsets import StreamOffset
from gregor.spark_jobs.source.options import NAME, STREAM_END, SourceOptions, include_headers
from gregor.spark_jobs.source.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from gregor.spark_jobs.arrow.plan import ReadPlan

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2
    HAS_ADMISSION_CONTROL = False
else:
    HAS_ADMISSION_CONTROL = True

# Spark cannot be made to distribute its rows so that one task alone writes a partition, and a stream's writer is made
# in two processes for each batch: neither can own a transaction.
_NO_WRITER = (
    f'format("{NAME}") does not write: a data source in Python can neither distribute rows by partition nor keep a '
    "transaction. Write with foreachBatch and exactly_once or at_least_once of gregor.spark_jobs.sink.foreach_batch"
)
_log = logging.getLogger("gregor.spark_jobs.source")
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class GregorDataSource(Portable, DataSource):
    """Topics of a cluster as batches and streams: `spark.dataSource.register(GregorDataSource)`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the official connector; raise JobError for options that suit no kind of query."""
        try:
            SourceOptions.from_options(self.options, streaming=True)
        except JobError:
            SourceOptions.from_options(self.options, streaming=False)
        forget_archives()
        return columns(include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._checked(schema, streaming=False)
        return FilteringReader(options) if _is_pushdown_enabled() else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._checked(schema, streaming=True)
        return _stream_reader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise JobError(_NO_WRITER)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise JobError(_NO_WRITER)

    def _checked(self, schema: StructType, streaming: bool) -> SourceOptions:
        options = SourceOptions.from_options(self.options, streaming)
        # Sail gives the columns of the source back as a schema of Arrow.
        if isinstance(schema, StructType) and schema != columns(options.include_headers):
            raise JobError(f'format("{NAME}") has a schema of its own; read without schema(...)')
        for line in options.warnings:
            _log.warning("%s", line)
        return options


def columns(with_headers: bool) -> StructType:
    """Return the columns of a row."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if with_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


def _is_pushdown_enabled() -> bool:
    """Return whether this process is the one that pushes filters down.

    Spark has a process of its own for that, if spark.sql.python.filterPushdown.enabled is set. In every other process
    it refuses a reader that has the method `pushFilters`.
    """
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (started_as is not None and started_as.name == _PUSHDOWN_WORKER)


class _Part(InputPartition):
    """The plan of one task."""

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__(plan)


def _read(partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    if partition is None:  # of a query that reads nothing
        return
    try:
        from gregor.spark_jobs.arrow.reader import read
    except ImportError as error:  # of a library
        raise JobError(cannot_load(error)) from None
    yield from read(partition.value)
    forget_archives()


class BatchReader(Portable, DataSourceReader):
    """Reads topics once, from their starting offsets to their ending offsets."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        parts = [_Part(plan) for plan in self._plans()]
        forget_archives()
        return parts

    def _plans(self) -> list[ReadPlan]:
        if self._options.folder is not None:
            from gregor.spark_jobs.source.folder import plan_folder

            return plan_folder(self._options, self._pushed)
        with Cluster(self._options.settings) as cluster:
            return plan_batch(cluster, self._options, self._pushed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class FilteringReader(BatchReader):
    """A batch reader that does not read what the filters of the query leave out."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._pushed, left = push(filters)
        return left


class StreamReader(Portable, DataSourceStreamReader):
    """Reads topics as a stream, for Spark before 4.2, which passes neither the start of a batch nor its limit.

    Spark plans each batch before the next call of latestOffset, also after a restart, so the end of the last plan is
    where the next batch starts.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._opened: Stream | None = None
        self._initial: StreamOffset | None = None
        self._position: StreamOffset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connections out: tasks have the options only."""
        return {**self.__dict__, "_cluster": None, "_opened": None}

    @property
    def _stream(self) -> Stream:
        if self._opened is None:
            self._cluster = Cluster(self._options.settings)
            self._opened = Stream(self._cluster, self._options, SystemClock().now_ms)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        return self._start().to_json()

    def latestOffset(self) -> dict[str, Any]:
        return self._stream.latest(self._position or self._start()).to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        until = StreamOffset.from_json(end)
        parts = [_Part(plan) for plan in self._stream.plan(StreamOffset.from_json(start), until)]
        self._position = until
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        self._stream.commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = self._opened = None

    def _start(self) -> StreamOffset:
        if self._initial is None:
            self._initial = self._stream.initial()
        return self._initial


if HAS_ADMISSION_CONTROL:

    class AdmittingStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """Reads topics as a stream, with the limits and the trigger available-now of Spark 4.2."""

        def getDefaultReadLimit(self) -> Any:
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.min_offsets_per_trigger is not None:
                return ReadMinRows(self._options.min_offsets_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: Mapping[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]
            limited = not isinstance(limit, ReadAllAvailable)
            return self._stream.latest(StreamOffset.from_json(start), limited).to_json()

        def reportLatestOffset(self) -> dict[str, Any] | None:
            newest = self._stream.newest
            return None if newest is None else newest.to_json()

        def prepareForTriggerAvailableNow(self) -> None:
            self._stream.stop_at_present_end()


def _stream_reader(options: SourceOptions) -> StreamReader:
    if HAS_ADMISSION_CONTROL:
        return AdmittingStreamReader(options)
    if options.max_offsets_per_trigger is not None and options.stream_end is None:
        _log.warning(
            "maxOffsetsPerTrigger=%d without %s: with the trigger available-now, which a source in Python does not "
            "learn before Spark 4.2, the query reads one micro-batch of that size and ends. To read everything in "
            "several, give %s without that trigger, and call processAllAvailable() of the query.",
            options.max_offsets_per_trigger,
            STREAM_END,
            STREAM_END,
        )
    return StreamReader(options)
