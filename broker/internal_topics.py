"""The broker's own topics, and topics made because somebody used their name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from config.broker import BrokerConfig
    from replication.metadata_image import MetadataImage
    from replication.topics_admin import Admin

GROUP_METADATA_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, "__transaction_state"})


class TopicCreator:
    """Creates topics on first use, each once however many clients ask for it at the same time."""

    def __init__(self, config: BrokerConfig, admin: Admin, metadata: MetadataImage) -> None:
        self._config = config
        self._admin = admin
        self._metadata = metadata
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def create(self, name: str) -> None:
        """Create the topic and wait until its leaders are known here. Raises KafkaError, but not if it exists."""
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = asyncio.ensure_future(self._create(name))
            task.add_done_callback(lambda done: self._ended(name, done))
        # Shielded: one client that leaves must not cancel the others' topic.
        await asyncio.shield(task)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # fetched: those who asked may all have left, and asyncio would report it as lost

    async def _create(self, name: str) -> None:
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            partitions = config["offsets.topic.num.partitions"]
            # Kafka's default of 3 replicas is a wish: a smaller cluster gets as many as it has brokers.
            factor = min(config["offsets.topic.replication.factor"], max(1, len(self._metadata.brokers)))
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            }
        elif name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} belongs to a part that is not built yet")
        else:
            partitions, factor, configs = config["num.partitions"], config["default.replication.factor"], {}
        try:
            await self._admin.create_topic(name, partitions, factor, configs)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
