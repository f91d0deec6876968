"""gregor.replication.partition.leadership: what is committed while a broker leads, and the end of that."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.partition.in_sync_replicas import InSyncReplicas
from gregor.replication.partition.leadership import Leadership
from gregor.replication.partition.purgatory import DelayedOperations
from tests.replication.fakes import CountingLog

NOW_MS = 1_000_000


class Led:
    """Broker 0's leadership of a log with ten records, with these brokers in sync."""

    def __init__(self, replicas: list[int], isr: list[int] | None = None, min_insync_replicas: int = 1) -> None:
        self.log: Any = CountingLog(log_end_offset=10, min_insync_replicas=min_insync_replicas)
        self.delayed = DelayedOperations("orders", 0)
        self.in_sync = InSyncReplicas(0, 30_000, lambda _broker_id: True)
        self.in_sync.assign(replicas, replicas if isr is None else isr)
        self.in_sync.begin_epoch(10, True, NOW_MS)
        self.leadership = Leadership(self.in_sync, self.delayed)
        self.answers: list[tuple[int, ErrorCode]] = []

    def begin(self) -> Leadership:
        self.leadership.begin(self.log, NOW_MS)
        return self.leadership

    def await_commit(self, offset: int) -> None:
        self.leadership.when_committed(offset, lambda error: self.answers.append((offset, error)))


def test_before_it_begins_there_is_no_log_and_nothing_is_committed() -> None:
    led = Led([0])
    with pytest.raises(KafkaError) as error:
        led.leadership.leader_log()
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not led.leadership.is_committed(0)
    led.await_commit(0)
    assert led.answers == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_without_followers_everything_is_committed_when_it_begins() -> None:
    led = Led([0])
    leadership = led.begin()
    assert leadership.leader_log() is led.log
    assert (led.log.high_watermark, leadership.is_committed(10), leadership.is_committed(11)) == (10, True, False)


def test_requests_wait_for_the_followers_in_sync() -> None:
    led = Led([0, 1])
    leadership = led.begin()
    led.await_commit(4)
    led.await_commit(10)
    leadership.update_follower(1, 4, NOW_MS)
    assert led.answers == [(4, ErrorCode.NONE)]
    leadership.update_follower(1, 10, NOW_MS)
    assert led.answers == [(4, ErrorCode.NONE), (10, ErrorCode.NONE)]


def test_the_end_answers_every_request_with_its_error() -> None:
    led = Led([0, 1])
    leadership = led.begin()
    led.await_commit(10)
    leadership.end(ErrorCode.KAFKA_STORAGE_ERROR)
    assert led.answers == [(10, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert (led.in_sync.isr, led.in_sync.followers, len(led.delayed)) == ([], {}, 0)
    with pytest.raises(KafkaError) as error:
        leadership.leader_log()
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_only_a_leader_continues_with_a_copy_of_its_log() -> None:
    led, copy = Led([0]), CountingLog(log_end_offset=10)
    led.leadership.replace_log(copy)  # type: ignore[arg-type]
    assert led.leadership.log is None
    led.begin().replace_log(copy)  # type: ignore[arg-type]
    assert led.leadership.log is copy


def test_committed_records_are_not_enough_where_too_few_are_in_sync_by_now() -> None:
    led = Led([0, 1], min_insync_replicas=2)
    leadership = led.begin()
    leadership.update_follower(1, 10, NOW_MS)
    led.in_sync.commit([0])
    led.await_commit(10)
    assert led.answers == [(10, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]


def test_a_smaller_isr_commits_what_the_removed_follower_lacks() -> None:
    led = Led([0, 1, 2])
    leadership = led.begin()
    leadership.update_follower(1, 10, NOW_MS)
    led.await_commit(10)
    led.in_sync.propose([0, 1])
    leadership.isr_refused(NOW_MS + 40_000)
    assert led.answers == []
    leadership.commit_isr([0, 1], NOW_MS + 40_000)
    assert led.answers == [(10, ErrorCode.NONE)]


def test_watchers_are_notified_once_of_a_new_log_start_offset() -> None:
    led = Led([0, 1])
    leadership = led.begin()
    rounds: list[int] = []
    led.delayed.watch(lambda: rounds.append(led.log.log_start_offset))
    leadership.check_progress(NOW_MS)
    led.log.log_start_offset = 3
    leadership.check_progress(NOW_MS)
    leadership.check_progress(NOW_MS)
    assert rounds == [3]


def test_a_broker_that_is_no_replica_is_refused() -> None:
    led = Led([0, 1])
    with pytest.raises(KafkaError) as error:
        led.begin().update_follower(2, 0, NOW_MS)
    assert error.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH
