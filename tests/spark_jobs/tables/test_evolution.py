"""Tables whose rows get other fields, at the top and inside of structs, arrays and maps."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructType

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.session import add_packages
from gregor.spark_jobs.tables.evolution import evolved
from gregor.spark_jobs.tables.formats import open_target
from gregor.spark_jobs.tables.packages import iceberg_package
from gregor.spark_jobs.tables.target import DELETE, Batch, Layout
from tests.spark_jobs.tables.sessions import delta_session


def struct(**fields: DataType) -> StructType:
    found = StructType()
    for name, kind in fields.items():
        found = found.add(name, kind)
    return found


SMALL = struct(name=StringType())
LARGE = struct(age=IntegerType(), Name=StringType())


def test_fields_that_a_table_lacks_are_found_at_each_depth() -> None:
    old = struct(id=LongType(), user=SMALL, tags=ArrayType(SMALL), by=MapType(StringType(), SMALL), left=LongType())
    new = struct(id=LongType(), user=LARGE, tags=ArrayType(LARGE), by=MapType(StringType(), LARGE), more=SMALL)
    evolution = evolved("t", old, new)
    found = [(path, field.name) for path, field in evolution.added]
    assert found == [(("user",), "age"), (("tags", "element"), "age"), (("by", "value"), "age"), ((), "more")]
    assert evolution.schema.simpleString() == (
        "struct<id:bigint,user:struct<name:string,age:int>,tags:array<struct<name:string,age:int>>,"
        "by:map<string,struct<name:string,age:int>>,left:bigint,more:struct<name:string>>"
    )
    assert evolved("t", evolution.schema, old).added == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (SMALL, struct(name=LongType()), r"the column user\.name of t is string, and the rows of this run have bigint"),
        (SMALL, StringType(), r"the column user of t is struct<name:string>, and the rows of this run have string"),
        (MapType(StringType(), SMALL), MapType(LongType(), SMALL), r"the column user of t is map<string,"),
        (ArrayType(SMALL), ArrayType(struct(name=LongType())), r"the column user\.element\.name of t is string"),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_path(old: DataType, new: DataType, problem: str) -> None:
    with pytest.raises(JobError, match=problem):
        evolved("t", struct(user=old), struct(user=new))


PLACE = "_topic_partition INT, _offset LONG, _timestamp TIMESTAMP"
FIRST = f"key STRING, user STRUCT<name: STRING>, tags ARRAY<STRUCT<name: STRING>>, {PLACE}"
THEN = f"key STRING, user STRUCT<age: INT, name: STRING>, tags ARRAY<STRUCT<name: STRING, n: LONG>>, more INT, {PLACE}"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def rows(session: SparkSession, schema: str, *values: tuple[object, ...], offset: int) -> DataFrame:
    placed = [(*row, 0, offset + at, NOON) for at, row in enumerate(values)]
    return session.createDataFrame(placed, schema).coalesce(1)


def session_for(form: str, spark: SparkSession) -> SparkSession:
    if form == "iceberg":
        add_packages(spark, [iceberg_package()])
    return delta_session(spark) if form == "delta" else spark


@pytest.mark.by_day(2, group="long jobs of Spark")
@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_table_gets_fields_inside_of_structs_and_keeps_those_that_later_rows_lack(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    session = session_for(form, spark)
    target = open_target(form, session, str(tmp_path / "table"), Layout())
    first = rows(session, FIRST, ("a", ("x",), [("t",)]), ("b", None, None), offset=0)
    then = rows(session, THEN, ("c", (7, "z"), [("u", 1)], 5), ("d", (8, "y"), None, 6), offset=2)
    target.ensure_schema(first.schema)
    target.append(first, Batch("q", 0))
    target.ensure_schema(then.schema)
    target.append(then, Batch("q", 1))
    target.ensure_schema(first.schema)  # a run with the older schema again
    changes = rows(session, FIRST, ("a", ("changed",), [("t",)]), ("c", None, [("v",)]), offset=4)
    target.merge(changes.withColumn(DELETE, F.lit(False)), ["key"], Batch("q", 2))
    found = target.rows().select("key", "user.name", "user.age", "user", "tags", "more").collect()
    assert sorted((row.key, row["name"], row.age, row.user is None, row.tags, row.more) for row in found) == [
        ("a", "changed", None, False, [("t", None)], None),
        ("b", None, None, True, None, None),
        ("c", None, None, True, [("v", None)], None),
        ("d", "y", 8, False, None, 6),
    ]


@pytest.mark.by_day(2, group="long jobs of Spark")
@pytest.mark.slow
@pytest.mark.jvm
def test_parquet_files_refuse_a_field_inside_of_a_struct_and_fill_one_that_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = open_target("parquet", spark, str(tmp_path / "table"), Layout())
    then = rows(spark, THEN, ("c", (7, "z"), [("u", 1)], 5), offset=0)
    target.ensure_schema(then.schema)
    target.append(then, Batch("q", 0))
    first = rows(spark, FIRST, ("a", ("x",), None), offset=1)
    target.ensure_schema(first.schema)
    target.append(first, Batch("q", 1))
    found = spark.read.parquet(str(tmp_path / "table")).select("key", "user.name", "user.age", "more").collect()
    assert sorted(map(tuple, found)) == [("a", "x", None, None), ("c", "z", 7, 5)]
    problem = r"the column user of .*table has no field size, and Parquet files cannot get one inside of a struct"
    with pytest.raises(JobError, match=problem):
        target.ensure_schema(struct(key=StringType(), user=struct(size=LongType())))
