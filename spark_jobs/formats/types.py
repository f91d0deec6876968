"""Spark's types as DDL text: the form in which they are given, kept in a checkpoint and shown."""

from __future__ import annotations

from typing import Any

from gregor.spark_jobs.errors import JobError


def canonical(text: str) -> str:
    """Return the DDL of a schema in one form, whatever its spaces and case; raise JobError if it is none."""
    return ddl_of(struct_of(text))


def struct_of(text: str) -> Any:
    """Return the type of a DDL text."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    try:
        found = DataType.fromDDL(text)
    except PySparkException as error:
        raise JobError(f"--schema {text!r} is no list of fields; give one like 'user STRING, amount DOUBLE'") from error
    if not isinstance(found, StructType):
        raise JobError(f"--schema {text!r} is {found.simpleString()}, no list of fields like 'user STRING'")
    return found


def ddl_of(schema: Any) -> str:
    """Return the DDL text of a struct."""
    return ", ".join(f"{quoted(one.name)} {one.dataType.simpleString()}" for one in schema.fields)


def quoted(name: str) -> str:
    """Return a name for SQL."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
