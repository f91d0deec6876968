"""No line of tests/compat/allow.txt is lost unnoticed."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from tests.support.allow_list import PATH, allowed, history, lost, removed
from tests.support.processes import ROOT

HISTORY = """
--- /dev/null
+++ b/tests/compat/allow.txt
+# a comment
+test_one.py::test_stays
+test_one.py::test_was_renamed
+test_one.py::test_goes
@@ -1 +1
-test_one.py::test_goes
"""
RENAMED = "removed: test_one.py::test_was_renamed: it is called test_has_a_name now\n"


def test_every_line_that_was_ever_there_is_there_or_given_up_with_a_reason() -> None:
    known = history()
    if known is None:
        pytest.skip("not a git checkout")
    assert lost(known, ""), "git knows the list"
    assert lost(known, PATH.read_text()) == set(), "say why: `removed: NODE ID: REASON` in tests/compat/allow.txt"


class Repository:
    """A git repository with a list of its own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.path = root / PATH.relative_to(ROOT)
        self.path.parent.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> None:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", *words]
        subprocess.run(command, cwd=self.root, check=True, capture_output=True)

    def commit(self, *lines: str) -> None:
        self.path.write_text("".join(f"{line}\n" for line in lines))
        self.git("add", ".")
        self.git("commit", "-q", "-m", "change the list")


@pytest.mark.slow
def test_lines_that_only_a_merge_added_or_dropped_are_known(tmp_path: pathlib.Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit("one")
    repository.git("checkout", "-q", "-b", "branch")
    repository.commit("one", "of-the-branch")
    repository.git("checkout", "-q", "main")
    repository.commit("zero", "one")
    repository.git("merge", "-q", "--no-commit", "-s", "ours", "branch")
    repository.commit("zero", "one", "of-the-merge")
    repository.git("checkout", "-q", "-b", "dropped")
    repository.commit("zero", "one", "of-the-merge", "of-the-dropped")
    repository.git("checkout", "-q", "main")
    repository.git("commit", "-q", "--allow-empty", "-m", "nothing")
    repository.git("merge", "-q", "-s", "ours", "-m", "keep nothing of it", "dropped")
    repository.commit("zero", "one")
    known = history(repository.root)
    assert known is not None
    assert lost(known, repository.path.read_text()) == {"of-the-branch", "of-the-merge", "of-the-dropped"}


def test_a_removal_names_its_reason_and_a_test_that_is_not_listed() -> None:
    text = PATH.read_text()
    given_up = removed(text)
    assert all(given_up.values())
    assert allowed(text).isdisjoint(given_up)


def test_a_line_that_goes_is_lost_unless_its_removal_is_explained() -> None:
    assert lost(HISTORY, "test_one.py::test_stays\n" + RENAMED) == {"test_one.py::test_goes"}
    assert lost(HISTORY, RENAMED) == {"test_one.py::test_goes", "test_one.py::test_stays"}
    assert removed(RENAMED) == {"test_one.py::test_was_renamed": "it is called test_has_a_name now"}
    gone = "removed: test_one.py::test_goes: its client is no longer published\n"
    assert lost(HISTORY, "test_one.py::test_stays\n" + RENAMED + gone) == set()
