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


@pytest.mark.parametrize("streams", [False, True], ids=["batch", "stream"])
def test_plans_of_the_source_in_python_show_no_secret(
    spark: SparkSession, topics: Topics, capsys: pytest.CaptureFixture[str], streams: bool
) -> None:
    """In each form of a plan, and in the text of the DataFrame."""
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topics.create(1), **HIDDEN}
    frame = (spark.readStream if streams else spark.read).format("gregor").options(**options).load()
    for mode in ("extended", "formatted") if streams else ("extended", "formatted", "cost"):
        frame.explain(mode=mode)
    shown = capsys.readouterr().out + repr(frame)
    assert "Scan" in shown or "StreamingRelation" in shown, shown
    assert "hid" not in shown and "den)" not in shown, shown
