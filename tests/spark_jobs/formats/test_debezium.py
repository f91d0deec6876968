"""Change records in the forms of Debezium as changes of rows, in Spark."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.columns import decoded
from gregor.spark_jobs.formats.debezium import changes
from gregor.spark_jobs.formats.parsing import registered_schema
from gregor.spark_jobs.formats.value_format import ValueFormat
from tests.spark_jobs.formats.fake_registry import FakeRegistry, fake_registry

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

Change = tuple[str, dict[str, Any] | None, dict[str, Any] | None]
Row = tuple[bytes | None, bytes | None]

ONE, TWO = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
CHANGES: list[Change] = [
    ("c", None, ONE),
    ("r", None, TWO),
    ("u", ONE, {"id": 1, "name": None}),
    ("d", TWO, None),
]
EXPECTED = [
    ({"id": 1, "name": "a"}, False, None),
    ({"id": 2, "name": "b"}, False, None),
    ({"id": 1, "name": None}, False, None),
    ({"id": 2, "name": None}, True, None),
    ({"id": 2, "name": None}, True, None),  # the tombstone
]
ROW = "struct<id: bigint, name: string>"
DDL = f"before {ROW}, after {ROW}, op string, ts_ms bigint"


def changed(spark: SparkSession, rows: list[Row], values: ValueFormat) -> list[tuple[Any, bool, str | None]]:
    records = spark.createDataFrame(rows, "key binary, value binary").coalesce(1)
    found = changes(decoded(records, values), ["id"], values)
    return [
        (row["value"] and row["value"].asDict(), row["_gregor_delete"], row["problem"])
        for row in found.select("value", "_gregor_delete", "problem").collect()
    ]


def envelope(change: Change) -> dict[str, Any]:
    return {"before": change[1], "after": change[2], "op": change[0], "ts_ms": 1}


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_envelopes_of_json(spark: SparkSession) -> None:
    rows: list[Row] = [(b"{}", to_json(envelope(change))) for change in CHANGES]
    rows += [(to_json({"id": 2}), None)]
    odd: list[Row] = [
        (b"{}", to_json(envelope(("t", None, None)))),
        (b"{}", to_json(envelope(("u", ONE, None)))),
        (b"{}", b"broken"),
        (b"\0\0", None),
        (to_json({"id": 3}), to_json(envelope(("d", None, None)))),
    ]
    found = changed(spark, rows + odd, ValueFormat("json", DDL))
    assert found[:5] == EXPECTED
    assert [problem for _, _, problem in found[5:]] == [
        "the operation t is no change of a row",
        "the change has no row after it",
        "the value is not JSON",
        "the change has no value of the key id",
        None,
    ]
    assert found[-1][:2] == ({"id": 3, "name": None}, True)


def test_envelopes_beside_their_schema(spark: SparkSession) -> None:
    parts = {"schema": {"type": "struct", "optional": False, "fields": []}}
    rows: list[Row] = [(b"{}", to_json(parts | {"payload": envelope(change)})) for change in CHANGES]
    rows += [(to_json(parts | {"payload": {"id": 2}}), None)]
    assert (
        changed(spark, rows, ValueFormat("json", f"payload struct<{DDL.replace(' struct', ': struct', 2)}>"))
        == EXPECTED
    )


def test_flattened_rows(spark: SparkSession) -> None:
    rows: list[Row] = [
        (b"{}", to_json((after or before or {}) | {"__deleted": "true" if after is None else "false", "__op": kind}))
        for kind, before, after in CHANGES
    ]
    rows += [(to_json({"id": 2}), None)]
    schema = "id bigint, name string, __deleted string, __op string"
    assert changed(spark, rows, ValueFormat("json", schema)) == EXPECTED


def avro(registry: FakeRegistry, subject: str, schema: dict[str, Any], value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    number = registry.ids.get(subject) or registry.ids.setdefault(
        subject, registry.register(subject, json.dumps(schema))
    )
    return b"\0" + number.to_bytes(4) + stream.getvalue()


def test_envelopes_and_keys_of_avro(spark: SparkSession) -> None:
    name = {"name": "name", "type": ["null", "string"]}
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, name]}
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    with fake_registry() as registry:
        rows: list[Row] = [
            (avro(registry, "t-key", key, {"id": 9}), avro(registry, "t-value", schema, envelope(change)))
            for change in CHANGES
        ]
        rows += [(avro(registry, "t-key", key, {"id": 2}), None), (b"x", None)]
        text, _ = registered_schema(ValueFormat("avro", registry=registry.url), "t")
        found = changed(spark, rows, ValueFormat("avro", text, True, registry.url))
    assert found[:5] == EXPECTED
    assert found[5][2] == "the change has no value of the key id"


def test_values_that_are_no_change_records_are_refused(spark: SparkSession) -> None:
    records = spark.createDataFrame([], "key binary, value binary")
    for values, complaint in (
        (ValueFormat("text"), "change records are fields, and the values are string"),
        (ValueFormat("json", "__op string"), "the values are no change records"),
        (ValueFormat("json", "op string, after string"), "the values are no change records"),
        (ValueFormat("json", "name string"), "the change records have no column id, only name"),
    ):
        with pytest.raises(JobError, match=complaint):
            changes(decoded(records, values), ["id"], values)
