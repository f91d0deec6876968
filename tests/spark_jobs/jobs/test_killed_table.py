"""The job `table` killed in the middle of its work, as a process of its own, and continued.

The oracle is a read_committed consumer. Rows that are appended twice are there twice; a change that is merged twice is
not seen in the rows, so that the batches in the table's own history are compared, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs import table
from gregor.spark_jobs.session import add_packages
from gregor.spark_jobs.tables.iceberg import IcebergTarget
from gregor.spark_jobs.tables.lineage import BATCH
from gregor.spark_jobs.tables.packages import iceberg_package
from gregor.spark_jobs.tables.target import Layout
from tests.spark_jobs.jobs.killing import killed_in_the_middle, kills_itself
from tests.spark_jobs.jobs.running import SECOND, Event, committed, forget_last_commit, run_job, send
from tests.spark_jobs.tables.sessions import delta_session
from tests.spark_jobs.topics import CLIENT_S, Topics

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="kills under Spark"),
]

START = 1_700_000_000_000
Rows = list[tuple[str, str]]
LIMIT = ["--max-offsets-per-trigger", "15"]


def changes(chance: random.Random, count: int) -> list[Event]:
    """Return records of 30 keys, of which some are tombstones."""
    values = [None if chance.random() < 0.2 else b"%d" % number for number in range(count)]
    return [Event(value, f"k{chance.randrange(30)}", START + at * SECOND) for at, value in enumerate(values)]


def test_a_delta_table_has_the_latest_row_of_each_key_after_a_kill(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The kill is between the MERGE of a batch and its commit to the checkpoint: no batch is merged again."""
    source, path = topics.create(1, config={"cleanup.policy": "compact"}), tmp_path / "users"
    events = changes(random.Random(3), 60)
    send(topics, source, events)
    arguments = ["--topic", source, "--format", "delta", "--path", str(path), "--key-columns", "key"]
    several = [*LIMIT, "--conf", "spark.databricks.delta.snapshotPartitions=1"]
    kills_itself("merge", 1, "table", ["-b", topics.bootstrap, *arguments, *several], tmp_path / "log")
    assert merged_batches(path) == [0, 1]
    assert not (path / "_checkpoint/commits/1").exists()
    session = delta_session(spark)
    run_job(session, table.JOB, topics, *arguments, "--compact", "1")
    rows = [(row["key"], row["value"]) for row in session.read.format("delta").load(str(path)).collect()]
    expected = {event.key: event.value.decode() if event.value else None for event in events}
    assert sorted(rows) == sorted((key, value) for key, value in expected.items() if value)
    assert merged_batches(path) == [0, 1, 2]


def merged_batches(path: Path) -> list[int | None]:
    """Return for each commit of a MERGE to a Delta table, in order, the batch in its transaction; None without one."""
    commits = [[json.loads(line) for line in one.read_text().splitlines()] for one in delta_commits(path)]
    is_merge = {"operation": "MERGE"}.items()
    merges = [commit for commit in commits if any(is_merge <= one.get("commitInfo", {}).items() for one in commit)]
    return [next((one["txn"]["version"] for one in commit if "txn" in one), None) for commit in merges]


def delta_commits(path: Path) -> list[Path]:
    return sorted((path / "_delta_log").glob("[0-9]*.json"))


def in_order(rows: Iterable[Any], events: Iterable[Event]) -> tuple[Rows, Rows]:
    """Return the keys and values of a table and of the records, to be compared."""
    found = [(row["key"], row["value"] or "") for row in rows]
    return sorted(found), sorted((event.key or "", (event.value or b"").decode()) for event in events)


