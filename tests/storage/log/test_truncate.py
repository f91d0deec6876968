"""Truncations that a log refuses: it is as it was then."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.epochs import FILE_NAME as EPOCHS_FILE
from gregor.storage.log.log import Log
from gregor.storage.segment.segment import Segment
from tests.storage.logs import DIRECTORY, NOW_MS, batch, old_message, open_log, patched, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles


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


def log_with_old_messages(files: MemoryFiles, reported: list[OSError]) -> Log:
    """A log of offsets 0 to 7, the first five in a segment as Apache Kafka left it before 0.11."""
    files.make_directory(DIRECTORY)
    old = Segment.create(files, DIRECTORY, 0, now_ms=NOW_MS)
    old.log.write(b"".join(old_message(offset) for offset in range(5)))
    Segment.create(files, DIRECTORY, 5, now_ms=NOW_MS)
    files.write_atomically(f"{DIRECTORY}/{EPOCHS_FILE}", b"0\n1\n0 5\n")
    log = open_log(files, on_error=lambda _log, error: reported.append(error))
    for sequence in range(3):
        log.append_as_leader(sequenced(7, 0, sequence), 0, NOW_MS)
    return log


def damage(files: MemoryFiles, segment: Segment) -> None:
    data = files.read_bytes(segment.log.path)
    segment.log.truncate(0)
    segment.log.write(patched(data, ">b", 16, 9))


def test_a_truncation_into_old_messages_takes_the_log_offline_as_it_is() -> None:
    files, reported = MemoryFiles(), list[OSError]()
    log = log_with_old_messages(files, reported)
    for _ in range(2):
        with pytest.raises(KafkaError, match="cannot truncate: messages from before Kafka 0.11") as raised:
            log.truncate_to(3)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert {error.errno for error in reported} == {errno.ENOTSUP}
    assert ([segment.base_offset for segment in log.segments], read_offsets(log, 5)) == ([0, 5], [5, 6, 7])
    with pytest.raises(KafkaError, match="offline"):
        log.append_as_leader(batch(), 0, NOW_MS)


def test_producers_are_not_searched_in_old_messages() -> None:
    """Without a snapshot their batches are read from the start of the log on."""
    log = log_with_old_messages(MemoryFiles(), [])
    log.truncate_to(7)
    assert (log.offline, log.log_end_offset) == (False, 7)
    assert log.producers.entries[7].next_sequence == 2


def test_producers_that_cannot_be_read_again_after_a_truncation_take_the_log_offline() -> None:
    reported: list[OSError] = []
    files = MemoryFiles()
    log = open_log(files, segment_bytes=2 * len(batch()), on_error=lambda _log, error: reported.append(error))
    for sequence in range(6):
        log.append_as_leader(sequenced(7, 0, sequence), 0, NOW_MS)
    files.unlink(f"{DIRECTORY}/{2:020d}.snapshot")
    files.unlink(f"{DIRECTORY}/{4:020d}.snapshot")
    damage(files, log.segments[1])
    with pytest.raises(KafkaError, match="cannot truncate: .*no record batch at position 0") as raised:
        log.truncate_to(5)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert [error.errno for error in reported] == [errno.EBADMSG]


def test_a_truncation_to_a_damaged_batch_changes_nothing() -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=2 * len(batch()))
    for _ in range(6):
        log.append_as_leader(batch(), 0, NOW_MS)
    damage(files, log.segments[1])
    with pytest.raises(KafkaError, match="no record batch at position 0"):
        log.truncate_to(3)
    assert (log.log_end_offset, [segment.base_offset for segment in log.segments]) == (6, [0, 2, 4])
    assert read_offsets(log, 4) == [4, 5]
