"""The faults of a run, decided by the seed; and their end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create
from gregor.replication.store.nodes import ReplicaAssignment
from tests.simulation.ambush import Ambush
from tests.simulation.election_ambush import ElectionAmbush
from tests.simulation.node import host_of
from tests.simulation.transaction_ambush import TransactionAmbush

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition
    from tests.simulation.world import World


SILENT_LONGEST_S = 1.0
"""Of a session that ends after 2 s."""
SPARE_TOPIC = "spare"


class Faults:
    """One fault after the other, some of them at the same time. At most one broker at a time has lost bytes that it had
    written: see `_lose_power`."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self.over = False
        self._undo: list[Callable[[], None]] = []
        self._lossy: int | None = None
        self._known_s = 0.0
        self._pace_s = rng.choice((0.3, 0.8, 1.5))
        self._ambush = Ambush(world, self, world.rng("ambush"))
        self._transactions = TransactionAmbush(
            world, lambda: self.over, lambda: self._lossy is None, world.rng("transaction ambush")
        )
        self._elections = ElectionAmbush(
            world,
            lambda: self.over,
            lambda: self._lossy is None and not self._is_ambushed,
            world.rng("election ambush"),
        )

    @property
    def catches_verifications(self) -> bool:
        """See TransactionAmbush."""
        return self._transactions.catches_verifications

    def has_lost_bytes(self, since_s: float) -> bool:
        """Some broker, and the others may not know it yet, or did not know it at some time from `since_s` on."""
        return self._lossy is not None or self._known_s > since_s

    def begin(self) -> None:
        self._world.network.watcher = self._delay_s
        self._world.network.answer_watcher = self._transactions.answer_delay_s
        self._later(self._rng.random() * self._pace_s, self._next)
        self._elections.begin()

    @property
    def _is_ambushed(self) -> bool:
        """Whether a fault is in progress during which no other fault may happen."""
        return any(one.is_under_way for one in (self._ambush, self._transactions, self._elections))

    def _delay_s(self, source: str, target: str, data: bytes) -> float:
        return sum(one.delay_s(source, target, data) for one in (self._ambush, self._transactions, self._elections))

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._world.loop.call_later(delay_s, call)

    def _next(self) -> None:
        if self.over:
            return
        kinds = [
            (self._kill, 4),
            (self._stop, 3),
            (self._lose_power, 3),
            (self._freeze, 3),
            (self._cut, 5),
            (self._isolate, 2),
            (self._expire, 3),
            (self._break_zookeeper_connection, 2),
            (self._jump_clock, 2),
            (self._slow, 2),
            (self._reassign, 2),
            (self._create_or_delete, 2),
        ]
        fault = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        if self._lossy is not None and self._is_safe():
            self._lossy = None
            self._known_s = self._world.loop.time()
        if self._lossy is None and not self._is_ambushed:
            fault()
        self._later(2 * self._pace_s * self._rng.random(), self._next)

    def heal(self) -> None:
        """End all faults, and repair their effects."""
        self.over = True
        world = self._world
        world.trace("-- healing --")
        for undo in self._undo:
            undo()
        world.network.watcher = world.network.answer_watcher = None
        world.network.cut.clear()
        world.network.slow.clear()
        world.zk.slowness = 1.0
        for machine in world.machines.values():
            if machine.node is not None and machine.node.process.frozen:
                world.loop.thaw(machine.node.process)
            if machine.running is None:
                world.boot(machine.broker_id)

    def _until(self, longest_s: float, undo: Callable[[], None]) -> None:
        self._later(longest_s * self._rng.random() ** 2, undo)

    def _some_broker(self) -> int:
        return self._rng.choice(self._world.broker_ids)

    # -- processes -------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        broker_id = self._some_broker()
        self._world.kill(broker_id)
        self._until(6.0, lambda: self._boot(broker_id))

    def _stop(self) -> None:
        """In order, as far as the other faults let it."""
        broker_id = self._some_broker()
        self._world.stop(broker_id)
        self._until(6.0, lambda: self._boot(broker_id))

    def _boot(self, broker_id: int) -> None:
        if not self.over:
            self._world.boot(broker_id)

    def _freeze(self) -> None:
        node = self._world.machines[self._some_broker()].running
        if node is None or node.process.frozen:
            return
        world, process = self._world, node.process
        world.trace(f"{process} is frozen")
        world.loop.freeze(process)

        def thaw() -> None:
            if process.frozen:
                world.trace(f"{process} goes on")
                world.loop.thaw(process)

        self._until(8.0, thaw)

    def _lose_power(self) -> None:
        self.lose_power(self._some_broker(), 6.0 * self._rng.random() ** 2)

    def lose_power(self, broker_id: int, away_s: float) -> bool:
        """Crash a broker so that it loses unsynced bytes: all of them, or those of each file from some position on.

        Kafka promises nothing if the only replica that has a record loses it. So this is done only while another
        in-sync replica of each partition is healthy and no ambush of transactions is to end one, and no other fault
        happens until the broker that lost bytes is out of all ISRs. Return False if it cannot be done now.
        """
        world = self._world
        node = world.machines[broker_id].running
        if node is None or self._lossy is not None or self._transactions.is_under_way or self._elections.is_under_way:
            return False
        if not self._all_well_but(broker_id):
            return False
        world.lose_power(broker_id)
        self._lossy = broker_id
        files = node.files
        if self._rng.random() < 0.5:
            world.trace(f"broker {broker_id} loses all that was not synced")
            files.crash()
        else:
            world.trace(f"broker {broker_id} loses some of what was not synced")
            files.lose_some(self._rng)
        self._later(away_s, lambda: self._boot(broker_id))
        return True

    def _all_well_but(self, broker_id: int) -> bool:
        world = self._world
        for key in world.all_keys:
            # A replica that its leader is about to remove from the ISR may lack records.
            kept = self._proposed(key)
            counted = [id_ for id_ in world.ledger.isr(key) if all(id_ in isr for isr in kept)]
            if not any(
                self._is_well(other) and self._counts(other, broker_id, nodes.state_path(*key))
                for other in counted
                if other != broker_id
            ):
                return False
        return True

    def _counts(self, broker_id: int, lossy: int, state_path: str) -> bool:
        """Return whether a controller would prefer this broker to the one that lost bytes.

        It would if the broker has not been away since the ISR was written, or has been back for longer and the active
        controller, if there is one, knows that. Otherwise the end of its session and the other's loss of power would be
        two failures at once.
        """
        zk = self._world.zk
        state = zk.tree.exists(state_path, None)
        own, other = (zk.tree.exists(nodes.broker_path(id_), None) for id_ in (broker_id, lossy))
        if own is None or state is None:
            return False
        if own.czxid < zk.written.get(state_path, state.czxid):
            return True
        return (
            other is not None
            and own.czxid < other.czxid
            and self._is_known(broker_id, own.czxid)
            and self._is_known(lossy, other.czxid)
        )

    def _is_known(self, broker_id: int, epoch: int) -> bool:
        """Return whether no controller has another view of this broker: what it writes now may rest on that."""
        for machine in self._world.machines.values():
            cluster = None if machine.running is None else machine.running.controller.cluster
            if cluster is not None:
                broker = cluster.brokers.get(broker_id)
                if broker is None or broker.epoch != epoch:
                    return False
        return True

    def _is_well(self, broker_id: int) -> bool:
        world = self._world
        node = world.machines[broker_id].running
        if node is None or not node.started or node.stopping or node.process.frozen:
            return False
        if host_of(broker_id) in world.network.slow:
            return False
        registered = world.zk.tree.exists(nodes.broker_path(broker_id), None)
        session = None if registered is None else world.zk.sessions.get(registered.ephemeral_owner)
        if session is None or world.loop.time() - session.heard_s > SILENT_LONGEST_S:
            return False  # it is lost to the cluster, or may be soon: no other may be at the same time
        return world.network.is_open(host_of(broker_id), "zk")

    def _is_safe(self) -> bool:
        """Return whether the broker that lost bytes can do no more harm.

        It is out of all ISRs and no leader proposes to add it, or it has since come back with all records; and no
        leader relies on records that it has lost.
        """
        world = self._world
        for key in world.all_keys:
            if self._is_counted_on(key):
                return False
            if self._lossy in world.ledger.isr(key) or any(self._lossy in isr for isr in self._proposed(key)):
                partition = world.partition(self._lossy or 0, key)
                if partition is None or partition.leader_epoch < 0:
                    return False
        return True

    def _proposed(self, key: tuple[str, int]) -> list[Sequence[int]]:
        """Return the ISRs that the leaders of a partition have proposed; they may be granted late."""
        return [led.in_sync.proposed_isr for led in self._led(key) if led.in_sync.proposed_isr]

    def _is_counted_on(self, key: tuple[str, int]) -> bool:
        assert self._lossy is not None
        log = self._world.log(self._lossy, key)
        end = -1 if log is None else log.log_end_offset
        for led in self._led(key):
            follower = led.in_sync.followers.get(self._lossy)
            if self._lossy in led.in_sync.maximal_isr and follower is not None and follower.log_end_offset > end:
                return True
        return False

    def _led(self, key: tuple[str, int]) -> list[Partition]:
        """Return the partition at each broker that considers itself the leader."""
        partitions = (self._world.partition(id_, key) for id_ in self._world.broker_ids)
        return [partition for partition in partitions if partition is not None and partition.is_leader]

    # -- network ---------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Cut one link, in one direction or both."""
        world = self._world
        hosts = [*map(host_of, world.broker_ids), "zk"]
        one, other = self._rng.sample(hosts, 2)
        links = [(one, other), (other, one)]
        if "zk" not in links[0] and self._rng.random() < 0.5:
            links = links[:1]
        self._cut_links(links)

    def _isolate(self) -> None:
        """Cut one broker off from all others, with or without ZooKeeper and the clients."""
        world = self._world
        host = host_of(self._some_broker())
        others = [name for name in map(host_of, world.broker_ids) if name != host]
        if self._rng.random() < 0.5:
            others.append("zk")
        if self._rng.random() < 0.5:
            others += ["c0", "c1", "c2", "r0", "r1", "r2", *world.coordinated_hosts]
        self._cut_links([(host, other) for other in others] + [(other, host) for other in others])

    def _cut_links(self, links: list[tuple[str, str]]) -> None:
        world = self._world
        # Links to ZooKeeper count from the broker's side alone.
        links = [(other, one) if one == "zk" else (one, other) for one, other in links]
        world.trace("cut " + " ".join(f"{one}>{other}" for one, other in links))
        world.network.cut.update(links)

        def mend() -> None:
            world.trace("mended " + " ".join(f"{one}>{other}" for one, other in links))
            world.network.cut.difference_update(links)

        self._until(8.0, mend)

    def _slow(self) -> None:
        world = self._world
        host = host_of(self._some_broker())
        world.trace(f"{host} is slow")
        world.network.slow[host] = self._rng.choice((0.05, 0.3, 1.0))

        def mend() -> None:
            world.network.slow.pop(host, None)

        self._until(5.0, mend)

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """End a session at the server, regardless of its owner."""
        world = self._world
        node = world.machines[self._some_broker()].running
        session = None if node is None else node.store.client.session
        if node is not None and session is not None and not session.over:
            world.trace(f"the session of {node.process} expires")
            world.zk.end(session)

    def _break_zookeeper_connection(self) -> None:
        node = self._world.machines[self._some_broker()].running
        if node is not None:
            self._world.trace(f"{node.process} loses its connection to ZooKeeper")
            node.store.client.break_connection()

    # -- requests of users -----------------------------------------------------------------------------------------

    def _reassign(self) -> None:
        """Request the move of a partition, by the node that old tools write."""
        world = self._world
        if world.zk.tree.exists(nodes.REASSIGNMENT, None) is None:
            key = self._rng.choice(world.all_keys)
            replicas = self._rng.sample(world.broker_ids, 3)
            world.trace(f"{key[0]}-{key[1]} is to move to {replicas}")
            world.zk.write([Create(nodes.REASSIGNMENT, nodes.encode_reassignments({key: replicas}))], 0)

    def _create_or_delete(self) -> None:
        """Create or delete a topic that no client uses."""
        world = self._world
        if world.zk.tree.exists(nodes.topic_path(SPARE_TOPIC), None) is None:
            world.trace(f"topic {SPARE_TOPIC} is created")
            world.create_topic(SPARE_TOPIC, {0: ReplicaAssignment(tuple(self._rng.sample(world.broker_ids, 2)))})
        elif world.zk.tree.exists(nodes.delete_topic_path(SPARE_TOPIC), None) is None:
            world.trace(f"topic {SPARE_TOPIC} is to be deleted")
            world.zk.write([Create(nodes.delete_topic_path(SPARE_TOPIC))], 0)
            if self._rng.random() < 0.5:
                # A killed broker that has to delete the topic finds it again at its next start.
                broker_id = self._some_broker()
                world.kill(broker_id)
                self._later(0.5 * self._rng.random(), lambda: self._boot(broker_id))

    # -- clocks ----------------------------------------------------------------------------------------------------

    def _jump_clock(self) -> None:
        node = self._world.machines[self._some_broker()].running
        if node is not None:
            jump_ms = self._rng.choice((-20_000, -3000, -500, 500, 3000, 20_000))
            self._world.trace(f"the clock of {node.process} jumps by {jump_ms} ms")
            node.process.clock_ahead_ms += jump_ms
