"""Tables that the job `table` writes, read back by programs other than the one that wrote them.

The topic has transactions, committed and aborted, and tombstones; the last batch is repeated as after a kill. The
oracle is a read_committed consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs.table import JOB
from gregor.spark_jobs.session import add_packages
from gregor.spark_jobs.tables.formats import FORMATS, open_target
from gregor.spark_jobs.tables.packages import iceberg_package
from gregor.spark_jobs.tables.target import OFFSET, PARTITION, Layout
from tests.spark_jobs.jobs.running import forget_last_commit, run_job
from tests.spark_jobs.tables.sessions import delta_session
from tests.spark_jobs.topics import CLIENT_S, PARTITIONS, Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000
HOUR = 3_600_000
COLUMNS = ("key", "value", PARTITION, OFFSET)


class Row(NamedTuple):
    """A record, or a row of the table with its place in the topic."""

    key: str
    value: str | None
    partition: int
    offset: int


def produce(topics: Topics, topic: str, transactions: Iterable[tuple[bool, list[tuple[str, str | None]]]]) -> None:
    """Produce records in transactions that are committed or aborted; a key always goes to the same partition."""
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(CLIENT_S)
    time_ms = START
    for is_committed, records in transactions:
        producer.begin_transaction()
        for key, value in records:
            time_ms += HOUR // 4
            partition = int(key[1:]) % PARTITIONS
            producer.produce(topic, value, key=key, partition=partition, timestamp=time_ms)
        if is_committed:
            producer.commit_transaction(CLIENT_S)
        else:
            producer.flush(CLIENT_S)  # so that the aborted records are in the log
            producer.abort_transaction(CLIENT_S)


def consumed(topics: Topics, topic: str) -> list[Row]:
    """Return the records that a read_committed consumer receives."""
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "t", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        rows, ended = [], set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(CLIENT_S)
            assert message is not None
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                text = None if value is None else value.decode()
                rows.append(Row(key.decode(), text, message.partition(), message.offset()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return rows
    finally:
        consumer.close()


def latest(rows: list[Row]) -> list[Row]:
    """Return the last row of each key, without those that a tombstone deletes."""
    last = {row.key: row for row in sorted(rows, key=lambda row: row.offset)}
    return [row for row in last.values() if row.value is not None]


def from_arrow(table: pa.Table) -> list[Row]:
    return [Row(*record.values()) for record in table.select(COLUMNS).to_pylist()]


def by_duckdb(relation: str, **tables: pa.Table) -> list[Row]:
    """Return the rows that DuckDB finds in a relation of its SQL, which may be one of the Arrow tables."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {relation}").fetchall()
    return [Row(*record) for record in found]


def parquet_readers(path: Path) -> dict[str, list[Row]]:
    import polars
    import pyarrow.dataset as dataset

    return {
        "duckdb": by_duckdb(f"read_parquet('{path}/**/*.parquet')"),
        "pyarrow": from_arrow(dataset.dataset(path, format="parquet", partitioning="hive").to_table()),
        "polars": from_arrow(polars.read_parquet(path / "**/*.parquet").to_arrow()),
    }


def delta_readers(path: Path) -> dict[str, list[Row]]:
    from deltalake import DeltaTable

    table = pa.table(DeltaTable(path).to_pyarrow_table())
    return {"deltalake": from_arrow(table), "duckdb": by_duckdb("rows", rows=table)}


def iceberg_readers(path: Path) -> dict[str, list[Row]]:
    from pyiceberg.table import StaticTable

    version = (path / "metadata" / "version-hint.text").read_text().strip()
    table = StaticTable.from_metadata(f"file://{path}/metadata/v{version}.metadata.json").scan().to_arrow()
    return {"pyiceberg": from_arrow(table), "duckdb": by_duckdb("rows", rows=table)}


Readers = Callable[[Path], dict[str, list[Row]]]


@pytest.mark.by_day(1)
@pytest.mark.parametrize(
    ("table_format", "readers", "by_key"),
    [("parquet", parquet_readers, False), ("delta", delta_readers, True), ("iceberg", iceberg_readers, True)],
)
def test_other_programs_read_what_a_consumer_receives(
    spark: SparkSession, topics: Topics, tmp_path: Path, table_format: str, readers: Readers, by_key: bool
) -> None:
    session = delta_session(spark) if table_format == "delta" else spark
    if table_format == "iceberg":
        add_packages(spark, [iceberg_package()])
    topic, path, checkpoint = topics.create(), tmp_path / "table", tmp_path / "checkpoint"
    arguments = ["--topic", topic, "--format", table_format, "--path", path, "--checkpoint", checkpoint]
    arguments += ["--key-columns", "key"] if by_key else ["--partition-by", "hour"]

    produce(topics, topic, [(True, [(f"k{number}", f"v{number}") for number in range(8)]), (False, [("k1", "no")])])
    run_job(session, JOB, topics, *arguments)
    forget_last_commit(checkpoint)
    changes: list[tuple[str, str | None]] = [("k2", None), ("k3", "new"), ("k9", "v9")]
    produce(topics, topic, [(True, changes), (False, [("k4", None), ("k9", "no")]), (True, [("k5", "end")])])
    run_job(session, JOB, topics, *arguments)

    records = consumed(topics, topic)
    assert len(records) == 12
    target = open_target(table_format, session, str(path), Layout())
    found = {"spark": [Row(*row) for row in target.rows().select(*COLUMNS).collect()]} | readers(path)
    for reader, rows in found.items():
        assert in_order(rows) == in_order(latest(records) if by_key else records), reader


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def test_each_format_is_read_back() -> None:
    """A format that is added later needs readers above."""
    assert set(FORMATS) == {"parquet", "delta", "iceberg"}
