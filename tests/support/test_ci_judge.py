"""The judge of CI runs, on made-up results and on those of a real, parallel run."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from tests.support.ci_judge import (
    FAILED,
    MUST_RUN,
    PASSED,
    SKIPPED,
    SKIPS,
    MalformedList,
    Result,
    allowed_skips,
    fits,
    judge,
    lines_of,
    missing_clients,
    read_blocks,
    read_results,
)
from tests.support.processes import ROOT, clean_environment

KCAT = "tests/compat/test_kcat.py::test_produce[gzip: 1]"
DISK = "tests/broker/test_disk_full.py::test_writes_wait"
RESULTS = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" tests="6">
<testcase classname="tests.a.test_a" name="test_passes[1]" file="tests/a/test_a.py" line="1" time="0.1"/>
<testcase classname="tests.a.test_a" name="test_fails" file="tests/a/test_a.py"><failure message="no"/></testcase>
<testcase classname="tests.a.test_a" name="test_error" file="tests/a/test_a.py"><error message="no"/></testcase>
<testcase classname="tests.a.test_a" name="test_skips" file="tests/a/test_a.py">
  <skipped type="pytest.skip" message="needs kcat"/></testcase>
<testcase classname="tests.a.test_a" name="test_is_hoped_for" file="tests/a/test_a.py">
  <skipped type="pytest.xfail" message="not yet"/></testcase>
<testcase classname="" name="tests.a.test_b" time="0.0"><skipped type="pytest.skip" message="no module"/></testcase>
</testsuite></testsuites>
"""
# A run of its own: pytest's real results, by two processes.
SAMPLE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_passes(number): pass

def test_skips(): pytest.skip("no such machine")

