"""The replication of a broker in a cluster: it follows leaders, and checks that its followers are in sync."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from gregor.broker.fetch.follower_sessions import FollowerSessions
from gregor.broker.jobs.maintenance import flush_log
from gregor.broker.log import logger
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.replication.partition.replica_fetchers import Followers, FollowerSettings
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.partition.throttle import ReplicaThrottle
from gregor.replication.partition.truncation import TruncatedLogs

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
    """Sends a proposed in-sync set to the controller, and applies the response to the partition."""

    def submit(self, partition: Partition) -> None: ...


class Replicating:
    """Runs from `start()` until `close()`, which must come before the logs are closed."""

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
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's present registration, `withdraw` writes recovery points
        that fell to the checkpoints."""
        self._config = config
        self._replicas = replicas
        self._background = background
        self._clock_ms = clock_ms
        self._alter_partition = alter_partition
        self._proposed = 0  # since the last line in the log about them
        if config["replica.selector.class"] not in (None, RACK_AWARE_SELECTOR, LEADER_SELECTOR):
            logger.warning(
                "replica.selector.class: gregor has only %s; consumers fetch from leaders", RACK_AWARE_SELECTOR
            )
        self.follower_sessions = sessions = FollowerSessions(
            config["max.incremental.fetch.session.cache.slots"],
            alter_partition=self.propose,
            throttle=ReplicaThrottle(
                config.broker_id, lambda: config["leader.replication.throttled.rate"], time.monotonic
            ),
            notifies_at_once=config["replica.selector.class"] == RACK_AWARE_SELECTOR,
        )
        follower_throttle = ReplicaThrottle(
            config.broker_id, lambda: config["follower.replication.throttled.rate"], time.monotonic
        )
        image.on_update.append(lambda: sessions.forget(image.is_alive))
        self._image = image
        self._alive = frozenset(image.brokers)
        image.on_update.append(self._brokers_changed)
        self.followers = Followers(
            FollowerSettings.of(config, security),
            replicas,
            image,
            clock_ms,
            broker_epoch,
            TruncatedLogs(self._flush, withdraw),
            background.gate,
            config["num.replica.fetchers"],
            follower_throttle,
        )

    def start(self) -> None:
        self._background.spawn(self._shrink_regularly())

    def settings_changed(self) -> None:
        """Apply the broker's dynamic settings, which may have changed."""
        self.followers.resize(self._config["num.replica.fetchers"])

    async def _flush(self, log: Log) -> None:
        await flush_log(log, self._background, self._clock_ms())

    async def close(self) -> None:
        await self.followers.close()

    # -- in-sync sets ----------------------------------------------------------------------------------------------

    def propose(self, partition: Partition, isr: list[int]) -> None:
        """Request another in-sync set from the controller."""
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
        """Log the rest as a number: when a broker stops or starts, a line for each of thousands would hold the loop
        up."""
        if self._proposed > _REQUESTS_LOGGED:
            logger.info(
                "alter partition: other in-sync replicas are requested for %d more partitions",
                self._proposed - _REQUESTS_LOGGED,
            )
        self._proposed = 0

    async def _shrink_regularly(self) -> None:
        # Twice in replica.lag.time.max.ms, as Kafka does: a follower that lags leaves the set after 1.5 times that at
        # most.
        every_s = self._config["replica.lag.time.max.ms"] / 2000
        while True:
            await asyncio.sleep(every_s)
            turns = self._background.gate.turns()
            for _, partition in self._replicas.partitions.walk():
                await turns.next()
                if not partition.is_leader:
                    continue
                try:
                    if (isr := partition.in_sync.isr_to_shrink(partition.log_end_offset, self._clock_ms())) is not None:
                        self.propose(partition, isr)
                    partition.leadership.check_progress(self._clock_ms())
                except Exception:  # a bug: the other partitions, and the next check, must not be lost with it
                    logger.exception(
                        "%s-%d: its in-sync replicas could not be checked", partition.topic, partition.partition
                    )

    def _brokers_changed(self) -> None:
        alive = frozenset(self._image.brokers)
        if not self._alive <= alive:
            self._background.spawn(self._check_high_watermarks())
        self._alive = alive

    async def _check_high_watermarks(self) -> None:
        """A broker is gone: the high watermarks no longer wait for it."""
        turns = self._background.gate.turns()
        for _, partition in self._replicas.partitions.walk():
            await turns.next()
            partition.leadership.check_progress(self._clock_ms())
