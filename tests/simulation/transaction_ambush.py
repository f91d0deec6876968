"""Faults at chosen moments of transactions, in some of the seeds.

Faults at random times seldom hit them: the moment at which the leader of a partition alone has a marker, the time
between the answer of a coordinator that verifies a transaction and the append that waits for it, and the time in which
a coordinator that has just started knows nothing of the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.protocol.api_keys import ApiKey
from tests.simulation.node import host_of

if TYPE_CHECKING:
    from tests.simulation.world import World

SEEDS = 0.25
"""The share of the seeds in which this happens."""
MARKERS_LOST = 0.6
ANSWERS_LATE = 0.5
METADATA_LATE = 0.7
FIRST_VERSION_OF_BROKERS = 4
QUIET_S = 6.0


def is_ambushed(rng: random.Random) -> bool:
    """Return whether the seed, whose numbers for this begin here, is one of them."""
    return rng.random() < SEEDS


class TransactionAmbush:
    """Decide with `delay_s` and `answer_delay_s` how late requests between two brokers, and their responses, arrive.

    `may_kill` returns whether a broker may be killed now, beside the other faults that are in progress.
    """

    def __init__(
        self, world: World, is_over: Callable[[], bool], may_kill: Callable[[], bool], rng: random.Random
    ) -> None:
        self._world = world
        self._is_over = is_over
        self._may_kill = may_kill
        self._rng = rng
        self._active = is_ambushed(rng) and bool(world.transactional_names)
        self._quiet_until_s = 0.0
        self._coordinator = ""
        """The host whose markers are late until then."""

    @property
    def catches_verifications(self) -> bool:
        """Whether a batch that is late for its transaction is sent at once, and the end of the transaction a little
        later: the verification succeeds, and its answer may come after the end."""
        return self._active

    @property
    def is_under_way(self) -> bool:
        """Whether a fault is in progress during which no other fault may happen."""
        return self._world.loop.time() < self._quiet_until_s

    def delay_s(self, source: str, target: str, data: bytes) -> float:
        """Return by how many seconds a request arrives later than usual."""
        if not self._active or data[4] or self._is_over():
            return 0.0
        if data[5] == ApiKey.WRITE_TXN_MARKERS:
            return self._marker(source, target)
        if data[5] == ApiKey.UPDATE_METADATA and self._knows_nothing(target) and self._rng.random() < METADATA_LATE:
            delay_s = 3.0 * self._rng.random()
            self._world.trace(f"the first metadata of {target} are {delay_s:.3f} s late")
            return delay_s
        return 0.0

    def answer_delay_s(self, source: str, target: str, data: bytes) -> float:
        """Return by how many seconds the response to this request arrives later than usual."""
        key, version = data[4:6], int.from_bytes(data[6:8])
        if not self._active or key != ApiKey.ADD_PARTITIONS_TO_TXN.to_bytes(2) or version < FIRST_VERSION_OF_BROKERS:
            return 0.0
        if self._is_over() or self._rng.random() > ANSWERS_LATE:
            return 0.0
        delay_s = 0.5 * self._rng.random()
        self._world.trace(f"the answer of {target} to the verification of {source} is {delay_s:.3f} s late")
        return delay_s

    def _knows_nothing(self, host: str) -> bool:
        nodes = (machine.running for machine in self._world.machines.values())
        return any(host_of(node.broker_id) == host and not node.image.is_informed for node in nodes if node is not None)

    def _marker(self, source: str, target: str) -> float:
        if self.is_under_way:
            left_s = self._quiet_until_s - self._world.loop.time()
            return left_s if source == self._coordinator else 0.0
        if self._rng.random() < MARKERS_LOST and self._may_kill():
            self._lose(source, target)
        return 0.0

    def _lose(self, source: str, target: str) -> None:
        """Let the marker reach the leader and no follower, and the leader die; its successor gets the marker late."""
        world = self._world
        (leader,) = (broker_id for broker_id in world.broker_ids if host_of(broker_id) == target)
        world.trace(f"the markers that {source} sends to {target} are lost with it")
        self._coordinator = source
        self._quiet_until_s = world.loop.time() + QUIET_S
        links = [(host_of(id_), target) for id_ in world.broker_ids if host_of(id_) not in (source, target)]
        world.network.cut.update(links)
        links.append((source, target))
        self._later(0.02, lambda: world.network.cut.update(links))
        self._later(0.3 + 0.5 * self._rng.random(), lambda: world.kill(leader))
        self._later(1.0, lambda: world.network.cut.difference_update(links))
        self._later(4.0 + self._rng.random(), lambda: world.boot(leader))

    def _later(self, delay_s: float, change: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._is_over():
                change()

        self._world.loop.call_later(delay_s, unless_over, context=self._world.loop.nobodys)
