"""Values that are JSON, and what else they contain, in Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.formats.columns import decoded
from gregor.spark_jobs.formats.value_format import ValueFormat

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

FOLLOWED = "the value has more than one JSON object, or something behind it"
VALUES = {
    '{"a":1}': None,
    ' {"a":1} \n': None,
    '{"a":1,"b":[{"c":"]}"}, null]}': None,
    '{"a":NaN}': None,  # as Spark's reader accepts
    "{'a':1}": None,
    '{"a":1}{"a":2}': FOLLOWED,
    '{"a":1},{"a":2}': FOLLOWED,
    '{"a":1}\n{"a":2}\n': FOLLOWED,
    '{"a":1} garbage': FOLLOWED,
    '{"a":1}]': FOLLOWED,
    '{"a":1}}': FOLLOWED,
    '{"a":1}],[{"a":2}': FOLLOWED,
    '{"a":1}\0': FOLLOWED,
    '{"a":1': "the value is not JSON",
    "": "the value is not JSON",
    '{"a":"x"}': "the value does not fit the schema struct<a:double>",
    '[{"a":1}]': "the value does not fit the schema struct<a:double>",
    "null": "the value does not fit the schema struct<a:double>",
}


def test_a_value_is_one_json_object_and_nothing_else(spark: SparkSession) -> None:
    values = [*map(str.encode, VALUES), None]
    records = spark.createDataFrame([(None, value) for value in values], "key binary, value binary").coalesce(1)
    rows = decoded(records, ValueFormat("json", "a double")).collect()
    assert {bytes(row.raw_value).decode(): row.problem for row in rows[:-1]} == VALUES
    assert rows[-1].problem is None
    assert [row.value.a for row in rows[:3]] == [1, 1, 1]
