"""Reads the nodes for the controller, and sets the watches after which they are read again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import islice

from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.controller.context import Cluster, LiveBroker, Partition, Topic
from gregor.replication.controller.events import TopicRead
from gregor.replication.controller.reassignment import is_moving
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import MetadataStore, NodeExists, NoNode, Stat, Watch, WatchEvent
from gregor.replication.store.nodes import TopicAssignment
from gregor.replication.store.topic_configs import TopicConfigs

MANY = 20
WATCHES_AT_ONCE = 50

_log = logging.getLogger(__name__)


class ControllerReader:
    """`changed(path)` is called when a watched path is to be read again. Nodes that cannot be understood are logged
    and left out: one broken node must not stop the cluster."""

    def __init__(self, store: MetadataStore, configs: TopicConfigs, changed: Callable[[str], None], gate: Gate) -> None:
        self._store = store
        self._gate = gate
        self._configs = configs
        self._changed = changed
        # Watches set and not called yet. A watch set twice would be called twice, and then set twice again.
        self._data_armed: set[str] = set()
        self._children_armed: set[str] = set()
        self._unarmed: dict[str, Stat] = {}  # read without a watch, with the Stat of then: the watch is to follow

    def forget_watches(self) -> None:
        """Forget the watches of a session that is over: none of them will be called."""
        self._data_armed.clear()
        self._children_armed.clear()
        self._unarmed.clear()

    # -- watches ---------------------------------------------------------------------------------------------------

    def _data_called(self, event: WatchEvent) -> None:
        self._data_armed.discard(event.path)
        self._changed(event.path)

    def _children_called(self, event: WatchEvent) -> None:
        self._children_armed.discard(event.path)
        self._changed(event.path)

    async def exists(self, path: str) -> Stat | None:
        """Return the Stat of a node, and watch it even if it does not exist."""
        watch: Watch | None = None
        if path not in self._data_armed:
            self._data_armed.add(path)
            watch = self._data_called
        return await self._store.exists(path, watch)

    async def children(self, path: str) -> list[str]:
        watch: Watch | None = None
        if path not in self._children_armed:
            self._children_armed.add(path)
            watch = self._children_called
        while True:
            try:
                return await self._store.children(path, watch)
            except NoNode:
                # It was removed by hand. Without it there is nothing to watch, and nowhere to write to.
                _log.warning("%s is missing; the controller creates it again", path)
                with suppress(NodeExists):
                    await self._store.create(path, make_parents=True)
                self._children_armed.add(path)
                watch = self._children_called

    async def _get_watched(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Stat]]:
        """Return those of the nodes that exist. Each is watched from now on; many nodes are watched only after
        `set_watches`, because they are read by few requests while each watch costs a request of its own."""
        armed: list[str] = []
        unarmed: list[str] = []
        for path in paths:
            (armed if path in self._data_armed else unarmed).append(path)
        found = await self._store.get_many(armed)
        if len(unarmed) >= MANY:
            fresh = await self._store.get_many(unarmed)
            read = zip(unarmed, fresh, strict=True)
            self._unarmed.update((path, node[1]) for path, node in read if node is not None)
        else:
            # Marked before reading: the watch may be called before the response is handled.
            self._data_armed.update(unarmed)
            fresh = await self._store.get_many(unarmed, self._data_called)
            self._data_armed.difference_update(path for path, node in zip(unarmed, fresh, strict=True) if node is None)
        both = zip(armed + unarmed, found + fresh, strict=True)
        return {path: node for path, node in both if node is not None}

    @property
    def has_unwatched(self) -> bool:
        return bool(self._unarmed)

    async def set_watches(self) -> None:
        """Watch some of the nodes that were read without a watch; `changed` is called for those that have changed
        since."""
        paths = [path for path in islice(self._unarmed, WATCHES_AT_ONCE) if path not in self._data_armed]
        stats = [self._unarmed[path] for path in paths]
        for path in list(islice(self._unarmed, WATCHES_AT_ONCE)):
            del self._unarmed[path]
        self._data_armed.update(paths)
        found = await self._store.get_many(paths, self._data_called)
        for path, stat, node in zip(paths, stats, found, strict=True):
            if node is None:
                self._data_armed.discard(path)
            if node is None or node[1] != stat:
                self._changed(path)

    # -- nodes -----------------------------------------------------------------------------------------------------

    async def brokers(self) -> dict[int, tuple[nodes.BrokerRegistration, int]]:
        """Return registrations and epochs by id; watched."""
        names = await self.children(nodes.BROKER_IDS)
        ids = sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= 10)
        found = await self._get_watched(nodes.broker_path(id_) for id_ in ids)
        brokers = {}
        for id_ in ids:
            node = found.get(nodes.broker_path(id_))
            if node is not None:
                try:
                    brokers[id_] = (nodes.decode_broker(id_, node[0]), node[1].czxid)
                except nodes.NodeFormatError as error:
                    _log.warning("Broker ignored: %s", error)
        return brokers

    async def topic_names(self) -> list[str]:
        """Return the names of all topics, each once."""
        return await self.children(nodes.TOPICS)

    async def topics(self, names: Iterable[str]) -> dict[str, TopicRead]:
        """Return those of the topics that exist; watched."""
        names = list(names)
        found = await self._get_watched(nodes.topic_path(name) for name in names)
        assignments: dict[str, tuple[TopicAssignment, int]] = {}
        turns = self._gate.turns()
        for name in names:
            await turns.next()
            node = found.get(nodes.topic_path(name))
            if node is not None:
                try:
                    assignment = self._gate.start(nodes.decode_topic(name, node[0]))
                    if isinstance(assignment, Awaitable):
                        assignment = await assignment
                    assignments[name] = assignment, node[1].version
                except nodes.NodeFormatError as error:
                    _log.warning("Topic ignored: %s", error)
        await self._configs.ensure((name, read.topic_id) for name, (read, _) in assignments.items())
        topics = {}
        for name, (read, version) in assignments.items():
            await turns.next()
            topics[name] = TopicRead(read, version, self._configs.log_config(name).unclean_leader_election_enable)
        return topics

    async def states(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[nodes.PartitionState, int]]:
        """Return the partition states that exist, with their nodes' versions."""
        return {
            key: (state, stat.version) for key, (state, stat) in (await self._states(keys)).items() if state is not None
        }

    async def _states(
        self, keys: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[nodes.PartitionState | None, Stat]]:
        """Return the states and Stats of the nodes that exist; None as the state of a node that cannot be decoded."""
        keys = list(keys)
        found = await self._store.get_many([nodes.state_path(*key) for key in keys])
        states: dict[TopicPartition, tuple[nodes.PartitionState | None, Stat]] = {}
        turns = self._gate.turns()
        for key, node in zip(keys, found, strict=True):
            await turns.next()
            if node is not None:
                try:
                    states[key] = (nodes.decode_state(node[0]), node[1])
                except nodes.NodeFormatError as error:
                    states[key] = (None, node[1])
                    _log.warning(
                        "No leader is elected for %s-%d until %s is corrected, or deleted for a new state: %s",
                        *key,
                        nodes.state_path(*key),
                        error,
                    )
        return states

    async def isr_notifications(self) -> tuple[dict[TopicPartition, tuple[nodes.PartitionState, int]], list[str]]:
        """Return the states that leaders changed by their notices, and the paths of the notices; watched."""
        paths = [
            f"{nodes.ISR_CHANGE_NOTIFICATIONS}/{name}"
            for name in sorted(await self.children(nodes.ISR_CHANGE_NOTIFICATIONS))
        ]
        keys: dict[TopicPartition, None] = {}
        for node in await self._store.get_many(paths):
            if node is not None:
                with suppress(nodes.NodeFormatError):
                    keys.update(dict.fromkeys(nodes.decode_partition_list(node[0])))
        return await self.states(keys), paths

    async def disk_events(self) -> tuple[frozenset[int], list[str]]:
        """Return the brokers that left a notice about their disks, and the paths of the notices; watched."""
        paths = [f"{nodes.LOG_DIR_EVENTS}/{name}" for name in sorted(await self.children(nodes.LOG_DIR_EVENTS))]
        brokers = set()
        for node in await self._store.get_many(paths):
            if node is not None:
                with suppress(nodes.NodeFormatError):
                    brokers.add(nodes.decode_log_dir_event(node[0]))
        return frozenset(brokers), paths

    async def preferred_election(self) -> list[TopicPartition] | None:
        """Return the partitions of /admin/preferred_replica_election, None without such a node; watched."""
        await self.exists(nodes.PREFERRED_ELECTION)
        node = await self._store.get(nodes.PREFERRED_ELECTION)
        if node is None:
            return None
        try:
            return nodes.decode_partition_list(node[0])
        except nodes.NodeFormatError as error:
            _log.warning("Preferred election ignored: %s", error)
            return []

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Return the requests of /admin/reassign_partitions, None without such a node; watched."""
        await self.exists(nodes.REASSIGNMENT)
        node = await self._store.get(nodes.REASSIGNMENT)
        if node is None:
            return None
        try:
            return nodes.decode_reassignments(node[0])
        except nodes.NodeFormatError as error:
            _log.warning("Reassignment ignored: %s", error)
            return {}

    async def cluster(self, before: Cluster) -> Cluster:
        """Return the whole context. `before` has what no node holds: the brokers that shut down, the failed
        replicas."""
        brokers = {}
        for id_, (registration, epoch) in (await self.brokers()).items():
            known = before.brokers.get(id_)
            same_life = known is not None and known.epoch == epoch
            brokers[id_] = LiveBroker(registration, epoch, same_life and known is not None and known.shutting_down)
        read = await self.topics(sorted(await self.topic_names()))
        states = await self._states(
            TopicPartition(name, index) for name, t in read.items() for index in t.assignment.partitions
        )
        returned: set[tuple[str, int, int]] = set()
        moving: set[TopicPartition] = set()
        topics = {}
        turns = self._gate.turns()
        for name, found in read.items():
            partitions = {}
            for index, assignment in found.assignment.partitions.items():
                await turns.next()
                state = states.get(TopicPartition(name, index))
                if is_moving(assignment):
                    moving.add(TopicPartition(name, index))
                if state is None:
                    partitions[index] = Partition(assignment)
                    continue
                partitions[index] = Partition(assignment, state[0], state[1].version)
                for id_ in () if state[0] is None else state[0].isr:
                    if id_ in brokers and 0 < state[1].mzxid < brokers[id_].epoch:
                        returned.add((name, index, id_))
            topics[name] = Topic(found.assignment.topic_id, partitions, found.version, found.unclean)
        failed = frozenset(
            replica
            for replica in before.failed
            if replica[2] in brokers and brokers[replica[2]].epoch == before.brokers[replica[2]].epoch
        )
        return Cluster(
            before.controller_id, before.epoch, brokers, topics, failed, frozenset(moving), frozenset(returned)
        )
