"""The floors at a small size: each server serves its load, and each has a cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import floors

pytestmark = pytest.mark.very_slow


def test_every_server_serves_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FILE_MB", 4)
    cases = [floors.produce_case(100, 50), floors.fetch_case(1), floors.fetch_case(3)]
    measured = list(floors.run(tmp_path, cases, 1))
    assert [(case.name, kind) for case, kind, _ in measured] == [
        (case.name, kind) for case in cases for kind in (*case.floors, "gregor")
    ]
    assert all(cost.processor_us > 0 for _, _, cost in measured)
    assert floors.line(*measured[0]).endswith(" requests/s")
    assert floors.line(*measured[-1]).endswith(" MB/s")
