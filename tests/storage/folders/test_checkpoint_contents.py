"""The contents of checkpoint files while logs are created and deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gregor.protocol.turns import WalkableDict, run_all
from gregor.storage.folders import checkpoint_contents
from gregor.storage.folders.checkpoint_contents import gather
from gregor.storage.folders.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
)

ALL = (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE)


class Folder:
    def __init__(self, path: str) -> None:
        self.path = path
        self.high_watermarks = {("kept", 0): 1}
        self.recovery_points = {("kept", 0): 2}
        self.log_start_offsets = {("kept", 0): 3}
        self.cleaned_offsets: dict[tuple[str, int], int] = {}


def log(number: int, *, start: int = 0, cleaned: int | None = None) -> Any:
    return SimpleNamespace(
        high_watermark=number,
        recovery_point=number + 1,
        log_start_offset=start,
        first_segment_offset=0,
        offsets=SimpleNamespace(cleaned_offset=cleaned),
    )


def served(logs: dict[tuple[str, int], Any]) -> Any:
    return WalkableDict(logs.items())


def test_every_file_has_its_offset() -> None:
    one, other = Folder("/one"), Folder("/other")
    logs = served({("a", 0): log(10), ("a", 1): log(20, start=5), ("b", 0): log(30, cleaned=7)})
    homes: Any = {("a", 0): one, ("a", 1): one, ("b", 0): other}
    folders: Any = [one, other]
    assert run_all(gather(ALL, folders, logs, homes, [])) == {
        f"/one/{HIGH_WATERMARK_FILE}": {("a", 0): 10, ("a", 1): 20},
        f"/one/{RECOVERY_POINT_FILE}": {("a", 0): 11, ("a", 1): 21},
        f"/one/{LOG_START_OFFSET_FILE}": {("a", 1): 5},
        f"/one/{CLEANER_OFFSET_FILE}": {},
        f"/other/{HIGH_WATERMARK_FILE}": {("b", 0): 30},
        f"/other/{RECOVERY_POINT_FILE}": {("b", 0): 31},
        f"/other/{LOG_START_OFFSET_FILE}": {},
        f"/other/{CLEANER_OFFSET_FILE}": {("b", 0): 7},
    }
    kept = run_all(gather(ALL[:3], folders, served({}), {}, [("kept", 0), ("unknown", 0)]))
    assert [kept[f"/one/{name}"] for name in ALL[:3]] == [{("kept", 0): number} for number in (1, 2, 3)]


def test_a_folder_that_is_not_asked_for_is_left_out() -> None:
    one, failed = Folder("/one"), Folder("/failed")
    logs, homes = served({("a", 0): log(1), ("b", 0): log(2)}), {("a", 0): one, ("b", 0): failed}
    arguments: Any = ([HIGH_WATERMARK_FILE], [one], logs, homes, [])
    assert run_all(gather(*arguments)) == {f"/one/{HIGH_WATERMARK_FILE}": {("a", 0): 1}}


def test_what_goes_meanwhile_leaves_no_offset_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_contents, "ITEMS_PER_STEP", 1)
    folder = Folder("/one")
    logs = served({("a", index): log(index) for index in range(4)})
    homes = dict.fromkeys(logs, folder)
    arguments: Any = ([HIGH_WATERMARK_FILE], [folder], logs, homes, [])
    steps = gather(*arguments)
    next(steps)  # the first one was visited
    del logs["a", 0], homes["a", 0]
    del logs["a", 3], homes["a", 3]
    logs["a", 1] = log(100)  # removed and made again
    assert run_all(steps) == {f"/one/{HIGH_WATERMARK_FILE}": {("a", 1): 100, ("a", 2): 2}}
