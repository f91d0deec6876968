"""Protobuf values beside the encoder of protobuf, without Spark."""

from __future__ import annotations

import base64
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.framing import NO_FRAME
from gregor.spark_jobs.formats.parsing import columns_of, decoder_of, parsed_array, registered_schema
from gregor.spark_jobs.formats.protobuf import ProtobufSchema, descriptors_of_file
from gregor.spark_jobs.formats.value_format import ValueFormat
from tests.spark_jobs.formats.fake_registry import fake_registry

PROTO = """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp at = 3;
  repeated Money prices = 4;
  map<string, Money> by_name = 5;
  Kind kind = 6;
  uint64 large = 7;
  uint32 small = 8;
  oneof any { string text = 9; bytes data = 10; }
  repeated double numbers = 11;
  message Inner { bool on = 1; }
  Inner inner = 12;
  float weight = 13;
}
enum Kind { NEW = 0; OLD = 1; }
message Other { Order order = 1; }
message Tree { repeated Tree children = 1; }
"""
MONEY = """\
syntax = "proto3";
package shop;
message Money { sint32 cents = 1; }
"""
DDL = (
    "struct<id:bigint,note:string,at:timestamp,prices:array<struct<cents:int>>,by_name:map<string,struct<cents:int>>,"
    "kind:string,large:decimal(20,0),small:bigint,text:string,data:binary,numbers:array<double>,"
    "inner:struct<on:boolean>,weight:float>"
)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("protobuf")
    (folder / "order.proto").write_text(PROTO)
    (folder / "money.proto").write_text(MONEY)
    return descriptors_of_file(str(folder / "order.proto"), None)


def files_of(schema: str) -> dict[str, Any]:
    found = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema))
    return {file.name: file for file in found.file}


def message_class(schema: str, name: str) -> Any:
    return message_factory.GetMessageClass(ProtobufSchema(schema, name).descriptor)


