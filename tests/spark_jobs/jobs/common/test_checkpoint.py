"""The identity of a checkpoint, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.checkpoint import refuse_other
from gregor.spark_jobs.jobs.common.options import Options

FIXED = Options("clicks").fixed()


def test_identity_has_the_options_that_decide_the_state() -> None:
    assert FIXED == {"--topic": "clicks", "--source": "kafka", "--sink": "console", "--output-topic": None}


def test_same_job_with_the_same_options_continues() -> None:
    refuse_other("c", {"job": "windows", "options": FIXED}, "windows", FIXED)


def test_an_option_that_is_newer_than_the_checkpoint_is_no_change() -> None:
    refuse_other("c", {"job": "windows", "options": {"--topic": "clicks"}}, "windows", FIXED)


def test_wordcount_continues_a_checkpoint_from_before_there_were_identities() -> None:
    refuse_other("c", {"job": None, "options": {}}, "wordcount", FIXED)


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        (
            {"job": "dedup", "options": FIXED},
            r"^the checkpoint c belongs to the job dedup, not to windows; give another",
        ),
        ({"job": None, "options": {}}, "belongs to a query that is no job of gregor, not to windows"),
        (
            {"job": "windows", "options": {**FIXED, "--topic": "orders", "--output-topic": "o"}},
            "was written with --topic 'orders', --output-topic 'o', and this run has --topic 'clicks', no",
        ),
    ],
)
def test_other_checkpoints_are_refused_with_the_remedy(stored: dict[str, Any], complaint: str) -> None:
    with pytest.raises(JobError, match=complaint):
        refuse_other("c", stored, "windows", FIXED)
