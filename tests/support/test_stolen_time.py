"""The machine's stolen time, from made-up files."""

from __future__ import annotations

import math
import os
import pathlib

import pytest

from tests.support import stolen_time
from tests.support.stolen_time import MAX_SHARE, StolenTime, UndisturbedTime, steal_of, waited_of_process_s, waited_s


def stat(idle: int, stolen: int) -> str:
    return f"cpu  100 0 50 {idle} 7 0 3 {stolen} 40 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"


def test_the_eighth_field_is_stolen_and_guests_are_not_counted_twice() -> None:
    assert steal_of(stat(1000, 5)) == (1165, 5)


@pytest.mark.parametrize("line", ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ValueError):
        steal_of(line)


def test_share_is_of_the_time_since_the_beginning(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "stat"
    path.write_text(stat(1000, 500))
    stolen = StolenTime(str(path))
    assert stolen.share() == 0
    path.write_text(stat(1990, 510))
    assert stolen.share() == pytest.approx(0.01)
    assert stolen.share() >= MAX_SHARE
    assert not stolen.allows_wall_time()
    path.write_text(stat(2990, 510))
    assert stolen.allows_wall_time()


def test_a_system_that_does_not_tell_allows_no_limit_of_wall_time(tmp_path: pathlib.Path) -> None:
    stolen = StolenTime(str(tmp_path / "absent"))
    assert math.isnan(stolen.share())
    assert not stolen.allows_wall_time()


def test_time_for_which_others_had_the_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, own_s, of_process_s = 100.0, 5.0, 7.0
    monkeypatch.setattr(stolen_time.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(stolen_time, "waited_s", lambda: own_s)
    monkeypatch.setattr(stolen_time, "waited_of_process_s", lambda pid: of_process_s if pid == 12 else math.nan)
    spent = UndisturbedTime(12)
    now_s, own_s, of_process_s = 110.0, 6.0, 9.5
    assert spent.seconds() == 6.5


def test_waits_of_all_threads_of_a_process_are_added_up() -> None:
    before = waited_s()
    assert waited_of_process_s(os.getpid()) >= before
    assert waited_of_process_s(2**30) == 0
