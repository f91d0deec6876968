"""The topics of KAFKA_CREATE_TOPICS: made once the broker serves, and enough others do to hold their replicas.

Every broker of a compose file may wish for the same ones: the first to ask makes them, to the others they exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.broker.cluster.topic_requests import TopicRequests
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
"""Other brokers of the cluster have this long to come; wurstmeister's image waits as long."""

_FOR_EVER = frozenset(
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
    """Ends when each topic exists or cannot; a line in the log for each."""
    left = list(wishes)
    waited_s = 0.0
    requests = TopicRequests(config, image, gate)
    while left:
        failures = []
        for wish in left:
            try:
                await _make(admin, wish, requests)
                logger.info("KAFKA_CREATE_TOPICS: created %s", wish.name)
            except KafkaError as error:
                if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    logger.info("KAFKA_CREATE_TOPICS: %s exists already", wish.name)
                elif error.code in _FOR_EVER or waited_s >= give_up_s:
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
    requests.close()


async def _make(admin: Admin, wish: TopicWish, requests: TopicRequests) -> None:
    configs = {"cleanup.policy": wish.cleanup_policy} if wish.cleanup_policy else {}
    topic = NewTopic(wish.name, wish.partitions, wish.replication_factor, configs=configs)
    try:
        result = (await admin.create_topics([topic]))[0]
    except KafkaError as error:
        if error.code != ErrorCode.NOT_CONTROLLER:
            raise
        await requests.create_topic(wish.name, wish.partitions, wish.replication_factor, configs)
        return
    if isinstance(result, KafkaError):
        raise result
