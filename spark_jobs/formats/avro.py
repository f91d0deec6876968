"""Avro values as rows: the types of Spark as its `from_avro` has them, the bytes decoded by fastavro.

The schema of the reader gives the columns. A value was written with that schema, or with the one that its registry id
names, which is then resolved against it by Avro's rules. Logical types that Spark has are read as their numbers, which
Arrow accepts: a date beyond Python's years is no failure then.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.framing import NotDecodable

Convert = Callable[[Any], Any]
"""From a value as fastavro returns it to one that Arrow accepts for its type."""

HOW_TO_INSTALL = "install it with: pip install 'gregor[formats]'"
MAX_DECIMAL_DIGITS = 38
LOGICAL = "gregorLogicalType"
"""The attribute under which a logical type is kept from fastavro."""
_PRIMITIVES: Mapping[str, T.DataType] = {
    "null": T.StringType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
}
_TIMES: Mapping[tuple[str, str], tuple[T.DataType, Convert | None]] = {
    ("int", "date"): (T.DateType(), None),
    ("long", "timestamp-millis"): (T.TimestampType(), lambda number: number * 1000),
    ("long", "timestamp-micros"): (T.TimestampType(), None),
    ("long", "timestamp-nanos"): (T.TimestampType(), lambda number: number // 1000),
    ("long", "local-timestamp-millis"): (T.TimestampNTZType(), lambda number: number * 1000),
    ("long", "local-timestamp-micros"): (T.TimestampNTZType(), None),
    ("long", "local-timestamp-nanos"): (T.TimestampNTZType(), lambda number: number // 1000),
}
_CLASSES: Mapping[type[T.DataType], type] = {
    T.BooleanType: bool,
    T.IntegerType: int,
    T.LongType: int,
    T.DateType: int,
    T.TimestampType: int,
    T.TimestampNTZType: int,
    T.FloatType: float,
    T.DoubleType: float,
    T.DecimalType: Decimal,
    T.BinaryType: bytes,
    T.StringType: str,
    T.ArrayType: list,
    T.MapType: dict,
    T.StructType: dict,
}
"""The classes of the values that fastavro returns, by which the branches of a union are distinguished."""


def canonical_avro(text: str) -> str:
    """Return the JSON of a schema in one form; raise JobError if it is no Avro schema, or Spark has no type for it."""
    schema = schema_of(text, "--schema")
    AvroSchema(schema)
    return json.dumps(schema, separators=(",", ":"))


def schema_of(text: str, what: str) -> Any:
    """Return the schema of a text: JSON, or the name of a primitive type."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise JobError(f"{what} is no Avro schema: it is no JSON ({error})") from error


class AvroSchema:
    """A schema, parsed, with the names that it defines or needs."""

    def __init__(self, schema: Any, needed: list[Any] | None = None, what: str = "--schema") -> None:
        try:
            from fastavro.schema import parse_schema
        except ModuleNotFoundError as error:
            raise JobError(f"avro values need the library fastavro; {HOW_TO_INSTALL}") from error
        self.names: dict[str, Any] = {}
        try:
            for one in needed or ():
                parse_schema(without_times(one), self.names)
            self.parsed = parse_schema(without_times(schema), self.names)
        except Exception as error:  # of any class, by what is wrong
            raise JobError(f"{what} is no Avro schema: {type(error).__name__}: {error}") from error
        columns = _Columns(self.names, what)
        self.kind, self.convert = columns.column(self.parsed, ())
        self.tagged = columns.tagged


