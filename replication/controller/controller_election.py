"""The election of the controller: the broker whose session holds /controller. The node is created in one write with the
next number in /controller_epoch. (Apache Kafka's KafkaZkClient.registerControllerAndIncrementControllerEpoch.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    SessionExpired,
    Set,
    Stat,
    StoreFailed,
    StoreFull,
)

GIVEN_UP_WITHIN_S = 5.0


class Term(NamedTuple):
    """A term that this broker was elected for."""

    epoch: int
    epoch_version: int
    """Version of the node /controller_epoch: while the node has it, there is no later term."""


class ControllerElection:
    """One broker's part in the election. `exists` returns the Stat of a node, and watches it even if it does not
    exist."""

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        exists: Callable[[str], Awaitable[Stat | None]],
        clock_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._exists = exists
        self._clock_ms = clock_ms

    async def stand(self, is_active: bool, resign: Callable[[], None]) -> Term | None:
        """Return the term that begins now; None if the term in which this broker is active continues, or another broker
        is the controller. `resign` is called as soon as this broker turns out not to be it, or not in the same term."""
        while True:
            current = await self._exists(nodes.CONTROLLER)
            if current is not None:
                if current.ephemeral_owner != self._store.session_id:
                    resign()
                elif not is_active and await self._gives_up_claim():
                    continue
                return None
            resign()
            is_active = False
            epoch_node = await self._store.get(nodes.CONTROLLER_EPOCH)
            if epoch_node is None:
                with suppress(NodeExists):
                    first = nodes.encode_controller_epoch(nodes.INITIAL_CONTROLLER_EPOCH)
                    await self._store.create(nodes.CONTROLLER_EPOCH, first)
                continue
            epoch = nodes.decode_controller_epoch(epoch_node[0]) + 1
            claim = nodes.encode_controller(self._broker_id, self._clock_ms())
            try:
                results = await self._store.multi(
                    [
                        Create(nodes.CONTROLLER, claim, ephemeral=True),
                        Set(nodes.CONTROLLER_EPOCH, nodes.encode_controller_epoch(epoch), epoch_node[1].version),
                    ]
                )
            except (NodeExists, BadVersion):
                continue
            stat = results[1]
            assert isinstance(stat, Stat)
            return Term(epoch, stat.version)

    async def _gives_up_claim(self) -> bool:
        """Delete the election node if it is this broker's, which is not the controller: another process wrote the
        epoch, or an election ended half-way. While the node exists there can be no other election. False if it is
        another's."""
        epoch_node = await self._store.get(nodes.CONTROLLER_EPOCH)
        claim = await self._store.get(nodes.CONTROLLER)  # as of that epoch, or later
        if claim is not None:
            if (
                claim[1].ephemeral_owner != self._store.session_id
                or nodes.decode_controller(claim[0]) != self._broker_id
            ):
                return False
            check = [] if epoch_node is None else [Check(nodes.CONTROLLER_EPOCH, epoch_node[1].version)]
            with suppress(NoNode, BadVersion):
                await self._store.multi([*check, Delete(nodes.CONTROLLER)])
        return True

    async def give_up(self, epoch_version: int) -> None:
        """End the term, so that another broker is elected at once; without the store the session ends by itself."""
        if self._store.is_connected:
            with suppress(NoNode, BadVersion, SessionExpired, StoreFailed, StoreFull, TimeoutError):
                async with asyncio.timeout(GIVEN_UP_WITHIN_S):
                    await self._store.multi([Check(nodes.CONTROLLER_EPOCH, epoch_version), Delete(nodes.CONTROLLER)])
