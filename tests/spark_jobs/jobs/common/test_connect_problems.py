"""gregor.spark_jobs.jobs.common.job: the reasons for which a job refuses Spark Connect."""

from __future__ import annotations

import pytest

from gregor.spark_jobs.jobs import two_topics, windows
from gregor.spark_jobs.jobs.common.job import Job

TO_TOPIC = ["--sink", "topic", "--output-topic", "o", "--checkpoint", "c"]


@pytest.mark.parametrize(
    ("job", "arguments", "reason"),
    [
        (windows.JOB, [], "--sink console would print there"),
        (windows.JOB, [*TO_TOPIC, "--chart", "c.svg"], "--chart would write its file there"),
        (two_topics.JOB, [*TO_TOPIC, "--with", "u", "--as-table"], "keeps the table from batch to batch"),
    ],
)
def test_a_run_that_needs_its_own_process_is_refused(job: Job, arguments: list[str], reason: str) -> None:
    options = job.parse(["--topic", "t", *arguments])
    assert reason in (job.problem_with_connect(options) or "")


def test_other_runs_are_not() -> None:
    assert windows.JOB.problem_with_connect(windows.JOB.parse(["--topic", "t", *TO_TOPIC])) is None
    assert two_topics.JOB.problem_with_connect(two_topics.JOB.parse(["--topic", "t", "--with", "u", *TO_TOPIC])) is None


def test_a_server_of_connect_is_named_like_a_master() -> None:
    for argument in ("--master", "--remote"):
        assert windows.JOB.parse(["--topic", "t", argument, "sc://h:1"]).conf == {"spark.remote": "sc://h:1"}
        assert windows.JOB.parse(["--topic", "t", argument, "yarn"]).conf == {"spark.master": "yarn"}
