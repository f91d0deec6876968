"""Faults at chosen moments: while a request is under way whose order relative to other events matters.

Faults at random times seldom hit the few milliseconds between a leader's request to the controller and the response. So
the simulated network is watched for such requests, and some of them arrive late: by then their senders have given up,
repeated them and continued, and the replicas that the requests are about have meanwhile failed or lagged.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gregor.protocol.api_keys import ApiKey
from gregor.replication.partition.partition import Partition
from tests.simulation.node import host_of

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.world import World

ORDERS = frozenset({ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA})
WATCHED = ORDERS | {ApiKey.ALTER_PARTITION}
ROLES_LATE = 0.15
OTHER_ORDERS_LATE = 0.02
PROPOSALS_LATE = 0.3
JOINS_CAUGHT = 0.7


class Ambush:
    """Decide with `delay_s` how late each request between two brokers arrives. At most one request of a leader to the
    controller and one request of the controller are delayed at a time."""

    def __init__(self, world: World, faults: Faults, rng: random.Random) -> None:
        self._world = world
        self._faults = faults
        self._rng = rng
        self._busy_until_s = self._quiet_until_s = self._order_until_s = 0.0
        self._late: dict[tuple[str, str], float] = {}
        """The time until which AlterPartition requests are held up, by link."""

    def delay_s(self, source: str, target: str, data: bytes) -> float:
        """Return by how many seconds a request arrives later than usual."""
        key = data[5]
        if key not in WATCHED or data[4]:
            return 0.0
        now_s = self._world.loop.time()
        if self._faults.over:
            return 0.0
        if key == ApiKey.ALTER_PARTITION:
            held_s = self._late.get((source, target), 0.0) - now_s
            if held_s > 0:
                return held_s
        if key != ApiKey.ALTER_PARTITION:
            return self._order(key, source, target, now_s)
        if now_s < self._busy_until_s:
            return 0.0
        joining = self._joining(source)
        if joining is not None and host_of(joining[1]) != target and self._rng.random() < JOINS_CAUGHT:
            what = self._rng.choice((self._comes_back_without, self._lags_again))
            return what(source, target, *joining)
        return self._is_late(source, target) if self._rng.random() < PROPOSALS_LATE else 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether a fault is in progress during which no other fault may happen."""
        return self._world.loop.time() < self._quiet_until_s

    def _caught(self, delay_s: float, quiet: bool = False) -> float:
        self._busy_until_s = self._world.loop.time() + delay_s + 0.5
        if quiet:
            self._quiet_until_s = self._busy_until_s
        return delay_s

    def _later(self, delay_s: float, cut: bool, links: list[tuple[str, str]]) -> None:
        network = self._world.network

        def change() -> None:
            if cut and not self._faults.over:
                self._world.trace("cut " + " ".join(f"{one}>{other}" for one, other in links))
                network.cut.update(links)
            elif not cut:
                network.cut.difference_update(links)

        self._world.loop.call_later(delay_s, change, context=self._world.loop.nobodys)

    def _joining(self, host: str) -> tuple[Partition, int] | None:
        """Return a partition, and the broker that the leader on this host proposes to add to its ISR."""
        for machine in self._world.machines.values():
            node = machine.running
            if node is not None and host_of(node.broker_id) == host:
                for partition in node.replicas.partitions.values():
                    joining = set(partition.in_sync.proposed_isr or ()) - set(partition.isr)
                    if joining:
                        return partition, min(joining)
        return None

    def _order(self, key: int, source: str, target: str, now_s: float) -> float:
        """Delay a request of the controller until it has given up, repeated it, and possibly sent another one since."""
        odds = ROLES_LATE if key == ApiKey.LEADER_AND_ISR else OTHER_ORDERS_LATE
        if now_s < self._order_until_s or self._rng.random() > odds:
            return 0.0
        timeout_s = int(self._world.settings["controller.socket.timeout.ms"]) / 1000
        delay_s = timeout_s + 0.2 + 2.5 * self._rng.random()
        self._order_until_s = now_s + delay_s
        self._world.trace(f"{ApiKey(key).name} from {source} to {target} is {delay_s:.3f} s late")
        return delay_s

    # -- what happens ----------------------------------------------------------------------------------------------

    def _is_late(self, source: str, target: str) -> float:
        """Delay a proposal; its leader repeats it meanwhile, unless other events come first."""
        delay_s = self._rng.choice((0.1, 1.0, 4.0)) * (0.5 + self._rng.random())
        self._world.trace(f"a proposal from {source} to {target} is {delay_s:.3f} s late")
        return self._caught(delay_s)

    def _lags_again(self, source: str, target: str, partition: Partition, joining: int) -> float:
        """Let the repeated proposal add the broker, and let it lag and be removed before the first proposal arrives."""
        world = self._world
        settings = world.settings
        timeout_s = int(settings["controller.socket.timeout.ms"]) / 1000
        out_s = int(settings["replica.lag.time.max.ms"]) * 1.5 / 1000
        delay_s = timeout_s + 0.2 + out_s + 0.5 * self._rng.random()
        links = [(host_of(joining), source), (source, host_of(joining))]
        self._later(timeout_s + 0.1 + 0.1 * self._rng.random(), True, links)
        self._later(delay_s + 1.0, False, links)
        world.trace(f"a proposal from {source} to {target} is {delay_s:.3f} s late, {joining} is to lag meanwhile")
        return self._caught(delay_s, quiet=True)

    def _comes_back_without(self, source: str, target: str, partition: Partition, joining: int) -> float:
        """Let the broker lose power and start without its unsynced data before any proposal reaches the controller."""
        world = self._world
        if not self._faults.lose_power(joining, 0.05 + 0.2 * self._rng.random()):
            return 0.0
        links = [(host_of(joining), source)]
        world.trace(f"proposals from {source} to {target} are late, {joining} begins anew meanwhile")
        delay_s = int(world.settings["zookeeper.session.timeout.ms"]) / 1000 + self._rng.random()
        world.network.cut.update(links)
        self._later(delay_s + 1.0, False, links)
        self._late[source, target] = world.loop.time() + delay_s
        return self._caught(delay_s, quiet=True)
