"""Delayed operations of a partition: callbacks may change the partition, and never nest."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from tests.replication.fakes import CountingLog
from tests.replication.replicas import NOW, leader_of


def test_a_watcher_may_append() -> None:
    partition = leader_of(CountingLog(), [0])
    seen: list[int] = []

    def watcher() -> None:
        seen.append(partition.high_watermark)
        if partition.log_end_offset < 4:
            partition.append(b"x", NOW, 1)

    partition.delayed.watch(watcher)
    partition.append(b"x", NOW, 1)
    assert seen == [1, 2, 3, 4]


def test_commits_queued_inside_callbacks_are_completed_in_order_and_not_nested() -> None:
    partition = leader_of(CountingLog(), [0, 1])
    trace: list[str] = []

    def first(error: ErrorCode) -> None:
        trace.append("first in")
        partition.leadership.when_committed(2, lambda error: trace.append("nested"))
        trace.append("first out")

    partition.append(b"abc", NOW, -1)
    partition.leadership.when_committed(1, first)
    partition.leadership.when_committed(2, lambda error: trace.append("second"))
    partition.leadership.update_follower(1, 3, NOW)
    assert trace == ["first in", "first out", "second", "nested"]


def test_a_watcher_may_wait_for_a_commit() -> None:
    partition = leader_of(CountingLog(), [0, 1])
    answers: list[tuple[int, ErrorCode]] = []

    def watcher() -> None:
        partition.delayed.unwatch(handle)
        partition.leadership.when_committed(1, lambda error: answers.append((1, error)))
        partition.leadership.when_committed(9, lambda error: answers.append((9, error)))

    handle = partition.delayed.watch(watcher)
    partition.append(b"a", NOW, 1)
    partition.leadership.update_follower(1, 1, NOW)
    assert answers == [(1, ErrorCode.NONE)]


def test_an_unwatched_handle_is_not_called_even_by_the_running_round() -> None:
    partition = leader_of(CountingLog(), [0])
    called: list[str] = []
    handles: list[int] = []

    def first() -> None:
        called.append("first")
        partition.delayed.unwatch(handles[1])

    handles.append(partition.delayed.watch(first))
    handles.append(partition.delayed.watch(lambda: called.append("second")))
    partition.append(b"a", NOW, 1)
    assert called == ["first"]


def test_a_failing_callback_keeps_no_other_from_its_call(caplog: pytest.LogCaptureFixture) -> None:
    partition = leader_of(CountingLog(), [0, 1])
    called: list[object] = []

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    partition.append(b"a", NOW, 1)
    partition.delayed.watch(broken)
    partition.delayed.watch(lambda: called.append("watcher"))
    partition.leadership.when_committed(1, broken)
    partition.leadership.when_committed(1, called.append)
    partition.leadership.update_follower(1, 1, NOW)
    assert called == [ErrorCode.NONE, "watcher"]
    commit, watcher = (record.getMessage() for record in caplog.records)
    name = f"{partition.topic}-{partition.partition}: "
    assert commit.startswith(name) and "below offset 1 (outcome: NONE)" in commit and "RuntimeError('broken')" in commit
    assert watcher.startswith(name) and "RuntimeError('broken')" in watcher


def test_a_partition_may_go_offline_inside_a_callback() -> None:
    partition = leader_of(CountingLog(), [0, 1])
    answers: list[ErrorCode] = []
    partition.append(b"ab", NOW, -1)
    partition.leadership.when_committed(1, lambda error: partition.offline(ErrorCode.KAFKA_STORAGE_ERROR))
    partition.leadership.when_committed(2, answers.append)
    partition.leadership.update_follower(1, 2, NOW)
    assert answers == [ErrorCode.KAFKA_STORAGE_ERROR]
