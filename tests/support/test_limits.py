"""Limits of figures fall to the present figures and are never raised."""

from __future__ import annotations

import pathlib

import pytest

from tests.support import limits


def test_limits_fall_and_never_rise(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATH", tmp_path / "limits.tsv")
    limits.PATH.write_text("less\t5\nmore\t5\nnot measured\t5\n")
    limits.lower({"less": 3, "more": 7, "unknown": 1})
    assert limits.limits() == {"less": 3, "more": 5, "not measured": 5}


def test_lower_limit_counts_in_a_merge_with_conflicts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATH", tmp_path / "limits.tsv")
    limits.PATH.write_text("<<<<<<< ours\none\t5\ntwo\t4\n=======\none\t3\ntwo\t6\n>>>>>>> theirs\nzero\t9\n")
    limits.lower({})
    assert limits.PATH.read_text() == "one\t3\ntwo\t4\nzero\t9\n"
