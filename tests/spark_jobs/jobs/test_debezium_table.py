"""Change records of Debezium, through a broker into a Delta table, and the table reconciled with its topic."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs import table
from tests.spark_jobs.jobs.running import Event, committed, run_job, send
from tests.spark_jobs.tables.sessions import delta_session
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat, pytest.mark.by_day(2, group="long jobs of Spark")]

START = 1_700_000_000_000
ROW = "STRUCT<id: BIGINT, name: STRING>"
SCHEMA = f"payload STRUCT<before: {ROW}, after: {ROW}, op: STRING, ts_ms: BIGINT>"


def key_of(number: int) -> str:
    """Return the key of a row, as Connect's JsonConverter writes it with its schema."""
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": {"id": number}})


def change(operation: str, number: int, name: str) -> Event:
    row: dict[str, Any] = {"id": number, "name": name}
    before = row if operation in "ud" else None
    after = row if operation != "d" else None
    payload = {"before": before, "after": after, "op": operation, "ts_ms": START, "source": {"table": "users"}}
    return Event(json.dumps({"schema": {"type": "struct"}, "payload": payload}).encode(), key_of(number), START)


def test_the_rows_of_a_database_are_in_the_table_and_stay_where_their_record_cannot_be_decoded(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The table is reconciled: its row 2 is not in the topic, and the only record of row 1 is damaged."""
    source, rejected, path = topics.create(1), topics.create(1), tmp_path / "users"
    session = delta_session(spark)
    row = "_topic_partition INT, _offset LONG, _timestamp TIMESTAMP, id LONG, name STRING"
    old = [(0, -2, datetime.fromtimestamp(START / 1000, UTC), number, "old") for number in (1, 2)]
    session.createDataFrame(old, row).write.format("delta").save(str(path))
    events = [Event(b"{", key_of(1), START), change("r", 3, "a"), change("c", 4, "b"), change("c", 5, "c")]
    events += [change("u", 3, "d"), change("d", 4, "b"), Event(None, key_of(4), START)]
    send(topics, source, events)
    arguments = ["--topic", source, "--value-format", "json", "--schema", SCHEMA, "--changes", "debezium"]
    arguments += ["--key-columns", "id", "--format", "delta", "--path", str(path)]
    run_job(session, table.JOB, topics, *arguments, "--reconcile", "--dead-letter-topic", rejected)
    rows = session.read.format("delta").load(str(path)).collect()
    assert sorted((found["id"], found["name"]) for found in rows) == [(1, "old"), (3, "d"), (5, "c")]
    assert committed(topics, rejected) == [(key_of(1).encode(), b"{")]
