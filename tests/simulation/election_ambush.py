"""A leader that misses that it was deposed for a time, in some of the seeds.

The controller elects itself the leader of a partition while its link to the old leader is cut, and dies: the old leader
receives no more than that it leads again, two epochs later. Meanwhile a follower has truncated records that the old
leader alone still has; it dies, too, before that follower has fetched them again. Faults at random times do not come in
this order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.topic_partition import TopicPartition
from tests.simulation.node import host_of

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.world import World

SEEDS = 0.5
"""The share of the seeds without coordinators in which this happens."""
BEGINS_WITHIN_S = 6.0
LOOK_S = 0.05
QUIET_S = 8.0


class _Scene(NamedTuple):
    """The controller, the leader that is deposed, and a follower in sync with both."""

    key: tuple[str, int]
    controller: Node
    leader: int
    follower: int


class ElectionAmbush:
    """`may_begin` returns whether a broker may be killed now, beside the other faults that are in progress."""

    def __init__(
        self, world: World, is_over: Callable[[], bool], may_begin: Callable[[], bool], rng: random.Random
    ) -> None:
        self._world = world
        self._is_over = is_over
        self._may_begin = may_begin
        self._rng = rng
        self._active = rng.random() < SEEDS and not world.internal_keys
        self._quiet_until_s = self._held_until_s = 0.0
        self._held = "", ""
        """The link on which fetch requests are held up until then."""

    @property
    def is_under_way(self) -> bool:
        """Whether no other fault may happen."""
        return self._world.loop.time() < self._quiet_until_s

    def begin(self) -> None:
        if self._active:
            self._later(BEGINS_WITHIN_S * self._rng.random(), self._begin)

    def delay_s(self, source: str, target: str, data: bytes) -> float:
        """Return by how many seconds a request arrives later than usual."""
        if (source, target) != self._held or data[4] or data[5] != ApiKey.FETCH or self._is_over():
            return 0.0
        return max(0.0, self._held_until_s - self._world.loop.time())

    # -- what happens ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        scene = self._scene() if self._may_begin() else None
        if scene is None:
            self._later(LOOK_S, self._begin)
            return
        key, controller, leader, follower = scene
        self._world.trace(f"{controller.process} is to lead {key} without the knowledge of broker {leader}, and to die")
        self._quiet_until_s = self._world.loop.time() + QUIET_S
        rest = [id_ for id_ in self._world.replicas(key) if id_ not in (controller.broker_id, leader, follower)]
        preferred = controller.broker_id, leader, follower, *rest
        self._do(controller, controller.controller.reassign({TopicPartition(*key): preferred}))
        self._later(0.4, lambda: self._depose(scene))

    def _scene(self) -> _Scene | None:
        world = self._world
        running = [machine.running for machine in world.machines.values()]
        if any(node is None or not node.started or node.process.frozen for node in running) or world.network.cut:
            return None
        for node in running:
            for key in world.keys if node is not None and node.controller.is_active else ():
                leader, isr = world.ledger.leader(key)[0], world.ledger.isr(key)
                others = [id_ for id_ in isr if id_ not in (leader, node.broker_id)]
                if node.broker_id != leader and node.broker_id in isr and others and leader in isr:
                    return _Scene(key, node, leader, others[0])
        return None

    def _depose(self, scene: _Scene) -> None:
        network, controller = self._world.network, scene.controller
        one, other = host_of(controller.broker_id), host_of(scene.leader)
        network.cut.update([(one, other), (other, one)])
        self._later(
            0.1 + 0.25 * self._rng.random(),
            lambda: self._do(controller, controller.controller.elect([TopicPartition(*scene.key)], False)),
        )
        self._later(0.5 + 0.2 * self._rng.random(), lambda: self._kill_controller(scene))

    def _kill_controller(self, scene: _Scene) -> None:
        world = self._world
        controller = scene.controller.broker_id
        self._held = host_of(scene.follower), host_of(scene.leader)
        self._held_until_s = world.loop.time() + 4.0
        world.kill(controller)
        world.network.cut.clear()
        self._later(LOOK_S, lambda: self._kill_leader(scene, world.ledger.leader(scene.key)[1]))
        self._later(4.0 + self._rng.random(), lambda: world.boot(controller))

    def _kill_leader(self, scene: _Scene, epoch: int) -> None:
        world = self._world
        leader, leader_epoch = world.ledger.leader(scene.key)
        partition = world.partition(scene.leader, scene.key)
        if world.loop.time() > self._held_until_s or partition is None:
            return
        if leader != scene.leader or leader_epoch <= epoch or partition.leader_epoch < leader_epoch:
            self._later(LOOK_S, lambda: self._kill_leader(scene, epoch))
            return

        def kill() -> None:
            world.kill(scene.leader)
            self._later(2.0 + self._rng.random(), lambda: world.boot(scene.leader))

        self._later(0.1 + 0.5 * self._rng.random(), kill)

    # -- when ------------------------------------------------------------------------------------------------------

    def _do(self, node: Node, order: Coroutine[Any, Any, Any]) -> None:
        if node.process.alive:
            self._world.loop.spawn(node.process, order, "an order to the controller")
        else:
            order.close()

    def _later(self, delay_s: float, change: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._is_over():
                change()

        self._world.loop.call_later(delay_s, unless_over, context=self._world.loop.nobodys)
