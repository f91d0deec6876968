"""Refusals of the sinks without a JVM: writing by `format("gregor")`, for which their protocol does not hold, and
speculation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from gregor.spark_jobs.datasource import GregorDataSource
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.foreach_batch import cause_of, exactly_once


def test_format_refuses_to_write_and_names_the_sinks() -> None:
    source = GregorDataSource({})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(JobError, match='format\\("gregor"\\) does not write: .* exactly_once or at_least_once'):
            make(StructType(), False)


def batch_of(settings: dict[str, str]) -> Any:
    """Return a batch of a session with these settings, whose only column is no column of a record."""
    schema = StructType([StructField("no_value", StringType())])
    return SimpleNamespace(sparkSession=SimpleNamespace(conf=settings), schema=schema)


def test_speculation_is_refused_before_anything_is_written() -> None:
    write = exactly_once("id", {"kafka.bootstrap.servers": "localhost:9", "topic": "t"})
    with pytest.raises(
        JobError, match="spark.speculation=true would write rows twice under one epoch; set it to false"
    ):
        write(batch_of({"spark.speculation": "true"}), 0)
    for settings in ({}, {"spark.speculation": "false"}):
        with pytest.raises(JobError, match="no column `value`"):  # of the next check
            write(batch_of(settings), 0)


def test_failure_of_a_worker_without_gregor_is_the_line_with_the_remedy() -> None:
    line = (
        "the Python /usr/bin/python3 on worker-1 cannot load gregor (No module named 'gregor'): install gregor[spark]"
    )
    traceback = f"Traceback (most recent call last):\n  File 'worker.py', line 1, in main\nImportError: {line}\n"
    error = PySparkException(f"Job aborted due to stage failure: {traceback}\n\tat org.apache.spark.Some(Some.scala)\n")
    assert cause_of(error) == line
    assert cause_of(PySparkException("\n first\n second")) == "first"
