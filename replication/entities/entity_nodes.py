"""The nodes of users, client ids and addresses below /config: a change of one, and its notice to all brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gregor.replication.store.change_notices import changed_with_notice
from gregor.replication.store.metadata_store import Create, MetadataStore, Operation, Set
from gregor.replication.store.nodes import (
    CONFIG_CHANGE_PREFIX,
    config_path,
    decode_config,
    encode_config,
    encode_config_change,
)

Edit = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns all settings of an entity after a change, from those before."""


async def alter_entity(store: MetadataStore, entity_type: str, node_name: str, edit: Edit) -> bytes:
    """Change the settings of an entity, notify all brokers, and return the node's new content.

    Raises what `edit` raises, and NodeFormatError for a node that cannot be decoded: it may hold settings of another
    kind, so it is not overwritten.
    """
    path = config_path(entity_type, node_name)
    notice = Create(CONFIG_CHANGE_PREFIX, encode_config_change(f"{entity_type}/{node_name}"), sequential=True)
    while True:
        node = await store.get(path)
        after = edit(decode_config(b"" if node is None else node[0]))
        if node is None and not after:
            return b""
        data = encode_config(after)
        write: Operation = Create(path, data) if node is None else Set(path, data, node[1].version)
        if await changed_with_notice(store, write, notice):
            return data
