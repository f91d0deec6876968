"""The owner of a batch: by properties of the thread in the driver, by the checkpoint through Spark Connect."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.foreach_batch import ExactlyOnce, exactly_once
from gregor.spark_jobs.sink.owners import owner_by_checkpoint, owner_in_driver
from gregor.spark_jobs.sink.state import Owner

METADATA = '{"id":"q"}'
RUNNING = {"q": "r"}


class FakeCheckpoint:
    """A folder of files."""

    path = "counts.checkpoint"

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def names(self, pattern: str) -> list[str]:
        return [pattern.rpartition("/")[2]] if pattern in self._files else []

    def read(self, name: str) -> str | None:
        return self._files.get(name)


def found(files: Mapping[str, str], batch_id: int, running: Mapping[str, str] = RUNNING) -> Owner:
    def query_of(query_id: str) -> Any:
        return SimpleNamespace(runId=running[query_id]) if query_id in running else None

    folder: Any = FakeCheckpoint(files)
    return owner_by_checkpoint(SimpleNamespace(get=query_of), folder, batch_id)


def session_with(properties: Mapping[str, str]) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=properties.get))


def test_thread_of_a_batch_has_its_query_and_run() -> None:
    properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r"}
    assert owner_in_driver(session_with(properties)) == Owner("q", "r")


@pytest.mark.parametrize("missing", ["sql.streaming.queryId", "spark.jobGroup.id"])
def test_thread_of_no_query_has_no_owner(missing: str) -> None:
    properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r"}
    del properties[missing]
    with pytest.raises(JobError, match="this DataFrame is no batch of a query"):
        owner_in_driver(session_with(properties))


def test_checkpoint_has_the_query_and_the_session_its_run() -> None:
    files = {"metadata": METADATA, "offsets/6": "", "commits/6": "", "offsets/7": ""}
    assert found(files, 7) == Owner("q", "r")


def test_folder_that_is_no_checkpoint_is_refused() -> None:
    with pytest.raises(JobError, match="counts.checkpoint has no file `metadata`: it is not the checkpoint"):
        found({}, 0)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_damaged_metadata_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="counts.checkpoint/metadata is damaged"):
        found({"metadata": text, "offsets/0": ""}, 0)


def test_checkpoint_of_a_query_of_another_session_is_refused() -> None:
    with pytest.raises(JobError, match=r"no query of this session has the checkpoint counts.checkpoint \(id q\)"):
        found({"metadata": METADATA, "offsets/0": ""}, 0, running={"p": "r"})


@pytest.mark.parametrize("batch_id", [1, 2])
def test_checkpoint_of_another_query_of_the_session_is_refused(batch_id: int) -> None:
    """Batch 1 is committed there, and batch 2 is not begun."""
    files = {"metadata": METADATA, "offsets/1": "", "commits/1": ""}
    with pytest.raises(JobError, match=f"batch {batch_id} is not the present one .* belongs to another query"):
        found(files, batch_id)


def test_function_can_be_pickled_for_the_process_of_a_server_of_spark_connect() -> None:
    from pyspark import cloudpickle

    options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    pickled = cloudpickle.dumps(exactly_once("id", options, "counts.checkpoint"))
    assert isinstance(cloudpickle.loads(pickled), ExactlyOnce)
