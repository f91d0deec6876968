"""gregor.protocol.codec.stubs: `messages.pyi` follows from the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.codec import stubs


def test_stub_is_fresh() -> None:
    assert stubs.STUB.read_text(encoding="utf-8") == stubs.stub_text(), "run python -m gregor.protocol.codec.stubs"


def test_check_fails_on_a_stale_stub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stubs, "STUB", tmp_path / "messages.pyi")
    assert stubs.main(["--check"]) == 1
    assert "run python -m gregor.protocol.codec.stubs" in capsys.readouterr().err
    assert stubs.main([]) == 0
    assert stubs.main(["--check"]) == 0
    stubs.STUB.write_text("class Old: ...\n", encoding="utf-8")
    assert stubs.main(["--check"]) == 1


def test_unknown_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert stubs.main(["--force"]) == 2
    assert "usage" in capsys.readouterr().err
