"""The page cache probe, with the real kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gregor.storage.fs.page_cache import cache_probe
from tests.support.evicted import evict

MEGABYTE = 1 << 20


def test_written_bytes_are_cached_and_evicted_ones_are_not(tmp_path: Path) -> None:
    probe = cache_probe()
    if probe is None:
        assert tuple(map(int, os.uname().release.split(".")[:2])) < (6, 5), "Linux has cachestat from 6.5 on"
        return
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * MEGABYTE))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert probe(descriptor, 0, 4 * MEGABYTE)
        assert probe(descriptor, 4095, 2)
        assert probe(descriptor, 4 * MEGABYTE - 1, 1)
        assert not probe(descriptor, 4 * MEGABYTE - 1, 4097), "beyond the end"
        assert evict(path), "files of this system cannot be taken out of memory"
        assert not probe(descriptor, 0, 4 * MEGABYTE)
        os.pread(descriptor, 1, 3 * MEGABYTE)
        assert probe(descriptor, 3 * MEGABYTE, 1)
        assert not probe(descriptor, 0, 4 * MEGABYTE)
    finally:
        os.close(descriptor)


def test_descriptor_that_is_closed_is_not_cached() -> None:
    probe = cache_probe()
    if probe is not None:
        assert not probe(-1, 0, 1)


def test_other_systems_have_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_probe.__wrapped__() is None
