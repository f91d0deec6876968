"""Passwords that are options of a source, in the plans that Spark shows."""

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

JAAS = 'org.apache.Module required username="u" password="hid,den)";'
HIDDEN = {"kafka.sasl.jaas.config": JAAS, "kafka.ssl.key.password": "hidden", "kafka.ssl.truststore.password": "hidden"}


def test_plan_of_a_stream_shows_its_options_without_the_secrets(
    spark: SparkSession, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    frame = spark.readStream.format("kafka").options(**plain, **HIDDEN).load()
    frame.explain(True)
    plan = capsys.readouterr().out
    assert "hid" not in plan and "den)" not in plan, plan
    assert "redacted" in plan, plan
    assert topics.bootstrap in plan and "earliest" in plan
