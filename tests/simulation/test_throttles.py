"""The bound of what throttled replicas may move: by what may be under way, and for replicas that are throttled at both
samples."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.replication.replicas import NOW, Replica, exchange
from tests.simulation.throttles import FETCH_BYTES, SAMPLED_EVERY_S, Throttles
from tests.storage.logs import batch, log_config

KEY = ("orders", 0)
RATE = 300
BATCH_BYTES = 200
OVERHEAD_BYTES = len(batch(1, size=BATCH_BYTES)) - BATCH_BYTES
DIRECTIONS = {"leader": 1, "follower": 2}
"""And the broker whose throttle it is."""
UNTHROTTLED = log_config()


class Cluster:
    """A leader, and a follower outside of the ISR, which fetches a batch whenever a test lets it."""

    def __init__(self, directions: list[str]) -> None:
        self.now_s = 0.0
        self.violations: list[str] = []
        self.leader, self.follower = Replica(1), Replica(2)
        self.leader.lead(0, [1], [1, 2], 0)
        self.follower.follow(1, 0, [1], [1, 2], 0)
        self.throttled = log_config(**{f"{one}_replication_throttled_replicas": ["*"] for one in directions})
        self.configs = {1: UNTHROTTLED, 2: UNTHROTTLED}
        replicas = {1: self.leader, 2: self.follower}
        world: Any = SimpleNamespace(
            keys=[KEY],
            broker_ids=[1, 2],
            loop=SimpleNamespace(time=lambda: self.now_s),
            partition=lambda broker_id, key: replicas[broker_id].partition,
            ledger=SimpleNamespace(isr=lambda key: (1,), violation=self.violations.append),
            machines={id_: SimpleNamespace(lives=1, running=self._node(id_)) for id_ in replicas},
        )
        self.throttles = Throttles(world, cast("Any", _First()))
        self.throttles.compare()

    def _node(self, broker_id: int) -> Any:
        rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), RATE)
        return SimpleNamespace(config=rates, configs=SimpleNamespace(log_config=lambda topic: self.configs[broker_id]))

    def throttle(self) -> None:
        self.configs = dict.fromkeys(self.configs, self.throttled)

    def move(self, batches: int) -> None:
        for _ in range(batches):
            exchange(self.follower, self.leader, max_bytes=1)

    def sample(self) -> None:
        self.now_s += SAMPLED_EVERY_S
        self.throttles.compare()


class _First(random.Random):
    """Chooses the first of each choice: a rate of 300 bytes per second."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


def cluster(direction: str, batches: int = 100) -> Cluster:
    found = Cluster([direction])
    for _ in range(batches):
        found.leader.partition.append(batch(1, size=BATCH_BYTES - OVERHEAD_BYTES), NOW, 1)
    found.sample()
    return found


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_moved_before_the_throttle_was_in_effect_is_not_compared(direction: str) -> None:
    """A sample may find the replica throttled that was not when most of the bytes moved."""
    found = cluster(direction)
    found.move(20)
    found.throttle()
    found.sample()
    assert found.follower.log.size_bytes == 20 * BATCH_BYTES
    assert not found.violations


@pytest.mark.parametrize(("direction", "fetches"), [("leader", 2), ("follower", 3)])
def test_no_more_moves_at_once_than_may_be_under_way(direction: str, fetches: int) -> None:
    found = cluster(direction)
    found.throttle()
    found.sample()
    found.move(fetches * FETCH_BYTES // BATCH_BYTES)
    found.sample()
    assert not found.violations
    found.move(1)
    found.sample()
    assert [text.partition(" moves ")[0] for text in found.violations] == [f"{direction} {DIRECTIONS[direction]}"]


@pytest.mark.parametrize(("direction", "fetches"), [("leader", 2), ("follower", 3)])
def test_no_more_moves_in_a_long_time_than_the_rate_allows(direction: str, fetches: int) -> None:
    found = cluster(direction)
    found.throttle()
    found.sample()
    for _ in range(20):
        found.move(RATE // BATCH_BYTES)
        found.move(RATE % BATCH_BYTES > 0)
        found.now_s += 4 / 3
        found.sample()
    assert not found.violations
    moved = 0
    while not found.violations:
        found.move(1)
        found.now_s += BATCH_BYTES / RATE / 2 - SAMPLED_EVERY_S
        found.sample()
        moved += BATCH_BYTES
    assert moved <= 2 * (fetches + 2) * FETCH_BYTES, "half of it is above the rate"


def test_a_follower_that_has_what_was_committed_when_it_was_throttled_is_not_compared() -> None:
    """It knows of no more, and is not delayed."""
    found = cluster("follower", batches=5)
    found.throttle()
    found.sample()
    for _ in range(20):
        found.leader.partition.append(batch(1, size=BATCH_BYTES - OVERHEAD_BYTES), NOW, 1)
    found.move(25)
    found.sample()
    assert found.follower.log.log_end_offset == 25
    assert not found.violations
