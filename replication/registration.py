"""A broker's entry into the cluster: the nodes that must exist, the cluster id, its own number, its registration, and
blocks of producer ids."""

from __future__ import annotations

from protocol.ids import random_uuid, uuid_to_text
from replication.metadata_store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    MetadataStore,
    NodeExists,
    Set,
    Stat,
    StoreError,
)
from replication.nodes import (
    BROKER_SEQUENCE,
    CLUSTER_ID,
    LOG_DIR_EVENT_PREFIX,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    PRODUCER_IDS_PER_BLOCK,
    BrokerRegistration,
    ProducerIdBlock,
    broker_path,
    decode_cluster_id,
    decode_producer_id_block,
    encode_broker,
    encode_cluster_id,
    encode_log_dir_event,
    encode_producer_id_block,
)

MAX_PRODUCER_ID = 2**63 - 1


class BrokerIdTaken(StoreError):
    """Another live session is registered under this broker id."""


async def make_persistent_nodes(store: MetadataStore) -> None:
    """The nodes that tools and other brokers count on."""
    for path in PERSISTENT_PATHS:
        if await store.exists(path) is None:
            try:
                await store.create(path, make_parents=True)
            except NodeExists:
                continue


async def join_cluster(store: MetadataStore, wanted: str | None = None) -> str:
    """The cluster's id; if it has none yet, `wanted` (that of the data folder) or a fresh one becomes it."""
    while True:
        node = await store.get(CLUSTER_ID)
        if node is not None:
            return decode_cluster_id(node[0])
        cluster_id = wanted or uuid_to_text(random_uuid())
        try:
            await store.create(CLUSTER_ID, encode_cluster_id(cluster_id), make_parents=True)
            return cluster_id
        except NodeExists:
            continue


async def generate_broker_id(store: MetadataStore, reserved_max_id: int) -> int:
    """A number nobody had, above `reserved.broker.max.id`: the sequence node's version counts them."""
    stat = await store.set(BROKER_SEQUENCE, b"")
    return reserved_max_id + stat.version


async def register(store: MetadataStore, broker: BrokerRegistration) -> int:
    """Register for as long as the session lasts; returns the broker epoch.

    Raises BrokerIdTaken if another session holds the number. Registering again in one session replaces the data.
    """
    path, data = broker_path(broker.broker_id), encode_broker(broker)
    try:
        # The set is there for its answer, the Stat, and because Kafka does the same: the node's version is 1.
        stat = (await store.multi([Create(path, data, ephemeral=True), Set(path, data, 0)]))[1]
    except NodeExists:
        found = await store.exists(path)
        if found is not None and found.ephemeral_owner != store.session_id:
            raise BrokerIdTaken(path, "registered by another session, still alive") from None
        stat = await store.set(path, data)
    assert isinstance(stat, Stat)
    return stat.czxid


async def announce_disk_event(store: MetadataStore, broker_id: int) -> None:
    """Have the controller ask this broker again what it can serve: a data folder failed, or is well again."""
    await store.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker_id), sequential=True)


async def pass_over_producer_ids(store: MetadataStore, broker_id: int, now_ms: int) -> None:
    """Where no producer id was ever given out, begin with ids that nobody else has: for a store that is younger than
    the logs. Ids in these come from another one, which counted from 0 and may go on doing so; a producer that got one
    of them would be taken for the one that had it before."""
    node = await store.get(PRODUCER_ID_BLOCK)
    if node is not None and not node[0]:
        first_id = now_ms // PRODUCER_IDS_PER_BLOCK * PRODUCER_IDS_PER_BLOCK
        block = ProducerIdBlock(broker_id, first_id, first_id + PRODUCER_IDS_PER_BLOCK - 1)
        await store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), node[1].version)


class ProducerIdAllocator:
    """Producer ids nobody else gets: blocks of 1000 from one node, then one by one. A rest is lost at a restart."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._claiming = False

    async def next_id(self) -> int:
        while self._next > self._last:
            if self._claiming:
                # Somebody fetches a block already. The store answers in order: this comes after it.
                await self._store.multi([Check(PRODUCER_ID_BLOCK, ANY_VERSION)])
                continue
            self._claiming = True
            try:
                block = await self._claim()
                self._next, self._last = block.first_id, block.last_id
            finally:
                self._claiming = False
        self._next += 1
        return self._next - 1

    async def _claim(self) -> ProducerIdBlock:
        while True:
            node = await self._store.get(PRODUCER_ID_BLOCK)
            if node is None:
                await self._store.create(PRODUCER_ID_BLOCK)
                continue
            data, stat = node
            first_id = decode_producer_id_block(data).last_id + 1 if data else 0
            last_id = first_id + PRODUCER_IDS_PER_BLOCK - 1
            if last_id > MAX_PRODUCER_ID:
                raise StoreError(PRODUCER_ID_BLOCK, "all producer ids are used up")
            block = ProducerIdBlock(self._broker_id, first_id, last_id)
            try:
                await self._store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
                return block
            except BadVersion:
                continue
