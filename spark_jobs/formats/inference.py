"""The schema of JSON objects, from a sample of records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.framing import FRAME_BYTES
from gregor.spark_jobs.formats.types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def inferred_schema(records: DataFrame, framed: bool, topic: str, sample_records: int) -> str:
    """Return the schema that fits a sample of JSON objects; raise JobError if there is none."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DataType, StructType

    start = FRAME_BYTES + 1 if framed else 1
    text = F.expr(f"substring(value, {start})").cast("string")
    sample = [row.text for row in records.select(text.alias("text")).limit(sample_records).collect()]
    objects = [one for one in sample if one and is_object(one)]
    if not objects:
        raise JobError(
            f"no schema can be inferred: {topic} has no JSON object among its first {len(sample)} records; "
            "give --schema 'name TYPE, ...'"
        )
    literal = F.lit("[" + ",".join(objects) + "]")
    ddl = records.sparkSession.range(1).select(F.schema_of_json(literal)).head()[0]  # type: ignore[index]
    found = DataType.fromDDL(ddl)
    assert isinstance(found, ArrayType) and isinstance(found.elementType, StructType)
    return ddl_of(found.elementType)


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
