"""gregor.coordinator.owned_partition: the order of queued operations, and the states between load and commit."""

from __future__ import annotations

from typing import Any

from gregor.coordinator.owned_partition import OwnedPartition
from gregor.coordinator.result import Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode


def test_operations_that_queued_ones_queue_run_behind_all_others() -> None:
    owned: OwnedPartition[Any] = OwnedPartition()
    ran: list[str] = []

    def first() -> None:
        owned.queued.append(lambda: ran.append("third"))
        owned.run_queued()  # as the end of each operation does: it must not overtake the second one
        ran.append("first")

    owned.queued += [first, lambda: ran.append("second")]
    owned.run_queued()
    assert ran == ["first", "second", "third"]


def test_operations_wait_for_the_load_once() -> None:
    owned: OwnedPartition[Any] = OwnedPartition()
    assert owned.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def operation(_shard: Any, _now_ms: int) -> Result:
        return Result()

    owned.after_load.append(operation)
    assert owned.begin_service() == [operation]
    assert owned.error is ErrorCode.NONE
    assert owned.begin_service() == []


def test_refusal_is_known_until_an_append_succeeds() -> None:
    owned: OwnedPartition[Any] = OwnedPartition()
    assert not owned.refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert owned.refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not owned.refused(ErrorCode.KAFKA_STORAGE_ERROR)
    owned.accepted()
    assert not owned.refused(ErrorCode.KAFKA_STORAGE_ERROR)


def test_reads_wait_again_after_the_next_commit() -> None:
    owned: OwnedPartition[Any] = OwnedPartition()
    owned.replayed(7)
    read: Deferred[None] = Deferred()
    write: Deferred[None] = Deferred()
    owned.waits.update({read: True, write: False})
    owned.time_out_reads()
    assert (read.done, write.done, owned.commit_timed_out) == (True, False, True)
    owned.committed(7)
    assert (owned.committed_offset, owned.commit_timed_out) == (7, False)
