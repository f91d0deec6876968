"""Producer ids: blocks of 1000 from one node, each for one broker only. The controller claims them for brokers
(KIP-730); a broker claims its own where it is alone, or where the controller does not know the request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import AllocateProducerIdsRequest
from gregor.replication.channels.controller_channel import RETRIED_FOR_S, retried
from gregor.replication.channels.peer import PeerError
from gregor.replication.store.nodes import ProducerIdBlock
from gregor.replication.store.producer_id_blocks import claim_block

if TYPE_CHECKING:
    from gregor.replication.channels.controller_channel import ControllerChannel
    from gregor.replication.store.metadata_store import MetadataStore


class BlocksOfController:
    """Claims blocks from the controller. `broker_epoch` returns the epoch of this broker's present registration."""

    def __init__(
        self, link: ControllerChannel, store: MetadataStore, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._link = link
        self._store = store
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def claim(self) -> ProducerIdBlock:
        """Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, which producers wait out, when no controller gives one."""
        try:
            # Producers must not wait for an attempt that lasts longer.
            async with asyncio.timeout(RETRIED_FOR_S):
                return await retried(self._attempt)
        except (TimeoutError, PeerError):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller gives no producer ids now"
            ) from None

    async def _attempt(self) -> ProducerIdBlock:
        if await self._link.offered(ApiKey.ALLOCATE_PRODUCER_IDS) is None:
            return await claim_block(self._store, self._broker_id)
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        answer = await self._link.send(request)
        if answer.error_code or answer.producer_id_start < 0 or answer.producer_id_len < 1:
            raise PeerError(f"the controller gives no producer ids: error {answer.error_code}")
        return ProducerIdBlock(
            self._broker_id, answer.producer_id_start, answer.producer_id_start + answer.producer_id_len - 1
        )


class ProducerIdAllocator:
    """Hands out one id after the other. The rest of a block is lost at a restart."""

    def __init__(
        self, store: MetadataStore, broker_id: int, claim: Callable[[], Awaitable[ProducerIdBlock]] | None = None
    ) -> None:
        """`claim` gets a block; by default this broker claims it itself."""
        self._store = store
        self._broker_id = broker_id
        self._claim = claim or self._claim_own
        self._next = 0
        self._last = -1
        self._claiming: asyncio.Task[ProducerIdBlock] | None = None

    async def next_id(self) -> int:
        """Raises KafkaError and StoreError as the claim of a block does."""
        while self._next > self._last:
            if self._claiming is None:
                self._claiming = asyncio.ensure_future(self._claimed())
            # Shielded: one producer that leaves must not cancel the others' block.
            await asyncio.shield(self._claiming)
        self._next += 1
        return self._next - 1

    async def _claimed(self) -> ProducerIdBlock:
        try:
            block = await self._claim()
            self._next, self._last = block.first_id, block.last_id
            return block
        finally:
            self._claiming = None

    async def _claim_own(self) -> ProducerIdBlock:
        return await claim_block(self._store, self._broker_id)
