"""What the controller writes, each time only if it is still the controller: every multi checks the version of
/controller_epoch, so that one that was replaced without knowing it can write nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.controller.events import Write, WriteLast
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    subtree,
)

# ZooKeeper takes requests up to 1 MB; a partition's state and path are about 200 bytes.
# Here the limit is what a loop may be kept from others by one multi: some milliseconds.
MAX_OPERATIONS = 150
MAX_WRITES_AT_ONCE = 4


class Fenced(Exception):
    """Another controller was elected."""


class ControllerWrites:
    """`begin_term` is to be called at each election."""

    def __init__(self, store: MetadataStore, gate: Gate) -> None:
        self.epoch_version = -1
        self._store = store
        self._gate = gate

    def begin_term(self, epoch_version: int) -> None:
        """Writes are valid as long as the node of the controller epoch has this version."""
        self.epoch_version = epoch_version

    async def write(self, write: Write | WriteLast) -> None:
        """Raises the first error; what comes behind it in the same second may have been done all the same."""
        batches: list[list[Operation]] = [[]]
        for part in write.parts:
            if len(batches[-1]) + len(part) > MAX_OPERATIONS:
                batches.append([])
            batches[-1].extend(part)
        # The store does them in order, and need not wait for us between two of them.
        for first in range(0, len(batches), MAX_WRITES_AT_ONCE):
            together = batches[first : first + MAX_WRITES_AT_ONCE]
            results = await asyncio.gather(*map(self._create_missing, together), return_exceptions=True)
            for result in results:
                if result is not None:
                    raise result

    async def _create_missing(self, operations: list[Operation]) -> None:
        """A multi that does not mind if the empty parents it creates exist: Kafka makes them apart from the rest."""
        while True:
            try:
                await self.guarded(operations)
                return
            except NodeExists as error:
                rest = [o for o in operations if not (isinstance(o, Create) and o.path == error.path and not o.data)]
                if len(rest) == len(operations):
                    raise
                operations = rest

    async def guarded(self, operations: list[Operation]) -> None:
        if not operations:
            return
        try:
            await self._store.multi([Check(nodes.CONTROLLER_EPOCH, self.epoch_version), *operations])
        except (BadVersion, NoNode) as error:
            if error.path == nodes.CONTROLLER_EPOCH:
                raise Fenced from error
            raise

    async def drop_reassignments(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        """Take requests out of /admin/reassign_partitions, which goes with the last; see DropReassignments."""
        while (node := await self._store.get(nodes.REASSIGNMENT)) is not None:
            try:
                wanted = nodes.decode_reassignments(node[0])
            except nodes.NodeFormatError:
                wanted = {}
            rest = {key: to for key, to in wanted.items() if key not in targets or targets[key] not in (None, to)}
            if rest == wanted and rest:
                return
            left: Operation = Delete(nodes.REASSIGNMENT, node[1].version)
            if rest:
                left = Set(nodes.REASSIGNMENT, nodes.encode_reassignments(rest), node[1].version)
            try:
                await self.guarded([left])
                return
            except (NoNode, BadVersion):
                continue

    async def remove_topic(self, name: str) -> None:
        path = nodes.topic_path(name)
        made = await self._store.exists(path)
        # Mostly there is just what brokers make; to look below every partition costs a request for each.
        doomed = await self._usual_nodes(name)
        while True:
            # With the topic's own node, or the next of that name would lose its settings, or be deleted in its turn.
            last = doomed[-1:]
            for beside in (nodes.config_path("topics", name), nodes.delete_topic_path(name)):
                if await self._store.exists(beside) is not None:
                    last.append(beside)
            try:
                below = doomed[:-1]
                while len(below) + len(last) > MAX_OPERATIONS and below:
                    await self.guarded([Delete(one) for one in below[:MAX_OPERATIONS]])
                    del below[:MAX_OPERATIONS]
                await self.guarded([Delete(one) for one in (*below, *last)])
                break
            except (NoNode, NotEmpty):
                # There is more, or less: partitions that never had a leader, or somebody else writes there.
                found = await self._store.exists(path)
                if found is not None and (made is None or found.czxid != made.czxid):
                    break  # another topic: this one is gone, though the answer that said so was lost
                doomed = await subtree(self._store, path, self._gate)

    async def _usual_nodes(self, name: str) -> list[str]:
        """Those of a topic of which each partition had a leader, as they can be deleted."""
        doomed = []
        turns = self._gate.turns()
        try:
            for index in await self._store.children(nodes.partitions_path(name)):
                await turns.next()
                path = f"{nodes.partitions_path(name)}/{index}"
                doomed += [f"{path}/state", path]
        except NoNode:
            return await subtree(self._store, nodes.topic_path(name), self._gate)
        return [*doomed, nodes.partitions_path(name), nodes.topic_path(name)]
