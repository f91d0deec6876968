"""Spark's types as DDL text: the form in which they are given, kept in a checkpoint and shown."""

from __future__ import annotations

import re
from typing import Any

from gregor.spark_jobs.errors import JobError

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORD = re.compile(r"(?!\d+(E\d+)?(BD|[DFLSY])?$)\w+", re.ASCII | re.IGNORECASE)
"""A word that is no number of SQL: Spark's parser accepts it as a name. In structs such names were never quoted, and
the texts of schemas in checkpoints must stay the same."""


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
    return ", ".join(f"{quoted(one.name)} {_text(one.dataType)}" for one in schema.fields)


def _text(kind: Any) -> str:
    """Return the text of a type: `simpleString`, which has the names of fields as they are, with quoted ones."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{quoted(one.name, _WORD)}:{_text(one.dataType)}' for one in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_text(kind.keyType)},{_text(kind.valueType)}>"
    text: str = kind.simpleString()
    return text


def quoted(name: str, plain: re.Pattern[str] = _IDENTIFIER) -> str:
    """Return a name for SQL, as it is if all of it matches `plain`."""
    return name if plain.fullmatch(name) else "`" + name.replace("`", "``") + "`"
