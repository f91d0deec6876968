"""The parts that a broker has as a member of a cluster only; a single broker does not load this module.

A registration that lasts as long as ZooKeeper's session, leaders that the broker follows and followers that it checks,
the auto leader rebalance while it is the controller, and a controlled shutdown when it stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.cluster.controlled_shutdown import controlled_shutdown
from gregor.broker.cluster.isolation import Isolation
from gregor.broker.cluster.membership import Membership
from gregor.broker.cluster.replication_service import Replicating
from gregor.broker.cluster.topic_forwarder import TopicForwarder
from gregor.replication.controller.auto_leader_rebalance import AutoLeaderRebalance
from gregor.replication.partition.alter_partition import AlterPartitionManager

if TYPE_CHECKING:
    from gregor.broker.fetch.follower_sessions import FollowerSessions
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.channel_security import ChannelSecurity
    from gregor.replication.channels.controller_channel import ControllerChannel
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.nodes import BrokerRegistration
    from gregor.replication.store.topic_configs import TopicConfigs
    from gregor.replication.store.zookeeper import ZooKeeperStore

_NOTIFIED_WITHIN_S = 2.0
"""The time in which a controller that stops waits for the other brokers to answer its last requests."""


@dataclass(slots=True, frozen=True)
class ClusterState:
    """The cluster as this broker has it: the metadata store, and the parts that the controller's requests change."""

    store: ZooKeeperStore
    handler: ControllerRequestHandler
    replicas: ReplicaManager
    image: MetadataImage
    configs: TopicConfigs
    security: ChannelSecurity
    """Of the connections to other brokers."""


class Member:
    """`join()`, `start()`, then `controlled_shutdown()` while the broker still serves, and `close()` before the logs
    are closed."""

    def __init__(
        self,
        config: BrokerConfig,
        state: ClusterState,
        controller: ControllerLoop,
        new_channel: Callable[[], ControllerChannel],
        background: Background,
        clock_ms: Callable[[], int],
        *,
        withdraw: Callable[[], Awaitable[None]],
        registration: Callable[[], BrokerRegistration],
        end: Callable[[str], None],
    ) -> None:
        """`new_channel` makes channels to the controller, each for one request at a time. `withdraw` writes recovery
        points that fell to the checkpoints, `registration` returns what to register, `end` stops the broker for a
        reason."""
        self._config = config
        self._state = state
        self._controller = controller
        self._background = background
        self._shutdown_channel = new_channel()
        store, replicas, image = state.store, state.replicas, state.image
        self.topic_forwarder = TopicForwarder(config, image, background.gate, state.security)
        session_timeout_ms: int = config["zookeeper.session.timeout.ms"]
        self._membership = Membership(
            store,
            state.handler,
            replicas,
            image,
            background,
            registration=registration,
            session_timeout_ms=session_timeout_ms,
            end=end,
        )
        isolation = self._isolation = Isolation(
            replicas,
            image,
            background.gate,
            silent_s=lambda: store.silent_s,
            session_timeout_ms=session_timeout_ms,
            listener=config.inter_broker_listener_name,
            security=state.security,
        )
        background.spawn(isolation.watch())

        def broker_epoch() -> int:
            return state.handler.broker_epoch

        alter_partition = AlterPartitionManager(
            config.broker_id, new_channel(), store, broker_epoch, clock_ms, background.spawn, background.gate
        )
        self._replicating = Replicating(
            config, replicas, image, background, clock_ms, broker_epoch, withdraw, alter_partition, state.security
        )
        state.configs.on_broker_changed.append(self._replicating.settings_changed)

    @property
    def is_fenced(self) -> bool:
        """Whether the cluster considers this broker dead, which ZooKeeper cannot report to it."""
        return self._isolation.is_fenced

    @property
    def follower_sessions(self) -> FollowerSessions:
        """The fetch sessions of the followers of this broker."""
        return self._replicating.follower_sessions

    async def join(self) -> None:
        """Register. Raises StoreError: BrokerIdInUse among others."""
        await self._membership.join()

    async def renew(self) -> None:
        """Register again, as the registration of this broker has changed."""
        await self._membership.renew()

    def start(self) -> None:
        self._replicating.start()
        config = self._config
        if config["auto.leader.rebalance.enable"]:
            percentage = config["leader.imbalance.per.broker.percentage"]
            every_s = config["leader.imbalance.check.interval.seconds"]
            self._background.spawn(
                AutoLeaderRebalance(self._controller, percentage, every_s, self._background.gate).run()
            )

    async def controlled_shutdown(self) -> None:
        """Move the leaderships of this broker to other brokers while it still serves; to be called before the listeners
        are closed."""
        state, epoch = self._state, self._state.handler.broker_epoch
        if await controlled_shutdown(
            self._config, self._shutdown_channel, state.store, state.image, state.replicas, epoch
        ):
            # If it still fetched, it would come into sync, and the new leaders would wait for it when it is gone.
            await self._replicating.close()
        await self._controller.until_notified(_NOTIFIED_WITHIN_S)
        self._shutdown_channel.close()

    async def close(self) -> None:
        await self._replicating.close()
