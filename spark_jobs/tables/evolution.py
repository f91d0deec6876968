"""Tables whose rows get other columns, also inside of structs: the fields that a table lacks, and rows that lack some.

A path of a field leads to the struct that has it, as Iceberg names it: the elements of an array are `element`, the
values of a map `value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables.change import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

Path = tuple[str, ...]


@dataclass(frozen=True)
class Evolution:
    """The schema of a table with the fields of new rows, and the fields among them that the table lacks."""

    schema: StructType
    added: list[tuple[Path, StructField]]


def evolved(table: str, existing: StructType, wanted: StructType) -> Evolution:
    """Return the evolution of a table for rows with the schema `wanted`; raise JobError for a field of another type."""
    added: list[tuple[Path, StructField]] = []
    schema = _merged_struct(table, existing, wanted, (), added)
    return Evolution(schema, added)


def _merged_struct(
    table: str, old: StructType, new: StructType, path: Path, added: list[tuple[Path, StructField]]
) -> StructType:
    from pyspark.sql.types import StructField, StructType

    wanted = {one.name.lower(): one for one in new.fields}
    fields = []
    for field in old.fields:
        other = wanted.pop(field.name.lower(), None)
        kind = field.dataType
        if other is not None:
            kind = _merged(table, kind, other.dataType, (*path, field.name), added)
        fields.append(StructField(field.name, kind, field.nullable, field.metadata))
    added += [(path, one) for one in wanted.values()]
    return StructType([*fields, *wanted.values()])


def _merged(table: str, old: DataType, new: DataType, path: Path, added: list[tuple[Path, StructField]]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(old, StructType) and isinstance(new, StructType):
        return _merged_struct(table, old, new, path, added)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        element = _merged(table, old.elementType, new.elementType, (*path, "element"), added)
        return ArrayType(element, old.containsNull)
    if isinstance(old, MapType) and isinstance(new, MapType) and old.keyType == new.keyType:
        value = _merged(table, old.valueType, new.valueType, (*path, "value"), added)
        return MapType(old.keyType, value, old.valueContainsNull)
    if old == new:
        return old
    raise JobError(
        f"the column {'.'.join(path)} of {table} is {old.simpleString()}, and the rows of this run have "
        f"{new.simpleString()}. Cast it to the type of the table, give the column another name, or write to another "
        "--path"
    )


def aligned(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return rows with all fields of a table's schema, null where the rows lack them; other columns follow."""
    from pyspark.sql import functions as F

    known = {field.name.lower(): field for field in frame.schema.fields}
    columns = []
    for field in schema.fields:
        own = known.pop(field.name.lower(), None)
        column = F.lit(None).cast(field.dataType)
        if own is not None:
            column = _aligned(frame[quoted(own.name)], own.dataType, field.dataType)
        columns.append(column.alias(own.name if own is not None else field.name))
    return frame.select(*columns, *[quoted(field.name) for field in known.values()])


def _aligned(column: Column, old: DataType, new: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if old == new:
        return column
    if isinstance(old, StructType) and isinstance(new, StructType):
        known = {field.name.lower(): field for field in old.fields}
        fields = []
        for field in new.fields:
            own = known.get(field.name.lower())
            value = F.lit(None).cast(field.dataType)
            if own is not None:
                value = _aligned(column.getField(own.name), own.dataType, field.dataType)
            fields.append(value.alias(field.name))
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return F.transform(column, lambda one: _aligned(one, old.elementType, new.elementType))
    if isinstance(old, MapType) and isinstance(new, MapType):
        return F.transform_values(column, lambda _, one: _aligned(one, old.valueType, new.valueType))
    return column
