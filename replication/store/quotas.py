"""Quotas of users, client ids and addresses, as the tools of Apache Kafka write them to ZooKeeper.

They are settings in nodes under /config/users, /config/clients, /config/ips and /config/users/<user>/clients. A user's
node may hold SCRAM credentials, too.
"""

from __future__ import annotations

import logging

from gregor.config.protection import QUOTA_KEYS
from gregor.replication.store.metadata_store import MetadataStore, NoNode
from gregor.replication.store.nodes import CONFIG, NodeFormatError, decode_config

MAX_ENTITIES = 500
"""Of each kind: they are read at the start of a broker, which must not become much longer."""

_log = logging.getLogger(__name__)


async def read_quotas(store: MetadataStore) -> dict[str, dict[str, str]]:
    """Return the quotas that are set, by the paths of their nodes."""
    users = await _children(store, f"{CONFIG}/users")
    paths = users + await _children(store, f"{CONFIG}/clients") + await _children(store, f"{CONFIG}/ips")
    clients_of_users: list[str] = []
    for user in users:
        if len(clients_of_users) < MAX_ENTITIES:
            clients_of_users += await _children(store, f"{user}/clients")
    paths += clients_of_users
    quotas: dict[str, dict[str, str]] = {}
    for path, node in zip(paths, await store.get_many(paths), strict=True):
        try:
            texts = {} if node is None else decode_config(node[0])
        except NodeFormatError as error:
            _log.warning("%s cannot be read; if it sets a quota, that has no effect: %s", path, error)
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
