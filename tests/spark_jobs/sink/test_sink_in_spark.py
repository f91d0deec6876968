"""Both sinks in Spark, on a running broker: the records, the repetition of a batch, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.foreach_batch import at_least_once, exactly_once
from gregor.spark_jobs.sink.grouping import numbers_of_tasks
from gregor.spark_jobs.sink.partitioner import partition_for_key
from gregor.spark_jobs.sink.rows import check_columns
from tests.spark_jobs.sink.committed import committed_records
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

Write = Callable[[DataFrame, int], None]


def test_numbers_of_tasks_are_distributed_to_a_task_each(spark: SparkSession) -> None:
    groups = spark.createDataFrame([(number,) for number in numbers_of_tasks(5)], "number int").repartition(5, "number")
    assert [len(part) for part in groups.rdd.glom().collect()] == [1] * 5


def start(spark: SparkSession, folder: Path, write: Write, columns: list[str]) -> None:
    """Run a query over the lines of the files there to its end, one file a batch."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    query = lines.selectExpr(*columns).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def add_file(folder: Path, number: int, lines: list[str]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))


def test_each_record_is_written_once_although_the_driver_ends_behind_its_commit(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, second = topics.create(3), topics.create(1)
    add_file(tmp_path, 0, [f"a{number}" for number in range(20)])
    columns = [
        "if(value like '%5', null, value) key",
        "concat('v-', value) value",
        f"if(value like '%9', '{second}', '{topic}') topic",
        "if(value like '%7', 2, null) partition",
        "array(named_struct('key', 'from', 'value', cast(value as binary)))  headers",
    ]
    write = exactly_once(f"query of {topic}", {"kafka.bootstrap.servers": topics.bootstrap})

    def ends_behind_the_commit(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        raise RuntimeError("the driver ends here")

    with pytest.raises(StreamingQueryException, match="the driver ends here"):
        start(spark, tmp_path, ends_behind_the_commit, columns)
    add_file(tmp_path, 1, [f"b{number}" for number in range(20)])
    start(spark, tmp_path, write, columns)
    records = committed_records(topics.bootstrap, topic) + committed_records(topics.bootstrap, second)
    names = [f"{letter}{number}" for letter in "ab" for number in range(20)]
    found = sorted((record.topic(), record.value(), record.headers()) for record in records)
    assert found == sorted(
        (second if name.endswith("9") else topic, f"v-{name}".encode(), [("from", name.encode())]) for name in names
    )
    for record in records:
        key, name = record.key(), (record.value() or b"").decode().removeprefix("v-")
        assert key == (None if name.endswith("5") else name.encode())
        if name.endswith("7"):
            assert record.partition() == 2
        elif key is not None and record.topic() == topic:
            assert record.partition() == partition_for_key(key, 3)


def test_plain_sink_writes_the_rows_of_a_dataframe(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    rows = spark.createDataFrame([("k", "v"), (None, None)], "key string, value string")
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, "kafka.compression.type": "zstd"}
    at_least_once(options)(rows, 0)
    found = {(record.key(), record.value()) for record in committed_records(topics.bootstrap, topic)}
    assert found == {(b"k", b"v"), (None, None)}


def test_columns_that_are_no_records_are_refused(spark: SparkSession) -> None:
    for columns, topic, complaint in (
        ("key string", "t", "no column `value`, only key; give this name"),
        ("value string", None, "no column `topic`; add it, or give the option"),
        ("value int", "t", "the column `value` is int, it must be string or binary"),
        ("value string, topic binary", None, "the column `topic` is binary, it must be string"),
        ("value string, partition long", "t", "the column `partition` is bigint, it must be int"),
        (
            "value string, headers string",
            "t",
            "`headers` is string, it must be array<struct<key:string,value:binary>>; cast",
        ),
    ):
        with pytest.raises(JobError, match=complaint):
            check_columns(spark.createDataFrame([], columns).schema, topic)


def test_sink_outside_of_a_query_is_refused(spark: SparkSession, topics: Topics) -> None:
    write = exactly_once("id", {"kafka.bootstrap.servers": topics.bootstrap, "topic": "t"})
    rows = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(JobError, match=r"a function for writeStream.foreachBatch; this DataFrame is no batch"):
        write(rows, 0)
    with pytest.raises(JobError, match="the transactional id is empty"):
        exactly_once("", {})


def test_wrong_row_ends_the_query_with_its_reason(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    add_file(tmp_path, 0, ["a"])
    write = exactly_once(f"query of {topic}", {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic})
    with pytest.raises(
        StreamingQueryException, match=f"a row has the partition 7, but the partitions of {topic} are 0 to 1"
    ):
        start(spark, tmp_path, write, ["value", "7 partition"])
    assert committed_records(topics.bootstrap, topic) == []
