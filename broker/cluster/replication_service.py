"""What a broker of a cluster does for its replicas all the time: it follows leaders, and watches over its followers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from gregor.broker.fetch.follower_sessions import FollowerSessions
from gregor.broker.jobs.maintenance import flush_log
from gregor.broker.log import logger
from gregor.replication.partition.replica_fetchers import Followers, FollowerSettings
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.partition.throttle import ReplicaThrottle

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.log.log import Log

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
_REQUESTS_LOGGED = 20
_REQUESTS_LOGGED_EVERY_S = 1.0


class AlterPartitionManager(Protocol):
    """The way of a proposed in-sync set to the controller, and of its word back into the partition."""

    def submit(self, partition: Partition) -> None: ...


class Replicating:
    """From `start()` until `close()`, which must come before the logs are closed."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        image: MetadataImage,
        background: Background,
        clock_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        withdraw: Callable[[], Awaitable[None]],
        alter_partition: AlterPartitionManager | None = None,
    ) -> None:
        """`broker_epoch` tells the epoch of this broker's present registration, `withdraw` writes recovery points that
        fell to where they are kept."""
        self._config = config
        self._replicas = replicas
        self._background = background
        self._clock_ms = clock_ms
        self._alter_partition = alter_partition
        self._proposed = 0  # since the log was told last
        if config["replica.selector.class"] not in (None, RACK_AWARE_SELECTOR, LEADER_SELECTOR):
            logger.warning(
                "replica.selector.class: gregor has only %s; consumers fetch from leaders", RACK_AWARE_SELECTOR
            )
        self.follower_sessions = sessions = FollowerSessions(
            config["max.incremental.fetch.session.cache.slots"],
            propose_isr=self.propose,
            throttle=ReplicaThrottle(
                config.broker_id, lambda: config["leader.replication.throttled.rate"], time.monotonic
            ),
            tells_at_once=config["replica.selector.class"] == RACK_AWARE_SELECTOR,
        )
        takes = ReplicaThrottle(config.broker_id, lambda: config["follower.replication.throttled.rate"], time.monotonic)
        image.on_update.append(lambda: sessions.forget(image.is_alive))
        self._image = image
        self._alive = frozenset(image.brokers)
        image.on_update.append(self._brokers_changed)
        self.followers = Followers(
            FollowerSettings.of(config),
            replicas,
            image,
            clock_ms,
            broker_epoch,
            self._flush,
            withdraw,
            background.gate,
            config["num.replica.fetchers"],
            takes,
        )

    def start(self) -> None:
        self._background.spawn(self._shrink_again_and_again())

    def settings_changed(self) -> None:
        """Dynamic settings of the broker may be others."""
        self.followers.resize(self._config["num.replica.fetchers"])

    async def _flush(self, log: Log) -> None:
        await flush_log(log, self._background, self._clock_ms())

    async def close(self) -> None:
        await self.followers.close()

    # -- in-sync sets ----------------------------------------------------------------------------------------------

    def propose(self, partition: Partition, isr: list[int]) -> None:
        """Ask the controller for another in-sync set."""
        if self._alter_partition is not None:
            if self._proposed < _REQUESTS_LOGGED:
                name = f"{partition.topic}-{partition.partition}"
                logger.info("%s: in-sync replicas %s are requested instead of %s", name, isr, partition.isr)
            if not self._proposed:
                asyncio.get_running_loop().call_later(_REQUESTS_LOGGED_EVERY_S, self._log_requests)
            self._proposed += 1
            partition.in_sync.propose(isr)
            self._alter_partition.submit(partition)

    def _log_requests(self) -> None:
        """A broker that goes or comes changes thousands of sets: a line for each holds the loop up."""
        if self._proposed > _REQUESTS_LOGGED:
            logger.info(
                "alter partition: other in-sync replicas are requested for %d more partitions",
                self._proposed - _REQUESTS_LOGGED,
            )
        self._proposed = 0

    async def _shrink_again_and_again(self) -> None:
        # Twice in the time that a follower may lag, as Kafka does: it is out of the set after 1.5 times that at most.
        every_s = self._config["replica.lag.time.max.ms"] / 2000
        while True:
            await asyncio.sleep(every_s)
            turns = self._background.gate.turns()
            for partition in list(self._replicas.partitions.values()):
                await turns.next()
                if not partition.is_leader:
                    continue
                try:
                    if (isr := partition.in_sync.isr_to_shrink(partition.log_end_offset, self._clock_ms())) is not None:
                        self.propose(partition, isr)
                    partition.check_progress(self._clock_ms())
                except Exception:  # a bug: the other partitions, and the next look, must not be lost with it
                    logger.exception(
                        "%s-%d: its in-sync replicas could not be checked", partition.topic, partition.partition
                    )

    def _brokers_changed(self) -> None:
        alive = frozenset(self._image.brokers)
        if not self._alive <= alive:
            self._background.spawn(self._check_high_watermarks())
        self._alive = alive

    async def _check_high_watermarks(self) -> None:
        """A broker is gone: nobody waits for it any more."""
        turns = self._background.gate.turns()
        for partition in list(self._replicas.partitions.values()):
            await turns.next()
            partition.check_progress(self._clock_ms())
