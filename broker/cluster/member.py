"""What a broker has as a member of a cluster, beside all that it has when it is alone, which does not load this.

A registration that comes and goes with ZooKeeper's session, leaders that it follows and followers that it watches over,
the balance of leaders while it is the controller, and others to hand over to when it stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gregor.broker.cluster.controlled_shutdown import hand_over
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
    from gregor.replication.channels.controller_channel import ControllerChannel
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.nodes import BrokerRegistration
    from gregor.replication.store.topic_configs import TopicConfigs
    from gregor.replication.store.zookeeper import ZooKeeperStore

_NOTIFIED_WITHIN_S = 2.0
"""So long a controller that stops tells the others what it has decided last."""


class Member:
    """`join()`, `start()`, then `hand_over()` while it still serves, and `close()` before the logs are closed."""

    def __init__(
        self,
        config: BrokerConfig,
        store: ZooKeeperStore,
        local: ControllerRequestHandler,
        replicas: ReplicaManager,
        image: MetadataImage,
        configs: TopicConfigs,
        controller: ControllerLoop,
        link: Callable[[], ControllerChannel],
        background: Background,
        clock_ms: Callable[[], int],
        *,
        withdraw: Callable[[], Awaitable[None]],
        registration: Callable[[], BrokerRegistration],
        end: Callable[[str], None],
    ) -> None:
        """`link` makes ways to the controller, each for one question at a time. `withdraw` writes recovery points that
        fell to where they are kept, `registration` says what to register, `end` stops the broker for a reason."""
        self._config = config
        self._store = store
        self._local = local
        self._replicas = replicas
        self._image = image
        self._controller = controller
        self._background = background
        self._shutdown_link = link()
        self.topic_forwarder = TopicForwarder(config, image, background.gate)
        session_timeout_ms: int = config["zookeeper.session.timeout.ms"]
        self._membership = Membership(
            store,
            local,
            replicas,
            background,
            registration=registration,
            session_timeout_ms=session_timeout_ms,
            end=end,
        )
        silence = Isolation(
            replicas,
            image,
            background.gate,
            silent_s=lambda: store.silent_s,
            session_timeout_ms=session_timeout_ms,
            listener=config.inter_broker_listener_name,
        )
        background.spawn(silence.watch())

        def broker_epoch() -> int:
            return local.broker_epoch

        alter_partition = AlterPartitionManager(
            config.broker_id, link(), store, broker_epoch, clock_ms, background.spawn, background.gate
        )
        self._replicating = Replicating(
            config, replicas, image, background, clock_ms, broker_epoch, withdraw, alter_partition
        )
        configs.on_broker_changed.append(self._replicating.settings_changed)

    @property
    def follower_sessions(self) -> FollowerSessions:
        """The fetch sessions of the followers of this broker."""
        return self._replicating.follower_sessions

    async def join(self) -> None:
        """Register. Raises StoreError: BrokerIdTaken among others."""
        await self._membership.join()

    async def renew(self) -> None:
        """Register again, as what is to be told of this broker is another."""
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

    async def hand_over(self) -> None:
        """Have other brokers lead what this one leads, as long as it still serves; to be done before the listeners are
        closed."""
        epoch = self._local.broker_epoch
        if await hand_over(self._config, self._shutdown_link, self._store, self._image, self._replicas, epoch):
            # Whoever leads now would wait for a follower that is level, and soon gone.
            await self._replicating.close()
        await self._controller.until_notified(_NOTIFIED_WITHIN_S)
        self._shutdown_link.close()

    async def close(self) -> None:
        await self._replicating.close()
