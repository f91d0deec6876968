"""The topics of KAFKA_CREATE_TOPICS: created once the broker serves, and enough others do to hold their replicas.

Every broker of a compose file may name the same topics: the first request creates a topic, the others find it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.broker.cluster.topic_forwarder import TopicForwarder
from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import Gate
from gregor.replication.admin.topics import NewTopic

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.config.environment import TopicWish
    from gregor.replication.admin.topics import Admin
    from gregor.replication.partition.metadata_image import MetadataImage

TRY_AGAIN_S = 1.0
GIVE_UP_S = 600.0
"""The time that other brokers of the cluster have to start; wurstmeister's image waits as long."""

_PERMANENT = frozenset(
    (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    )
)


async def make_first_topics(
    config: BrokerConfig,
    image: MetadataImage,
    admin: Admin,
    gate: Gate,
    wishes: Sequence[TopicWish],
    try_again_s: float = TRY_AGAIN_S,
    give_up_s: float = GIVE_UP_S,
) -> None:
    """Create the topics, and return when each exists or cannot be created; a line in the log for each."""
    left = list(wishes)
    waited_s = 0.0
    forwarder = TopicForwarder(config, image, gate)
    while left:
        failures = []
        for wish in left:
            try:
                created = await _create(admin, wish, forwarder)
                logger.info(
                    "KAFKA_CREATE_TOPICS: %s", f"created {wish.name}" if created else f"{wish.name} exists already"
                )
            except KafkaError as error:
                if error.code in _PERMANENT or waited_s >= give_up_s:
                    logger.error("KAFKA_CREATE_TOPICS: %s is not created: %s", wish.name, error)
                else:
                    failures.append((wish, error))
        if failures and waited_s == 0:
            for wish, reason in failures:
                logger.warning("KAFKA_CREATE_TOPICS: the creation of %s waits: %s", wish.name, reason)
        left = [wish for wish, _ in failures]
        if left:
            await asyncio.sleep(try_again_s)
            waited_s += try_again_s
    forwarder.close()


async def _create(admin: Admin, wish: TopicWish, forwarder: TopicForwarder) -> bool:
    """Create a topic; return False if it exists already. Raises KafkaError."""
    configs = {"cleanup.policy": wish.cleanup_policy} if wish.cleanup_policy else {}
    topic = NewTopic(wish.name, wish.partitions, wish.replication_factor, configs=configs)
    try:
        result = (await admin.create_topics([topic]))[0]
    except KafkaError as error:
        if error.code != ErrorCode.NOT_CONTROLLER:
            raise
        return await forwarder.create_topic(wish.name, wish.partitions, wish.replication_factor, configs)
    if not isinstance(result, KafkaError):
        return True
    if result.code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    raise result