def parsed(values: ValueFormat, payloads: list[bytes | None]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parsed_array(
        payloads, decoder_of(values), to_arrow_type(columns_of(values))
    ).to_pylist()
    return found


def an_order(kind: Any, chance: random.Random) -> Any:
    """Return a message in which each field is there or not."""
    order = kind()
    if chance.random() < 0.7:
        order.id = chance.randrange(-(2**63), 2**63)
        order.note = chance.choice(["", "grün"])
        order.at.seconds, order.at.nanos = chance.randrange(10**9), chance.randrange(10**9)
    for _ in range(chance.randrange(3)):
        order.prices.add(cents=chance.randrange(-9, 9))
        order.by_name[str(chance.random())].cents = chance.randrange(9)
        order.numbers.append(chance.random())
    order.kind = chance.choice([0, 1, 7])
    order.large, order.small = chance.choice([0, 2**64 - 1]), chance.choice([0, 2**32 - 1])
    if chance.random() < 0.5:
        order.text = ""
    elif chance.random() < 0.5:
        order.data = b"\xff"
    if chance.random() < 0.5:
        order.inner.on = chance.random() < 0.5
    order.weight = chance.choice([0.0, 1.5])
    return order


def as_row(order: Any) -> dict[str, Any]:
    """Return the row by the JSON mapping of Protobuf, independent of the decoder."""
    row: dict[str, Any] = json_format.MessageToDict(
        order, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    row["id"], row["large"] = int(row["id"]), Decimal(row["large"])
    row["kind"] = str(row["kind"])
    row["by_name"] = sorted(row["by_name"].items())
    if "data" in row:
        row["data"] = base64.b64decode(row["data"])
    row["at"] = order.at.ToMicroseconds() if order.HasField("at") else None
    return {name: row.get(name) for name in ("note", "text", "data", "inner", "at")} | row


def test_types_are_those_of_spark(schema: str) -> None:
    assert columns_of(ValueFormat("protobuf", schema)).simpleString() == DDL


def test_values_are_those_that_were_encoded(schema: str) -> None:
    kind, chance = message_class(schema, "shop.Order"), random.Random(1)
    orders = [an_order(kind, chance) for _ in range(200)]
    rows = parsed(ValueFormat("protobuf", schema), [order.SerializeToString() for order in orders])
    for row, order in zip(rows, orders, strict=True):
        assert row["problem"] is None
        value = row["value"]
        value["by_name"].sort()
        value["at"] = None if value["at"] is None else round(value["at"].timestamp() * 1_000_000)
        assert value == as_row(order)


def test_a_message_is_chosen_by_its_name(schema: str) -> None:
    assert columns_of(ValueFormat("protobuf", schema, message="shop.Order.Inner")).simpleString() == (
        "struct<on:boolean>"
    )
    with pytest.raises(JobError, match=r"--message is one of shop.Order, shop.Order.ByNameEntry, shop.Order.Inner"):
        columns_of(ValueFormat("protobuf", schema, message="shop.Nothing"))
    with pytest.raises(JobError, match=r"the message shop.Tree contains itself"):
        columns_of(ValueFormat("protobuf", schema, message="shop.Tree"))


@pytest.mark.slow
def test_any_bytes_are_a_value_or_a_problem(schema: str) -> None:
    values = ValueFormat("protobuf", schema)
    decode, kind = decoder_of(values), to_arrow_type(columns_of(values))
    order = message_class(schema, "shop.Order")

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=80), st.integers(0, 2**32))
    def check(data: bytes, seed: int) -> None:
        chance = random.Random(seed)
        whole = bytearray(an_order(order, chance).SerializeToString())
        for _ in range(chance.randrange(1, 4) if whole else 0):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        rows: pa.Array = parsed_array([data, bytes(whole), bytes(whole[: len(whole) // 2])], decode, kind)
        assert len(rows) == 3

    check()


def test_a_frame_names_the_message(schema: str) -> None:
    values = ValueFormat("protobuf", schema, framed=True)
    order = message_class(schema, "shop.Order")(id=7).SerializeToString()
    head = b"\0\0\0\0\1"
    payloads = [head + b"\0" + order, head + b"\x02\0" + order, head + b"\x02\x02" + order, head, b"x"]
    rows = parsed(values, [*payloads, head + b"\x02\x63" + order])
    assert [row["value"] and row["value"]["id"] for row in rows] == [7, 7, None, None, None, None]
    assert [row["problem"] for row in rows[2:]] == [
        "the value is the message shop.Other, not shop.Order",
        "the value ends within its message indexes",
        NO_FRAME,
        "the value is the message that is none of its schema, not shop.Order",
    ]


def test_a_registry_gives_the_schema_and_the_message_of_an_id(schema: str) -> None:
    files = files_of(schema)
    with fake_registry() as registry:
        registry.register_file("money", files["money.proto"])
        needed = [("money.proto", "money", 1)]
        number = registry.register_file("orders-value", files["order.proto"], needed)
        text, shown = registered_schema(ValueFormat("protobuf", registry=registry.url), "orders")
        assert shown == f"shop.Order: {DDL}"
        values = ValueFormat("protobuf", text, True, registry.url)
        head = b"\0" + number.to_bytes(4)
        order = message_class(schema, "shop.Order")(id=7).SerializeToString()
        rows = parsed(values, [head + b"\0" + order] * 3 + [head + b"\x02\x02"])
        assert [row["value"] and row["value"]["id"] for row in rows] == [7, 7, 7, None]
        assert rows[3]["problem"] == "the value is the message shop.Other, not shop.Order"
        with pytest.raises(JobError, match="does not have the schema 9"):
            parsed(values, [b"\0\0\0\0\x09\0"])
        text_only = registry.register("text", "no descriptor", "PROTOBUF")
        with pytest.raises(JobError, match=r"it has no \?format=serialized"):
            parsed(values, [b"\0" + text_only.to_bytes(4) + b"\0"])


def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text("message {")
    (tmp_path / "a.desc").write_bytes(b"\xff\xff")
    for name, complaint in (
        ("a.proto", "a.proto is no Protobuf schema: .*a.proto:1:9: Expected message name"),
        ("a.desc", "is no descriptor set; write one by protoc"),
        ("b.proto", "cannot be read: No such file"),
        ("b.desc", "cannot be read: No such file"),
    ):
        with pytest.raises(JobError, match=complaint):
            descriptors_of_file(str(tmp_path / name), None)
