"""Jobs over Avro and Protobuf values, with dead letters in the transaction of the result."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.formats.columns import decoded
from gregor.spark_jobs.formats.protobuf import ProtobufSchema, descriptors_of_file
from gregor.spark_jobs.formats.value_format import ValueFormat
from gregor.spark_jobs.jobs import table, windows
from gregor.spark_jobs.tables.change import table_rows, with_key_problem
from tests.spark_jobs.formats.fake_registry import fake_registry
from tests.spark_jobs.jobs.running import MINUTE, Event, run_job, send
from tests.spark_jobs.sink.committed import committed_records
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000 // MINUTE * MINUTE
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {"type": "record", "name": "Order", "fields": [*OLD["fields"], {"name": "n", "type": "int", "default": 7}]}  # type: ignore[misc]


def avro(schema_id: int, schema: object, value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)  # type: ignore[arg-type]
    return b"\0" + schema_id.to_bytes(4) + stream.getvalue()


def test_dead_letters_are_written_with_the_result(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target, letters = (topics.create(1) for _ in range(3))
    with fake_registry() as registry:
        first = registry.register(f"{source}-value", json.dumps(OLD))
        second = registry.register(f"{source}-value", json.dumps(NEW))
        old = [Event(avro(first, OLD, {"id": at}), "k", START + at) for at in range(10)]
        new = [Event(avro(second, NEW, {"id": at, "n": 8}), "k", START + at) for at in range(5)]
        tail = avro(first, OLD, {"id": 3}) + b"!"
        send(topics, source, [*old, Event(b"broken", "b", START), Event(None, "gone", START), *new, Event(tail)])
        arguments: list[str | Path] = ["--topic", source, "--value-format", "avro", "--schema-registry", registry.url]
        arguments += ["--dead-letter-topic", letters, "--sink", "exactly-once", "--transactional-id", f"of {target}"]
        arguments += ["--output-topic", target, "--checkpoint", tmp_path / "checkpoint", "--sum", "n=value.n"]
        progress = run_job(spark, windows.JOB, topics, *arguments)
    assert (progress.records, progress.dead_letters) == (18, 2)  # although the source is read twice
    rows = [json.loads(one.value() or b"") for one in committed_records(topics.bootstrap, target)]
    assert {(row["key"], row["count"], row["n"]) for row in rows} == {("k", 15, 110), ("gone", 1, None)}
    found = {}
    for one in committed_records(topics.bootstrap, letters):
        headers = {name.removeprefix("__connect.errors."): value for name, value in one.headers() or []}
        found[one.value()] = (one.key(), headers["offset"], headers["exception.message"])
        assert (headers["topic"], headers["connector.name"]) == (source.encode(), b"windows")
    frame = b"the value does not begin with the five bytes of a schema registry"
    assert found == {b"broken": (b"b", b"10", frame), tail: (None, b"17", b"1 bytes follow the value")}


def test_protobuf_values_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    from google.protobuf import message_factory

    proto = tmp_path / "page.proto"
    proto.write_text('syntax = "proto3"; package web; message Page { string user = 1; map<string, int64> n = 2; }')
    schema = descriptors_of_file(str(proto), None)
    page = message_factory.GetMessageClass(ProtobufSchema(schema).descriptor)
    values = [page(user="a", n={"x": 1}).SerializeToString(), b"\xff", None]
    records = spark.createDataFrame([(None, value) for value in values], "key binary, value binary")
    rows = decoded(records, ValueFormat("protobuf", schema)).collect()
    assert [row["value"] and row["value"].asDict() for row in rows] == [{"user": "a", "n": {"x": 1}}, None, None]
    assert [row["problem"] is None for row in rows] == [True, False, True]


def test_rows_of_a_table_are_those_of_the_change_records(spark: SparkSession, tmp_path: Path) -> None:
    schema = "op STRING, before STRUCT<id: BIGINT, name: STRING>, after STRUCT<id: BIGINT, name: STRING>"
    arguments = ["--topic", "t", "--format", "delta", "--path", str(tmp_path), "--value-format", "json"]
    options = table.JOB.parse([*arguments, "--schema", schema, "--changes", "debezium", "--key-columns", "id"])
    records = [
        ('{"id": 1}', '{"op": "c", "after": {"id": 1, "name": "a"}}', 0),
        ('{"id": 1}', '{"op": "d", "before": {"id": 1, "name": "a"}}', 1),
        ('{"id": 1}', None, 2),
    ]
    rows = spark.createDataFrame(records, "key string, value string, offset long").selectExpr(
        "cast(key AS binary) key",
        "cast(value AS binary) value",
        "0 partition",
        "offset",
        "timestamp_seconds(offset) timestamp",
    )
    changed = table.changed(decoded(rows, options.values), options)
    changed = with_key_problem(changed, options.column, options.key_columns).filter("problem IS NULL")
    found = table_rows(changed, table.columns_of(changed, options), options.key_columns)
    assert found.columns[:2] == ["id", "name"] and "key" not in found.columns
    assert [(row["id"], row["name"], row["_gregor_delete"]) for row in found.orderBy("_offset").collect()] == [
        (1, "a", False), (1, None, True), (1, None, True)
    ]  # fmt: skip
