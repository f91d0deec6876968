"""Automatic creation of topics: the internal ones, and those that a client names before they exist."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, REBALANCES_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from gregor.broker.cluster.topic_forwarder import TopicForwarder
    from gregor.config.broker import BrokerConfig
    from gregor.replication.admin.topics import Admin

WARNED_EVERY_S = 30.0
MAX_REBALANCES_PARTITIONS = 8

_WAITING_FOR = {
    GROUP_METADATA_TOPIC: ("Consumer groups", "offsets.topic.replication.factor"),
    TRANSACTION_STATE_TOPIC: ("Transactional producers", "transaction.state.log.replication.factor"),
    REBALANCES_TOPIC: ("The histories of rebalances", "offsets.topic.replication.factor"),
}
"""By internal topic, the clients that wait for it, and the setting of its replication factor."""


class TopicCreator:
    """Creates topics on first use, each once however many clients name it at the same time."""

    def __init__(self, config: BrokerConfig, admin: Admin, forwarder: TopicForwarder | None = None) -> None:
        """`forwarder`: in a cluster, the way to a controller that is another broker; None without a cluster."""
        self._config = config
        self._admin = admin
        self._forwarder = forwarder
        self._warned_s: dict[str, float] = {}
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
        partitions, factor, configs = self._layout_of(name)
        try:
            if self._forwarder is None or self._admin.is_controller:
                await self._admin.create_topic(name, partitions, factor, configs)
            else:
                await self._forwarder.create_topic(name, partitions, factor, configs)
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_REPLICATION_FACTOR and name in _WAITING_FOR:
                self._warn(name, factor)
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _layout_of(self, name: str) -> tuple[int, int, dict[str, str]]:
        """Return the number of partitions, the replication factor and the settings of a topic.

        A single broker cannot have Kafka's default of 3 replicas of an internal topic. In a cluster such a topic is
        created when there are enough brokers: created earlier, it would keep fewer replicas from then on. The settings
        are those of Kafka's GroupCoordinatorService and TransactionStateManager.
        """
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            partitions = config["offsets.topic.num.partitions"]
            factor = 1 if self._forwarder is None else config["offsets.topic.replication.factor"]
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            }
        elif name == TRANSACTION_STATE_TOPIC:
            partitions = config["transaction.state.log.num.partitions"]
            factor = self._unless_set("transaction.state.log.replication.factor")
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(self._unless_set("transaction.state.log.min.isr")),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            }
        elif name == REBALANCES_TOPIC:
            # Few: a group's history is small, and only a report reads it. More would be more files and fetches.
            partitions = min(MAX_REBALANCES_PARTITIONS, config["offsets.topic.num.partitions"])
            factor = 1 if self._forwarder is None else config["offsets.topic.replication.factor"]
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            }
        else:
            partitions, factor, configs = config["num.partitions"], config["default.replication.factor"], {}
        return partitions, factor, configs

    def _unless_set(self, key: str) -> int:
        """Return the value of a setting; 1 on a single broker whose operator has not set it."""
        value: int = self._config[key]
        return 1 if self._forwarder is None and key not in self._config.static_texts else value

    def _warn(self, name: str, factor: int) -> None:
        if time.monotonic() - self._warned_s.get(name, -math.inf) > WARNED_EVERY_S:
            self._warned_s[name] = time.monotonic()
            waiting, key = _WAITING_FOR[name]
            logger.warning(
                "%s cannot be created: it is to have %d replicas, and fewer brokers are alive. %s wait for it; start"
                " more brokers, or set %s to fewer",
                name,
                factor,
                waiting,
                key,
            )
