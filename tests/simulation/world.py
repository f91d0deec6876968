"""A simulated cluster: brokers on modelled machines, a ZooKeeper, clients; and the run of one seed."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gregor.protocol.ids import Uuid
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.protocol.turns import run_all
from gregor.replication.partition.partition import Partition
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.store import nodes
from gregor.replication.store.features import GROUP_VERSION, TRANSACTION_VERSION
from gregor.replication.store.metadata_store import Create
from gregor.replication.store.nodes import ReplicaAssignment, TopicAssignment
from gregor.storage.log.log import Log
from tests.simulation.classic_lives import CLASSIC_SETTINGS
from tests.simulation.clients import Consumer, Deleter, Producer
from tests.simulation.disks import Disk
from tests.simulation.faults import Faults
from tests.simulation.group_ledger import GroupLedger
from tests.simulation.group_members import GroupMember, unsettled
from tests.simulation.groups import GROUP_SETTINGS, Life
from tests.simulation.hasty import HastyProducer
from tests.simulation.ledger import MIN_IN_SYNC, Ledger, Violated, is_compacted
from tests.simulation.loop import Process, Stuck, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.node import SETTINGS, Node, host_of
from tests.simulation.session_watchers import Note, SessionWatchers
from tests.simulation.throttles import Throttles
from tests.simulation.transaction_ambush import is_ambushed
from tests.simulation.transaction_ledger import TransactionLedger
from tests.simulation.transactions import CommittedConsumer, TransactionalProducer
from tests.simulation.virtual_time import virtual, wall_ms
from tests.simulation.zookeeper import Ensemble

Key = tuple[str, int]
TOPIC = "orders"
TABLE = "table"
"""A compacted topic, of one partition."""
ZK_HOST = "zk"
LOOK_S = 0.7
STARTED_WITHIN_S = 20.0
WHOLE_WITHIN_S = 60.0
STOPPED_WITHIN_S = 3.0
TRANSACTIONAL_SEEDS = 0.4
"""The share of the seeds that have transactions."""
GROUP_SEEDS = 0.5
"""The share of the others that have a consumer group."""
TRANSACTION_SETTINGS = {
    "request.timeout.ms": "1500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Machine:
    """The machine of a broker: its disk outlasts the broker's lives."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.files = Disk()
        self.files.make_directory("/data")
        self.note = Note()
        self.node: Node | None = None
        self.lives = 0
        self.booted_s = 0.0

    @property
    def process(self) -> Process:
        assert self.node is not None
        return self.node.process

    @property
    def running(self) -> Node | None:
        node = self.node
        return node if node is not None and node.process.alive else None


