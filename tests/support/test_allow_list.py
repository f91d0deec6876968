"""No line of tests/compat/allow.txt is lost unnoticed."""

from __future__ import annotations

import pytest

from tests.support.allow_list import PATH, allowed, history, lost, removed

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
