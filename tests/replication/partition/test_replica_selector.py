"""Which replica a consumer is sent to."""

from __future__ import annotations

from typing import Any

from gregor.replication.partition.partition import Partition
from gregor.replication.partition.replica_selector import preferred_read_replica
from tests.replication.fakes import CountingLog
from tests.replication.replicas import state

NOW = 1_000_000


def led(isr: list[int], replicas: list[int]) -> Partition:
    partition = Partition("orders", 0, bytes(16), 0)
    log: Any = CountingLog(log_end_offset=10, high_watermark=0)
    partition.use_log(log)
    partition.become_leader(state(0, 1, isr, replicas, 1), NOW)
    return partition


def test_the_one_that_has_most_in_the_rack() -> None:
    partition = led([0, 1, 2, 3], [0, 1, 2, 3, 4])
    racks = {0: "a", 1: "b", 2: "b", 3: "c", 4: "d"}
    for broker_id, offset in ((1, 5), (2, 8), (3, 10), (4, 9)):
        partition.leadership.update_follower(broker_id, offset, NOW, log_start_offset=2)
    assert preferred_read_replica(partition, 4, "b", racks) == 2
    assert preferred_read_replica(partition, 4, "c", racks) == 3
    assert preferred_read_replica(partition, 9, "b", racks) is None, "nobody there has it yet"
    assert preferred_read_replica(partition, 1, "b", racks) is None, "nobody there has it any more"
    assert preferred_read_replica(partition, 4, "a", racks) is None, "the leader is as close"
    assert preferred_read_replica(partition, 4, "d", racks) is None, "it is not in sync"
    assert preferred_read_replica(partition, 4, "e", racks) is None
    assert preferred_read_replica(partition, 4, "b", {0: "a", 1: "b"}) == 1, "only who can be reached"


def test_of_equal_ones_who_was_level_last_and_then_the_higher_number() -> None:
    partition = led([0, 1, 2], [0, 1, 2])
    racks = {0: "a", 1: "b", 2: "b"}
    partition.leadership.update_follower(2, 10, NOW)
    partition.leadership.update_follower(1, 10, NOW + 5)
    assert preferred_read_replica(partition, 4, "b", racks) == 1
    partition.leadership.update_follower(2, 10, NOW + 5)
    assert preferred_read_replica(partition, 4, "b", racks) == 2


def test_a_follower_sends_nobody_away() -> None:
    partition = led([0, 1], [0, 1])
    partition.leadership.update_follower(1, 10, NOW)
    partition.become_follower(state(1, 2, [0, 1], [0, 1], 2))
    assert preferred_read_replica(partition, 4, "b", {0: "a", 1: "b"}) is None
