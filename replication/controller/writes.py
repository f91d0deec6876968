"""The controller's writes. Each is done only by the present controller: every multi checks the version of
/controller_epoch, so that a controller that was replaced without its knowledge cannot write any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

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

# ZooKeeper accepts requests up to 1 MB; a partition's state and path are about 200 bytes.
# Here the limit is the time for which one multi holds up an event loop: some milliseconds.
MAX_OPERATIONS = 150
MAX_WRITES_AT_ONCE = 4


class Fenced(Exception):
    """Another controller was elected."""


class ControllerWrites:
    """Writes of all terms; `begin_term` is called at each election."""

    def __init__(self, store: MetadataStore, gate: Gate) -> None:
        self.epoch_version = -1
        self._store = store
        self._gate = gate

    def begin_term(self, epoch_version: int) -> None:
        """Writes are valid as long as the node of the controller epoch has this version."""
        self.epoch_version = epoch_version

    async def write(self, write: Write | WriteLast) -> None:
        """Raises the first error; operations behind it in the same group of multis may be done all the same."""
        batches: list[list[Operation]] = [[]]
        for part in write.parts:
            if len(batches[-1]) + len(part) > MAX_OPERATIONS:
                batches.append([])
            batches[-1].extend(part)
        # The store does them in order, without a round trip between two of them.
        for first in range(0, len(batches), MAX_WRITES_AT_ONCE):
            group = batches[first : first + MAX_WRITES_AT_ONCE]
            results = await asyncio.gather(*map(self._create_missing, group), return_exceptions=True)
            for result in results:
                if result is not None:
                    raise result

    async def _create_missing(self, operations: list[Operation]) -> None:
        """Do a multi whose empty parents may exist already: Kafka creates them apart from the rest."""
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
        """Do operations as one multi that checks the controller epoch. Raises Fenced, and what the store raises."""
        if operations:
            await self._checked(operations)

    async def confirm_term(self) -> None:
        """Raise Fenced if another controller was elected: for answers that may need no write."""
        await self._checked([])

    async def _checked(self, operations: list[Operation]) -> None:
        try:
            await self._store.multi([Check(nodes.CONTROLLER_EPOCH, self.epoch_version), *operations])
        except (BadVersion, NoNode) as error:
            if error.path == nodes.CONTROLLER_EPOCH:
                raise Fenced from error
            raise

    async def delete(self, paths: Iterable[str]) -> None:
        """Delete nodes, each by itself, that may be gone already."""
        for path in paths:
            with suppress(NoNode):
                await self.guarded([Delete(path)])

    async def delete_children(self, path: str) -> None:
        with suppress(NoNode):
            await self.delete([f"{path}/{name}" for name in await self._store.children(path)])

    async def drop_reassignments(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        """Remove requests from /admin/reassign_partitions, and with the last the node; see DropReassignments."""
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
        """Delete the nodes of a topic, its settings, and the request to delete it."""
        path = nodes.topic_path(name)
        made = await self._store.exists(path)
        # Usually there are only the nodes that brokers make; listing the children of each partition costs a request.
        subnodes = await self._usual_nodes(name)
        while True:
            # In one multi with the topic's own node: the next topic of that name must keep its settings, and its nodes.
            last = subnodes[-1:]
            for beside in (nodes.config_path("topics", name), nodes.delete_topic_path(name)):
                if await self._store.exists(beside) is not None:
                    last.append(beside)
            try:
                below = subnodes[:-1]
                while len(below) + len(last) > MAX_OPERATIONS and below:
                    await self.guarded([Delete(one) for one in below[:MAX_OPERATIONS]])
                    del below[:MAX_OPERATIONS]
                await self.guarded([Delete(one) for one in (*below, *last)])
                break
            except (NoNode, NotEmpty):
                # There are more nodes, or fewer: partitions that never had a leader, or another process writes there.
                found = await self._store.exists(path)
                if found is not None and (made is None or found.czxid != made.czxid):
                    break  # another topic: this one is gone, though the response to its deletion was lost
                subnodes = await subtree(self._store, path, self._gate)

    async def _usual_nodes(self, name: str) -> list[str]:
        """Return the nodes of a topic all of whose partitions had a leader, children before parents."""
        found = []
        turns = self._gate.turns()
        try:
            for index in await self._store.children(nodes.partitions_path(name)):
                await turns.next()
                path = f"{nodes.partitions_path(name)}/{index}"
                found += [f"{path}/state", path]
        except NoNode:
            return await subtree(self._store, nodes.topic_path(name), self._gate)
        return [*found, nodes.partitions_path(name), nodes.topic_path(name)]
