"""The judge finds each kind of wrong in a history that is right but for that."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cluster.history import UNKNOWN, Ack, Group, History
from tests.cluster.judge import different_replicas, judge, longest_gaps_ms

GROUP = "readers"
Log = dict[int, dict[int, str]]
Committed = dict[str, dict[int, int]]


def lines(*events: dict[str, object]) -> list[str]:
    return [json.dumps(event) + "\n" for event in events]


def record(partition: int, offset: int, value: str, at_ms: int = 1000) -> dict[str, object]:
    return {"name": "record_data", "timestamp": at_ms, "partition": partition, "offset": offset, "value": value}


def commit(partition: int, offset: int, at_ms: int, success: bool = True) -> dict[str, object]:
    offsets = [{"partition": partition, "offset": offset}]
    return {"name": "offsets_committed", "timestamp": at_ms, "offsets": offsets, "success": success, "error": "no"}


def assigned(partition: int, at_ms: int) -> dict[str, object]:
    return {"name": "partitions_assigned", "timestamp": at_ms, "partitions": [{"partition": partition}]}


def right() -> tuple[History, Log, Committed]:
    """Two producers, two partitions, a group with one member after the other."""
    log: Log = {0: {0: "1.0", 1: "2.0", 2: "1.2"}, 1: {0: "1.1", 1: "1.3"}}
    acks = [Ack(partition, offset, value, 0) for partition, part in log.items() for offset, value in part.items()]
    group = Group()
    group.read(
        lines(assigned(0, 10), record(0, 0, "1.0"), record(0, 1, "2.0"), commit(0, 1, 20), commit(0, 9, 25, False))
    )
    group.read(lines(assigned(0, 30), assigned(1, 30), record(0, 1, "2.0"), record(0, 2, "1.2"), commit(0, 3, 40)))
    group.read(lines(assigned(1, 50), record(1, 0, "1.1"), record(1, 1, "1.3"), commit(1, 2, 60)))
    return History(acks=acks, groups={GROUP: group}), log, {GROUP: {0: 3, 1: 2}}


def test_a_run_in_which_all_is_well() -> None:
    assert judge(*right()) == []


def test_a_record_that_was_given_up_may_be_in_the_log_once() -> None:
    history, log, committed = right()
    history.acks = [ack for ack in history.acks if ack.value != "1.3"]
    history.failed["1.3"] = "timed out"
    assert judge(history, log, committed) == []
    history.failed["1.4"] = "timed out"
    assert judge(history, log, committed) == []


def test_a_record_may_be_acknowledged_without_its_offset() -> None:
    history, log, committed = right()
    history.acks.append(Ack(1, UNKNOWN, "1.3", 0))
    assert judge(history, log, committed) == []
    history.acks.append(Ack(0, UNKNOWN, "1.3", 0))
    assert judge(history, log, committed) == ["acknowledged and lost: 1 (1.3 somewhere in 0)"]


Change = Callable[[History, Log, Committed], object]
WRONGS: dict[str, Change] = {
    "acknowledged and lost: 1 (1.3 at 1@1, where there is nothing)": lambda _, log, __: log[1].pop(1),
    "acknowledged and lost: 1 (1.2 at 0@2, where there is 2.1)": lambda _, log, __: log[0].update({2: "2.1"}),
    "twice in the log: 1 (1.0 at 0@0 and 3)": lambda _, log, __: log[0].update({3: "1.0"}),
    "out of order: 1 (1.0 at 0@3 behind 1.2)": lambda _, log, __: log[0].update({3: "1.0"}),
    "in the log, but nobody sent it: 1 (3.0 at 1@2)": lambda _, log, __: log[1].update({2: "3.0"}),
    "a producer could not go on: out of order": lambda history, _, __: history.fatal.append("out of order"),
    "readers: two values at one offset: 1 (1@0 was 1.1, then 1.5)": lambda history, _, __: history.groups[GROUP].read(
        lines(record(1, 0, "1.5"))
    ),
    "readers: delivered, but not in the log: 1 (1.5 at 1@2, where there is nothing)": lambda history, _, __: (
        history.groups[GROUP].read(lines(record(1, 2, "1.5")))
    ),
    "readers: never delivered: 1 (1.3 at 1@1)": lambda history, _, __: history.groups[GROUP].delivered[1].pop(1),
    "readers: began below what was committed: 1 (0@1, assigned at 70, when 3 was committed)": lambda history, _, __: (
        history.groups[GROUP].read(lines(assigned(0, 70), record(0, 1, "2.0")))
    ),
    "readers: not all is committed: 1 (partition 1 at 1 of 2)": lambda _, __, committed: committed[GROUP].update(
        {1: 1}
    ),
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_what_is_wrong_is_found(wrong: str) -> None:
    history, log, committed = right()
    WRONGS[wrong](history, log, committed)
    assert wrong in judge(history, log, committed)


def test_a_new_owner_may_begin_where_a_commit_came_too_late_for_it() -> None:
    history, log, committed = right()
    history.groups[GROUP].starts.clear()
    history.groups[GROUP].commits.clear()
    history.groups[GROUP].read(lines(commit(0, 3, 71), assigned(0, 71), record(0, 1, "2.0")))
    assert judge(history, log, committed) == []


def test_a_partition_that_was_taken_away_at_once_is_no_beginning() -> None:
    group = Group()
    revoked = {"name": "partitions_revoked", "timestamp": 11, "partitions": [{"partition": 0}]}
    group.read(lines(assigned(0, 10), revoked, record(0, 5, "1.0")))
    assert group.starts == []


def test_half_a_line_of_a_killed_member_is_left_out() -> None:
    group = Group()
    group.read([*lines(record(0, 0, "1.0")), json.dumps(record(0, 1, "1.1"))[:30]])
    assert group.delivered == {0: {0: "1.0"}}


def test_replicas_are_compared_byte_by_byte() -> None:
    same = {"broker-0": {0: b"abc", 1: b""}, "broker-1": {0: b"abc", 1: b""}}
    assert different_replicas(same) == []
    assert different_replicas({**same, "broker-2": {0: b"abd"}}) == [
        "replicas of partition 0 differ (bytes: broker-0: 3, broker-1: 3, broker-2: 3)"
    ]


def test_a_gap_counts_for_the_fault_that_caused_it() -> None:
    times = [0, 900, 1000, 9000, 9100, 9200, 14_000]
    assert longest_gaps_ms(times, [950, 9150]) == [8000, 4800]
    # The second fault began when the first still had the partition down.
    assert longest_gaps_ms(times, [950, 5000]) == [8000, 4800]
    assert longest_gaps_ms(times, [9150]) == [4800]
    assert longest_gaps_ms([], [5]) == [0]
