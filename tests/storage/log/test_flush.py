"""Flushes that a limit of the process prevents. Those of test_log are flushes in the life of a log."""

from __future__ import annotations

import errno

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from tests.storage.log.test_log import filled_log
from tests.storage.logs import NOW_MS, batch, open_log, read_offsets
from tests.storage.memory_files import MemoryFiles


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE])
def test_sync_without_a_descriptor_is_repeated_by_the_next_flush(cause: int) -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    log.flusher.flush()
    log.assign_epoch(1, 12)
    for _ in range(6):
        log.append_as_leader(batch(), 1, NOW_MS)
    files.fail("sync_directory", error=OSError(cause, "too many open files"))
    with pytest.raises(KafkaError, match="cannot sync") as raised:
        log.flusher.flush()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, log.distrusted) == (False, False)
    assert log.recovery_point <= 12
    assert log.flusher.is_due(NOW_MS)
    assert log.flusher.flushes_soon
    log.append_as_leader(batch(), 1, NOW_MS)
    log.flusher.flush()
    assert log.recovery_point == 19
    files.crash()
    again = open_log(files)
    assert read_offsets(again, 0) == list(range(19))
    assert again.epochs.entries() == log.epochs.entries()


def test_sync_without_memory_takes_the_log_offline() -> None:
    """The system may have dropped what was to be synced."""
    files = MemoryFiles()
    log = filled_log(files, 3)
    files.fail("sync", error=OSError(errno.ENOMEM, "Cannot allocate memory"))
    with pytest.raises(KafkaError, match="cannot sync"):
        log.flusher.flush()
    assert log.offline
