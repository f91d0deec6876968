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
