"""The nodes of a broker that joins the cluster: those that must exist, the cluster id, its id, its registration."""

from __future__ import annotations

from contextlib import suppress

from gregor.protocol.ids import random_uuid, uuid_to_text
from gregor.replication.store.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NodeExists,
    Set,
    Stat,
    StoreError,
    ancestors_of,
)
from gregor.replication.store.nodes import (
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
    encode_broker,
    encode_cluster_id,
    encode_log_dir_event,
    encode_producer_id_block,
)


class BrokerIdInUse(StoreError):
    """Another live session is registered under this broker id."""


async def make_persistent_nodes(store: MetadataStore) -> None:
    """Create the nodes that tools and other brokers rely on, those of a new cluster with one write."""
    paths = list(dict.fromkeys(path for leaf in PERSISTENT_PATHS for path in (*ancestors_of(leaf), leaf)))
    missing = [path for path in paths if await store.exists(path) is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except NodeExists:  # another broker makes them at the same time
        for path in missing:
            with suppress(NodeExists):
                await store.create(path)


async def join_cluster(store: MetadataStore, wanted: str | None = None) -> str:
    """Return the cluster's id; if it has none yet, `wanted` (that of the data folder) or a new one becomes it."""
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
    """Return a broker id that was never used, above `reserved.broker.max.id`: the sequence node's version counts
    them."""
    stat = await store.set(BROKER_SEQUENCE, b"")
    return reserved_max_id + stat.version


async def register(store: MetadataStore, broker: BrokerRegistration) -> int:
    """Register for as long as the session lasts; returns the broker epoch.

    Raises BrokerIdInUse if another session holds the number. Registering again in one session replaces the data.
    """
    path, data = broker_path(broker.broker_id), encode_broker(broker)
    while True:
        try:
            # The set is there for its result, the Stat, and because Kafka does the same: the node's version is 1.
            stat = (await store.multi([Create(path, data, ephemeral=True), Set(path, data, 0)]))[1]
        except NodeExists:
            found = await store.exists(path)
            if found is None:
                continue  # the session that held it ended just now
            if found.ephemeral_owner != store.session_id:
                raise BrokerIdInUse(path, "registered by another session, still alive") from None
            stat = await store.set(path, data)
        assert isinstance(stat, Stat)
        return stat.czxid


async def announce_disk_event(store: MetadataStore, broker_id: int) -> None:
    """Have the controller check again which replicas this broker serves: a data folder failed, or works again."""
    await store.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker_id), sequential=True)


async def pass_over_producer_ids(store: MetadataStore, broker_id: int, now_ms: int) -> None:
    """Begin with unused producer ids where none was ever claimed: for a store that is younger than the logs. The ids in
    the logs come from another store, which counted from 0 and may continue to; a new producer with one of these ids
    would be mistaken for the earlier one."""
    node = await store.get(PRODUCER_ID_BLOCK)
    if node is not None and not node[0]:
        first_id = now_ms // PRODUCER_IDS_PER_BLOCK * PRODUCER_IDS_PER_BLOCK
        block = ProducerIdBlock(broker_id, first_id, first_id + PRODUCER_IDS_PER_BLOCK - 1)
        with suppress(BadVersion):  # of several brokers that start at the same time one has done it
            await store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), node[1].version)
