"""Guards of verifications: which append they allow, and when they are void (Kafka's UnifiedLogTest, KIP-890)."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.control import EndTransaction
from gregor.storage.log.log import Log
from gregor.storage.producers.transaction_checks import check_verified
from gregor.storage.producers.verification import VerificationGuard
from tests.storage.logs import NOW_MS, append_marker, is_open, open_log, sequenced
from tests.storage.memory_files import MemoryFiles


def transactional(sequence: int = 0, epoch: int = 0) -> bytearray:
    return sequenced(7, epoch, sequence, transactional=True)


def refusal(log: Log, sequence: int, guard: VerificationGuard | None, epoch: int = 0) -> ErrorCode:
    try:
        check_verified(log.producers.entries.get(7), log.producers.verifications, (7, epoch, sequence), guard)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def end(log: Log, epoch: int = 0, version: int = 0, *, commit: bool = False) -> None:
    append_marker(log, EndTransaction(7, epoch, 1, commit, version))


def test_a_batch_needs_the_guard_until_its_transaction_is_open() -> None:
    log = open_log(MemoryFiles())
    guard = log.producers.begin_verification(7, 0, 0, False)
    assert guard is not None
    assert log.producers.begin_verification(7, 0, 1, False) is guard, "requests of one producer share it"
    assert refusal(log, 0, None) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 0, VerificationGuard(0, 0, False)) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 0, guard) is ErrorCode.NONE
    log.append_as_leader(transactional(), 0, NOW_MS)
    assert is_open(log, 7, 0)
    assert log.producers.begin_verification(7, 0, 1, False) is None
    assert refusal(log, 1, None) is ErrorCode.NONE


def test_a_guard_is_void_once_a_marker_was_appended() -> None:
    log = open_log(MemoryFiles())
    guard = log.producers.begin_verification(7, 0, 0, False)
    end(log)
    assert refusal(log, 0, guard) is ErrorCode.INVALID_TXN_STATE
    later = log.producers.begin_verification(7, 0, 0, False)
    assert later is not guard
    assert refusal(log, 0, guard) is ErrorCode.INVALID_TXN_STATE, "the answer of an earlier transaction"
    assert refusal(log, 0, later) is ErrorCode.NONE


def test_with_the_new_protocol_the_marker_before_does_not_void_the_guard_of_the_next_transaction() -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(transactional(), 0, NOW_MS)
    guard = log.producers.begin_verification(7, 1, 0, True)
    assert guard is not None, "the open transaction is of another epoch"
    end(log, epoch=1, version=2)
    assert refusal(log, 0, guard, epoch=1) is ErrorCode.NONE
    end(log, epoch=2, version=2)
    assert refusal(log, 0, guard, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_older_epochs_are_fenced_before_anything_is_verified() -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(transactional(epoch=3), 0, NOW_MS)
    with pytest.raises(KafkaError) as raised:
        log.producers.begin_verification(7, 2, 0, False)
    assert raised.value.code is refusal(log, 0, None, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_higher_sequence_waits_for_the_lowest_that_was_verified() -> None:
    """Otherwise the lower one would be out of order for good."""
    log = open_log(MemoryFiles())
    guard = log.producers.begin_verification(7, 0, 5, False)
    assert log.producers.begin_verification(7, 0, 3, False) is guard
    assert refusal(log, 5, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 3, guard) is ErrorCode.NONE
    assert log.producers.begin_verification(7, 1, 9, False) is guard
    assert refusal(log, 9, guard, epoch=1) is ErrorCode.NONE, "a new epoch counts from its own lowest"
    assert refusal(log, 10, guard, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_with_the_new_protocol_an_unknown_producer_begins_with_0() -> None:
    log = open_log(MemoryFiles())
    guard = log.producers.begin_verification(7, 0, 4, True)
    assert refusal(log, 4, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 0, guard) is ErrorCode.NONE
    other = open_log(MemoryFiles())
    old = other.producers.begin_verification(7, 0, 4, False)
    assert refusal(other, 4, old) is ErrorCode.NONE


def test_batches_of_coordinators_have_no_sequence() -> None:
    log = open_log(MemoryFiles())
    guard = log.producers.begin_verification(7, 0, -1, True)
    assert refusal(log, -1, guard) is ErrorCode.NONE


def test_a_repetition_needs_no_guard() -> None:
    """Its transaction may have ended since; the append finds out whether it is one."""
    log = open_log(MemoryFiles())
    sent = transactional()
    log.append_as_leader(bytes(sent), 0, NOW_MS)
    end(log)
    assert refusal(log, 0, None) is ErrorCode.NONE
    assert log.append_as_leader(bytes(sent), 0, NOW_MS).duplicate
    assert refusal(log, 1, None) is ErrorCode.INVALID_TXN_STATE


def test_guards_of_requests_that_ended_expire() -> None:
    log = open_log(MemoryFiles())
    guard = log.producers.begin_verification(7, 0, 0, False)
    log.producers.expire(NOW_MS)
    log.producers.expire(NOW_MS + log.producers.expiration_ms - 1)
    assert refusal(log, 0, guard) is ErrorCode.NONE
    log.producers.expire(NOW_MS - 1)  # the clock was set back
    log.producers.expire(NOW_MS + log.producers.expiration_ms - 2)
    assert refusal(log, 0, guard) is ErrorCode.NONE
    log.producers.expire(NOW_MS + log.producers.expiration_ms)
    assert refusal(log, 0, guard) is ErrorCode.INVALID_TXN_STATE
