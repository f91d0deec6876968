"""The topics of KAFKA_CREATE_TOPICS: made once the broker serves, and enough others do to hold their replicas.

Every broker of a compose file may wish for the same ones: the first to ask makes them, to the others they exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.log import logger
from protocol.errors import ErrorCode, KafkaError
from replication.topics_admin import NewTopic

if TYPE_CHECKING:
    from broker.context import Broker
    from config.environment import TopicWish
    from replication.metadata_image import Endpoint

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
    broker: Broker,
    wishes: Sequence[TopicWish],
    try_again_s: float = TRY_AGAIN_S,
    give_up_s: float = GIVE_UP_S,
) -> None:
    """Ends when each topic exists or cannot; a line in the log for each."""
    left = list(wishes)
    waited_s = 0.0
    while left:
        failures = []
        for wish in left:
            try:
                await _make(broker, wish)
                logger.info("KAFKA_CREATE_TOPICS: %s is created", wish.name)
            except KafkaError as error:
                if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    logger.info("KAFKA_CREATE_TOPICS: %s exists", wish.name)
                elif error.code in _FOR_EVER or waited_s >= give_up_s:
                    logger.error("KAFKA_CREATE_TOPICS: %s is not created: %s", wish.name, error)
                else:
                    failures.append((wish, error))
        if failures and waited_s == 0:
            for wish, reason in failures:
                logger.warning("KAFKA_CREATE_TOPICS: %s has to wait: %s", wish.name, reason)
        left = [wish for wish, _ in failures]
        if left:
            await asyncio.sleep(try_again_s)
            waited_s += try_again_s


async def _make(broker: Broker, wish: TopicWish) -> None:
    configs: dict[str, str | None] = {"cleanup.policy": wish.cleanup_policy} if wish.cleanup_policy else {}
    topic = NewTopic(wish.name, wish.partitions, wish.replication_factor, configs=configs)
    try:
        result = (await broker.admin.create_topics([topic]))[0]
    except KafkaError as error:
        if error.code != ErrorCode.NOT_CONTROLLER:
            raise
        await _ask_controller(broker, topic)
        return
    if isinstance(result, KafkaError):
        raise result


async def _ask_controller(broker: Broker, topic: NewTopic) -> None:
    from protocol.messages import CreateTopicsRequest  # seldom needed
    from replication.peer import Peer, PeerError

    endpoint = _controller_endpoint(broker)
    if endpoint is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
    timeout_ms: int = broker.config["request.timeout.ms"]
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in topic.configs.items()
                ],
            )
        ],
        timeout_ms=timeout_ms,
    )
    peer = Peer(endpoint.host, endpoint.port, f"broker-{broker.broker_id}-first-topics", timeout_ms)
    try:
        answer = (await peer.ask(request)).topics[0]
    except PeerError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"the controller cannot be asked: {error}") from None
    finally:
        peer.close()
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")


def _controller_endpoint(broker: Broker) -> Endpoint | None:
    node = broker.metadata.brokers.get(broker.metadata.controller_id)
    return None if node is None else node.endpoints.get(broker.config.inter_broker_listener_name)
