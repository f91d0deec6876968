"""A log whose sync found no room: nothing is appended until what it has is written again, and nothing is lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.log import Log
from tests.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_offsets
from tests.storage.memory_files import MemoryFiles

FULL = errno.ENOSPC


def full() -> OSError:
    return OSError(FULL, "no room")


def filled(files: MemoryFiles, count: int = 12, **settings: object) -> Log:
    """Some of it synced, in several segments."""
    log = open_log(files, segment_bytes=300, index_interval_bytes=100, **settings)
    for number in range(count):
        log.append_as_leader(batch(1), 0, NOW_MS)
        if number == 4:
            log.flusher.flush()
    return log


def refused(log: Log) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(1), 0, NOW_MS)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert is_full(caught.value), "whoever watches the disk tells it from a failure"
    return caught.value


@pytest.mark.parametrize("after", range(4))
def test_it_goes_on_by_itself_when_there_is_room(after: int) -> None:
    files = MemoryFiles()
    told: list[OSError] = []
    log = filled(files, on_error=lambda _, error: told.append(error))
    recovery_point = log.recovery_point
    for _ in range(2):
        files.fail("sync", after=after, error=full())
        with pytest.raises(KafkaError, match="cannot sync"):
            log.flusher.flush()
        assert not log.offline
        assert log.distrusted
        assert [error.errno for error in told] == [FULL]
        told.clear()
        assert log.recovery_point == recovery_point
        refused(log)
        assert log.flusher.is_due(NOW_MS)
        assert log.flusher.flushes_soon
        assert read_offsets(log, 0) == list(range(12))
    log.flusher.flush()
    assert not log.distrusted
    assert not log.flusher.flushes_soon
    assert log.recovery_point == 12
    assert log.append_as_leader(batch(1), 0, NOW_MS).first_offset == 12
    files.crash()
    assert read_offsets(open_log(files), 0)[:12] == list(range(12))


def test_another_sync_alone_is_not_believed() -> None:
    """The twin of the one above: what the memory files do without being written again."""
    files = MemoryFiles()
    filled(files)
    file = files.open(f"{DIRECTORY}/{0:020d}.log")
    file.write(b"later")
    files.fail("sync", error=full())
    with pytest.raises(OSError, match="no room"):
        file.sync()
    file.sync()
    files.crash()
    assert not files.read_bytes(file.path).endswith(b"later")


def test_what_was_lost_meanwhile_takes_it_offline() -> None:
    files = MemoryFiles()
    log = filled(files)
    files.fail("sync", error=full())
    with pytest.raises(KafkaError):
        log.flusher.flush()
    path = log.segments[-2].log.path
    data = bytearray(files.read_bytes(path))
    data[-10:] = bytes(10)  # the page was dropped, and never reached the disk
    files.create(path).write(data)
    with pytest.raises(KafkaError, match="cannot sync"):
        log.flusher.flush()
    assert log.offline
    assert not files.calls["rewrite"] or log.recovery_point < 12


def test_below_the_recovery_point_nothing_is_read_again() -> None:
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=0)
    for number in range(50):
        log.append_as_leader(batch(1), 0, NOW_MS)
        if number == 44:
            log.flusher.flush()
    files.fail("sync", error=full())
    with pytest.raises(KafkaError):
        log.flusher.flush()
    plan = log.flusher.plan()
    assert plan is not None
    ((segment, position),) = plan.rewritten
    found = segment.locate(45)
    assert found is not None
    assert position == found[0] > 0
    plan.run()
    log.flusher.flushed(plan)
    assert not log.distrusted


def test_a_stop_meanwhile_is_clean_only_if_it_was_written_again() -> None:
    for room in (True, False):
        files = MemoryFiles()
        log = filled(files)
        files.fail("sync", error=full())
        with pytest.raises(KafkaError):
            log.flusher.flush()
        with pytest.raises(KafkaError, match="written again"):
            log.flusher.plan_close(hold=False)  # a sync of the whole file system would not try again either
        if not room:
            files.fail("sync", error=full())
            with pytest.raises(KafkaError, match="cannot sync"):
                log.close(clean=True)
            continue
        log.close(clean=True)
        files.crash()
        assert read_offsets(open_log(files), 0) == list(range(12))


def test_a_truncation_during_the_writing_is_not_undone() -> None:
    files = MemoryFiles()
    log = filled(files)
    files.fail("sync", error=full())
    with pytest.raises(KafkaError):
        log.flusher.flush()
    plan = log.flusher.plan()
    assert plan is not None
    active = log.segments[-1]
    whole = files.read_bytes(active.log.path)
    log.truncate_to(active.base_offset + 1)
    cut_bytes = active.size_bytes
    assert 0 < cut_bytes < len(whole)
    plan.run()
    files.create(active.log.path).write(whole)  # what a write behind the new end does
    log.flusher.flushed(plan)
    assert files.read_bytes(active.log.path) == whole[:cut_bytes]
    assert log.distrusted
    log.flusher.flush()
    assert not log.distrusted


def test_rewriting_changes_nothing_but_that_it_is_written(tmp_path: Path) -> None:
    files = OsFiles()
    path = tmp_path / "a.log"
    file = files.create(str(path))
    data = bytes(range(256)) * 8192
    file.write(data)
    file.rewrite(1000, len(data))
    file.rewrite(0, 0)
    file.write(b"end")
    assert path.read_bytes() == data + b"end"
    file.close()
