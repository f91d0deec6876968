"""Changed nodes become events: reads again the nodes whose watches were called, and has what they contain decided."""

from __future__ import annotations

import logging

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster
from gregor.replication.controller.events import (
    BrokersChanged,
    DiskEvents,
    Elected,
    IsrChanged,
    PreferredElection,
    Reassigned,
    Step,
    TopicsChanged,
    TopicsQueuedForDeletion,
)
from gregor.replication.controller.reader import ControllerReader
from gregor.replication.controller.reassignment import reassignment_refusal
from gregor.replication.controller.writes import ControllerWrites
from gregor.replication.store import nodes

UNWATCHED = "unwatched"
"""In place of a path: set the watches of nodes that were read without."""

_log = logging.getLogger(__name__)


class NodeChanges:
    """`cluster` in the arguments is the present context; `step` has an event decided."""

    def __init__(self, reader: ControllerReader, writes: ControllerWrites, delete_topics: bool) -> None:
        """`delete_topics`: delete.topic.enable."""
        self._reader = reader
        self._writes = writes
        self._delete_topics = delete_topics

    async def read(self, path: str, cluster: Cluster, step: Step) -> None:
        """Read one node again."""
        if path == nodes.BROKER_IDS or path.startswith(nodes.BROKER_IDS + "/"):
            await step(BrokersChanged(await self._reader.brokers()))
        elif path == nodes.TOPICS:
            await self._read_topics(cluster, step)
        elif path.startswith(nodes.TOPICS + "/"):
            name = path.removeprefix(nodes.TOPICS + "/")
            await step(TopicsChanged(await self._reader.topics([name])))
        elif path == nodes.DELETE_TOPICS:
            await self._read_deletions(cluster, step)
        elif path == nodes.ISR_CHANGE_NOTIFICATIONS:
            await self._read_isr_notifications(step)
        elif path == nodes.LOG_DIR_EVENTS:
            await self._read_disk_events(step)
        elif path == nodes.PREFERRED_ELECTION:
            await self._read_preferred_election(step)
        elif path == nodes.REASSIGNMENT:
            await self._read_reassignments(cluster, step)
        elif path == UNWATCHED:
            await self._reader.set_watches()

    async def read_everything(self, cluster: Cluster, step: Step) -> None:
        """Act as if just elected, on a context that was just read."""
        cluster = await step(Elected(await self._queued_for_deletion())) or cluster
        cluster = await self._read_isr_notifications(step) or cluster
        cluster = await self._read_disk_events(step) or cluster
        cluster = await self._read_preferred_election(step) or cluster
        await self._read_reassignments(cluster, step)

    async def _read_topics(self, cluster: Cluster, step: Step) -> None:
        # Each name is compared once: there may be tens of thousands, of which few are new and mostly none is gone.
        names, known = await self._reader.topic_names(), cluster.topics
        new = sorted(name for name in names if name not in known)
        gone = frozenset(known).difference(names) if len(names) - len(new) < len(known) else frozenset()
        await step(TopicsChanged(await self._reader.topics(new), gone))

    async def _read_deletions(self, cluster: Cluster, step: Step) -> None:
        names = await self._queued_for_deletion()
        if not names <= cluster.topics.keys():
            # A topic deleted right after its creation: the creation may not have been read yet.
            await self._read_topics(cluster, step)
        await step(TopicsQueuedForDeletion(names))

    async def _queued_for_deletion(self) -> frozenset[str]:
        """Return the topics to delete; where deletion is not allowed, remove the requests instead."""
        names = frozenset(await self._reader.children(nodes.DELETE_TOPICS))
        if self._delete_topics:
            return names
        for name in names:
            _log.warning("Topic %s is not deleted: delete.topic.enable is false", name)
        await self._writes.delete(map(nodes.delete_topic_path, names))
        return frozenset()

    async def _read_isr_notifications(self, step: Step) -> Cluster | None:
        states, paths = await self._reader.isr_notifications()
        cluster = await step(IsrChanged(states))
        await self._writes.delete(paths)
        return cluster

    async def _read_disk_events(self, step: Step) -> Cluster | None:
        brokers, paths = await self._reader.disk_events()
        cluster = await step(DiskEvents(brokers)) if brokers else None
        await self._writes.delete(paths)
        return cluster

    async def _read_preferred_election(self, step: Step) -> Cluster | None:
        keys = await self._reader.preferred_election()
        cluster = None if keys is None else await step(PreferredElection(frozenset(keys)))
        if cluster is not None:  # else all nodes are read again, this one included
            await self._writes.delete([nodes.PREFERRED_ELECTION])
        return cluster

    async def _read_reassignments(self, cluster: Cluster, step: Step) -> None:
        requested = await self._reader.reassignments()
        if requested is None:
            return
        refused: dict[TopicPartition, tuple[int, ...] | None] = {}
        targets: dict[TopicPartition, tuple[int, ...] | None] = {}
        for key, target in requested.items():
            # As with Apache Kafka, old tools may name brokers that are not alive.
            error = reassignment_refusal(cluster, key, target, any_broker=True)
            if error is not None:
                _log.warning("Reassignment of %s-%d to %s ignored: %s", *key, list(target), error)
                refused[key] = target
            else:
                targets[key] = target
        if refused or not requested:
            await self._writes.drop_reassignments(refused)
        if targets:
            await step(Reassigned(targets))