def decoder_of(writer: AvroSchema, reader: AvroSchema | None) -> Callable[[bytes], Any]:
    """Return the function from the bytes of a value, without a frame, to what Arrow accepts.

    It raises NotDecodable, or an exception of fastavro, for other bytes.
    """
    from fastavro import parse_schema, schemaless_reader

    convert, tagged = (reader or writer).convert, (reader or writer).tagged
    # fastavro finds the names of a parsed schema in it alone, not in the schemas that it needs.
    of_writer = parse_schema(_expanded(writer))
    of_reader = parse_schema(_expanded(reader)) if reader is not None else None

    def decode(payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        value = schemaless_reader(
            stream, of_writer, of_reader, return_named_type=tagged, return_named_type_override=tagged
        )
        left = len(payload) - stream.tell()
        if left:
            raise NotDecodable(f"{left} bytes follow the value")
        return value if convert is None else convert(value)

    return decode


def self_contained(text: str, needed: list[str], what: str) -> str:
    """Return the JSON of a schema in which the ones that it needs are defined where they are first named."""
    schema = AvroSchema(schema_of(text, what), [schema_of(one, what) for one in needed], what)
    return json.dumps(_with_times(_expanded(schema)), separators=(",", ":"))


def _expanded(schema: AvroSchema) -> Any:
    """Return the parsed schema with each name defined where it is first needed."""
    defined: set[str] = set()

    def expanded(one: Any) -> Any:
        if isinstance(one, list):
            return [expanded(branch) for branch in one]
        if isinstance(one, str):
            return one if one in _PRIMITIVES or one in defined else expanded(schema.names[one])
        copy = {key: value for key, value in one.items() if not key.startswith("__")}
        if "name" in copy:
            defined.add(copy["name"])
        if "fields" in copy:
            copy["fields"] = [{**part, "type": expanded(part["type"])} for part in copy["fields"]]
        for key in ("items", "values"):
            if key in copy:
                copy[key] = expanded(copy[key])
        if isinstance(copy["type"], dict | list):
            copy["type"] = expanded(copy["type"])
        return copy

    return expanded(schema.parsed)


def without_times(schema: Any) -> Any:
    """Return a schema whose logical types are kept from fastavro, but for valid decimals."""
    if isinstance(schema, list):
        return [without_times(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    copy = dict(schema)
    if "logicalType" in copy and not _is_decimal(copy):
        copy[LOGICAL] = copy.pop("logicalType")
    for key in ("type", "items", "values"):
        if key in copy:
            copy[key] = without_times(copy[key])
    if isinstance(copy.get("fields"), list):
        copy["fields"] = [without_times(one) if isinstance(one, dict) else one for one in copy["fields"]]
    return copy


def _with_times(schema: Any) -> Any:
    """Return a schema with its logical types again."""
    if isinstance(schema, list):
        return [_with_times(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {("logicalType" if key == LOGICAL else key): _with_times(value) for key, value in schema.items()}


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is a decimal; Avro ignores one without a valid precision."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        schema.get("logicalType") == "decimal"
        and schema.get("type") in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
        and precision > 0
    )


class _Columns:
    """The types of Spark for the schemas of one document."""

    def __init__(self, names: Mapping[str, Any], what: str) -> None:
        self._names = names
        self._what = what
        self.tagged = False
        """Whether fastavro has to name the branch of a union."""

    def _refuse(self, reason: str) -> JobError:
        return JobError(f"{self._what} has no columns in Spark: {reason}")

    def column(self, schema: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert | None]:
        """Return the type of a schema, and the conversion of its values; `within` are the records around it."""
        if isinstance(schema, list):
            return self._union(schema, within)
        if isinstance(schema, str):
            found = _PRIMITIVES.get(schema)
            return (found, None) if found is not None else self._named(self._names[schema], within)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.column(kind, within)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(schema, within)
        if kind == "array":
            return self._array(schema, within)
        if kind == "map":
            item, convert = self.column(schema["values"], within)
            return T.MapType(T.StringType(), item), _pairs(convert)
        if kind == "bytes" and schema.get("logicalType") == "decimal":
            return self._decimal(schema), None
        time = _TIMES.get((kind, schema.get(LOGICAL, "")))
        return time if time is not None else self.column(kind, within)

    def _named(self, schema: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert | None]:
        kind, name = schema["type"], schema["name"]
        if kind == "enum":
            return T.StringType(), None
        if kind == "fixed":
            return (self._decimal(schema) if schema.get("logicalType") == "decimal" else T.BinaryType()), None
        if name in within:
            raise self._refuse(f"the record {name} contains itself")
        columns, converts = [], {}
        for part in schema["fields"]:
            column, convert = self.column(part["type"], (*within, name))
            columns.append(T.StructField(part["name"], column))
            if convert is not None:
                converts[part["name"]] = convert
        return T.StructType(columns), _fields(converts)

    def _array(self, schema: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert | None]:
        item, convert = self.column(schema["items"], within)
        if self._may_be_empty(schema["items"]):
            raise self._refuse("an array has items without bytes, so that a few bytes could be any number of them")
        return T.ArrayType(item), None if convert is None else lambda values: [convert(value) for value in values]

    def _may_be_empty(self, schema: Any) -> bool:
        """Return whether the values of a schema have no bytes."""
        if isinstance(schema, str):
            return schema == "null" or (schema not in _PRIMITIVES and self._may_be_empty(self._names[schema]))
        if isinstance(schema, list):
            return False
        if schema["type"] == "fixed":
            return bool(schema["size"] == 0)
        if schema["type"] in ("record", "error"):
            return all(self._may_be_empty(part["type"]) for part in schema["fields"])
        return schema["type"] == "null" or (isinstance(schema["type"], dict) and self._may_be_empty(schema["type"]))

    def _decimal(self, schema: Any) -> T.DecimalType:
        if schema["precision"] > MAX_DECIMAL_DIGITS:
            raise self._refuse(f"a decimal of {schema['precision']} digits; Spark has at most {MAX_DECIMAL_DIGITS}")
        return T.DecimalType(schema["precision"], schema.get("scale", 0))

    def _union(self, branches: list[Any], within: tuple[str, ...]) -> tuple[T.DataType, Convert | None]:
        """Return the type of the only branch beside null, a wider number, or a struct `member0`, `member1`, ..."""
        some = [one for one in branches if one != "null" and not (isinstance(one, dict) and one["type"] == "null")]
        if not some:
            return _PRIMITIVES["null"], None
        columns = [self.column(one, within) for one in some]
        if len(some) == 1:
            kind, convert = columns[0]
            return kind, None if convert is None else lambda value: None if value is None else convert(value)
        kinds = {type(kind) for kind, _ in columns}
        if kinds == {T.IntegerType, T.LongType}:
            return T.LongType(), None
        if kinds == {T.FloatType, T.DoubleType}:
            return T.DoubleType(), None
        return self._members(some, columns)

    def _members(
        self, some: list[Any], columns: list[tuple[T.DataType, Convert | None]]
    ) -> tuple[T.DataType, Convert | None]:
        """Return the struct of a union; the branch of a value is known by its name or by its class."""
        names = [self._name_of(one) for one in some]
        tagged = sum(name is not None for name in names) > 1  # fastavro can name the branch then
        self.tagged |= tagged
        by_name = {name: at for at, name in enumerate(names) if name is not None and tagged}
        by_class: dict[type, int] = {}
        for at, (kind, _) in enumerate(columns):
            if at in by_name.values():
                continue
            found = _CLASSES.get(type(kind))
            if found is None or found in by_class:
                raise self._refuse(f"the branches of a union are not distinguished by their values: {names or some}")
            by_class[found] = at
        kind = T.StructType([T.StructField(f"member{at}", column) for at, (column, _) in enumerate(columns)])
        converts = [convert for _, convert in columns]

        def member(value: Any) -> dict[str, Any] | None:
            if value is None:
                return None
            if isinstance(value, tuple):
                name, value = value
                at = by_name.get(name)
            else:
                at = by_class.get(type(value))
            if at is None:
                raise NotDecodable("the branch of a union is not one of the schema that is read")
            convert = converts[at]
            return {f"member{at}": value if convert is None else convert(value)}

        return kind, member

    def _name_of(self, schema: Any) -> str | None:
        """Return the name of a named type, or None."""
        if isinstance(schema, str):
            return None if schema in _PRIMITIVES else schema
        return schema.get("name") if schema["type"] in ("record", "error", "enum", "fixed") else None


def _pairs(convert: Convert | None) -> Convert:
    """Return the conversion of a map to the pairs that Arrow accepts."""
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [(key, convert(value)) for key, value in values.items()]


def _fields(converts: Mapping[str, Convert]) -> Convert | None:
    """Return the conversion of a record whose fields have conversions."""
    if not converts:
        return None
    items = tuple(converts.items())

    def record(value: dict[str, Any]) -> dict[str, Any]:
        for name, convert in items:
            value[name] = convert(value[name])
        return value

    return record
