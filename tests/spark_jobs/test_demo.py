"""The parts of the demonstration that need no broker: which text, and whether a wrong count is found."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from gregor.spark_jobs import demo
from gregor.spark_jobs.errors import JobError


def test_first_existing_text_is_used(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.touch()
    assert demo.find_text(None, [str(tmp_path / "not"), str(tmp_path), str(here), __file__]) == here


def test_this_machine_has_a_text_of_some_length() -> None:
    assert len(demo.find_text(None).read_text(errors="replace").split()) > 1000


def test_given_text_is_not_replaced_by_another(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="missing is not a readable file"):
        demo.find_text(str(tmp_path / "missing"))
    with pytest.raises(JobError, match="--text FILE"):
        demo.find_text(None, [str(tmp_path / "missing")])


def test_right_counts_pass(capsys: pytest.CaptureFixture[str]) -> None:
    demo.check(Counter(a=2, b=1), ["a b", "a"])
    assert "Checked:  2 words, 3 in all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        (Counter(a=1, b=1), "a: 1 by Spark, 2 in the file"),
        (Counter(a=2), "b: 0 by Spark, 1 in the file"),
        (Counter(a=2, b=1, c=4), "c: 4 by Spark, 0 in the file"),
        (Counter(), "counts of 2 words are wrong"),
    ],
)
def test_wrong_counts_fail_with_the_words(counted: Counter[str], told: str) -> None:
    with pytest.raises(JobError, match=told):
        demo.check(counted, ["a b", "a"])


def test_failure_is_one_message_and_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--text", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().err == f"demo: {tmp_path / 'missing'} is not a readable file\n"


@pytest.mark.slow
def test_broker_that_does_not_start_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gregor = tmp_path / "gregor"
    gregor.write_text("#!/bin/sh\necho 'log.dirs: no such disk'\nexit 3\n")
    gregor.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(JobError, match=r"(?s)ended with code 3.*no such disk"), demo.running_broker(tmp_path):
        pytest.fail("it is not running")
