"""Transactions in a log: what consumers with isolation.level=read_committed see, and what survives which event."""

from __future__ import annotations

import errno

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import RecordBatch, build_batch, iter_batches
from gregor.protocol.records.control import EndTransaction, end_marker
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.log.log import Log
from gregor.storage.segment.transaction_index import AbortedTransaction
from tests.storage.logs import DIRECTORY, NOW_MS, append_marker, batch, is_open, open_log, sequenced
from tests.storage.memory_files import MemoryFiles
from tests.storage.transaction_life import TransactionLife
from tests.storage.transaction_twin import consumed, index_entries


@pytest.mark.parametrize("seed", range(60))
def test_a_log_agrees_with_its_twin_whatever_happens(seed: int) -> None:
    life = TransactionLife(seed)
    for _ in range(150):
        life.step()


def transactional(log: Log, producer_id: int, count: int = 1, epoch: int = 0) -> int:
    entry = log.producers.entries.get(producer_id)
    sequence = entry.next_sequence if entry is not None and entry.epoch == epoch else 0
    sent = sequenced(producer_id, epoch, sequence, count, transactional=True)
    return log.append_as_leader(sent, 0, NOW_MS).first_offset


def end(log: Log, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 1) -> int:
    marker = EndTransaction(producer_id, epoch, coordinator_epoch, commit)
    return append_marker(log, marker).first_offset


def commit_all(log: Log) -> None:
    log.offsets.restore_high_watermark(log.log_end_offset)


def test_offsets_are_stable_once_the_marker_is_below_the_high_watermark() -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(2), 0, NOW_MS)
    commit_all(log)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 2)
    transactional(log, 7, 3)
    transactional(log, 8)
    commit_all(log)
    assert (log.first_unstable_offset, log.last_stable_offset) == (2, 2)
    end(log, 7, commit=True)
    assert log.last_stable_offset == 2, "the marker is not committed"
    commit_all(log)
    assert (log.first_unstable_offset, log.last_stable_offset) == (5, 5)
    end(log, 8, commit=False)
    commit_all(log)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 8)


def test_a_log_without_transactions_has_no_object_for_them() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    assert log.producers.transactions is None
    assert log.producers.verifications is None
    assert log.segments[0].transaction_index is None
    assert not any(entry.name.endswith(".txnindex") for entry in files.list_directory(DIRECTORY))


def test_markers_are_stored_as_kafka_stores_them() -> None:
    files = MemoryFiles()
    log = open_log(files)
    transactional(log, 7)
    info = append_marker(log, EndTransaction(7, 0, 5, commit=True), 3)
    assert (info.first_offset, info.last_offset, info.duplicate) == (1, 1, False)
    stored = list(iter_batches(files.read_bytes(f"{DIRECTORY}/{0:020d}.log")))[1]
    expected = RecordBatch(end_marker(7, 0, 5, True, NOW_MS))
    assert bytes(stored.memory())[16:] == bytes(expected.memory())[16:]
    assert (stored.base_offset, stored.leader_epoch) == (1, 3)
    assert log.producers.entries[7].coordinator_epoch == 5


def test_the_index_has_an_entry_for_each_aborted_transaction_with_data() -> None:
    log = open_log(MemoryFiles())
    transactional(log, 7)
    transactional(log, 8)
    end(log, 7, commit=False)
    end(log, 8, commit=True)
    end(log, 7, commit=False)  # without data: nothing to skip
    transactional(log, 7)
    end(log, 7, commit=False)
    assert index_entries(log) == [AbortedTransaction(7, 0, 2, 1), AbortedTransaction(7, 5, 6, 7)]
    assert log.aborted_transactions(0, 1) == [AbortedTransaction(7, 0, 2, 1)]
    assert log.aborted_transactions(3, 5) == []
    assert log.aborted_transactions(3, 6) == [AbortedTransaction(7, 5, 6, 7)]


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = open_log(MemoryFiles())
    transactional(log, 7)
    for epoch, sequence in ((0, 1), (1, 0)):
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(sequenced(7, epoch, sequence), 0, NOW_MS)
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 1
    end(log, 7, commit=True)
    log.append_as_leader(sequenced(7, 0, 1), 0, NOW_MS)


def test_a_repeated_marker_of_the_new_protocol_is_appended_once_more() -> None:
    """The coordinator did not get the first answer (KAFKA-19999)."""
    log = open_log(MemoryFiles())
    transactional(log, 7)
    marker = EndTransaction(7, 1, 1, commit=False, transaction_version=2)
    append_marker(log, marker)
    append_marker(log, marker)
    assert log.log_end_offset == 3
    transactional(log, 7, epoch=1)
    with pytest.raises(KafkaError) as raised:
        append_marker(log, marker)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_earlier_coordinator_is_fenced_also_after_a_restart() -> None:
    for clean in (True, False):
        life = TransactionLife(0)
        life.log = log = open_log(life.files)
        transactional(log, 7)
        end(log, 7, commit=True, coordinator_epoch=4)
        life.stop() if clean else life.kill()
        with pytest.raises(KafkaError) as raised:
            end(life.log, 7, commit=True, coordinator_epoch=3)
        assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_marker_without_its_index_entry_is_not_appended(operation: str) -> None:
    files = MemoryFiles()
    log = open_log(files)
    transactional(log, 7)
    files.fail(operation, after=1 if operation == "write" else 0, error=OSError(errno.ENOSPC, "no room"))
    before = log.size_bytes
    with pytest.raises(KafkaError) as raised:
        end(log, 7, commit=False)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.size_bytes) == (1, before)
    assert is_open(log, 7, 0)
    end(log, 7, commit=False)
    assert index_entries(log) == [AbortedTransaction(7, 0, 1, 2)]


