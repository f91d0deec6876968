"""The arguments of the jobs that feed topics, without Spark."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs import files_to_topic, generate
from gregor.spark_jobs.jobs.common.job import Job

FILES = "--path in --output-topic t --checkpoint c"


@pytest.mark.parametrize(
    ("job", "arguments", "problem"),
    [
        (generate.JOB, "", "--sink topic needs --output-topic"),
        (generate.JOB, "--output-topic t --sink exactly-once --transactional-id x", "needs --checkpoint"),
        (generate.JOB, "--output-topic t --once", "--once writes all records at once"),
        (generate.JOB, "--output-topic t --value-format bytes --column a=1", "leave out one of --column"),
        (generate.JOB, "--output-topic t --column filler=1", "a name of its own, other than filler"),
        (generate.JOB, "--output-topic t --distribution zipf", "zipf needs --keys"),
        (generate.JOB, "--output-topic t --keys 5 --skew 2", "--skew needs --distribution zipf"),
        (generate.JOB, "--output-topic t --topic u", "unrecognized arguments: --topic u"),
        (files_to_topic.JOB, f"{FILES} --schema 'a INT'", "--schema needs --format json or csv"),
        (files_to_topic.JOB, f"{FILES} --dead-letter-topic d", "--dead-letter-topic needs --format json or csv"),
        (files_to_topic.JOB, f"{FILES} --format csv --dead-letter-topic t", "another topic than --output-topic"),
        (files_to_topic.JOB, "--path in --output-topic t --checkpoint in/c", "--checkpoint is inside of --path"),
        (files_to_topic.JOB, f"{FILES} --starting-offsets latest", "unrecognized arguments: --starting-offsets latest"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    job: Job, arguments: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        job.parse(shlex.split(arguments))
    assert problem in capsys.readouterr().err


def test_a_batch_has_the_rows_of_its_interval() -> None:
    options = generate.JOB.parse(["--output-topic", "t", "--rate", "30"])
    assert generate.rows_per_batch(options, 500) == 15
    with pytest.raises(JobError, match="--rate 30 gives no record in --interval"):
        generate.rows_per_batch(options, 20)


def report_at(offset: int) -> Any:
    return SimpleNamespace(json=f'{{"sources": [{{"endOffset": {{"offset": {offset}, "timestamp": 7}}}}]}}')


def test_a_run_ends_with_its_last_row() -> None:
    is_over = generate.ended(generate.JOB.parse(["--output-topic", "t", "--rows", "50"]))
    assert [is_over(reports) for reports in ([], [report_at(40)], [report_at(40), report_at(60)])] == [
        False,
        False,
        True,
    ]
