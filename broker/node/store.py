"""The metadata store at the start of a broker: its own, or the ZooKeeper of its cluster, and the cluster's id in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gregor.broker.cluster.store_factory import NO_ANSWER, zookeeper_store
from gregor.broker.session_watcher.predecessor import SessionNote
from gregor.broker.session_watcher.sessions import WatchedSessions
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.features import LEVELS_OF_NEW_STORE, create_feature_node
from gregor.replication.store.metadata_store import StoreError, StoreFailed
from gregor.replication.store.registration import generate_broker_id, join_cluster, make_persistent_nodes

if TYPE_CHECKING:
    from gregor.broker.session_watcher.watcher import SessionWatcher
    from gregor.config.broker import BrokerConfig
    from gregor.replication.store.zookeeper import ZooKeeperStore
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.fs.files import Files


class StartError(Exception):
    """The broker cannot start; the message has the cause and the remedy."""


async def open_own_store(
    config: BrokerConfig,
    logs: LogManager,
    files: Files,
    lifetimes: AsyncExitStack,
    on_failed: Callable[[StoreError], None],
) -> tuple[EmbeddedStore, str]:
    """Open the store in one of the data folders; return it and the cluster's id."""
    wanted = logs.load_meta(None, config.broker_id)  # a folder that cannot be read is offline from here on
    store = EmbeddedStore(f"{home_of_store(logs, files).path}/{FILE_NAME}")
    lifetimes.push_async_callback(store.close)
    store.on_failed.append(on_failed)
    await store.start()
    await make_persistent_nodes(store)
    await create_feature_node(store, LEVELS_OF_NEW_STORE)
    return store, logs.load_meta(await join_cluster(store, wanted), config.broker_id)


async def open_zookeeper(
    config: BrokerConfig, logs: LogManager, lifetimes: AsyncExitStack, watcher: SessionWatcher | None
) -> tuple[ZooKeeperStore, str]:
    """Connect to ZooKeeper; return the store and the cluster's id, which the data folders must agree with. Set the
    broker id. `watcher`: closes the session if this process dies."""
    store = zookeeper_store(config)
    sessions: WatchedSessions | None = None
    if watcher is not None:
        sessions = WatchedSessions(config, SessionNote(logs.online_folders()[0].path), watcher)
        sessions.begin()
        lifetimes.callback(_end_sessions, sessions, store)
        store.on_new_session.append(sessions.begun)
    lifetimes.push_async_callback(store.close)
    try:
        await store.start()
    except StoreFailed as error:
        raise StartError(f"zookeeper.connect={error}; {NO_ANSWER}") from None
    if sessions is not None:
        await sessions.close_predecessor()
    await make_persistent_nodes(store)
    cluster_id = await join_cluster(store)
    given = config.broker_id if config.broker_id >= 0 else None
    agreed_id = logs.load_meta(cluster_id, given)
    if logs.broker_id is None:
        logs.load_meta(cluster_id, await generate_broker_id(store, config["reserved.broker.max.id"]))
    assert logs.broker_id is not None
    config.adopt_broker_id(logs.broker_id)
    return store, agreed_id


def _end_sessions(sessions: WatchedSessions, store: ZooKeeperStore) -> None:
    sessions.end(store.session_closed)


def home_of_store(logs: LogManager, files: Files) -> DataFolder:
    """Return the data folder of a broker's own store: the first, or the one that was first in an earlier log.dirs."""
    folders = logs.online_folders()
    for folder in folders:
        if files.exists(f"{folder.path}/{FILE_NAME}"):
            return folder
    if len(folders) < len(logs.folders):
        raise StartError(
            "the metadata store is in none of the data folders (log.dirs) that can be used, so it lies in the one "
            "that failed: without it the broker does not know its topics. Repair that folder, or remove it from "
            "log.dirs to start with the partitions of the others"
        )
    return folders[0]
