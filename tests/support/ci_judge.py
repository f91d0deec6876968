"""Judge a whole CI run by what pytest wrote of it: `python -m tests.support.ci_judge RESULTS.xml...`

pytest ends well when tests are skipped, so a gate that cannot run here passes unnoticed. The judge reads the results of
all blocks (`--junitxml`, family xunit1, also of parallel runs) and fails the run

- for a test that was skipped, or that failed as expected, unless tests/skips.txt allows it with a reason;
- for a line of tests/must_run.txt that no test ran and passed for, or that a skipped test fits;
- for a test of tests/compat/allow.txt that did not run and pass, unless another day runs it (pytest's `--left-out`);
- for a block that left no results, and for a line of tests/skips.txt that fits no test.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from tests.support.allow_list import PATH as ALLOW_LIST
from tests.support.allow_list import allowed
from tests.support.processes import ROOT

SKIPS = ROOT / "tests" / "skips.txt"
MUST_RUN = ROOT / "tests" / "must_run.txt"
CLIENTS = "tests/compat/"

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Result(NamedTuple):
    """One test of one block; `reason` is pytest's, of a skipped test."""

    node_id: str
    outcome: str
    reason: str = ""


class MalformedList(Exception):
    """A line of a list cannot be read."""


def lines_of(text: str) -> list[str]:
    """Return the lines that are neither empty nor a comment."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def allowed_skips(text: str) -> dict[str, str]:
    """Return the reasons by pattern of lines `PATTERN: REASON`; node ids hold colons, but none before a space."""
    found = {}
    for line in lines_of(text):
        pattern, _, reason = line.partition(": ")
        if "::" not in pattern or not reason.strip():
            raise MalformedList(f"{line!r} is not of the form `path::test: reason`")
        if pattern in found:
            raise MalformedList(f"{pattern!r} stands there twice")
        found[pattern] = reason.strip()
    return found


def fits(pattern: str) -> Callable[[str], bool]:
    """Return a predicate of node ids: `*` stands for any text, everything else for itself."""
    expression = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return lambda node_id: expression.fullmatch(node_id) is not None


def read_results(text: str) -> list[Result]:
    """Decode one file of results. A test that failed in its teardown has two entries, and is judged by both."""
    results = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        path, name = case.get("file"), case.get("name", "")
        # A module that was skipped as a whole is an entry without a test.
        node_id = f"{path}::{name}" if path and case.get("classname") else (path or f"{name.replace('.', '/')}.py")
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            results.append(Result(node_id, FAILED))
        elif skipped is not None:
            kind = "expected to fail: " if skipped.get("type") == "pytest.xfail" else ""
            results.append(Result(node_id, SKIPPED, kind + skipped.get("message", "")))
        else:
            results.append(Result(node_id, PASSED))
    return results


def judge(results: Iterable[Result], skips: dict[str, str], must_run: list[str]) -> list[str]:
    """Return what is wrong with the run, a line for each; failed tests have failed their block already."""
    results = list(results)
    skipped = [result for result in results if result.outcome == SKIPPED]
    passed = [result for result in results if result.outcome == PASSED]
    allowed = [fits(pattern) for pattern in skips]
    wrong = [
        f"{result.node_id} was skipped ({result.reason}), and tests/skips.txt does not allow it"
        for result in skipped
        if not any(match(result.node_id) for match in allowed)
    ]
    for pattern in must_run:
        match = fits(pattern)
        wrong += [
            f"{result.node_id} must run and was skipped ({result.reason})"
            for result in skipped
            if match(result.node_id)
        ]
        if not any(match(result.node_id) for result in passed):
            wrong.append(f"{pattern} of tests/must_run.txt: no such test ran and passed")
    wrong += [
        f"{pattern} of tests/skips.txt fits no test: remove the line"
        for pattern, match in zip(skips, allowed, strict=True)
        if not any(match(result.node_id) for result in results)
    ]
    return wrong


def missing_clients(results: Iterable[Result], listed: Iterable[str], left_out: Collection[str]) -> list[str]:
    """Return a line for each listed test of a foreign client that did not pass; `left_out`: those of other days."""
    passed = {result.node_id for result in results if result.outcome == PASSED}
    return [
        f"{name} of tests/compat/allow.txt did not run and pass"
        for name in sorted(listed)
        if CLIENTS + name not in passed and CLIENTS + name not in left_out
    ]


def read_blocks(paths: Iterable[pathlib.Path]) -> tuple[list[Result], list[str]]:
    """Return the results of all blocks, and a line for each block that left none."""
    results, wrong = [], []
    for path in paths:
        try:
            block = read_results(path.read_text())
        except (OSError, ElementTree.ParseError) as error:
            wrong.append(f"the block {path.stem} left no results: {error}")
            continue
        if not block:
            wrong.append(f"the block {path.stem} ran no test")
        results += block
    return results, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="what --junitxml wrote, one file for each block")
    parser.add_argument("--left-out", required=True, type=pathlib.Path, help="what pytest wrote with this option")
    arguments = parser.parse_args()
    results, wrong = read_blocks(arguments.results)
    wrong += judge(results, allowed_skips(SKIPS.read_text()), lines_of(MUST_RUN.read_text()))
    try:
        left_out = set(arguments.left_out.read_text().splitlines())
    except OSError as error:
        left_out = set()
        wrong.append(f"no list of the tests that other days run: {error}")
    wrong += missing_clients(results, allowed(ALLOW_LIST.read_text()), left_out)
    for line in wrong:
        print(line)
    skipped = sum(result.outcome == SKIPPED for result in results)
    print(f"{len(results)} results, {skipped} skipped, {len(wrong)} objections")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
