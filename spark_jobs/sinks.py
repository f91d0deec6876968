"""Where the counts of a stream go: the console, a topic, or Parquet files.

Each sink stays right when a query is killed and started again on its checkpoint. Spark then runs the batch that was cut
off once more, with the same number and the same records, so what a batch writes must be the same the second time:

* console: each batch prints whole counts, a repeated batch prints them again;
* topic: each batch writes the new count of every word it changed, key = word and value = the count in decimal digits.
  The counts are totals, not differences, and a word always goes to one partition, so the last value of a key is right
  however often a batch was repeated (and a compacted topic keeps just that);
* Parquet: files cannot be updated, so each batch writes its own counts, in place of the folder `batch_id=<number>` that
  an earlier try may have left. The counts so far are the sum over the folders, `read_parquet_counts`.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from gregor.spark_jobs.errors import JobError

CHECKPOINT_FOLDER = "_checkpoint"  # Spark's readers skip names that begin with an underscore


def console_sink(counts: DataFrame, top: int = 20, out: TextIO | None = None) -> DataStreamWriter:
    """Prints the most frequent words after each batch."""

    def show(batch: DataFrame, batch_id: int) -> None:
        rows = batch.orderBy(F.desc("count"), "word").limit(top).collect()
        table = counts_table([(row["word"], row["count"]) for row in rows])
        print(f"after batch {batch_id}:\n{table}", file=out or sys.stdout, flush=True)

    return counts.writeStream.outputMode("complete").foreachBatch(show)


def counts_table(rows: list[tuple[str, int]]) -> str:
    """Words and counts in two aligned columns of plain text."""
    width = max([len(word) for word, _ in rows], default=0)
    return "\n".join(f"  {word:<{width}}  {count:>9,}" for word, count in rows)


def topic_sink(
    counts: DataFrame, bootstrap_server: str, topic: str, options: Mapping[str, str] | None = None
) -> DataStreamWriter:
    """Writes changed counts to a topic; `options` go to the connector as they are."""
    records = counts.select(F.col("word").alias("key"), F.col("count").cast("string").alias("value"))
    writer = records.writeStream.outputMode("update").format("kafka")
    return writer.options(**{"kafka.bootstrap.servers": bootstrap_server, "topic": topic, **(options or {})})


def parquet_sink(lines: DataFrame, counting: Callable[[DataFrame], DataFrame], path: str) -> DataStreamWriter:
    """Counts each batch of lines and writes the result to a folder of its own below the path."""

    def write(batch: DataFrame, batch_id: int) -> None:
        counting(batch).write.mode("overwrite").parquet(f"{path.rstrip('/')}/batch_id={batch_id}")

    return lines.writeStream.outputMode("append").foreachBatch(write)


def read_parquet_counts(spark: SparkSession, path: str) -> DataFrame:
    """Rows `word`, `count`: the totals of everything that a query wrote to the path."""
    return spark.read.parquet(path).groupBy("word").agg(F.sum("count").alias("count"))


def refuse_foreign_batches(spark: SparkSession, path: str, checkpoint: str) -> None:
    """Raises JobError where a query that starts at batch 0 would overwrite some of the batches of an older one."""
    if _glob(spark, f"{checkpoint.rstrip('/')}/metadata") or not _glob(spark, f"{path.rstrip('/')}/batch_id=*"):
        return
    raise JobError(
        f"{path} holds the batches of another run, and the checkpoint {checkpoint} is new.\n"
        "Give the checkpoint of that run to continue it, or another output path for a new run."
    )


def _glob(spark: SparkSession, pattern: str) -> list[str]:
    """Names that match, on whatever file system the path is on."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(pattern)
    found = path.getFileSystem(spark._jsc.hadoopConfiguration()).globStatus(path)
    return [status.getPath().getName() for status in found or []]
