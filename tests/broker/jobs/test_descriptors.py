"""The number of descriptors of the process, and the share of storage."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gregor.broker.jobs.descriptors import (
    MAX_OPEN_FILES,
    MIN_OPEN_FILES,
    Share,
    open_files_limit,
    open_files_within,
    raise_limit,
)
from gregor.storage.fs.files import OsFiles


@pytest.mark.parametrize(
    ("limit", "files"),
    [(64, MIN_OPEN_FILES), (1024, 768), (4096, 3072), (20_000, 15_000), (1_000_000, MAX_OPEN_FILES)],
)
def test_storage_leaves_room_for_connections(limit: int, files: int) -> None:
    assert open_files_within(limit) == files


def test_within_4096_there_is_room_for_1000_connections() -> None:
    assert open_files_within(4096) + 1000 < 4096


def test_storage_gives_way_to_connections_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1000, 1000))
    files = OsFiles(open_files_limit())
    share = Share(files)
    assert files.limit == 750
    opened = [files.create(str(tmp_path / f"file-{number}")) for number in range(300)]
    share.connections(50)
    assert (files.limit, files.open_count) == (750, 300)
    share.connections(600)
    assert files.limit == 200
    assert files.open_count < 200
    share.connections(5000)
    assert files.limit == MIN_OPEN_FILES
    share.connections(10)
    assert files.limit == 750
    assert opened[0].write(b"x") == 1


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 1_000_000), (65_536, 1_000_000)),
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((4096, 4096), None),
        ((100_000, 200_000), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_is_raised_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: tuple[int, int] | None
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _which, new: given.append(new))
    raise_limit()
    assert given == ([] if raised is None else [raised])
    assert open_files_limit() <= MAX_OPEN_FILES
