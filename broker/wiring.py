"""Puts a broker's parts together, in the order in which they need each other, and takes them apart again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from gregor.broker.admin_socket.server import Control
from gregor.broker.answers.metadata import EncodedTopics
from gregor.broker.cluster.auto_topics import TopicCreator
from gregor.broker.cluster.group_log import GroupLog
from gregor.broker.cluster.recovering_partitions import LatePartitions
from gregor.broker.cluster.store_factory import NO_ANSWER, NoSuchStore, check_store, in_cluster, zookeeper_store
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
from gregor.broker.net.advertised_addresses import own_name
from gregor.broker.net.connections import Connections
from gregor.broker.net.receive_buffers import BufferPool, ReceiveBudget
from gregor.broker.parts import Broker
from gregor.broker.registry import load_handlers
from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.coordinator import GroupCoordinator
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from gregor.replication.admin.producer_ids import BlocksOfController, ProducerIdAllocator
from gregor.replication.admin.topics import Admin
from gregor.replication.channels.broker_channels import Brokers
from gregor.replication.channels.controller_channel import ControllerLink
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.store.adoption import adopt
from gregor.replication.store.consumer_offsets import ConsumerOffsets
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import MetadataStore, StoreError, StoreFailed
from gregor.replication.store.nodes import TOPICS, BrokerRegistration, NodeFormatError
from gregor.replication.store.registration import (
    announce_disk_event,
    generate_broker_id,
    join_cluster,
    make_persistent_nodes,
    pass_over_producer_ids,
    register,
)
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
    from gregor.config.broker import BrokerConfig
    from gregor.config.listeners import Listener
    from gregor.replication.partition.partition import Partition
    from gregor.replication.store.zookeeper import ZooKeeperStore
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.log.log import Log

_LOAD_BEFORE_SERVING_S = 0.25
"""So long loading logs may hold up the first answer; what takes longer (a crash's leftovers) goes on behind it."""
_PROGRESS_EVERY_S = 5.0


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""


def now_ms() -> int:
    return int(time.time() * 1000)


class Node:
    """One broker without its sockets: `open_storage()`, `join(ports)`, then `broker` serves; `close()` at any point."""

    broker: Broker
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
        self._gate = LoopGate()
        self._background = Background(self._gate)
        self.in_cluster = in_cluster(config)
        self._store: MetadataStore | None = None
        self._controller: ControllerLoop | None = None
        self._zookeeper: ZooKeeperStore | None = None
        self._member: Member | None = None
        self._groups: GroupCoordinator | None = None
        self._mover: LogMover | None = None
        self._disk_watch: DiskWatch | None = None
        self._loading: Iterator[Log | None] | None = None
        self._local: LatePartitions | None = None
        self._ports: dict[str, int] = {}
        self._opened = False
        self._adopted = False
        self.failed = False
        self.stalls = Stalls()

    async def open_storage(self) -> None:
        """Lock the data folders, open the metadata store, agree on whose they are. Raises StartError."""
        config, logs = self._config, self._logs
        try:
            logs.lock()
            store = await (self._enter_cluster() if self.in_cluster else self._open_own_store())
            self._loading = logs.load()
            self._opened = True
            await self._load_for(_LOAD_BEFORE_SERVING_S)
            if logs.progress.partitions_total:
                await pass_over_producer_ids(store, config.broker_id, now_ms())
        except (FolderInUse, InconsistentFolder, MalformedFile, DuplicatePartition, StoreError) as error:
            raise StartError(str(error)) from error
        except NodeFormatError as error:
            raise StartError(f"a node of the metadata store is broken; mend or delete it: {error}") from error
        except OSError as error:
            raise StartError(f"{error_text(error)}; check log.dirs and its permissions") from error

    async def _open_own_store(self) -> MetadataStore:
        config, logs = self._config, self._logs
        wanted = logs.load_meta(None, config.broker_id)
        self._store = store = EmbeddedStore(f"{self._store_folder().path}/{FILE_NAME}")
        store.on_failed.append(self._store_failed)
        await store.start()
        await make_persistent_nodes(store)
        self._cluster_id = logs.load_meta(await join_cluster(store, wanted), config.broker_id)
        return store

    async def _enter_cluster(self) -> MetadataStore:
        """From ZooKeeper: the cluster's id, which the data folders must agree with, and this broker's number."""
        config, logs = self._config, self._logs
        self._store = self._zookeeper = store = zookeeper_store(config)
        try:
            await store.start()
        except StoreFailed as error:
            raise StartError(f"zookeeper.connect={error}; {NO_ANSWER}") from None
        await make_persistent_nodes(store)
        cluster_id = await join_cluster(store)
        given = config.broker_id if config.broker_id >= 0 else None
        self._cluster_id = logs.load_meta(cluster_id, given)
        if logs.broker_id is None:
            logs.load_meta(cluster_id, await generate_broker_id(store, config["reserved.broker.max.id"]))
        assert logs.broker_id is not None
        config.broker_id = logs.broker_id
        return store

    def _store_folder(self) -> DataFolder:
        """Where the metadata store lies: the first data folder, or the one that has it from an earlier order."""
        folders = self._logs.online_folders()
        for folder in folders:
            if self._files.exists(f"{folder.path}/{FILE_NAME}"):
                return folder
        if len(folders) < len(self._logs.folders):
            raise StartError(
                "the metadata store is in none of the data folders (log.dirs) that can be used, so it lies in the one "
                "that failed: without it the broker does not know its topics. Mend that folder, or take it out of "
                "log.dirs to begin anew with what is in the others"
            )
        return folders[0]

    async def _load_for(self, seconds: float) -> None:
        """Load logs for so long, but at least until it is known which there are."""
        until = time.monotonic() + seconds
        assert self._loading is not None
        for log in self._loading:
            if time.monotonic() > until and self._logs.listed:
                return
            if log is None:
                await self._give_turn(until - time.monotonic())
        self._loading = None
        await self._scan_helper.close()

    async def _give_turn(self, most_s: float | None = None) -> None:
        """Between two steps of loading logs."""
        if self._logs.waits:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._scan_helper.wait()
        else:
            await asyncio.sleep(0)

    async def join(self, bind: Callable[[], dict[str, int]]) -> None:
        """Register, stand for controller, take over what it says. `bind` opens what the settings name, once the dynamic
        ones are known, and returns the ports by listener name; what it raises is passed on."""
        config, logs, store = self._config, self._logs, self._store
        assert store is not None
        loop = asyncio.get_running_loop()
        gate = self._gate
        configs = TopicConfigs(store, config, config.broker_id, self._background.spawn, now_ms, gate)
        image = MetadataImage()
        replicas = ReplicaManager(
            config.broker_id,
            logs,
            configs.log_config,
            now_ms,
            lag_time_max_ms=config["replica.lag.time.max.ms"],
            is_alive=image.is_alive,
            folder_removed=lambda folder: self._background.remove_later(
                [folder, *self._logs.take_unlinkable()], config["log.segment.delete.delay.ms"]
            ),
        )
        self._mover = LogMover(config, logs, replicas, self._background)
        maintenance = Maintenance(
            config, logs, self._background, now_ms, lambda topic, index: replicas.get(topic, index) is not None
        )
        self._disk_watch = self._watch_disks(store, replicas, maintenance)
        local = self._local = LatePartitions(replicas, image, configs, gate, logs.is_loading)
        group_log = GroupLog(replicas)
        self._groups = groups = GroupCoordinator(
            GroupConfig.from_broker(config),
            group_log,
            group_log,
            now_ms,
            gate,
            partition_count=config["offsets.topic.num.partitions"],
        )
        listener = config.inter_broker_listener_name
        brokers = Brokers(config.broker_id, local, listener, config["controller.socket.timeout.ms"], gate)
        controller = self._controller = ControllerLoop(
            config.broker_id,
            store,
            brokers,
            configs,
            now_ms,
            gate,
            listener=listener,
            delete_topics=config["delete.topic.enable"],
        )
        brokers.live = lambda: {} if controller.cluster is None else controller.cluster.brokers
        local.on_late_answer.append(controller.answered_late)
        answers = ControllerAnswers(controller, store)

        def link() -> ControllerLink:
            return ControllerLink(
                config.broker_id, image, answers, listener, config["controller.socket.timeout.ms"], gate
            )

        follower_sessions = FollowerSessions(config["max.incremental.fetch.session.cache.slots"])
        if self._zookeeper is not None:
            from gregor.broker.cluster.member import Member  # a broker that is alone starts faster without

            self._member = Member(
                config,
                self._zookeeper,
                local,
                replicas,
                image,
                configs,
                controller,
                link,
                follower_sessions,
                self._background,
                now_ms,
                withdraw=maintenance.withdraw_recovery_points,
                registration=self._registration,
                end=self._give_up,
            )
        self._follow_topics(replicas, image, configs, groups)
        admin = Admin(store, config, config.broker_id, controller, image, configs, gate)
        admin.is_reserved = lambda name: not self._adopted and logs.has_topic(name)
        blocks = BlocksOfController(link(), store, config.broker_id, lambda: local.broker_epoch)
        producer_ids = ProducerIdAllocator(store, config.broker_id, blocks.claim if self.in_cluster else None)
        self.broker = Broker(
            config=config,
            broker_id=config.broker_id,
            cluster_id=self._cluster_id,
            loop=loop,
            handlers=load_handlers(in_cluster=self.in_cluster),
            connections=Connections(config),
            buffers=BufferPool(),
            receive_budget=ReceiveBudget(config["queued.max.request.bytes"]),
            max_request_bytes=config["socket.request.max.bytes"],
            background=self._background,
            gate=gate,
            logs=logs,
            mover=self._mover,
            replicas=replicas,
            metadata=image,
            topic_configs=configs,
            local_broker=local,
            controller=answers,
            admin=admin,
            topic_creator=TopicCreator(config, admin, self._member.topic_requests if self._member else None),
            groups=groups,
            consumer_offsets=ConsumerOffsets(store),
            producer_ids=producer_ids,
            fetch_sessions=FetchSessions(config["max.incremental.fetch.session.cache.slots"]),
            follower_sessions=follower_sessions,
            encoded_topics=EncodedTopics(),
            unadvertised=self._unadvertised(),
            sends_to_racks=config["replica.selector.class"] == RACK_AWARE_SELECTOR,
        )
        try:
            if self._loading is None:
                await self._adopt_strangers()
            await configs.start()
            self._ports = bind()
            self.broker.unadvertised = self._unadvertised()
            if self._member is not None:
                image.expects_topics = bool(await store.children(TOPICS))
                await self._member.join()
            else:
                local.broker_epoch = await register(store, self._registration())
            await controller.start()
        except StoreError as error:
            raise StartError(str(error)) from error
        self.broker.connections.on_opened = Share(self._files).connections
        maintenance.start()
        if self._member is not None:
            self._member.start()
        self.cleaner = LogCleaner(config, logs, self._background, now_ms)
        self.cleaner.start()
        self.control = Control(config, logs, self.cleaner, maintenance, self._background, now_ms, self.stalls)
        self._background.remove_later(self._logs.take_unlinkable(), 0)
        if self._loading is not None:
            self._background.spawn(self._load_rest(local))
        else:
            self._mover.resume()

    def _watch_disks(self, store: MetadataStore, replicas: ReplicaManager, maintenance: Maintenance) -> DiskWatch:
        watch = DiskWatch(
            asyncio.get_running_loop(),
            self._logs,
            replicas,
            self._background,
            announce=lambda: announce_disk_event(store, replicas.broker_id),
            retain=maintenance.retain,
            end=self._give_up,
        )
        if isinstance(store, EmbeddedStore):
            home = self._store_folder()
            store.on_full.append(lambda: watch.full(home, "the metadata store cannot be written"))
        watch.start()
        return watch

    async def advertise(self, ports: dict[str, int]) -> None:
        """Tell the cluster that the listeners are others now. `ports`: as bound, by listener name."""
        assert self._store is not None
        self._ports = ports
        self.broker.unadvertised = self._unadvertised()
        if self._member is not None:
            await self._member.renew()
        else:
            await register(self._store, self._registration())

    def _unadvertised(self) -> frozenset[str]:
        return frozenset(one.name for one in self._config.advertised_listeners if not one.host)

    def _registration(self) -> BrokerRegistration:
        ports = self._ports

        def reachable(listener: Listener) -> Listener:
            return listener._replace(
                host=listener.host or own_name(self.in_cluster), port=listener.port or ports[listener.name]
            )

        return BrokerRegistration(
            self._config.broker_id,
            tuple(reachable(one) for one in self._config.advertised_listeners if one.name in ports),
            self._config["broker.rack"],
            timestamp_ms=now_ms(),
        )

    def _follow_topics(
        self, replicas: ReplicaManager, image: MetadataImage, configs: TopicConfigs, groups: GroupCoordinator
    ) -> None:
        """Connect what happens to topics with those who must know."""

        def new_leaders(leaders: list[Partition], followers: list[Partition]) -> None:
            for partition in leaders:
                if partition.topic == GROUP_METADATA_TOPIC:
                    groups.on_elected(partition.partition, partition.leader_epoch)
            for partition in followers:
                if partition.topic == GROUP_METADATA_TOPIC:
                    groups.on_resigned(partition.partition, partition.leader_epoch)

        def stopped(partitions: list[Partition]) -> None:
            for partition in partitions:
                if partition.topic == GROUP_METADATA_TOPIC:
                    groups.on_resigned(partition.partition)

        def settings_changed(topics: Collection[str]) -> Iterator[None]:
            for partition in list(replicas.partitions.values()):
                if partition.topic in topics and partition.log is not None:
                    partition.log.config = configs.log_config(partition.topic)
                yield
            replicas.generation += 1  # produce routes were learnt under the old settings

        known: frozenset[str] = frozenset()

        def topics_changed() -> None:
            nonlocal known
            current = image.names()
            gone = known - current
            known = current
            if gone:
                groups.on_topics_deleted(gone)
                for name in gone:
                    configs.forget(name)
            count = image.partition_count(GROUP_METADATA_TOPIC)
            if count:
                groups.partition_count = count

        replicas.on_leadership.append(new_leaders)
        replicas.on_stopped.append(stopped)
        configs.on_topics_changed.append(settings_changed)
        configs.on_broker_changed.append(
            lambda: self._logs.forget_producers_after(self._config["producer.id.expiration.ms"])
        )
        # The first time before the start is over: the dynamic settings are read while logs are still being checked.
        configs.on_broker_changed.append(lambda: self._scan_helper.allow(self._recovery_processes()))
        image.on_update.append(topics_changed)

    def _recovery_processes(self) -> int:
        per_folder: int = self._config["num.recovery.threads.per.data.dir"]
        return per_folder * len(self._config.log_dirs)

    async def _load_rest(self, local: LatePartitions) -> None:
        assert self._loading is not None
        told = time.monotonic()
        for log in self._loading:
            if log is not None:
                local.loaded(log)
            if time.monotonic() - told > _PROGRESS_EVERY_S:
                told = time.monotonic()
                logger.info("recovering: %s", self._logs.progress)
            await self._give_turn(_PROGRESS_EVERY_S)
        self._loading = None
        await self._scan_helper.close()
        local.all_loaded()
        if local.must_be_asked and self._disk_watch is not None:
            await self._disk_watch.tell_controller()
        await self._adopt_strangers()
        self._background.remove_later(self._logs.take_unlinkable(), 0)
        if self._mover is not None:
            self._mover.resume()

    async def _adopt_strangers(self) -> None:
        """Folders that the metadata does not know: a data folder of Apache Kafka, or the store's file was lost. In a
        cluster they are left alone: their topic may have been deleted, or moved to other brokers."""
        assert self._store is not None
        if self.in_cluster:
            self._adopted = True
            return
        adopted = await adopt(self._store, self._config.broker_id, list(self._logs.logs.values()), self._gate)
        self._adopted = True
        if adopted:
            logger.info("adopted %d partitions of folders that the metadata did not know", len(adopted))

    def _store_failed(self, failure: StoreError) -> None:
        """Without its metadata a broker must not go on as if all were well: whoever watches over it sees it end."""
        self._give_up(f"the metadata store failed: {failure}")

    def _give_up(self, reason: str) -> None:
        logger.critical("stopping: %s", reason)
        self.failed = True
        signal.raise_signal(signal.SIGTERM)

    async def hand_over(self) -> None:
        """Before the listeners are closed. A broker that is alone, or at its end by a fault of its own, has nobody to
        hand anything to."""
        if self._member is not None and not self.failed:
            await self._member.hand_over()

    async def close(self) -> None:
        """Take everything apart, as far as it was built; the logs are closed cleanly, whatever else fails."""
        async with AsyncExitStack() as steps:  # runs the last first
            steps.callback(self._close_logs)
            if self._mover is not None:
                steps.callback(self._mover.close)
            if self._store is not None:
                steps.push_async_callback(self._store.close)
            steps.push_async_callback(self._background.close)
            if self._member is not None:  # what it waits for is on a thread of the background
                steps.push_async_callback(self._member.close)
            steps.push_async_callback(self._scan_helper.close)
            if self._controller is not None:
                steps.push_async_callback(self._controller.stop)
            if self._groups is not None:
                steps.callback(self._groups.close)
            # A stop has things to write, on a full disk too; by now no client takes the room.
            steps.callback(self._logs.release_reserves)
            if hasattr(self, "broker"):
                steps.callback(self.broker.connections.close_all)

    def _close_logs(self) -> None:
        if self._opened:
            self._logs.close_all(-1 if self._local is None else self._local.broker_epoch)
        else:
            self._logs.unlock()
