"""A query of the exactly-once sink through Spark Connect: lines of files to a topic, a file a batch.

Arguments: server, bootstrap servers, folder, topic, and `once` for a query that ends with the files that are there.
The first task that has written a batch dies behind it. Each task adds its reports to the file `reports`.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gregor.spark_jobs.session import open_session
from gregor.spark_jobs.sink.foreach_batch import WriteBatch, exactly_once


def dying_once(write: WriteBatch, file: Path) -> WriteBatch:
    """Return a function for `foreachBatch` whose tasks report to the file, and of which the first one dies."""

    def write_with_death(batch: Any, batch_id: int) -> None:
        from gregor.spark_jobs.sink import foreach_batch

        task_of = foreach_batch.transactional_task

        def dying_task(*arguments: Any) -> Any:
            run = task_of(*arguments)

            def task(batches: Iterable[Any]) -> Iterator[Any]:
                written = list(run(batches))
                is_first = not file.exists()
                with file.open("a") as stream:
                    for reports in written:
                        stream.writelines(json.dumps(report) + "\n" for report in reports.to_pylist())
                if is_first:
                    os._exit(1)
                yield from written

            return task

        foreach_batch.transactional_task = dying_task
        try:
            write(batch, batch_id)
        finally:
            foreach_batch.transactional_task = task_of

    return write_with_death


def main() -> None:
    server, bootstrap, folder, topic = sys.argv[1:5]
    spark = open_session("sink", {"spark.remote": server, "spark.sql.shuffle.partitions": "1"})
    checkpoint = f"{folder}/checkpoint"
    write = exactly_once("through connect", {"kafka.bootstrap.servers": bootstrap, "topic": topic}, checkpoint)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/in")
    writer = lines.selectExpr("value").writeStream.foreachBatch(dying_once(write, Path(folder) / "reports"))
    if sys.argv[5:] == ["once"]:
        writer = writer.trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
