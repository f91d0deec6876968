"""Quotas of users, client ids and addresses, as the tools of Apache Kafka write them to ZooKeeper.

They are settings in nodes under /config/users, /config/clients, /config/ips and /config/users/<user>/clients. A user's
node may hold SCRAM credentials, too.
"""

from __future__ import annotations

import logging

from gregor.config.protection import QUOTA_KEYS
from gregor.replication.store.metadata_store import MetadataStore, NoNode, StoreFailed
from gregor.replication.store.nodes import CONFIG, NodeFormatError, decode_config

MAX_ENTITIES = 100
"""Of each kind: they are read at the start of a broker, one user after the other, which must not become much longer."""

_log = logging.getLogger(__name__)


async def read_quotas(store: MetadataStore) -> dict[str, dict[str, str]]:
    """Return the quotas that are set, by the paths of their nodes. Nodes that this broker may not read are named in the
    log: no start fails because of them."""
    try:
        return await _read(store)
    except StoreFailed as error:
        _log.warning(
            "Quotas below %s/users, clients and ips cannot be read: %s. If some are set, they have no effect here.",
            CONFIG,
            error,
        )
        return {}


async def _read(store: MetadataStore) -> dict[str, dict[str, str]]:
    users = await _children(store, f"{CONFIG}/users")
    paths = users + await _children(store, f"{CONFIG}/clients") + await _children(store, f"{CONFIG}/ips")
    of_users: list[str] = []
    for user in users:
        if len(of_users) < MAX_ENTITIES:
            of_users += await _children(store, f"{user}/clients")
    paths += of_users[:MAX_ENTITIES]
    quotas: dict[str, dict[str, str]] = {}
    for path, node in zip(paths, await store.get_many(paths), strict=True):
        try:
            texts = {} if node is None else decode_config(node[0])
        except NodeFormatError:  # without its text, which may name a user's credentials
            _log.warning("%s has no settings in Kafka's form; if it sets a quota, that has no effect", path)
            continue
        found = {key: text for key, text in texts.items() if key in QUOTA_KEYS}
        if found:
            quotas[path] = found
    return quotas


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return [f"{path}/{name}" for name in sorted(await store.children(path))[:MAX_ENTITIES]]
    except NoNode:
        return []
