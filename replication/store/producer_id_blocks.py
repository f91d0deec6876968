"""The node of the blocks of producer ids: each id is in one block, each block belongs to one broker."""

from __future__ import annotations

from gregor.replication.store.metadata_store import BadVersion, MetadataStore, StoreError
from gregor.replication.store.nodes import (
    PRODUCER_ID_BLOCK,
    PRODUCER_IDS_PER_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)

MAX_PRODUCER_ID = 2**63 - 1


async def claim_block(store: MetadataStore, broker_id: int) -> ProducerIdBlock:
    """Claim the next block for this broker. Raises StoreError."""
    while True:
        node = await store.get(PRODUCER_ID_BLOCK)
        if node is None:
            await store.create(PRODUCER_ID_BLOCK)
            continue
        data, stat = node
        first_id = decode_producer_id_block(data).last_id + 1 if data else 0
        last_id = first_id + PRODUCER_IDS_PER_BLOCK - 1
        if last_id > MAX_PRODUCER_ID:
            raise StoreError(PRODUCER_ID_BLOCK, "all producer ids are used up")
        block = ProducerIdBlock(broker_id, first_id, last_id)
        try:
            await store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
            return block
        except BadVersion:
            continue
