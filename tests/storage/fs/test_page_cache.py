"""The page cache probe, with the real kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gregor.storage.fs import page_cache
from gregor.storage.fs.page_cache import cache_probe
from tests.support.evicted import evict

MEGABYTE = 1 << 20


def test_written_bytes_are_cached_and_evicted_ones_are_not(tmp_path: Path) -> None:
    probe = cache_probe()
    if probe is None:
        return  # an old kernel, or a container that refuses the system call
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


def test_pages_that_are_still_read_are_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = cache_probe()
    if probe is None:
        return

    def not_filled(*_arguments: object) -> int:
        raise BlockingIOError

    path = tmp_path / "file"
    path.write_bytes(bytes(MEGABYTE))
    with path.open("rb") as file:
        assert probe(file.fileno(), 0, MEGABYTE)
        monkeypatch.setattr(os, "preadv", not_filled)
        assert not probe(file.fileno(), 0, MEGABYTE)


@pytest.mark.parametrize("missing", [ImportError("no ctypes"), OSError("no memory file"), AttributeError("RWF_NOWAIT")])
def test_systems_that_lack_a_part_have_no_probe(missing: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise missing

    monkeypatch.setattr(page_cache, "_probe", fail)
    assert cache_probe.__wrapped__() is None


def test_probe_that_is_refused_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container may refuse the system call."""
    monkeypatch.setattr(page_cache, "_probe", lambda: lambda descriptor, position, size_bytes: False)
    assert cache_probe.__wrapped__() is None