class World:
    """`run()` raises Violated. The same seed does the same, step by step."""

    def __init__(self, seed: int, *, chaos_s: float = 10.0, tracing: bool = False) -> None:
        self.seed = seed
        self.tracing = tracing
        self.lines: list[str] = []
        self.loop = VirtualLoop()  # type: ignore[abstract]
        self.network = Network(self.loop, self.rng("network"))
        self.loop.connector = self._connect
        self.zk = Ensemble(self.loop, self.rng("zookeeper"), self._reaches_zookeeper)
        self.ledger = Ledger(self)
        self.zk.on_write.append(self.ledger.written)
        rng = self.rng("shape")
        self.broker_ids = list(range(1, rng.choice((3, 3, 4)) + 1))
        self.machines = {broker_id: Machine(broker_id) for broker_id in self.broker_ids}
        self.topics = [TOPIC]
        self.keys: list[Key] = [(TOPIC, index) for index in range(rng.choice((1, 2, 3)))]
        if self.rng("table").random() < 0.25:
            self.topics.append(TABLE)
            self.keys[-1] = TABLE, 0
        self._first_assignment = {key: tuple(rng.sample(self.broker_ids, 3)) for key in self.keys}
        self._plan_transactions(self.rng("transactions"))
        self._plan_group(self.rng("group"))
        self.producing = True
        self.calm = asyncio.Event()
        """Set when faults and throttles are over, and all replicas were in sync: nothing may fail for long now."""
        self.produce_every_s = rng.choice((0.15, 0.3, 0.6))
        self.settings = SETTINGS | {
            "replica.lag.time.max.ms": rng.choice(("600", "2000")),
            "controller.socket.timeout.ms": rng.choice(("500", "1500")),
        }
        self.deletes_records = rng.random() < 0.4
        if rng.random() < 0.4:
            self.settings["replica.selector.class"] = RACK_AWARE_SELECTOR
        self._loading = self.rng("loading")
        self.chaos_s = chaos_s
        self.faults = Faults(self, self.rng("faults"))
        self.session_watchers = SessionWatchers(self, self.rng("session watchers"))
        self.throttles = Throttles(self, self.rng("throttles"))
        self.settings |= self.throttles.broker_settings
        if self.transactional_names:
            self.settings |= TRANSACTION_SETTINGS
        if self.member_names:
            self.settings |= GROUP_SETTINGS | CLASSIC_SETTINGS
        self._graveyard: list[Node] = []
        self._ids = self.rng("ids")

    def _plan_transactions(self, rng: random.Random) -> None:
        """Let some seeds have transactions, and the topics of coordinators."""
        self.transactions = TransactionLedger(self)
        self.transactional_names: list[str] = []
        self.transaction_version = rng.choice((0, 2, 2))
        if is_ambushed(self.rng("transaction ambush")):
            # A verification can only come too late where the epoch stays at the end of a transaction.
            self.transaction_version = self.rng("older protocol").choice((0, 0, 2))
        self.internal_keys: list[Key] = []
        self._read_again: dict[Key, dict[int, bytes]] = {}
        if rng.random() < TRANSACTIONAL_SEEDS and not all(map(is_compacted, self.keys)):
            self.transactional_names = ["t0", "t1", "t2"]
            self.internal_keys = [(TRANSACTION_STATE_TOPIC, index) for index in range(2)]
            self.internal_keys.append((GROUP_METADATA_TOPIC, 0))
            for key in self.internal_keys:
                self._first_assignment[key] = tuple(rng.sample(self.broker_ids, 3))

    def _plan_group(self, rng: random.Random) -> None:
        """Let some seeds have a consumer group, and the topic of its coordinator."""
        self.groups = GroupLedger(self)
        self.member_names: list[str] = []
        self._members: list[GroupMember] = []
        self.mixes_protocols = rng.random() < 0.5
        """Members use the classic protocol or the other, life by life."""
        if not self.transactional_names and rng.random() < GROUP_SEEDS:
            self.member_names = [f"g{number}" for number in range(rng.choice((2, 3, 4)))]
            key = (GROUP_METADATA_TOPIC, 0)
            self.internal_keys.append(key)
            self._first_assignment[key] = tuple(rng.sample(self.broker_ids, 3))

    @property
    def all_keys(self) -> list[Key]:
        """The partitions of clients, and those of internal topics."""
        return self.keys + self.internal_keys

    @property
    def coordinated_hosts(self) -> list[str]:
        """The clients of coordinators."""
        return [*self.transactional_names, "rc0", "rc1", "rc2"] if self.transactional_names else self.member_names

    @property
    def is_calm(self) -> bool:
        return self.calm.is_set()

    def rng(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def now_ms(self) -> int:
        return wall_ms(self.loop)

    def trace(self, line: str) -> None:
        if self.tracing:
            self.lines.append(f"{self.loop.time():8.3f} {line}")

    # -- state -----------------------------------------------------------------------------------------------------

    def partition(self, broker_id: int, key: Key) -> Partition | None:
        node = self.machines[broker_id].running
        return None if node is None else node.replicas.partitions.get(key)

    def log(self, broker_id: int, key: Key) -> Log | None:
        """Return the log of a replica, or None, also if the broker is not registered yet.

        While its old registration exists, the cluster mistakes the broker for its former life.
        """
        node = self.machines[broker_id].running
        return None if node is None or node.local.broker_epoch < 0 else node.logs.logs.get(key)

    def is_known(self, broker_id: int, session_id: int) -> bool:
        """Whether the controller with this session knows of a broker's present life, and does not mean the last."""
        node = self.machines[broker_id].running
        for machine in self.machines.values():
            session = None if machine.node is None else machine.node.store.client.session
            if node is not None and machine.node is not None and session is not None and session.id == session_id:
                cluster = machine.node.controller.cluster
                known = None if cluster is None else cluster.brokers.get(broker_id)
                return known is not None and known.epoch == node.local.broker_epoch
        return False

    def copies(self, key: Key, offset: int) -> int:
        """How many brokers, dead ones included, have written a record at this offset; those count that do not know yet
        what is on their disk."""
        count = 0
        for machine in self.machines.values():
            if machine.node is not None:
                log = machine.node.logs.logs.get(key)
                count += machine.node.logs.is_loading(*key) if log is None else log.log_end_offset > offset
        return count

    def assignment(self, key: Key) -> ReplicaAssignment:
        """By ZooKeeper."""
        found = self.zk.tree.get(nodes.topic_path(key[0]), None)
        assert found is not None
        return run_all(nodes.decode_topic(key[0], found[0])).partitions[key[1]]

    def replicas(self, key: Key) -> tuple[int, ...]:
        return self.assignment(key).replicas

    def _reaches_zookeeper(self, process: Process) -> bool:
        return self.network.is_open(process.name, ZK_HOST)

    async def _connect(self, process: Process, factory: Any, host: str) -> tuple[Any, Any]:
        return await self.network.connect(process.name, process, factory, host)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def boot(self, broker_id: int) -> None:
        machine = self.machines[broker_id]
        if machine.running is not None:
            return
        machine.lives += 1
        machine.booted_s = self.loop.time()
        process = Process(host_of(broker_id))
        if machine.node is not None:
            process.clock_ahead_ms = machine.node.process.clock_ahead_ms
            self._graveyard.append(machine.node)
        self.trace(f"broker {broker_id} boots")
        loading_s = self._loading.choice((0.0, 0.0, 0.1, 1.0))
        node = machine.node = Node(
            broker_id,
            process,
            machine.files,
            self.loop,
            self.network,
            self.zk,
            self.settings,
            machine.note,
            self.session_watchers,
            loading_s,
        )
        node.replicas.on_leadership.append(self.ledger.roles)
        self.loop.spawn(process, self._life(node), f"broker {broker_id}")

    async def _life(self, node: Node) -> None:
        try:
            await node.start()
            self.trace(f"broker {node.broker_id} runs with epoch {node.local.broker_epoch}")
        except Exception as error:
            self.trace(f"broker {node.broker_id} does not start: {error!r}")
            self.kill(node.broker_id)
            self.loop.call_later(1.0, self.boot, node.broker_id, context=self.loop.nobodys)

    def lose_power(self, broker_id: int) -> None:
        """Crash the machine of a broker: its session watcher ends with it, and its note counts no more."""
        machine = self.machines[broker_id]
        machine.note.remove()
        if machine.running is not None:
            self._kill(machine.running)

    def kill(self, broker_id: int) -> None:
        """Kill a broker as by kill -9: written data remains."""
        node = self.machines[broker_id].running
        if node is not None:
            self._kill(node)
            node.session_watcher.broker_ended()

    def _kill(self, node: Node) -> None:
        self.trace(f"broker {node.broker_id} is killed")
        self.loop.kill(node.process)
        self.network.stop_listening(host_of(node.broker_id), node.process)

    def stop(self, broker_id: int) -> None:
        """Stop a broker as by SIGTERM, or kill it if it needs too long."""
        node = self.machines[broker_id].running
        if node is None or not node.started:
            return
        self.trace(f"broker {broker_id} is told to stop")
        node.stopping = True
        process = node.process

        async def stop() -> None:
            await node.stop()
            self.trace(f"broker {broker_id} has stopped")
            end()

        def end() -> None:
            if process.alive:
                self.kill(broker_id)
                if self.faults.over:
                    self.boot(broker_id)

        self.loop.spawn(process, stop(), f"stop of broker {broker_id}")
        self.loop.call_later(STOPPED_WITHIN_S, end, context=self.loop.nobodys)

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        gc_was_on = gc.isenabled()
        gc.disable()
        try:
            with virtual(self.loop, self.rng("modules")), self._heard():
                self._run()
        except Stuck as error:
            self.ledger.violation(str(error))
        finally:
            self.loop.dispose()
            if gc_was_on:
                gc.enable()
        if self.ledger.violations:
            raise Violated(self.ledger.violations[0])

    def _run(self) -> None:
        levels = {TRANSACTION_VERSION: self.transaction_version}
        if self.member_names:
            levels[GROUP_VERSION] = 1
        self.zk.write([Create(nodes.FEATURE, nodes.encode_features(levels))], 0)
        for broker_id in self.broker_ids:
            self.boot(broker_id)
        started = self.loop.run_for(STARTED_WITHIN_S, self._all_started)
        if not started:
            self.ledger.violation("the cluster does not start")
            return
        self._create_topics()
        if not self._go_on(20.0, self.is_whole):
            self.ledger.violation(f"the new topic is not served: {self.lacking()}")
            return
        self._start_clients()
        self.faults.begin()
        self.throttles.begin()
        self._go_on(self.chaos_s)
        self.faults.heal()
        if self.throttles.is_used and self.throttles.outlasts_faults:
            self.producing = False  # a throttled replica may never catch up with producers; they do not begin again
            self._go_on(STARTED_WITHIN_S, self._all_started)  # with their logs open, whose sizes count
            # First with the bytes that are there; then also with those that requests under way have appended meanwhile.
            self._go_on(self.throttles.longest_s(), lambda: self._lacking_throttled() is None)
            self._until("not whole while throttled", self._lacking_throttled, self.throttles.longest_s())
        self.throttles.lift()
        self._until("not whole again", self.lacking)
        self.producing = False
        self.calm.set()
        self._until("producers do not end", lambda: None if all(task.done() for task in self._producers) else "")
        if self._members:
            self._until("the group does not settle", lambda: unsettled(self, self._members))
            self.groups.is_closed = True
        self._until("not whole in the end", self.lacking)
        self._go_on(1.0)
        if not self.ledger.violations:
            self._read_all_again()
        self._until("not whole after the last reads", self.lacking)  # coordinators write as sessions end
        if not self.ledger.violations:
            self.ledger.close()

    def _until(self, otherwise: str, lacking: Callable[[], str | None], more_s: float = 0.0) -> None:
        if not self.ledger.violations and not self._go_on(WHOLE_WITHIN_S + more_s, lambda: lacking() is None):
            self.ledger.violation(f"{otherwise}: {lacking()}")

    def _lacking_throttled(self) -> str | None:
        self.throttles.check_progress()
        return self.lacking()

    def _go_on(self, seconds: float, until: Any = lambda: False) -> bool:
        """Run in pieces, and check the invariants after each."""
        end_s = self.loop.time() + seconds
        while True:
            done = self.loop.run_for(min(LOOK_S, max(0.0, end_s - self.loop.time())))
            self.ledger.look()
            if self.loop.problems:
                self.ledger.violation(self.loop.problems[0])
            if self.ledger.violations:
                return False
            if done or until():
                return True
            if self.loop.time() >= end_s:
                return False

    def _create_topics(self) -> None:
        settings = {
            "min.insync.replicas": str(MIN_IN_SYNC),
            "internal.segment.bytes": str(self.rng("segments").choice((600, 1500, 1 << 20))),
        }
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "600"}
        # A conversion of the group is one batch.
        of_groups = compacted | ({"internal.segment.bytes": "6000"} if self.member_names else {})
        internal = ((TRANSACTION_STATE_TOPIC, compacted), (GROUP_METADATA_TOPIC, of_groups))
        for name, more in ((TOPIC, {}), (TABLE, compacted), *internal):
            assigned = {key[1]: ReplicaAssignment(to) for key, to in self._first_assignment.items() if key[0] == name}
            if assigned:
                self.zk.write([Create(nodes.config_path("topics", name), nodes.encode_config(settings | more))], 0)
                self.create_topic(name, assigned)

    def create_topic(self, name: str, partitions: dict[int, ReplicaAssignment]) -> None:
        topic_id: Uuid = self._ids.randbytes(16)
        data = nodes.encode_topic(TopicAssignment(topic_id, partitions))
        self.zk.write([Create(nodes.topic_path(name), data)], 0)

    def _start_clients(self) -> None:
        self._producers = []
        for number, idempotent in enumerate((True, True, False)):
            name = f"{'i' if idempotent else 'p'}{number}"
            producer = Producer(self, self.rng(name), name, idempotent)
            self._producers.append(self.loop.spawn(Process(f"c{number}"), producer.run(), name))
        hasty = HastyProducer(self, self.rng("i3"), "i3")
        self._producers.append(self.loop.spawn(Process("c3"), hasty.run(), "i3"))
        if self.deletes_records:
            deleter = Deleter(self, self.rng("deleter"))
            self.loop.spawn(Process("d0"), deleter.run(), "deleter")
        for number, key in enumerate(self.keys):
            consumer = Consumer(self, self.rng(f"consumer {number}"), key)
            self.loop.spawn(Process(f"r{number}"), consumer.run(), f"consumer {number}")

        for name in self.transactional_names:
            transactional = TransactionalProducer(self, self.rng(name), name)
            self._producers.append(self.loop.spawn(Process(name), transactional.run(), name))
        for number, key in enumerate(self.keys if self.transactional_names else ()):
            committed = CommittedConsumer(self, self.rng(f"committed consumer {number}"), key)
            self.loop.spawn(Process(f"rc{number}"), committed.run(), f"committed consumer {number}")

        for name in self.member_names:
            member = GroupMember(self, self.rng(name), name)
            self._members.append(member)
            self.loop.spawn(Process(name), member.run(), name)

    def _read_all_again(self) -> None:
        """Read everything once more with the isolation level read_committed, now that no transaction is open; and the
        offsets of the group."""
        if self._members:
            life = Life(self, self.rng("last reader"), "last", None)
            reading = self.loop.spawn(Process("last"), life.read_offsets(self.keys), "last reader")
            self._until("the offsets of the group are not read", lambda: None if reading.done() else "")
        for number, key in enumerate(self.keys if self.transactional_names else ()):
            log = self.log(self.replicas(key)[0], key)
            assert log is not None
            reader = CommittedConsumer(self, self.rng(f"last consumer {number}"), key)
            reading = self._read_partition(reader, log.log_start_offset, log.log_end_offset)
            self.loop.spawn(Process(f"rc{number}"), reading, f"last consumer {number}")
        self._until(
            "not all is read in the end",
            lambda: None if not self.transactional_names or len(self._read_again) == len(self.keys) else "",
        )
        for key, found in self._read_again.items():
            log = self.log(self.replicas(key)[0], key)
            if not self.ledger.violations and log is not None and not is_compacted(key):
                self.transactions.close(key, log, found)

    async def _read_partition(self, reader: CommittedConsumer, start: int, end: int) -> None:
        self._read_again[reader.key] = await reader.read_all(start, end)

    def _all_started(self) -> bool:
        return all(m.node is not None and m.node.started for m in self.machines.values())

    # -- whole -----------------------------------------------------------------------------------------------------

    def is_whole(self) -> bool:
        return self.lacking() is None

    def lacking(self) -> str | None:
        """Return the first thing that is not as it should be once all faults are over."""
        if not all(m.running is not None and m.running.started for m in self.machines.values()):
            return "a broker does not run"
        active = [
            m.broker_id for m in self.machines.values() if m.running is not None and m.running.controller.is_active
        ]
        if len(active) != 1:
            return f"controllers: {active}"
        if self.zk.tree.children(nodes.DELETE_TOPICS, None):
            return "a topic is still to be deleted"
        if self.zk.tree.exists(nodes.REASSIGNMENT, None) is not None:
            return "partitions are still to be moved"
        for key in self.all_keys:
            replicas, adding, removing = self.assignment(key)
            if adding or removing:
                return f"{key} is still on the move"
            found = [(broker_id, self.partition(broker_id, key)) for broker_id in replicas]
            if any(partition is None or partition.log is None for _, partition in found):
                return f"{key} is not on all of {replicas}"
            leaders = [partition for _, partition in found if partition is not None and partition.is_leader]
            if len(leaders) != 1:
                return f"{key} is led by {[leader.local_id for leader in leaders]}"
            if sorted(leaders[0].isr) != sorted(replicas):
                return f"{key} led by {leaders[0].local_id} has the ISR {leaders[0].isr}"
            if sorted(self.ledger.isr(key)) != sorted(replicas):
                return f"{key} has the ISR {self.ledger.isr(key)} in ZooKeeper"
            if not self.producing and any(
                partition is None or partition.high_watermark != leaders[0].log_end_offset for _, partition in found
            ):
                marks = [p and p.high_watermark for _, p in found]
                return f"{key} has high watermarks {marks} of {leaders[0].log_end_offset}"
            if not self.producing and leaders[0].last_stable_offset != leaders[0].log_end_offset:
                return f"{key} has the last stable offset {leaders[0].last_stable_offset}"
            begins = [p.log_start_offset for _, p in found if p is not None]
            if not self.producing and min(begins) < leaders[0].log_start_offset:
                return f"{key} begins at {begins}, at its leader at {leaders[0].log_start_offset}"
        return None

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Errors with a traceback in the log are bugs; all lines of the log go to the trace."""
        handler = _LogToTrace(self)
        logger = logging.getLogger("gregor")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if self.tracing else logging.ERROR)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class _LogToTrace(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        from tests.simulation.loop import owner

        text = record.getMessage()
        self._world.trace(f"[{owner()}] {record.name}: {text}")
        if record.exc_info:
            self._world.loop.problems.append(f"[{owner()}] {text}: {record.exc_info[1]!r}")
            if self._world.tracing:
                import traceback

                self._world.lines.extend(traceback.format_exception(record.exc_info[1]))
