"""Make the parts of a broker in the order in which they need each other, and end them in the reverse order."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gregor.broker.admin_socket.server import Control
from gregor.broker.answers.metadata import EncodedTopics
from gregor.broker.answers.producer_clients import ProducerClients
from gregor.broker.cluster.auto_topics import TopicCreator
from gregor.broker.cluster.store_factory import NoSuchStore, check_store, in_cluster
from gregor.broker.fetch.follower_sessions import FollowerSessions
from gregor.broker.fetch.sessions import FetchSessions
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.descriptors import Share, open_files_limit
from gregor.broker.jobs.disk_watch import DiskWatch
from gregor.broker.jobs.log_cleaner import LogCleaner
from gregor.broker.jobs.log_mover import LogMover
from gregor.broker.jobs.loop_lag import LoopLag
from gregor.broker.jobs.maintenance import Maintenance
from gregor.broker.jobs.scan_helper import ScanHelper
from gregor.broker.jobs.turns import LoopGate, TurnQueue
from gregor.broker.log import logger
from gregor.broker.metrics.lag.clients import ClientPositions
from gregor.broker.net.advertised_addresses import OwnAddresses
from gregor.broker.net.connections import Connections
from gregor.broker.net.receive_buffers import BufferPool, ReceiveBudget
from gregor.broker.net.request_turns import EarlyRequests, RequestTurns
from gregor.broker.net.route_slots import RouteSlots
from gregor.broker.node.access_control import make_access_control
from gregor.broker.node.base_parts import base_parts
from gregor.broker.node.controller_parts import controller_parts, feature_admin
from gregor.broker.node.coordinators import make_coordinators
from gregor.broker.node.log_loading import StartupLoading
from gregor.broker.node.store import StartError, home_of_store, open_own_store, open_zookeeper
from gregor.broker.node.topic_events import TopicEvents
from gregor.broker.parts import Broker
from gregor.broker.quotas.following import FollowedQuotas
from gregor.broker.quotas.quotas import Quotas, settings_of
from gregor.broker.registry import load_handlers
from gregor.broker.request_log.switch import RequestLogSwitch
from gregor.broker.security.authentication import Authentication
from gregor.broker.security.parts import SecurityParts
from gregor.broker.security.stored_credentials import StoredCredentials
from gregor.broker.security.token_expiry import remove_expired_tokens
from gregor.config.listeners import METRICS_LISTENER
from gregor.replication.admin.producer_ids import BlocksOfController, ProducerIdAllocator
from gregor.replication.admin.topics import Admin
from gregor.replication.channels.inter_broker_security import security_between_brokers
from gregor.replication.entities.quotas import QuotaStore
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.store.consumer_offsets import ConsumerOffsets
from gregor.replication.store.embedded import EmbeddedStore
from gregor.replication.store.metadata_store import StoreError
from gregor.replication.store.nodes import TOPICS, NodeFormatError
from gregor.replication.store.registration import announce_disk_event, pass_over_producer_ids, register
from gregor.storage.folders.checkpoints import MalformedFile
from gregor.storage.folders.identity import InconsistentFolder
from gregor.storage.folders.loading import DuplicatePartition
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.disk_errors import error_text
from gregor.storage.fs.files import OsFiles
from gregor.storage.fs.folder_lock import FolderInUse

if TYPE_CHECKING:
    from gregor.broker.cluster.member import Member
    from gregor.broker.cluster.recovering_partitions import RecoveringPartitions
    from gregor.broker.history.writer import RebalanceHistory
    from gregor.broker.node.access_control import AccessControl
    from gregor.broker.node.base_parts import BaseParts
    from gregor.broker.node.controller_parts import ControllerParts
    from gregor.broker.node.coordinators import Coordinators
    from gregor.broker.registry import Entry
    from gregor.broker.session_watcher.watcher import SessionWatcher
    from gregor.broker.telemetry.telemetry import Telemetry
    from gregor.config.broker import BrokerConfig
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.store.metadata_store import MetadataStore
    from gregor.replication.store.topic_configs import TopicConfigs
    from gregor.replication.store.zookeeper import ZooKeeperStore

_LOAD_BEFORE_SERVING_S = 0.25
"""Loading logs delays the first answer by this time at most; longer work (after a crash) continues while clients are
served."""


def now_ms() -> int:
    return int(time.time() * 1000)


class Node:
    """One broker without its sockets: `open_storage()`, `join(ports)`, then `broker` serves; `close()` at any point."""

    broker: Broker
    controller: ControllerLoop
    recovering: RecoveringPartitions
    cleaner: LogCleaner
    maintenance: Maintenance
    control: Control

    def __init__(self, config: BrokerConfig, session_watcher: SessionWatcher | None = None) -> None:
        """`session_watcher`: of a broker that has a process of its own, which may die."""
        try:
            check_store(config)
        except NoSuchStore as error:
            raise StartError(str(error)) from None
        self._config = config
        self._session_watcher = session_watcher
        self._files = OsFiles(open_files_limit())
        self.scan_helper = ScanHelper(self._recovery_processes())
        self._logs = LogManager(config, self._files, now_ms, self.scan_helper)
        self.loading = StartupLoading(self._logs, self.scan_helper)
        self._gate = LoopGate()
        self._background = Background(self._gate)
        self.in_cluster = in_cluster(config)
        self._addresses = OwnAddresses(config, self.in_cluster, now_ms)
        self._connections = Connections(config, on_opened=Share(self._files).connections)
        self._producer_clients = ProducerClients()
        self._store: MetadataStore | None = None
        self._zookeeper: ZooKeeperStore | None = None
        self._base: BaseParts | None = None
        self._member: Member | None = None
        self._history: RebalanceHistory | None = None
        self._access: AccessControl | None = None
        self._mover: LogMover | None = None
        self.failed = False
        self.loop_lag = LoopLag()
        self._lifetimes = AsyncExitStack()
        self._lifetimes.callback(self._close_logs)
        self._lifetimes.callback(self._close_mover)
        # Again: until the background ends, a job that is under way may keep a reserve anew. The last writes need it.
        self._lifetimes.callback(self._logs.release_reserves)

    async def open_storage(self) -> None:
        """Lock the data folders, open the metadata store, check that both are of one cluster. Raises StartError."""
        config, logs = self._config, self._logs
        try:
            logs.lock()
            store = await self._open_store()
            self._lifetimes.push_async_callback(self._background.close)
            self._lifetimes.push_async_callback(self.scan_helper.close)
            await self.loading.begin(_LOAD_BEFORE_SERVING_S)
            if logs.progress.partitions_total:
                await pass_over_producer_ids(store, config.broker_id, now_ms())
        except (FolderInUse, InconsistentFolder, MalformedFile, DuplicatePartition, StoreError) as error:
            raise StartError(str(error)) from error
        except NodeFormatError as error:
            raise StartError(
                f"a node of the metadata store cannot be decoded; correct its value or delete it: {error}"
            ) from error
        except OSError as error:
            raise StartError(f"{error_text(error)}; check log.dirs and its permissions") from error

    async def _open_store(self) -> MetadataStore:
        config, logs, lifetimes = self._config, self._logs, self._lifetimes
        if self.in_cluster:
            self._zookeeper, self._cluster_id = await open_zookeeper(config, logs, lifetimes, self._session_watcher)
            self._store = self._zookeeper
        else:
            self._store, self._cluster_id = await open_own_store(
                config, logs, self._files, lifetimes, self._store_failed
            )
        return self._store

    async def join(
        self,
        bind: Callable[[], dict[str, int]],
        check_listeners: Callable[[BrokerConfig], None] = lambda candidate: None,
    ) -> None:
        """Register the broker, start its controller, and apply the controller's requests. `bind` opens the listeners
        once the dynamic settings are known, and returns the ports by listener name; its errors are passed on.
        `check_listeners` raises ConfigError if other listeners cannot be opened."""
        base = self._base = base_parts(
            self._config,
            self._logs,
            self.store,
            self._background,
            now_ms,
            self.in_cluster,
            security_between_brokers(self._config),
        )
        self.recovering = base.recovering
        mover = self._mover = LogMover(self._config, self._logs, base.replicas, self._background)
        control = controller_parts(self._config, base, self._gate, now_ms, in_cluster=self.in_cluster)
        self.controller = control.loop
        producer_ids = self._producer_ids(base, control)
        coordinators = make_coordinators(
            self._config, base, self._background, now_ms, producer_ids.next_id, base.features.transaction_version
        )
        maintenance = self.maintenance = Maintenance(
            self._config,
            self._logs,
            self._background,
            now_ms,
            base.replicas.has,
            lambda topic, index: (found := base.replicas.get(topic, index)) is not None and found.is_leader,
            self._producer_clients.text_of,
            coordinators.timeouts.of,
        )
        disk_watch = self._watch_disks(base, maintenance)
        member = self._member = self._cluster_member(base, control, maintenance)
        TopicEvents(base.replicas, base.image, base.configs, coordinators.groups, coordinators.transactions)
        self._follow_settings(base.configs)
        admin = Admin(
            base.store,
            self._config,
            self._config.broker_id,
            control.loop,
            base.image,
            base.configs,
            self._gate,
            is_reserved=base.adoption.is_reserved,
            check_listeners=check_listeners,
        )
        self._access = make_access_control(self._config, base.store, self._background, now_ms)
        self.broker = self._serving_parts(base, control, admin, coordinators, mover, producer_ids)
        self._history = coordinators.history
        if self._history is not None:
            self._history.start(self.broker.topic_creator.create)
        end_in_order(self._lifetimes, member=member, controller=control.loop, coordinators=coordinators)
        await self._enter_service(base, control, coordinators, bind)
        self._start_jobs(base, maintenance, mover, disk_watch)

    async def _enter_service(
        self,
        base: BaseParts,
        control: ControllerParts,
        coordinators: Coordinators,
        bind: Callable[[], dict[str, int]],
    ) -> None:
        try:
            if self.loading.is_over:
                await base.adoption.run()
            await base.configs.start()
            await self.broker.client_quotas.start(base.configs, self.broker.enforce)
            self.broker.request_logging.start(self.broker.log_requests)
            if self.broker.telemetry is not None:
                await self.broker.telemetry.subscriptions.start(base.configs)
            await base.credentials.start()
            await base.tokens.start()
            await coordinators.group_settings.start()
            await base.features.start()
            if self._access is not None:
                await self._access.start()
            self._addresses.bound(bind())
            if self._member is not None:
                base.image.expect_topics(bool(await base.store.children(TOPICS)))
                await self._member.join()
            else:
                base.local.registered(await register(base.store, self._addresses.registration()))
            await control.loop.start()
        except StoreError as error:
            raise StartError(str(error)) from error

    def _start_jobs(self, base: BaseParts, maintenance: Maintenance, mover: LogMover, disk_watch: DiskWatch) -> None:
        maintenance.start()
        if base.tokens.enabled:
            interval_ms: int = self._config["delegation.token.expiry.check.interval.ms"]
            self._background.spawn(remove_expired_tokens(base.tokens, interval_ms))
        if self._member is not None:
            self._member.start()
        self.cleaner = LogCleaner(self._config, self._logs, self._background, now_ms, base.replicas.has, self._files)
        self.cleaner.start()
        clients = ClientPositions(self.broker.fetch_sessions, base.replicas, base.image, now_ms)
        self.control = Control(
            self._config,
            self._logs,
            self.cleaner,
            maintenance,
            self._background,
            now_ms,
            self.loop_lag,
            clients.described,
            base.replicas,
        )
        self._background.remove_later(self._logs.pop_unlinkable(), 0)
        if self.loading.is_over:
            mover.resume()
        else:
            self._background.spawn(self._load_rest(base, mover, disk_watch))

    async def _load_rest(self, base: BaseParts, mover: LogMover, disk_watch: DiskWatch) -> None:
        local, recovering = base.local, base.recovering
        await self.loading.finish(lambda log: recovering.loaded(log, local.min_request_epoch))
        recovering.all_loaded(local.min_request_epoch)
        if recovering.must_notify_controller:
            await disk_watch.notify_controller()
        await base.adoption.run()
        self._background.remove_later(self._logs.pop_unlinkable(), 0)
        mover.resume()

    # -- the parts -------------------------------------------------------------------------------------------------

    def _watch_disks(self, base: BaseParts, maintenance: Maintenance) -> DiskWatch:
        watch = DiskWatch(
            asyncio.get_running_loop(),
            self._logs,
            base.replicas,
            self._background,
            announce=lambda: announce_disk_event(base.store, base.replicas.broker_id),
            retain=maintenance.retain,
            end=self._give_up,
        )
        if isinstance(base.store, EmbeddedStore):
            home = home_of_store(self._logs, self._files)
            base.store.on_full.append(lambda: watch.full(home, "the metadata store cannot be written"))
        watch.start()
        return watch

    def _producer_ids(self, base: BaseParts, control: ControllerParts) -> ProducerIdAllocator:
        broker_id = self._config.broker_id
        blocks = BlocksOfController(control.new_link(), base.store, broker_id, lambda: base.local.broker_epoch)
        return ProducerIdAllocator(base.store, broker_id, blocks.claim if self.in_cluster else None)

    def _cluster_member(self, base: BaseParts, control: ControllerParts, maintenance: Maintenance) -> Member | None:
        if self._zookeeper is None:
            return None
        from gregor.broker.cluster.member import ClusterState, Member  # a single broker starts faster without

        return Member(
            self._config,
            ClusterState(self._zookeeper, base.local, base.replicas, base.image, base.configs, base.security),
            control.loop,
            control.new_link,
            self._background,
            now_ms,
            withdraw=maintenance.withdraw_recovery_points,
            registration=self._addresses.registration,
            end=self._give_up,
        )

    def _serving_parts(
        self,
        base: BaseParts,
        control: ControllerParts,
        admin: Admin,
        coordinators: Coordinators,
        mover: LogMover,
        producer_ids: ProducerIdAllocator,
    ) -> Broker:
        config, member = self._config, self._member
        loop, spawn = asyncio.get_running_loop(), self._background.spawn
        fetch_slots: int = config["max.incremental.fetch.session.cache.slots"]
        return Broker(
            config=config,
            broker_id=config.broker_id,
            cluster_id=self._cluster_id,
            loop=loop,
            handlers=self._handlers(),
            connections=self._connections,
            buffers=BufferPool(),
            receive_budget=ReceiveBudget(config["queued.max.request.bytes"]),
            route_slots=RouteSlots(),
            request_turns=RequestTurns(loop, self._gate, spawn),
            early_requests=EarlyRequests(are_held=member is not None),
            max_request_bytes=config["socket.request.max.bytes"],
            background=self._background,
            gate=self._gate,
            logs=self._logs,
            mover=mover,
            replicas=base.replicas,
            metadata=base.image,
            topic_configs=base.configs,
            controller_requests=base.local,
            controller=control.answers,
            admin=admin,
            features=base.features,
            feature_admin=feature_admin(
                config, base, control, coordinators, self._background, in_cluster=self.in_cluster
            ),
            topic_creator=TopicCreator(config, admin, member.topic_forwarder if member else None),
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            transaction_verifier=coordinators.verifier,
            local_markers=coordinators.local_markers,
            consumer_offsets=ConsumerOffsets(base.store),
            security=self._security(base),
            producer_ids=producer_ids,
            fetch_sessions=FetchSessions(fetch_slots),
            delayed_reads=TurnQueue(loop, self._gate, spawn),
            follower_sessions=member.follower_sessions if member else FollowerSessions(fetch_slots),
            encoded_topics=EncodedTopics(),
            addresses=self._addresses,
            producer_clients=self._producer_clients,
            client_quotas=self._client_quotas(base),
            request_logging=self._request_logging(base),
            telemetry=self._telemetry(base),
            authorizer=self._access and self._access.authorizer,
            sends_to_racks=config["replica.selector.class"] == RACK_AWARE_SELECTOR,
        )

    def _security(self, base: BaseParts) -> SecurityParts:
        acls = self._access and self._access.acls
        return SecurityParts(self._authentication(base), base.credentials, base.tokens, acls)

    def _authentication(self, base: BaseParts) -> Authentication:
        credentials = StoredCredentials(base.credentials, base.tokens)
        authentication = Authentication(self._config, credentials, now_ms, self._background)
        authentication.check_kerberos()
        base.configs.on_broker_changed.append(authentication.settings_changed)
        return authentication

    def _client_quotas(self, base: BaseParts) -> FollowedQuotas:
        quotas = Quotas(settings_of(self._config), now_ms)
        return FollowedQuotas(QuotaStore(base.store, self._gate), quotas, self._background)

    def _handlers(self) -> dict[int, Entry]:
        shows_telemetry = bool(self._config[METRICS_LISTENER])
        return load_handlers(in_cluster=self.in_cluster, telemetry=shows_telemetry, guarded=self._access is not None)

    def _telemetry(self, base: BaseParts) -> Telemetry | None:
        if not self._config[METRICS_LISTENER]:
            return None
        from gregor.broker.telemetry.subscriptions import Subscriptions  # most brokers have no such listener
        from gregor.broker.telemetry.telemetry import Telemetry

        return Telemetry(Subscriptions(base.store), self._config["telemetry.max.bytes"], self._background, now_ms)

    def _request_logging(self, base: BaseParts) -> RequestLogSwitch:
        switch = RequestLogSwitch(self._config, asyncio.get_running_loop())
        base.configs.on_broker_changed.append(switch.follow)
        return switch

    def _follow_settings(self, configs: TopicConfigs) -> None:
        configs.on_broker_changed.append(
            lambda: self._logs.forget_producers_after(self._config["producer.id.expiration.ms"])
        )
        # Called before the end of the start: the dynamic settings are read while logs are still recovered.
        configs.on_broker_changed.append(lambda: self.scan_helper.allow(self._recovery_processes()))

    def _recovery_processes(self) -> int:
        per_folder: int = self._config["num.recovery.threads.per.data.dir"]
        return per_folder * len(self._config.log_dirs)

    # -- while it runs, and its end --------------------------------------------------------------------------------

    async def advertise(self, ports: dict[str, int]) -> None:
        """Register the changed listeners in the cluster. `ports`: as bound, by listener name."""
        self._addresses.bound(ports)
        if self._member is not None:
            await self._member.renew()
        else:
            await register(self.store, self._addresses.registration())

    @property
    def is_fenced(self) -> bool:
        """Whether this broker is cut off from its cluster, which considers it dead."""
        return self._member is not None and self._member.is_fenced

    @property
    def store(self) -> MetadataStore:
        """The metadata store, once the storage is open."""
        assert self._store is not None
        return self._store

    def _store_failed(self, failure: StoreError) -> None:
        """Stop the broker: without its metadata it cannot serve, and its supervisor must notice."""
        self._give_up(f"the metadata store failed: {failure}")

    def _give_up(self, reason: str) -> None:
        logger.critical("stopping: %s", reason)
        self.failed = True
        signal.raise_signal(signal.SIGTERM)

    async def controlled_shutdown(self) -> None:
        """Write the history of rebalances and move the leadership to other brokers, before the listeners are closed. A
        single broker has no others, and one that has failed cannot."""
        if self._history is not None and not self.failed:
            await self._history.finish()
        if self._member is not None and not self.failed:
            await self._member.controlled_shutdown()

    async def close(self) -> None:
        """End all parts that were made; the logs are closed cleanly, even if the end of another part fails."""
        # The parts write while they end, on a full disk too. With all connections closed, no client fills the reserve.
        self._lifetimes.callback(self._logs.release_reserves)
        self._lifetimes.callback(self._connections.close_all)
        await self._lifetimes.aclose()

    def _close_mover(self) -> None:
        """Close the mover, after the store: its thread may be copying part of a log, and the registration must end
        before."""
        if self._mover is not None:
            self._mover.close()

    def _close_logs(self) -> None:
        self._logs.close_all(-1 if self._base is None else self._base.local.broker_epoch)


def end_in_order(
    lifetimes: AsyncExitStack, *, member: Member | None, controller: ControllerLoop, coordinators: Coordinators
) -> None:
    """Register how the parts end that write to the logs and to the store: the coordinators first, the member last."""
    if member is not None:
        lifetimes.push_async_callback(member.close)
    lifetimes.push_async_callback(controller.stop)
    lifetimes.callback(coordinators.close)