@pytest.mark.xfail(reason="not yet")
def test_is_hoped_for(): raise AssertionError
"""


def ran(node_id: str, outcome: str = PASSED, reason: str = "") -> Result:
    return Result(node_id, outcome, reason)


def test_results_are_decoded() -> None:
    assert read_results(RESULTS) == [
        ("tests/a/test_a.py::test_passes[1]", PASSED, ""),
        ("tests/a/test_a.py::test_fails", FAILED, ""),
        ("tests/a/test_a.py::test_error", FAILED, ""),
        ("tests/a/test_a.py::test_skips", SKIPPED, "needs kcat"),
        ("tests/a/test_a.py::test_is_hoped_for", SKIPPED, "expected to fail: not yet"),
        ("tests/a/test_b.py", SKIPPED, "no module"),
    ]


def test_a_skip_without_a_reason_in_the_list_is_wrong() -> None:
    (wrong,) = judge([ran(KCAT, SKIPPED, "needs kcat"), ran(DISK)], {}, [])
    assert wrong == f"{KCAT} was skipped (needs kcat), and tests/skips.txt does not allow it"
    for pattern in (KCAT, "tests/compat/test_kcat.py::*", "tests/compat/test_kcat.py::test_produce[*]"):
        assert judge([ran(KCAT, SKIPPED), ran(DISK)], {pattern: "no kcat for this system"}, []) == []
    assert len(judge([ran(KCAT, SKIPPED), ran(DISK, SKIPPED)], {KCAT: "reason"}, [])) == 1


def test_a_line_that_fits_no_test_is_wrong() -> None:
    assert judge([ran(KCAT)], {KCAT: "reason"}, []) == [], "it need not be skipped everywhere"
    assert judge([ran(KCAT)], {DISK: "reason"}, []) == [f"{DISK} of tests/skips.txt fits no test: remove the line"]


@pytest.mark.parametrize("skips", [{}, {DISK: "allowed all the same"}])
def test_what_must_run_must_not_be_skipped(skips: dict[str, str]) -> None:
    wrong = judge([ran(DISK, SKIPPED, "no mount")], skips, [DISK])
    assert f"{DISK} must run and was skipped (no mount)" in wrong
    assert f"{DISK} of tests/must_run.txt: no such test ran and passed" in wrong


def test_what_must_run_must_be_there_and_pass() -> None:
    missing = [f"{DISK} of tests/must_run.txt: no such test ran and passed"]
    assert judge([ran(KCAT)], {}, [DISK]) == missing
    assert judge([ran(DISK, FAILED)], {}, [DISK]) == missing
    assert judge([ran(DISK)], {}, [DISK, "tests/broker/test_disk_full.py::*"]) == []


def test_a_listed_test_of_a_client_must_pass_in_some_block() -> None:
    listed = {"test_kcat.py::test_produce[gzip: 1]", "test_go.py::test_fetch"}
    fetch = "tests/compat/test_go.py::test_fetch"
    gone = ["test_go.py::test_fetch of tests/compat/allow.txt did not run and pass"]
    assert missing_clients([ran(KCAT)], listed, ()) == gone
    assert missing_clients([ran(KCAT), ran(fetch, FAILED)], listed, ()) == gone
    assert missing_clients([ran(KCAT)], listed, {"tests/compat/test_go.py::test_metadata"}) == gone
    assert missing_clients([ran(KCAT)], listed, {fetch}) == []


def test_one_skip_among_those_that_must_run_is_enough() -> None:
    other = DISK + "_and_more"
    wrong = judge(
        [ran(DISK), ran(other, SKIPPED, "no mount")], {other: "reason"}, ["tests/broker/test_disk_full.py::*"]
    )
    assert wrong == [f"{other} must run and was skipped (no mount)"]


def test_patterns_know_one_sign() -> None:
    assert fits("a::test[*]")("a::test[x::y]")
    assert not fits("a::test[x]")("a::testx")
    assert not fits("a::test")("a::test_more")


def test_blocks_without_results_are_wrong(tmp_path: pathlib.Path) -> None:
    contents = {"whole": RESULTS, "empty": "<testsuites/>", "broken": "<testsuites>"}
    for name, text in contents.items():
        (tmp_path / f"{name}.xml").write_text(text)
    paths = [tmp_path / f"{name}.xml" for name in (*contents, "missing")]
    results, wrong = read_blocks(paths)
    assert results == read_results(RESULTS)
    assert [line.partition(":")[0] for line in wrong] == [
        "the block empty ran no test",
        "the block broken left no results",
        "the block missing left no results",
    ]


@pytest.mark.parametrize(
    "line", ["tests/a.py::test_a", "tests/a.py::test_a: ", "tests/a.py: reason", "a::b: c\na::b: d"]
)
def test_a_line_without_a_reason_is_refused(line: str) -> None:
    with pytest.raises(MalformedList):
        allowed_skips(line)


@pytest.mark.slow
def test_a_parallel_run_is_judged_like_any_other(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    found = []
    for name, options in (("alone", ["-p", "no:xdist"]), ("parallel", ["-n", "2"])):
        results = tmp_path / f"{name}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}"]
        subprocess.run(
            [*command, "-p", "no:cacheprovider", *options, f"--junitxml={results}", "test_sample.py"],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            check=True,
            timeout=200,
        )
        found.append(sorted(read_results(results.read_text())))
    assert found[0] == found[1]
    assert found[0] == [
        ("test_sample.py::test_is_hoped_for", SKIPPED, "expected to fail: not yet"),
        *((f"test_sample.py::test_passes[{number}]", PASSED, "") for number in range(3)),
        ("test_sample.py::test_skips", SKIPPED, "no such machine"),
    ]


def test_the_lists_name_tests_that_there_are() -> None:
    patterns = [*lines_of(MUST_RUN.read_text()), *allowed_skips(SKIPS.read_text())]
    assert patterns
    for pattern in patterns:
        path, _, test = pattern.partition("::")
        name = test.partition("[")[0]
        assert "*" in name or f"def {name}(" in (ROOT / path).read_text(), pattern


def test_what_must_run_is_named_test_by_test() -> None:
    """Any one test of a file would satisfy a line that ends in `::*`."""
    assert [line for line in lines_of(MUST_RUN.read_text()) if line.endswith("::*")] == []


def test_ci_runs_every_test_in_one_of_its_two_blocks_and_judges_all() -> None:
    fast = re.search(r"pytest -q -m '([^']*)' \$\(ARGS\)", (ROOT / "Makefile").read_text())
    script = (ROOT / ".ci" / "run").read_text()
    rest = re.search(r'make test-all ARGS="-m \\"([^"]*)\\"', script)
    assert fast is not None and rest is not None
    negated = [word.removeprefix("not ") for word in fast[1].split(" and ")]
    assert negated == rest[1].split(" or ")
    written = re.findall(r"--junitxml=(\S+?)\"", script)
    judged = re.findall(r"^ *judged\+?=\((.*)\)", script, re.MULTILINE)
    # The third one is that of the newest Python, where there is one.
    assert len(written) == 3
    assert sorted(" ".join(judged).replace('"', "").split()) == sorted(written)
    assert "--left-out=$results/left-out " in script
    # A test that hangs may not keep its block from leaving results.
    assert len(re.findall(r'ARGS="[^\n]*\$\(within \d+\)[^\n]*--junitxml', script)) == 3
    assert "faulthandler_exit_on_timeout=true" in script
    assert 'ci_judge --left-out "$results/left-out" "${judged[@]}"' in script
