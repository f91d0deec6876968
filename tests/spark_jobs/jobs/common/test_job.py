"""Errors of Spark's JVM are one line of a job, and code 1: no session is made here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from gregor.spark_jobs import session
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.folders.hadoop import HadoopFiles
from gregor.spark_jobs.jobs.common import job
from gregor.spark_jobs.jobs.wordcount import JOB

CALL = "An error occurred while calling o5.create.\n: java.io.IOException: it broke\n\tat a.b(C.java:1)"
ARGUMENTS = ["-b", "localhost:1", "--topic", "t", "--sink", "console"]


def fail(*_: object, **__: object) -> Any:
    raise Py4JError(CALL)


@pytest.fixture
def without_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "require_topics", lambda *_: None)


@pytest.mark.usefixtures("without_broker")
def test_session_that_does_not_start_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "open_session", fail)
    assert JOB.main(ARGUMENTS) == 1
    assert capsys.readouterr().err == "wordcount: java.io.IOException: it broke\n"


@pytest.mark.usefixtures("without_broker")
def test_file_system_that_fails_under_a_job_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[bool] = []
    opened = SimpleNamespace(stop=lambda: stopped.append(True))
    monkeypatch.setattr(session, "open_session", lambda *_, **__: opened)
    monkeypatch.setattr(job, "start_completed", fail)
    assert JOB.main(ARGUMENTS) == 1
    assert capsys.readouterr().err == "wordcount: java.io.IOException: it broke\n"
    assert stopped == [True]


def test_file_system_that_spark_does_not_have_is_named_with_the_remedy() -> None:
    path = SimpleNamespace(getFileSystem=fail)
    hadoop = SimpleNamespace(Path=lambda _: path)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=hadoop))))
    spark: Any = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))
    with pytest.raises(JobError, match=r"file system of foo://x/y: java.io.IOException: it broke\. Correct the path"):
        HadoopFiles(spark, "foo://x/y")
