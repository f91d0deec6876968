"""Puts a broker's parts together, in the order in which they need each other, and takes them apart again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.admin_socket.server import Control
from gregor.broker.answers.metadata import EncodedTopics
from gregor.broker.cluster.auto_topics import TopicCreator
from gregor.broker.cluster.group_log import GroupLog
from gregor.broker.cluster.recovering_partitions import RecoveringPartitions
from gregor.broker.cluster.store_factory import NoSuchStore, check_store, in_cluster
from gregor.broker.fetch.follower_sessions import FollowerSessions
from gregor.broker.fetch.sessions import FetchSessions
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.descriptors import Share, open_files_limit
from gregor.broker.jobs.disk_watch import DiskWatch
from gregor.broker.jobs.log_cleaner import LogCleaner
from gregor.broker.jobs.log_mover import LogMover
from gregor.broker.jobs.loop_lag import Stalls
from gregor.broker.jobs.maintenance import Maintenance
from gregor.broker.jobs.scan_helper import ScanHelper
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.log import logger
from gregor.broker.net.advertised_addresses import OwnAddresses
from gregor.broker.net.connections import Connections
from gregor.broker.net.receive_buffers import BufferPool, ReceiveBudget
from gregor.broker.node.adoption import Adoption
from gregor.broker.node.log_loading import StartupLoading
from gregor.broker.node.store import StartError, home_of_store, open_own_store, open_zookeeper
from gregor.broker.node.topic_events import TopicEvents
from gregor.broker.parts import Broker
from gregor.broker.registry import load_handlers
from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.coordinator import GroupCoordinator
from gregor.replication.admin.producer_ids import BlocksOfController, ProducerIdAllocator
from gregor.replication.admin.topics import Admin
from gregor.replication.channels.broker_channels import Brokers
from gregor.replication.channels.controller_channel import ControllerChannel
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.store.consumer_offsets import ConsumerOffsets
from gregor.replication.store.embedded import EmbeddedStore
from gregor.replication.store.metadata_store import MetadataStore, StoreError
from gregor.replication.store.nodes import TOPICS, NodeFormatError
from gregor.replication.store.registration import announce_disk_event, pass_over_producer_ids, register
from gregor.replication.store.topic_configs import TopicConfigs
from gregor.storage.folders.checkpoints import MalformedFile
from gregor.storage.folders.identity import InconsistentFolder
from gregor.storage.folders.loading import DuplicatePartition
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.disk_errors import error_text
from gregor.storage.fs.files import OsFiles
from gregor.storage.fs.folder_lock import FolderInUse

if TYPE_CHECKING:
    from gregor.broker.cluster.member import Member
    from gregor.config.addresses import Addresses
    from gregor.config.broker import BrokerConfig
    from gregor.replication.store.zookeeper import ZooKeeperStore

_LOAD_BEFORE_SERVING_S = 0.25
"""So long loading logs may hold up the first answer; what takes longer (a crash's leftovers) goes on behind it."""


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(slots=True, frozen=True)
class _Base:
    """The parts that the others stand on: what the broker has stored, and what it knows of the cluster."""

    store: MetadataStore
    configs: TopicConfigs
    image: MetadataImage
    replicas: ReplicaManager
    local: ControllerRequestHandler
    recovering: RecoveringPartitions
    adoption: Adoption


@dataclass(slots=True, frozen=True)
class _Control:
    """The controller of this process, whether active or not, and the ways to the active one."""

    loop: ControllerLoop
    answers: ControllerAnswers
    new_link: Callable[[], ControllerChannel]
    """Makes ways to the active controller, each for one request at a time."""


class Node:
    """One broker without its sockets: `open_storage()`, `join(ports)`, then `broker` serves; `close()` at any point."""

    broker: Broker
    controller: ControllerLoop
    recovering: RecoveringPartitions
    cleaner: LogCleaner
    control: Control

    def __init__(self, config: BrokerConfig) -> None:
        try:
            check_store(config)
        except NoSuchStore as error:
            raise StartError(str(error)) from None
        self._config = config
        self._files = OsFiles(open_files_limit())
        self._scan_helper = ScanHelper(self._recovery_processes())
        self._logs = LogManager(config, self._files, now_ms, self._scan_helper)
        self._loading = StartupLoading(self._logs, self._scan_helper)
        self._gate = LoopGate()
        self._background = Background(self._gate)
        self.in_cluster = in_cluster(config)
        self._addresses = OwnAddresses(config, self.in_cluster, now_ms)
        self._store: MetadataStore | None = None
        self._zookeeper: ZooKeeperStore | None = None
        self._local: ControllerRequestHandler | None = None
        self._member: Member | None = None
        self._mover: LogMover | None = None
        self._opened = False
        self.failed = False
        self.stalls = Stalls()
        self._lifetimes = AsyncExitStack()
        self._lifetimes.callback(self._close_logs)
        self._lifetimes.callback(self._close_mover)
        self._lifetimes.callback(self._logs.release_reserves)

    async def open_storage(self) -> None:
        """Lock the data folders, open the metadata store, agree on whose they are. Raises StartError."""
        config, logs = self._config, self._logs
        try:
            logs.lock()
            store = await self._open_store()
            self._lifetimes.push_async_callback(self._scan_helper.close)
            self._opened = True
            await self._loading.begin(_LOAD_BEFORE_SERVING_S)
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
            self._zookeeper, self._cluster_id = await open_zookeeper(config, logs, lifetimes)
            self._store = self._zookeeper
        else:
            self._store, self._cluster_id = await open_own_store(
                config, logs, self._files, lifetimes, self._store_failed
            )
        return self._store

    async def join(
        self,
        bind: Callable[[], dict[str, int]],
        check_addresses: Callable[[Addresses], None] = lambda addresses: None,
    ) -> None:
        """Register, stand for controller, take over what it says. `bind` opens what the settings name, once the dynamic
        ones are known, and returns the ports by listener name; what it raises is passed on. `check_addresses` raises
        ConfigError where other listeners cannot be opened."""
        base = self._base_parts()
        mover = self._mover = LogMover(self._config, self._logs, base.replicas, self._background)
        maintenance = Maintenance(
            self._config,
            self._logs,
            self._background,
            now_ms,
            lambda topic, index: base.replicas.get(topic, index) is not None,
        )
        disk_watch = self._watch_disks(base, maintenance)
        groups = self._group_coordinator(base)
        control = self._controller_parts(base)
        self.controller = control.loop
        member = self._member = self._cluster_member(base, control, maintenance)
        TopicEvents(base.replicas, base.image, base.configs, groups)
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
            check_addresses=check_addresses,
        )
        self.broker = self._serving_parts(base, control, admin, groups, mover)
        stop_in_order(
            self._lifetimes,
            background=self._background,
            member=member,
            scan_helper=self._scan_helper,
            controller=control.loop,
            groups=groups,
            logs=self._logs,
            connections=self.broker.connections,
        )
        await self._enter_service(base, control, bind)
        self._start_jobs(base, maintenance, mover, disk_watch)

    async def _enter_service(self, base: _Base, control: _Control, bind: Callable[[], dict[str, int]]) -> None:
        try:
            if self._loading.is_over:
                await base.adoption.run()
            await base.configs.start()
            self._addresses.bound(bind())
            if self._member is not None:
                base.image.expect_topics(bool(await base.store.children(TOPICS)))
                await self._member.join()
            else:
                base.local.registered(await register(base.store, self._addresses.registration()))
            await control.loop.start()
        except StoreError as error:
            raise StartError(str(error)) from error

    def _start_jobs(self, base: _Base, maintenance: Maintenance, mover: LogMover, disk_watch: DiskWatch) -> None:
        maintenance.start()
        if self._member is not None:
            self._member.start()
        self.cleaner = LogCleaner(self._config, self._logs, self._background, now_ms)
        self.cleaner.start()
        self.control = Control(
            self._config, self._logs, self.cleaner, maintenance, self._background, now_ms, self.stalls
        )
        self._background.remove_later(self._logs.pop_unlinkable(), 0)
        if self._loading.is_over:
            mover.resume()
        else:
            self._background.spawn(self._load_rest(base, mover, disk_watch))

    async def _load_rest(self, base: _Base, mover: LogMover, disk_watch: DiskWatch) -> None:
        local, recovering = base.local, base.recovering
        await self._loading.finish(lambda log: recovering.loaded(log, local.broker_epoch))
        recovering.all_loaded(local.broker_epoch)
        if recovering.must_be_asked:
            await disk_watch.tell_controller()
        await base.adoption.run()
        self._background.remove_later(self._logs.pop_unlinkable(), 0)
        mover.resume()

    # -- the parts -------------------------------------------------------------------------------------------------

    def _base_parts(self) -> _Base:
        config, logs, store = self._config, self._logs, self._store
        assert store is not None
        configs = TopicConfigs(store, config, config.broker_id, self._background.spawn, now_ms, self._gate)
        image = MetadataImage()
        replicas = ReplicaManager(
            config.broker_id,
            logs,
            configs.log_config,
            now_ms,
            lag_time_max_ms=config["replica.lag.time.max.ms"],
            is_alive=image.is_alive,
            folder_removed=lambda folder: self._background.remove_later(
                [folder, *logs.pop_unlinkable()], config["log.segment.delete.delay.ms"]
            ),
        )
        recovering = self.recovering = RecoveringPartitions(replicas, logs.is_loading)
        local = self._local = ControllerRequestHandler(replicas, image, configs, self._gate, recovering.hold_back)
        adoption = Adoption(store, logs, config.broker_id, self._gate, in_cluster=self.in_cluster)
        return _Base(store, configs, image, replicas, local, recovering, adoption)

    def _watch_disks(self, base: _Base, maintenance: Maintenance) -> DiskWatch:
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

    def _group_coordinator(self, base: _Base) -> GroupCoordinator:
        group_log = GroupLog(base.replicas, self._background)
        return GroupCoordinator(
            GroupConfig.from_broker(self._config),
            group_log,
            group_log,
            now_ms,
            self._gate,
            partition_count=self._config["offsets.topic.num.partitions"],
        )

    def _controller_parts(self, base: _Base) -> _Control:
        config, listener = self._config, self._config.inter_broker_listener_name
        timeout_ms: int = config["controller.socket.timeout.ms"]
        gate = self._gate
        loop = ControllerLoop(
            config.broker_id,
            base.store,
            Brokers(config.broker_id, base.local, lambda: loop.live_brokers, listener, timeout_ms, gate),
            base.configs,
            now_ms,
            gate,
            listener=listener,
            delete_topics=config["delete.topic.enable"],
        )
        base.recovering.on_late_answer.append(loop.handle_deferred_response)
        answers = ControllerAnswers(loop, base.store)
        return _Control(
            loop, answers, lambda: ControllerChannel(config.broker_id, base.image, answers, listener, timeout_ms, gate)
        )

    def _cluster_member(self, base: _Base, control: _Control, maintenance: Maintenance) -> Member | None:
        if self._zookeeper is None:
            return None
        from gregor.broker.cluster.member import Member  # a broker that is alone starts faster without

        return Member(
            self._config,
            self._zookeeper,
            base.local,
            base.replicas,
            base.image,
            base.configs,
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
        base: _Base,
        control: _Control,
        admin: Admin,
        groups: GroupCoordinator,
        mover: LogMover,
    ) -> Broker:
        config, member = self._config, self._member
        fetch_slots: int = config["max.incremental.fetch.session.cache.slots"]
        blocks = BlocksOfController(control.new_link(), base.store, config.broker_id, lambda: base.local.broker_epoch)
        return Broker(
            config=config,
            broker_id=config.broker_id,
            cluster_id=self._cluster_id,
            loop=asyncio.get_running_loop(),
            handlers=load_handlers(in_cluster=self.in_cluster),
            connections=Connections(config, on_opened=Share(self._files).connections),
            buffers=BufferPool(),
            receive_budget=ReceiveBudget(config["queued.max.request.bytes"]),
            max_request_bytes=config["socket.request.max.bytes"],
            background=self._background,
            gate=self._gate,
            logs=self._logs,
            mover=mover,
            replicas=base.replicas,
            metadata=base.image,
            topic_configs=base.configs,
            local_broker=base.local,
            controller=control.answers,
            admin=admin,
            topic_creator=TopicCreator(config, admin, member.topic_requests if member else None),
            groups=groups,
            consumer_offsets=ConsumerOffsets(base.store),
            producer_ids=ProducerIdAllocator(base.store, config.broker_id, blocks.claim if self.in_cluster else None),
            fetch_sessions=FetchSessions(fetch_slots),
            follower_sessions=member.follower_sessions if member else FollowerSessions(fetch_slots),
            encoded_topics=EncodedTopics(),
            addresses=self._addresses,
            sends_to_racks=config["replica.selector.class"] == RACK_AWARE_SELECTOR,
        )

    def _follow_settings(self, configs: TopicConfigs) -> None:
        configs.on_broker_changed.append(
            lambda: self._logs.forget_producers_after(self._config["producer.id.expiration.ms"])
        )
        # The first time before the start is over: the dynamic settings are read while logs are still being checked.
        configs.on_broker_changed.append(lambda: self._scan_helper.allow(self._recovery_processes()))

    def _recovery_processes(self) -> int:
        per_folder: int = self._config["num.recovery.threads.per.data.dir"]
        return per_folder * len(self._config.log_dirs)

    # -- while it runs, and its end --------------------------------------------------------------------------------

    async def advertise(self, ports: dict[str, int]) -> None:
        """Tell the cluster that the listeners are others now. `ports`: as bound, by listener name."""
        assert self._store is not None
        self._addresses.bound(ports)
        if self._member is not None:
            await self._member.renew()
        else:
            await register(self._store, self._addresses.registration())

    def _store_failed(self, failure: StoreError) -> None:
        """Without its metadata a broker must not go on as if all were well: its supervisor sees it end."""
        self._give_up(f"the metadata store failed: {failure}")

    def _give_up(self, reason: str) -> None:
        logger.critical("stopping: %s", reason)
        self.failed = True
        signal.raise_signal(signal.SIGTERM)

    async def hand_over(self) -> None:
        """Before the listeners are closed. A broker that is alone, or at its end by a fault of its own, has no other
        to hand anything to."""
        if self._member is not None and not self.failed:
            await self._member.hand_over()

    async def close(self) -> None:
        """Take everything apart, as far as it was built; the logs are closed cleanly, whatever else fails."""
        await self._lifetimes.aclose()

    def _close_mover(self) -> None:
        """After the store: its thread may be copying part of a log, and the registration must not last until then."""
        if self._mover is not None:
            self._mover.close()

    def _close_logs(self) -> None:
        if self._opened:
            self._logs.close_all(-1 if self._local is None else self._local.broker_epoch)
        else:
            self._logs.unlock()


def stop_in_order(
    lifetimes: AsyncExitStack,
    *,
    background: Background,
    member: Member | None,
    scan_helper: ScanHelper,
    controller: ControllerLoop,
    groups: GroupCoordinator,
    logs: LogManager,
    connections: Connections,
) -> None:
    """Have the parts end with `lifetimes`, the last one first; the store, the mover and the logs follow."""
    lifetimes.push_async_callback(background.close)
    if member is not None:  # what it waits for is on a thread of the background
        lifetimes.push_async_callback(member.close)
    lifetimes.push_async_callback(scan_helper.close)
    lifetimes.push_async_callback(controller.stop)
    lifetimes.callback(groups.close)
    # A stop has things to write, on a full disk too; by now no client takes the room.
    lifetimes.callback(logs.release_reserves)
    lifetimes.callback(connections.close_all)
