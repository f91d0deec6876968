"""A run shows which guarantee its outputs have: that of its sink, and that of its dead letters. Without Spark."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gregor.spark_jobs import progress
from gregor.spark_jobs.jobs import windows
from gregor.spark_jobs.jobs.common import job
from gregor.spark_jobs.jobs.common.terminal import Terminal

TO_TOPIC = ["--output-topic", "out", "--checkpoint", "folder"]
LETTERS = ["--value-format", "json", "--schema", "n INT", "--dead-letter-topic", "letters"]
EXACTLY_ONCE = ["--sink", "exactly-once", "--transactional-id", "id", *TO_TOPIC]


def shown(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """Return the lines of a run whose query ends at once."""
    monkeypatch.setattr(job, "completed", lambda spark, own, options: options)
    monkeypatch.setattr(job, "start_completed", lambda *_: None)
    monkeypatch.setattr(job, "commit_end", lambda *_: [])
    monkeypatch.setattr(progress, "run_to_end", lambda *_: progress.Progress(print))
    options = windows.JOB.parse(["--topic", "t", *arguments])
    spark: Any = None
    windows.JOB.run_in(spark, options, Terminal(out := io.StringIO()))
    return out.getvalue().splitlines()


def test_a_job_with_two_outputs_shows_both_guarantees(monkeypatch: pytest.MonkeyPatch) -> None:
    in_transaction = shown(monkeypatch, *EXACTLY_ONCE, *LETTERS)
    assert len(in_transaction) == 2
    assert in_transaction[0].startswith("windows to exactly-once: ")
    assert in_transaction[1] == "dead letters: exactly once, in the transaction of their batch"
    beside = shown(monkeypatch, "--sink", "topic", *TO_TOPIC, *LETTERS)
    assert beside[0].startswith("windows to topic: ") and "at least once" in beside[0]
    assert beside[1] == "dead letters: at least once, stored before their batch commits"


def test_a_job_with_one_output_shows_its_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = shown(monkeypatch, *EXACTLY_ONCE)
    assert line.startswith("windows to exactly-once: ")
    assert shown(monkeypatch) == []  # on the console
