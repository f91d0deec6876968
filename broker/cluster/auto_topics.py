"""Automatic creation of topics: the internal ones, and those that a client names before they exist."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, INTERNAL_TOPICS

if TYPE_CHECKING:
    from gregor.broker.cluster.topic_forwarder import TopicForwarder
    from gregor.config.broker import BrokerConfig
    from gregor.replication.admin.topics import Admin

WARNED_EVERY_S = 30.0


class TopicCreator:
    """Creates topics on first use, each once however many clients name it at the same time."""

    def __init__(self, config: BrokerConfig, admin: Admin, forwarder: TopicForwarder | None = None) -> None:
        """`forwarder`: in a cluster, the way to a controller that is another broker; None without a cluster."""
        self._config = config
        self._admin = admin
        self._forwarder = forwarder
        self._warned_s = -math.inf
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def create(self, name: str) -> None:
        """Create the topic and wait until its leaders are known here. Raises KafkaError, but not if it exists."""
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = asyncio.ensure_future(self._create(name))
            task.add_done_callback(lambda done: self._ended(name, done))
        # Shielded: a client that disconnects must not cancel the creation for the others.
        await asyncio.shield(task)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # fetched: if every client has disconnected, asyncio would log it as never retrieved

    async def _create(self, name: str) -> None:
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            partitions = config["offsets.topic.num.partitions"]
            factor = config["offsets.topic.replication.factor"]
            if self._forwarder is None:
                # A single broker cannot have Kafka's default of 3 replicas. In a cluster the topic is created when
                # there are enough brokers: created earlier, it would keep fewer replicas from then on.
                factor = 1
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
            if self._forwarder is None or self._admin.is_controller:
                await self._admin.create_topic(name, partitions, factor, configs)
            else:
                await self._forwarder.create_topic(name, partitions, factor, configs)
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_REPLICATION_FACTOR and name in INTERNAL_TOPICS:
                self._warn(name, factor)
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _warn(self, name: str, factor: int) -> None:
        if time.monotonic() - self._warned_s > WARNED_EVERY_S:
            self._warned_s = time.monotonic()
            logger.warning(
                "%s cannot be created: it is to have %d replicas, and fewer brokers are alive. Consumer groups wait for"
                " it; start more brokers, or set offsets.topic.replication.factor to fewer",
                name,
                factor,
            )
