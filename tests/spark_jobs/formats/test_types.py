"""The DDL text of a schema: one that Spark parses, and the same as long ago where it is kept in a checkpoint."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructType

from gregor.spark_jobs.formats.types import canonical, ddl_of

UNUSUAL = ("first-name", "a.b", "größe", "x y", "a`b", "12", "1d", "2E5", "12bd")


def test_text_of_plain_names_is_that_of_spark() -> None:
    inner = StructType().add("n_1", LongType()).add("2fa", IntegerType()).add("Select", StringType())
    schema = (
        StructType().add("user", inner).add("tags", ArrayType(StringType())).add("by_day", MapType(LongType(), inner))
    )
    text = "struct<n_1:bigint,2fa:int,Select:string>"
    assert ddl_of(schema) == f"user {text}, tags array<string>, by_day map<bigint,{text}>"
    assert ddl_of(StructType().add("2fa", IntegerType())) == "`2fa` int"


@pytest.mark.parametrize("name", UNUSUAL)
def test_other_names_are_quoted_at_any_depth(name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    inner = StructType().add(name, LongType())
    schema = StructType().add(name, MapType(StringType(), ArrayType(inner)))
    assert ddl_of(schema) == f"{quoted} map<string,array<struct<{quoted}:bigint>>>"


@pytest.mark.slow
@pytest.mark.jvm
def test_spark_parses_each_text(spark: SparkSession) -> None:
    inner = StructType()
    for name in (*UNUSUAL, "2fa", "Select"):
        inner = inner.add(name, LongType())
    schema = StructType([*inner.fields]).add("nested", ArrayType(inner))
    assert canonical(ddl_of(schema)) == ddl_of(schema)
    assert StructType.fromDDL(ddl_of(schema)) == schema
