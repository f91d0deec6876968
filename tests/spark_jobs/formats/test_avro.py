"""Avro values beside fastavro's encoder, without Spark."""

from __future__ import annotations

import decimal
import io
import json
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.utils import generate_one
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.avro import canonical_avro
from gregor.spark_jobs.formats.framing import NO_FRAME
from gregor.spark_jobs.formats.parsing import columns_of, decoder_of, parsed_array, registered_schema
from gregor.spark_jobs.formats.value_format import ValueFormat
from tests.spark_jobs.formats.fake_registry import FakeRegistry, fake_registry

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "price", "type": {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "int"}]}},
        {"name": "paid", "type": ["Money", "null"]},
        {"name": "number", "type": ["int", "long"]},
        {"name": "any", "type": ["null", "boolean", "long", "double", "string", {"type": "array", "items": "Money"}]},
    ],
}
DDL = (
    "struct<id:bigint,note:string,at:timestamp,seen:timestamp_ntz,day:date,clock:int,amount:decimal(9,2),kind:string,"
    "hash:binary,tags:array<string>,counts:map<string,int>,price:struct<cents:int>,paid:struct<cents:int>,"
    "number:bigint,any:struct<member0:boolean,member1:bigint,member2:double,member3:string,"
    "member4:array<struct<cents:int>>>>"
)
MEMBERS: dict[type, int] = {bool: 0, int: 1, float: 2, str: 3, list: 4}


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def avro(schema: Any, **more: Any) -> ValueFormat:
    return ValueFormat("avro", canonical_avro(json.dumps(schema)), **more)


def parsed(values: ValueFormat, payloads: list[bytes | None]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parsed_array(
        payloads, decoder_of(values), to_arrow_type(columns_of(values))
    ).to_pylist()
    return found


def an_order(chance: random.Random) -> dict[str, Any]:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    at = start + timedelta(milliseconds=chance.randrange(-(10**12), 10**13))
    money = {"cents": chance.randrange(1000)}
    return {
        "id": chance.randrange(-(2**63), 2**63),
        "note": chance.choice([None, "", "grün"]),
        "at": at,
        "seen": chance.choice([None, at.replace(tzinfo=None)]),
        "day": date(1970, 1, 1) + timedelta(days=chance.randrange(-9999, 99999)),
        "clock": chance.randrange(86_400_000),
        "amount": decimal.Decimal(chance.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
        "kind": chance.choice(["NEW", "OLD"]),
        "hash": chance.randbytes(4),
        "tags": [str(number) for number in range(chance.randrange(4))],
        "counts": {str(number): chance.choice([None, number]) for number in range(chance.randrange(4))},
        "price": money,
        "paid": chance.choice([None, money]),
        "number": chance.choice([1, 2**40]),
        "any": chance.choice([None, True, 7, 1.5, "text", [money]]),
    }


def test_types_are_those_of_spark() -> None:
    assert columns_of(avro(ORDER)).simpleString() == DDL


def test_values_are_those_that_were_encoded() -> None:
    chance = random.Random(1)
    orders = [an_order(chance) for _ in range(200)]
    plain = json.loads(json.dumps(ORDER).replace('"time-millis"', '"none"'))
    found = parsed(avro(ORDER), [encoded(plain, order) for order in orders])
    assert [row["problem"] for row in found] == [None] * len(orders)
    for row, order in zip((row["value"] for row in found), orders, strict=True):
        some = order["any"]
        if some is not None:
            members: dict[str, Any] = dict.fromkeys([f"member{at}" for at in range(5)])
            order["any"] = members | {f"member{MEMBERS[type(some)]}": some}
        order["counts"] = list(order["counts"].items())
        assert row == order


def test_a_value_that_is_broken_is_a_problem_beside_good_ones() -> None:
    good = encoded("string", "x")
    rows = parsed(avro("string"), [good, good + b"!", good[:1], b"\x02\xff", None, b""])
    assert [row["value"] for row in rows] == ["x", None, None, None, None, None]
    assert [row["problem"] is None for row in rows] == [True, False, False, False, True, False]
    assert rows[1]["problem"] == "1 bytes follow the value"


def test_a_time_that_no_column_holds_is_a_problem_of_its_record() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    payloads = [encoded("long", number) for number in (1, 2**62, 253402300800000)]
    rows = parsed_array(payloads, decoder_of(avro(schema)), pa.timestamp("us", "UTC"))
    assert [problem is None for problem in rows.field(1).to_pylist()] == [True, False, True]
    assert rows.field(0).cast(pa.int64()).to_pylist() == [1000, None, 253402300800000_000]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 2**32))
