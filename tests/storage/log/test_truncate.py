"""Truncations that a log refuses: it is as it was then."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.files import OsFiles
from tests.storage.logs import NOW_MS, batch, open_log, read_offsets


@pytest.mark.parametrize("fully", [False, True])
def test_truncation_without_a_descriptor_changes_nothing(
    fully: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(OsFiles(), str(tmp_path), segment_bytes=5 * len(batch()))
    for _ in range(12):
        log.append_as_leader(batch(), 0, NOW_MS)
    log.close(clean=True)
    before = sorted(os.listdir(tmp_path))

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    def truncate() -> None:
        if fully:
            log.truncate_fully_and_start_at(100, NOW_MS)
        else:
            log.truncate_to(7)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(KafkaError, match="cannot truncate yet: Too many open files") as raised:
            truncate()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, log.log_end_offset, sorted(os.listdir(tmp_path))) == (False, 12, before)
    assert read_offsets(log, 0) == list(range(12))
    truncate()
    assert log.append_as_leader(batch(), 0, NOW_MS).first_offset == (100 if fully else 7)
    assert read_offsets(log, log.log_start_offset) == ([100] if fully else list(range(8)))