def test_a_torn_entry_is_removed_with_its_marker() -> None:
    files = MemoryFiles()
    log = open_log(files)
    transactional(log, 7)
    files.shorten(20, after=1)
    with pytest.raises(KafkaError):
        end(log, 7, commit=False)
    assert files.read_bytes(f"{DIRECTORY}/{0:020d}.txnindex") == b""
    end(log, 7, commit=False)
    assert index_entries(log) == [AbortedTransaction(7, 0, 1, 2)]


def test_a_follower_keeps_what_it_could_index() -> None:
    leader = open_log(MemoryFiles())
    for producer_id in (7, 8):
        transactional(leader, producer_id)
        end(leader, producer_id, commit=False)
    data = leader.read(0, 1 << 20, 4).read()
    files = MemoryFiles()
    follower = open_log(files)
    files.fail("write", after=2, error=OSError(errno.ENOSPC, "no room"))
    with pytest.raises(KafkaError):
        follower.append_as_follower(data, NOW_MS)
    assert (follower.log_end_offset, index_entries(follower)) == (3, [AbortedTransaction(7, 0, 1, 2)])
    rest = b"".join(bytes(one.memory()) for one in iter_batches(data) if one.base_offset >= 3)
    follower.append_as_follower(rest, NOW_MS)
    assert index_entries(follower) == index_entries(leader)


def test_a_follower_notes_no_epoch_behind_a_marker_that_it_could_not_index() -> None:
    leader = open_log(MemoryFiles())
    transactional(leader, 7)
    end(leader, 7, commit=False)
    for epoch in (4, 5):
        leader.append_as_leader(batch(), epoch, NOW_MS)
    data = leader.read(0, 1 << 20, 4).read()
    files = MemoryFiles()
    follower = open_log(files)
    files.fail("write", after=1, error=OSError(errno.ENOSPC, "no room"))
    with pytest.raises(KafkaError):
        follower.append_as_follower(data, NOW_MS)
    assert (follower.log_end_offset, follower.epochs.entries()) == (1, [(0, 0)])
    follower.append_as_follower(leader.read(1, 1 << 20, 4).read(), NOW_MS)
    assert follower.epochs.entries() == leader.epochs.entries() == [(0, 0), (4, 2), (5, 3)]


def test_a_follower_refuses_a_marker_that_it_cannot_read() -> None:
    log = open_log(MemoryFiles())
    damaged = build_batch([(b"\0", b"")], producer_id=7, producer_epoch=0, transactional=True, control=True)
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(damaged, NOW_MS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_retention_may_delete_the_beginning_of_an_open_transaction() -> None:
    """As in Apache Kafka, which goes by the high watermark: the last stable offset is never below the log start."""
    log = open_log(MemoryFiles())
    transactional(log, 7)
    log.append_as_leader(batch(), 0, NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(), 0, NOW_MS)
    commit_all(log)
    assert log.last_stable_offset == 0
    log.retention.delete_segments(1, NOW_MS)
    assert (log.log_start_offset, log.last_stable_offset) == (2, 2)
    end(log, 7, commit=False)
    commit_all(log)
    assert (log.last_stable_offset, [*consumed(log, 2, 1000)]) == (4, [2])


def test_delete_records_across_an_open_transaction() -> None:
    log = open_log(MemoryFiles())
    transactional(log, 7, 4)
    commit_all(log)
    log.retention.advance_log_start_offset(3)
    assert log.last_stable_offset == 3
    end(log, 7, commit=False)
    commit_all(log)
    assert consumed(log, 3, 1000) == {}


def test_open_transactions_keep_their_producers() -> None:
    log = open_log(MemoryFiles())
    transactional(log, 7)
    log.producers.expire(NOW_MS + 10 * log.producers.expiration_ms)
    assert is_open(log, 7, 0)
    end(log, 7, commit=True)
    log.producers.expire(NOW_MS + 10 * log.producers.expiration_ms)
    assert log.producers.entries == {}


def test_the_index_is_read_without_a_wait_for_the_disk() -> None:
    files = MemoryFiles()
    log = open_log(files)
    transactional(log, 7)
    end(log, 7, commit=False)
    log.close(clean=True)
    log = open_log(files)
    files.evict()
    with pytest.raises(NotCached) as raised:
        log.aborted_transactions(0, 1, False)
    raised.value.fetcher()()
    assert log.aborted_transactions(0, 1, False) == [AbortedTransaction(7, 0, 1, 2)]
    files.evict()  # of the kernel's cache, too: what was read is in memory until the cache wants it
    assert log.aborted_transactions(0, 1) == [AbortedTransaction(7, 0, 1, 2)]


def test_compaction_ends_at_the_first_unstable_offset() -> None:
    log = open_log(MemoryFiles(), cleanup_policy=frozenset(["compact"]))
    for _ in range(3):
        log.append_as_leader(batch(), 0, NOW_MS)
        log.roll(NOW_MS)
    transactional(log, 7)
    log.roll(NOW_MS)
    log.append_as_leader(batch(), 0, NOW_MS)
    log.roll(NOW_MS)
    commit_all(log)
    assert log.dirty_range(NOW_MS).first_uncleanable_offset == 3
    end(log, 7, commit=True)
    log.roll(NOW_MS)
    commit_all(log)
    assert log.dirty_range(NOW_MS).first_uncleanable_offset == 6
