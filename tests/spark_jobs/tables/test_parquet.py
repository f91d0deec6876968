"""The folder of Parquet files without a JVM: on files in memory, and with a session that only shows what it reads."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables import parquet
from gregor.spark_jobs.tables.parquet import ParquetTarget
from gregor.spark_jobs.tables.target import Layout
from tests.spark_jobs.tables.test_staging import HIDDEN, MemoryFiles

SCHEMA = StructType().add("key", "string").add("_offset", "long")


class Session:
    """Creates frames as their rows and schema, and reads a folder as its path."""

    def __init__(self) -> None:
        self.read = self

    def option(self, name: str, value: str) -> Session:
        return self

    def parquet(self, path: str) -> str:
        return path

    def createDataFrame(self, rows: list[Any], schema: StructType) -> tuple[list[Any], StructType]:
        return rows, schema


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    found = MemoryFiles()
    monkeypatch.setattr(found, "scheme", "file", raising=False)
    monkeypatch.setattr(parquet, "HadoopFiles", lambda spark, root: found)
    return found


def target() -> Any:
    session: Any = Session()
    return ParquetTarget(session, "/data/t", Layout())


def test_folder_that_was_only_begun_has_no_rows_of_its_schema(files: MemoryFiles) -> None:
    assert not target().exists()
    target().ensure_schema(SCHEMA)
    assert target().exists()
    assert target().rows() == ([], SCHEMA)
    assert list(files.files) == [f"{HIDDEN}/schema.json"]


def test_object_stores_are_refused_before_spark_needs_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(parquet, "HadoopFiles", lambda spark, root: opened.append(root))
    session: Any = Session()
    for path in ("s3a://bucket/t", "GS://bucket/a/t"):
        with pytest.raises(JobError, match="is on an object store .*; use --format delta or iceberg there"):
            ParquetTarget(session, path, Layout())
    assert opened == []


def test_folder_with_files_has_their_rows(files: MemoryFiles) -> None:
    target().ensure_schema(SCHEMA)
    files.files["t/day=2024-01-01/part-0.parquet"] = "row"
    assert target().rows() == "/data/t"
