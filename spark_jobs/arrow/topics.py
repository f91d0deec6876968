"""Topics as Arrow, without Spark: for pandas, Polars, DuckDB and all that accept a RecordBatchReader.

from gregor.spark_jobs.arrow.topics import read_topic

pandas_frame = read_topic("localhost:9092", "orders").read_pandas()
polars_frame = polars.from_arrow(read_topic("localhost:9092", "orders").read_all())
orders = read_topic("localhost:9092", "orders"); duckdb.sql("SELECT count(*) FROM orders")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import NO_FILTERS, Filters, Mode, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.reader import read, read_stopped
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.schema import schema
from gregor.spark_jobs.arrow.stopped import StoppedBroker
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.known_settings import check_known
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, list_offsets
from gregor.spark_jobs.client.settings import READ_COMMITTED, READ_UNCOMMITTED, ClientSettings
from gregor.spark_jobs.errors import JobError

MODES = ("auto", "wire", "files")


def read_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start_offsets: Mapping[int, int] | None = None,
    end_offsets: Mapping[int, int] | None = None,
    filters: Filters = NO_FILTERS,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    mode: Mode = "auto",
    fail_on_data_loss: bool = True,
    options: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Return a reader of the rows of a topic, one partition after the other.

    The ranges are fixed by this call: from the first offset of each partition, or that of `start_offsets`, to the
    end of the log at this moment, or `end_offsets` (exclusive). `options` are those of Kafka's consumer with the prefix
    `kafka.`, such as `kafka.isolation.level`. The columns are those of Spark's Kafka connector.

    Raises JobError, also while the reader is read.
    """
    if mode not in MODES:
        raise JobError(f"mode={mode!r} is none of {', '.join(MODES)}")
    wanted = _check_columns(columns, include_headers)
    check_known(options or {})
    settings = ClientSettings.from_options({**(options or {}), "kafka.bootstrap.servers": bootstrap_servers})
    with Cluster(settings) as cluster:
        ranges = _ranges(cluster, topic, partitions, start_offsets or {}, end_offsets or {})
    plans = [
        ReadPlan(
            settings,
            one,
            mode,
            settings.read_committed,
            include_headers,
            fail_on_data_loss,
            wanted,
            filters,
        )
        for one in ranges
    ]
    return _reader(columns, include_headers, (rows for plan in plans for rows in read(plan)))


def read_folder(
    folder: str,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    filters: Filters = NO_FILTERS,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    read_committed: bool = False,
) -> pa.RecordBatchReader:
    """Return a reader of the rows of a topic in the data folder of a stopped broker, gregor's or Apache Kafka's.

    It reads up to the high watermark that the broker noted last. Raises JobError, also while the reader is read, and at
    once if a broker uses the folder.
    """
    names = _check_columns(columns, include_headers)
    broker = StoppedBroker(folder)
    found = broker.partitions(topic)
    wanted = found if partitions is None else list(partitions)
    if not found or set(wanted) - set(found):
        missing = ", ".join(str(one) for one in sorted(set(wanted) - set(found)))
        raise JobError(f"the data folder {folder} has no partition{missing and ' ' + missing} of the topic {topic}")
    plans = []
    for partition in wanted:
        start, end = broker.bounds(topic, partition, read_committed)
        own = PartitionRange(topic, partition, start, end)
        plan = ReadPlan(ClientSettings(()), own, "files", read_committed, include_headers, True,
                        names, filters)  # fmt: skip
        plans.append(plan.narrowed())
    return _reader(columns, include_headers, (rows for plan in plans for rows in read_stopped(broker, plan)))


def _ranges(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int] | None,
    start_offsets: Mapping[int, int],
    end_offsets: Mapping[int, int],
) -> list[PartitionRange]:
    """Return the range of each partition at this moment."""
    found = cluster.retrying().run(lambda: cluster.topics([topic])[topic])
    wanted = sorted(found.partitions) if partitions is None else sorted(set(partitions))
    missing = [str(one) for one in wanted if one not in found.partitions]
    if found.error_code or missing or not wanted:
        what = f"no partition {', '.join(missing)} of the topic" if missing else "no topic"
        raise JobError(f"the cluster has {what} {topic}; `gregor topics --list` shows its topics")
    isolation = READ_COMMITTED if cluster.settings.read_committed else READ_UNCOMMITTED
    keys = [TopicPartition(topic, one) for one in wanted]
    firsts = list_offsets(cluster, dict.fromkeys(keys, EARLIEST), READ_UNCOMMITTED)
    lasts = list_offsets(cluster, dict.fromkeys(keys, LATEST), isolation)
    return [
        PartitionRange(
            topic,
            key.partition,
            start_offsets.get(key.partition, firsts[key].offset),
            end_offsets.get(key.partition, lasts[key].offset),
            found.topic_id,
        )
        for key in keys
    ]


def _reader(
    columns: Sequence[str] | None, include_headers: bool, rows: Iterator[pa.RecordBatch]
) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(RowBuilder("", 0, columns, include_headers, 1).schema, rows)


def _check_columns(columns: Sequence[str] | None, include_headers: bool) -> tuple[str, ...] | None:
    known = schema(include_headers).names
    for name in columns or ():
        if name not in known:
            raise JobError(f"there is no column {name!r}: the columns are {', '.join(known)}")
    return None if columns is None else tuple(columns)
