"""The sinks for the counts of a stream: the console, a topic, or Parquet files.

Each sink remains correct when a query is killed and started again on its checkpoint. Spark then repeats the unfinished
batch with the same number and the same records, so that a batch must write the same the second time:

* console: each batch prints whole counts, a repeated batch prints them again;
* topic: each batch writes the new count of each word that it changed, key = word and value = the count in decimal
  digits. The counts are totals, not differences, and a word is always in one partition, so that the last value of a
  key is correct however often a batch was repeated (and a compacted topic keeps just that value);
* Parquet: files cannot be updated, so each batch writes its own counts, in place of the folder `batch_id=<number>` that
  an earlier attempt may have left. The totals are the sums over the folders, `read_parquet_counts`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.folders.folder import Folder


def console_sink(counts: DataFrame, top: int = 20, out: TextIO | None = None) -> DataStreamWriter:
    """Print the most frequent words after each batch."""

    def show(batch: DataFrame, batch_id: int) -> None:
        rows = batch.orderBy(F.desc("count"), "word").limit(top).collect()
        table = counts_table([(row["word"], row["count"]) for row in rows])
        print(f"after batch {batch_id}:\n{table}", file=out or sys.stdout, flush=True)

    return counts.writeStream.outputMode("complete").foreachBatch(show)


def counts_table(rows: list[tuple[str, int]]) -> str:
    """Return words and counts in two aligned columns of plain text."""
    width = max([len(word) for word, _ in rows], default=0)
    return "\n".join(f"  {word:<{width}}  {count:>9,}" for word, count in rows)


def topic_sink(
    counts: DataFrame, bootstrap_server: str, topic: str, options: Mapping[str, str] | None = None
) -> DataStreamWriter:
    """Write changed counts to a topic; `options` are passed to the connector unchanged."""
    records = counts.select(F.col("word").alias("key"), F.col("count").cast("string").alias("value"))
    writer = records.writeStream.outputMode("update").format("kafka")
    return writer.options(**{"kafka.bootstrap.servers": bootstrap_server, "topic": topic, **(options or {})})


def parquet_sink(lines: DataFrame, counting: Callable[[DataFrame], DataFrame], path: str) -> DataStreamWriter:
    """Count each batch of lines, and write the result to a folder of its own below the path."""

    def write(batch: DataFrame, batch_id: int) -> None:
        counting(batch).write.mode("overwrite").parquet(f"{path.rstrip('/')}/batch_id={batch_id}")

    return lines.writeStream.outputMode("append").foreachBatch(write)


def read_parquet_counts(spark: SparkSession, path: str) -> DataFrame:
    """Return rows `word`, `count` with the totals of all batches at the path."""
    return spark.read.parquet(path).groupBy("word").agg(F.sum("count").alias("count"))


def refuse_foreign_batches(spark: SparkSession, path: str, checkpoint: str) -> None:
    """Raise JobError if a query that starts at batch 0 would overwrite batches of an older query."""
    if Folder(spark, checkpoint).names("metadata") or not Folder(spark, path).names("batch_id=*"):
        return
    raise JobError(
        f"{path} contains batches of another run, and the checkpoint {checkpoint} is new.\n"
        "Give the checkpoint of that run to continue it, or another --output-path for a new run."
    )
