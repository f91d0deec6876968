"""A query of the exactly-once sink as a process: lines of files to a topic, until a file appears that ends it.

Arguments: bootstrap servers, folder, topic, master. It prints a line when the query has started.
"""

import sys
from pathlib import Path

from gregor.spark_jobs.session import SHORT_JOB, local_cores, open_session
from gregor.spark_jobs.sink.foreach_batch import exactly_once

TRANSACTIONAL_ID = "killed"
ON_A_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_JOB,
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
    # The blocks of an executor that was killed are missed after a second, not after fifteen.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}


def main() -> None:
    bootstrap, folder, topic, master = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    settings = {"spark.master": master, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if local_cores(master) is None:
        settings |= ON_A_CLUSTER
    spark = open_session("sink", settings, folder / "spark.log", SHORT_JOB)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.retry.backoff.ms": "50",
        "kafka.batch.size": "500",
        "topic": topic,
        "maxAttempts": "20",
    }
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    rows = lines.selectExpr("split(value, ' ')[0] key", "split(value, ' ')[1] value")
    writer = rows.writeStream.foreachBatch(exactly_once(TRANSACTIONAL_ID, options))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    print("started", flush=True)
    while not (folder / "stop").exists():
        query.awaitTermination(0.2)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