def test_a_delta_table_has_each_record_once_after_a_kill(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """The kill is between the commit of a batch to the table and that to the checkpoint: it is not appended again."""
    source, path = topics.create(1), tmp_path / "events"
    events = changes(random.Random(4), 25)
    send(topics, source, events)
    arguments = ["--topic", source, "--format", "delta", "--path", str(path)]
    command = ["-b", topics.bootstrap, *arguments, *LIMIT, "--conf", "spark.databricks.delta.snapshotPartitions=1"]
    kills_itself("append", 0, "table", command, tmp_path / "log")
    assert any('"txn"' in one.read_text() for one in delta_commits(path))
    assert not (path / "_checkpoint/commits/0").exists()
    run_job(delta_session(spark), table.JOB, topics, *arguments)
    found, expected = in_order(DeltaTable(path).to_pyarrow_table().to_pylist(), events)
    assert found == expected


def test_a_parquet_table_has_each_record_once_after_a_kill_between_two_renames(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """A batch of six files, of which two have their final names."""
    source, path = topics.create(1), tmp_path / "events"
    events = [Event(b"%d" % at, f"k{at}", START + at // 3 * 3_600 * SECOND) for at in range(18)]
    send(topics, source, events)
    arguments = ["--topic", source, "--format", "parquet", "--path", str(path), "--partition-by", "hour"]
    kills_itself("rename", 2, "table", ["-b", topics.bootstrap, *arguments], tmp_path / "log")
    hidden = tmp_path / ".events.gregor"
    assert len([*(hidden / "batches").glob("*.renames")]) == 1
    published, staged = ([*folder.rglob("[!.]*.parquet")] for folder in (path, hidden / "staging"))
    assert (len(published), len(staged)) == (2, 4)
    run_job(spark, table.JOB, topics, *arguments)
    found, expected = in_order(spark.read.parquet(str(path)).collect(), events)
    assert found == expected


def send_in_transactions(topics: Topics, topic: str, events: list[Event]) -> None:
    """Produce the records in transactions of ten, of which every third is aborted."""
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(CLIENT_S)
    for number, start in enumerate(range(0, len(events), 10)):
        producer.begin_transaction()
        for event in events[start : start + 10]:
            producer.produce(topic, event.value, key=event.key, timestamp=event.time_ms, partition=0)
        assert producer.flush(CLIENT_S) == 0
        if number % 3 == 2:
            producer.abort_transaction(CLIENT_S)
        else:
            producer.commit_transaction(CLIENT_S)


def ancestors(iceberg: Any) -> Iterator[Any]:
    """Yield the current snapshot and those before it, the newest first."""
    current = iceberg.currentSnapshot()
    while current is not None:
        yield current
        current = iceberg.snapshot(current.parentId()) if current.parentId() is not None else None


def is_ahead(path: Path) -> bool:
    """Return whether an Iceberg table has a batch that its checkpoint has not, and is in the third batch or later."""
    versions = {int(one.name.split(".")[0][1:]): one for one in (path / "metadata").glob("v*.metadata.json")}
    if not versions:
        return False
    snapshots = json.loads(versions[max(versions)].read_text())["snapshots"]
    written = max((int(one["summary"].get(BATCH, -1)) for one in snapshots), default=-1)
    return written >= 2 and not (path / "_checkpoint/commits" / str(written)).exists()


@pytest.mark.parametrize("by_key", [False, True])
def test_an_iceberg_table_has_what_a_consumer_receives_after_kills(
    spark: SparkSession, topics: Topics, tmp_path: Path, by_key: bool
) -> None:
    """The kill is between the snapshot of a batch and its commit to the checkpoint; then others commit to the table."""
    add_packages(spark, [iceberg_package()])
    source, path = topics.create(1), tmp_path / "users"
    send_in_transactions(topics, source, changes(random.Random(5), 150))
    arguments = ["--topic", source, "--format", "iceberg", "--path", str(path)]
    arguments += ["--key-columns", "key"] if by_key else []

    command = ["-b", topics.bootstrap, *arguments, *LIMIT]
    killed_in_the_middle("table", command, tmp_path / "log", until=lambda: is_ahead(path))
    if not is_ahead(path):  # the checkpoint was faster than the signal
        forget_last_commit(path / "_checkpoint")
    tables = spark._jvm.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    for _ in range(3):
        tables.load(str(path)).newAppend().commit()
    run_job(spark, table.JOB, topics, *arguments)

    received = [(key.decode(), value.decode() if value else None) for key, value in committed(topics, source) if key]
    assert 0 < len(received) < 150
    rows = IcebergTarget(spark, str(path), Layout()).rows().collect()
    expected = [(key, value) for key, value in dict(received).items() if value] if by_key else received
    assert sorted((row["key"], row["value"] or "") for row in rows) == sorted(
        (key, text or "") for key, text in expected
    )
    batches = [one.summary().get(BATCH) for one in ancestors(tables.load(str(path)))]
    numbers = [int(batch) for batch in reversed(batches) if batch is not None]
    assert numbers == list(range(len(numbers))) and len(numbers) > 3
