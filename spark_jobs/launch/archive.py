"""`gregor spark archive`: makes the archive of Spark's classes, and prints the option of a JVM that uses it.

The classes are those of a session that works as the jobs do: `python -m gregor.spark_jobs.launch.archive FOLDER`
records them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import require_pyspark, spark_home
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.launch.shared_classes import (
    archive_file,
    archive_options,
    dump_command,
    remove_earlier,
    settings_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_TIMEOUT_S = 300
DUMP_TIMEOUT_S = 300
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LIST, CLASS_PATH = "classes.list", "class.path"

Runner = Callable[[list[str], int], tuple[int, str]]


def main(argv: Sequence[str] | None = None, prog: str = "gregor spark archive") -> int:
    """Make the archive if there is none, and print the options that use it; return 0. Raise JobError on failure."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Store the classes of a Spark session as an archive of the JVM, with which sessions start in half "
        "the time, and print the options that use it. Jobs and clusters that gregor starts use it without further "
        "settings; for others: SPARK_SUBMIT_OPTS=$(gregor spark archive). This needs about a minute and 200 MB, for "
        "each version of Spark and Java once.",
    )
    parser.parse_args(argv)
    require_pyspark()
    java, home = require_java(), spark_home()
    if folder := settings_folder(home):
        raise JobError(
            f"{folder} has settings of Spark and precedes its jars on the class path; no JVM uses an archive behind "
            "such a folder. Give the settings as options, or by another SPARK_CONF_DIR without files"
        )
    file = archive_file(home, java)
    if not file.exists():
        make_archive(file, java)
    print(archive_options())
    return 0


def make_archive(file: Path, java: str, run: Runner | None = None) -> None:
    """Record the classes of a session, and archive them in the file, which exists only when it is complete.

    Raise JobError, with the output of the failed step, if the archive cannot be made.
    """
    run = run or _run
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="classes-", dir=file.parent) as name:
            folder = Path(name)
            _check("recorded", *run([sys.executable, "-m", "gregor.spark_jobs.launch.archive", name], RECORD_TIMEOUT_S))
            new = folder / file.name
            dump = dump_command(java, folder / LIST, (folder / CLASS_PATH).read_text(), new)
            _check("archived", *run(dump, DUMP_TIMEOUT_S))
            new.replace(file)
    except OSError as error:
        raise JobError(
            f"the archive of Spark's classes cannot be stored in {file.parent}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to use another folder"
        ) from error
    remove_earlier(file)


def _check(step: str, code: int, output: str) -> None:
    if code != 0:
        last = "\n".join(f"    {line}" for line in output.strip().splitlines()[-5:])
        raise JobError(f"Spark's classes could not be {step}: exit code {code}\n{last}")


def _run(command: list[str], timeout_s: int) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return 1, f"not finished within {timeout_s} s"
    return done.returncode, done.stdout + done.stderr


def record(folder: Path) -> None:
    """Run a batch and a stream with state in a session; write the list of its classes and its class path."""
    from pyspark.sql import SparkSession

    for name in ("SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"):
        os.environ.pop(name, None)
    os.environ |= {
        "SPARK_SUBMIT_OPTS": f'"-XX:DumpLoadedClassList={folder / LIST}"',
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    builder = builder.config("spark.sql.shuffle.partitions", "1")  # each of Spark's 200 opens a RocksDB
    spark = builder.config("spark.sql.streaming.stateStore.providerClass", STATE_STORE).getOrCreate()
    numbers = spark.range(100).selectExpr("id % 7 AS key", "CAST(id AS STRING) AS value", "current_timestamp() AS time")
    numbers.createOrReplaceTempView("numbers")
    spark.sql("SELECT key, COUNT(*), MAX(value) FROM numbers WHERE key > 3 GROUP BY key ORDER BY key").collect()
    table = str(folder / "table")
    numbers.join(spark.range(7).withColumnRenamed("id", "key"), "key").write.parquet(table)
    spark.read.parquet(table).select("key").mapInArrow(lambda batches: batches, "key LONG").count()
    rows = spark.readStream.schema(numbers.schema).parquet(table)
    counts = rows.withWatermark("time", "1 minute").groupBy("key").count()
    writer = counts.writeStream.outputMode("update").foreachBatch(_collect).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination(RECORD_TIMEOUT_S)
    assert spark._jvm is not None
    (folder / CLASS_PATH).write_text(spark._jvm.java.lang.System.getProperty("java.class.path"))
    spark.stop()


def _collect(rows: DataFrame, number: int) -> None:
    rows.collect()


if __name__ == "__main__":
    record(Path(sys.argv[1]))
