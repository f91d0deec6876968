"""Offsets of consumer groups as they were before groups had a coordinator: nodes of the metadata tree.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as bare decimal text (Kafka's ConsumerOffset). Commits
and fetches of version 0 write and read them; nothing else does, and they never expire.
"""

from __future__ import annotations

import re

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.store.metadata_store import MetadataStore, NodeExists, NoNode, StoreError
from gregor.replication.store.nodes import CONSUMERS

_OFFSET = re.compile(rb"-?[0-9]{1,19}")


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


class ConsumerOffsets:
    """Reads and writes the nodes of offsets. Topic and partition are known to exist."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Raises KafkaError: INVALID_GROUP_ID for a group that cannot be a node's name, or the store's refusal."""
        path = consumer_offset_path(_node_name(group), topic, partition)
        data = b"%d" % offset
        while True:
            try:
                try:
                    await self._store.set(path, data)
                except NoNode:
                    await self._store.create(path, data, make_parents=True)
                return
            except NodeExists:
                continue  # another broker made it in the meantime
            except StoreError as error:
                raise _refusal(error) from None

    async def fetch(self, group: str, topic: str, partition: int) -> int | None:
        """Return the offset; None if none was committed, or the node holds no number. Raises KafkaError as `commit`."""
        try:
            found = await self._store.get(consumer_offset_path(_node_name(group), topic, partition))
        except StoreError as error:
            raise _refusal(error) from None
        if found is None or _OFFSET.fullmatch(found[0]) is None:
            return None
        return int(found[0])


def _node_name(group: str) -> str:
    if group in ("", ".", "..") or any(char == "/" or char < " " for char in group):
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"{group!r} cannot be the name of a node")
    return group


def _refusal(error: StoreError) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