def test_any_bytes_are_a_value_or_a_problem(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    whole = bytearray(encoded(PLAIN, generate_one(PLAIN)))
    for _ in range(chance.randrange(1, 4)):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    rows = parsed_array([data, bytes(whole), bytes(whole[: chance.randrange(len(whole))])], DECODE, KIND)
    assert rows.type.field(0).type == KIND
    assert len(rows) == 3


PLAIN = json.loads(json.dumps(ORDER).replace('"logicalType"', '"was"').replace('"decimal"', '"none"'))
DECODE = decoder_of(avro(ORDER))
KIND: pa.DataType = to_arrow_type(columns_of(avro(ORDER)))


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "R contains itself"),
        ({"type": "array", "items": "null"}, "an array has items without bytes"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "a decimal of 39 digits"),
        (["int", "string", "long"], "the branches of a union are not distinguished"),
        ({"type": "record", "fields": []}, "is no Avro schema"),
        ("nothing", "is no Avro schema"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: Any, complaint: str) -> None:
    with pytest.raises(JobError, match=complaint):
        canonical_avro(json.dumps(schema))


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + payload


@pytest.fixture
def registry() -> Any:
    with fake_registry() as found:
        yield found


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


def test_each_value_is_read_with_the_schema_of_its_writer(registry: FakeRegistry) -> None:
    old = record({"name": "id", "type": "int"}, {"name": "gone", "type": "string"})
    new = record({"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"})
    first = registry.register("orders-value", json.dumps(old))
    second = registry.register("orders-value", json.dumps(new))
    text, _ = registered_schema(ValueFormat("avro", registry=registry.url), "orders")
    values = ValueFormat("avro", text, True, registry.url)
    payloads = [
        framed(first, encoded(old, {"id": 1, "gone": "x"})),
        framed(second, encoded(new, {"id": 2**40, "note": "n"})),
        b"\1" + framed(first, b""),
        framed(first, b"\2"),
        None,
    ]
    rows = parsed(values, payloads * 2)
    assert [row["value"] for row in rows[:5]] == [
        {"id": 1, "note": "none"}, {"id": 2**40, "note": "n"}, None, None, None
    ]  # fmt: skip
    assert rows[2]["problem"] == NO_FRAME
    assert rows[3]["problem"] is not None and rows[4]["problem"] is None
    assert registry.requests[f"/schemas/ids/{first}"] == 1
    assert columns_of(values).simpleString() == "struct<id:bigint,note:string>"


def test_schemas_with_references_are_complete(registry: FakeRegistry) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "int"}]}
    order = record({"name": "a", "type": "Money"}, {"name": "b", "type": ["null", "Money"]})
    registry.register("money", json.dumps(money))
    number = registry.register("orders-value", json.dumps(order), references=[("Money", "money", 1)])
    text, shown = registered_schema(ValueFormat("avro", registry=registry.url), "orders")
    assert text == shown
    whole = record({"name": "a", "type": money}, {"name": "b", "type": ["null", "Money"]})
    value = {"a": {"cents": 1}, "b": {"cents": 2}}
    payload = framed(number, encoded(whole, value))
    assert parsed(ValueFormat("avro", text, True, registry.url), [payload]) == [{"value": value, "problem": None}]


def test_an_unknown_schema_ends_the_job(registry: FakeRegistry) -> None:
    registry.register("s", "{}", "PROTOBUF")
    values = avro("string", framed=True, registry=registry.url)
    with pytest.raises(JobError, match="does not have the schema 9"):
        parsed(values, [framed(9, b"")])
    with pytest.raises(JobError, match="is one of PROTOBUF, not of avro"):
        parsed(values, [framed(1, b"")])


def test_without_a_registry_the_frame_is_skipped() -> None:
    rows = parsed(avro("string", framed=True), [framed(9, encoded("string", "x")), b"x"])
    assert [row["value"] for row in rows] == ["x", None]
    assert rows[1]["problem"] == NO_FRAME
