"""Controlled shutdown: before a broker of a cluster stops, its leaderships move to other brokers. Clients find the new
leaders while the old one still answers, and no leader waits for a follower that is gone.

Rules and settings (`controlled.shutdown.*`) are Apache Kafka's. Beyond those, an attempt begins early when another
controller is known, and none is made when no other broker is left that could lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.channels.controller_channel import ControllerChannel
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.metadata_store import MetadataStore

_POLL_EVERY_S = 0.01
_NOTIFIED_WITHIN_S = 2.0
"""After the controller's answer, the time within which its LeaderAndIsr requests must have arrived here."""


async def controlled_shutdown(
    config: BrokerConfig,
    channel: ControllerChannel,
    store: MetadataStore,
    image: MetadataImage,
    replicas: ReplicaManager,
    broker_epoch: int,
) -> bool:
    """Move the leaderships to other brokers. Returns whether this broker leads no partition any more that has other
    replicas."""
    if not config["controlled.shutdown.enable"]:
        return False
    # If this broker has lost ZooKeeper, the controller mostly has, too, and can elect no leaders.
    attempts: int = config["controlled.shutdown.max.retries"] if store.is_connected else 1
    pause_s: float = config["controlled.shutdown.retry.backoff.ms"] / 1000
    request = ControlledShutdownRequest(broker_id=replicas.broker_id, broker_epoch=broker_epoch)
    for attempt in range(attempts):
        if image.brokers.keys() <= {replicas.broker_id}:
            return False
        controller_id = image.controller_id
        if await _request_shutdown(channel, request):
            await _until(lambda: not _leads_for_others(replicas), _NOTIFIED_WITHIN_S)
            return True
        if attempt < attempts - 1:
            await _until(
                lambda before=controller_id: image.controller_id != before or len(image.brokers) <= 1,  # type: ignore[misc]
                pause_s,
            )
    if _leads_for_others(replicas):
        logger.warning(
            "controlled shutdown: this broker stops although it still leads partitions that have other replicas"
        )
    return False


async def _request_shutdown(channel: ControllerChannel, request: ControlledShutdownRequest) -> bool:
    """Send the request; return whether the controller has moved all leaderships."""
    try:
        answer: ControlledShutdownResponse = await channel.send(request)
    except OSError as error:
        logger.info("controlled shutdown: the controller cannot be reached: %s", error)
        return False
    if answer.error_code:
        logger.info("controlled shutdown: the controller answers %s", ErrorCode(answer.error_code).name)
    elif answer.remaining_partitions:
        logger.info(
            "controlled shutdown: %d partitions have no other in-sync replica that could lead them",
            len(answer.remaining_partitions),
        )
    return not answer.error_code and not answer.remaining_partitions


def _leads_for_others(replicas: ReplicaManager) -> bool:
    return any(partition.is_leader and len(partition.replicas) > 1 for partition in replicas.partitions.values())


async def _until(holds: Callable[[], bool], timeout_s: float) -> None:
    for _ in range(round(timeout_s / _POLL_EVERY_S)):
        if holds():
            break
        await asyncio.sleep(_POLL_EVERY_S)
