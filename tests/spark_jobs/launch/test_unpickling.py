"""Objects for tasks: what they are unpickled as, and the line of a worker without gregor, or with another version."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from gregor.spark_jobs.datasource import GregorDataSource
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch import unpickling
from gregor.spark_jobs.launch.unpickling import MadeInTasks
from gregor.spark_jobs.launch.workers import PACK
from gregor.spark_jobs.pyspark_gregor import DefaultSource
from gregor.spark_jobs.sink.foreach_batch import at_least_once, exactly_once
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.tasks import Topics, plain_task
from gregor.spark_jobs.source import datasource

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
OPTIONS = {**SERVERS, "subscribe": "t"}
PYTHON = f"the Python {sys.executable} on {socket.gethostname()}"

# PySpark's cloudpickle is there, and nothing else that is installed.
WITHOUT_GREGOR = """
import pickle, sys, types
sys.modules["pyspark"] = pyspark = types.ModuleType("pyspark")
pyspark.__path__ = [sys.argv[1]]
for content in pickle.load(sys.stdin.buffer):
    try:
        print(pickle.loads(content))
    except Exception as error:
        print(type(error).__name__, error)
"""


def made() -> dict[str, Any]:
    """Return an object of each kind that a query or a sink sends to workers."""
    source = GregorDataSource(OPTIONS)
    schema = source.schema()
    options = SinkOptions.from_options(SERVERS)
    return {
        "source": source,
        "found": DefaultSource(OPTIONS),
        "reader": source.reader(schema),
        "stream": source.streamReader(schema),
        "plain": at_least_once(SERVERS),
        "once": exactly_once("id", SERVERS),
        "task": MadeInTasks(plain_task, options, Topics({"t": 1}, "t", 0)),
    }


@pytest.mark.slow
def test_worker_without_gregor_names_the_remedy() -> None:
    contents = [cloudpickle.dumps(one) for one in made().values()]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WITHOUT_GREGOR, str(Path(cloudpickle.__file__).parents[1])],
        input=cloudpickle.dumps(contents),
        capture_output=True,
        timeout=60,
    )
    line = f"ImportError {PYTHON} cannot load gregor (No module named 'gregor'): {PACK}"
    assert done.stdout.decode().splitlines() == [line] * len(contents), done.stderr


def test_worker_with_another_version_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickling, "installed_gregor", lambda: "9.9")
    content = cloudpickle.dumps(GregorDataSource(OPTIONS))
    monkeypatch.setattr(unpickling, "installed_gregor", lambda: None)  # of a gregor that is only on the path
    cloudpickle.loads(content)
    monkeypatch.setattr(unpickling, "installed_gregor", lambda: "0.0.9")
    with pytest.raises(ImportError) as raised:
        cloudpickle.loads(content)
    assert str(raised.value) == f"{PYTHON} has gregor 0.0.9, and the driver 9.9: {PACK}"


def test_worker_with_another_build_names_the_missing_part(monkeypatch: pytest.MonkeyPatch) -> None:
    content = cloudpickle.dumps(made()["reader"])
    monkeypatch.delattr(datasource, "BatchReader")
    with pytest.raises(ImportError, match=r"cannot load gregor \(.*'BatchReader'.*\): install gregor"):
        cloudpickle.loads(content)


def test_worker_without_a_library_of_the_reader_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gregor.spark_jobs.arrow.reader", None)
    reader = made()["reader"]
    assert list(reader.read(None)) == []
    with pytest.raises(JobError, match=r"cannot load gregor \(import of gregor.spark_jobs.arrow.reader halted"):
        list(reader.read(InputPartition(None)))


def test_worker_with_gregor_has_the_same_objects() -> None:
    before = made()
    after = cloudpickle.loads(cloudpickle.dumps(before))
    for name in ("source", "reader", "stream", "plain", "once"):
        assert type(after[name]) is type(before[name])
        assert vars(after[name]) == vars(before[name])
    assert type(after["found"]) is GregorDataSource and after["found"].options == OPTIONS
    assert after["task"].__qualname__ == "plain_task.<locals>.write"


def test_function_is_made_on_a_call_too() -> None:
    assert MadeInTasks(lambda factor: lambda rows: [factor * row for row in rows], 2)([1, 2]) == [2, 4]
