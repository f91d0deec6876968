"""One life of one broker: gregor's own parts, put together as broker.wiring does it, on modelled disks and networks."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from gregor.broker.answers.producer_clients import ProducerClients
from gregor.broker.cluster.controlled_shutdown import controlled_shutdown
from gregor.broker.cluster.membership import Membership
from gregor.broker.cluster.recovering_partitions import RecoveringPartitions
from gregor.broker.cluster.replication_service import Replicating
from gregor.broker.context import Call
from gregor.broker.fetch.sessions import FetchSessions
from gregor.broker.jobs.turns import LoopGate, TurnQueue
from gregor.broker.net.advertised_addresses import OwnAddresses
from gregor.broker.net.responses import encode_response
from gregor.broker.node.coordinators import Coordinators, make_coordinators
from gregor.broker.node.topic_events import TopicEvents
from gregor.broker.parts import Broker
from gregor.broker.registry import load_handlers
from gregor.broker.session_watcher.sessions import WatchedSessions
from gregor.config.broker import BrokerConfig
from gregor.config.listeners import Listener
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL
from gregor.protocol.deferred import Deferred, DeferredCancelled, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ApiVersionsResponse, RequestHeader, request_header_version
from gregor.protocol.turns import Steps, run_all
from gregor.replication.admin.producer_ids import BlocksOfController, ProducerIdAllocator
from gregor.replication.admin.topics import Admin
from gregor.replication.channels.broker_channels import Brokers
from gregor.replication.channels.controller_channel import ControllerChannel
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.auto_leader_rebalance import AutoLeaderRebalance
from gregor.replication.controller.context import LiveBroker
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.partition.alter_partition import AlterPartitionManager
from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.partition.replica_selector import RACK_AWARE_SELECTOR
from gregor.replication.store.features import FinalizedFeatures
from gregor.replication.store.metadata_store import StoreError
from gregor.replication.store.nodes import TOPICS, BrokerRegistration
from gregor.replication.store.registration import announce_disk_event, join_cluster, make_persistent_nodes
from gregor.replication.store.topic_configs import TopicConfigs
from gregor.storage.folders.manager import LogManager
from gregor.storage.log.log import Log, LogSlice
from tests.simulation.compacting import Cleaner
from tests.simulation.disks import Disk
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.session_watchers import Note, SessionWatchers, Watcher
from tests.simulation.virtual_time import wall_ms
from tests.simulation.zookeeper import Ensemble, SimulatedStore
from tests.storage.checkpoints import write_high_watermarks

LISTENER = "PLAINTEXT"
FLUSH_S = 2.0
BALANCE_S = 3
TOLD_WITHIN_S = 1.0
CHECKPOINT_S = 1.0
SETTINGS = {
    "log.dirs": "/data",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "400",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "1500",
    "controller.socket.timeout.ms": "1500",
    "zookeeper.connect": "zk:2181",
    "zookeeper.session.timeout.ms": "2000",
    "controlled.shutdown.max.retries": "2",
    "controlled.shutdown.retry.backoff.ms": "500",
    "log.cleaner.backoff.ms": "700",
    "auto.create.topics.enable": "false",
}
_log = logging.getLogger("gregor.simulated")


def host_of(broker_id: int) -> str:
    return f"b{broker_id}"


def rack_of(broker_id: int) -> str:
    return f"rack {broker_id % 2}"


class Node:
    """One life of a broker. Call `start` in its process; it may raise the error that keeps a broker from starting."""

    def __init__(
        self,
        broker_id: int,
        process: Process,
        files: Disk,
        loop: VirtualLoop,
        network: Network,
        zk: Ensemble,
        settings: dict[str, str],
        note: Note,
        watchers: SessionWatchers,
        loading_s: float = 0.0,
    ) -> None:
        """`note`: of the sessions of this machine's brokers. `loading_s`: the duration of the check of each log, at
        least of the first."""
        self.broker_id = broker_id
        self.process = process
        self.files = files
        self.started = self.stopping = False
        self.connection_numbers = itertools.count(1)
        self.config = config = BrokerConfig(
            settings | {"broker.id": str(broker_id), "listeners": f"PLAINTEXT://{host_of(broker_id)}:9092"}
        )
        self._loop = loop
        self._network = network
        self._loading_s = loading_s
        self._loading: Iterator[Log | None] = iter(())

        def clock_ms() -> int:
            return wall_ms(loop)

        self._clock_ms = clock_ms
        self.gate = gate = LoopGate(loop.time)
        self.logs = LogManager(config, cast("Any", files), clock_ms)
        self.store = SimulatedStore(zk, process, config["zookeeper.session.timeout.ms"])
        self.session_watcher = Watcher(watchers)
        self._sessions: WatchedSessions | None = None
        if watchers.are_used:
            to_watcher = cast("Any", self.session_watcher)
            self._sessions = WatchedSessions(config, cast("Any", note), to_watcher, watchers.close_session)
        self.image = MetadataImage()
        self.configs = TopicConfigs(self.store, config, broker_id, self.spawn, clock_ms, gate)
        self.features = FinalizedFeatures(self.store, self.spawn)
        self.replicas = ReplicaManager(
            broker_id,
            self.logs,
            self.configs.log_config,
            clock_ms,
            lag_time_max_ms=config["replica.lag.time.max.ms"],
            is_alive=self.image.is_alive,
            folder_removed=files.remove_directory,
        )
        self.coordinators = self._coordinators()
        TopicEvents(self.replicas, self.image, self.configs, self.coordinators.groups, self.coordinators.transactions)
        self.recovering = RecoveringPartitions(self.replicas, self.logs.is_loading)
        self.local = ControllerRequestHandler(self.replicas, self.image, self.configs, gate, self.recovering.hold_back)
        self.member = Membership(
            self.store,
            self.local,
            self.replicas,
            self.image,
            cast("Any", self),
            registration=self._registration,
            session_timeout_ms=config["zookeeper.session.timeout.ms"],
            end=self._end,
        )
        channels = Brokers(broker_id, self.local, self._live, LISTENER, config["controller.socket.timeout.ms"], gate)
        self.controller = ControllerLoop(
            broker_id, self.store, channels, self.configs, clock_ms, gate, listener=LISTENER
        )
        self.recovering.on_deferred_response.append(self.controller.handle_deferred_response)
        self.answers = ControllerAnswers(self.controller, self.store)
        self.handlers = _handlers()
        self.broker: Any = None

    def _coordinators(self) -> Coordinators:
        async def next_producer_id() -> int:
            return await self.producer_ids.next_id()

        base = SimpleNamespace(
            image=self.image,
            replicas=self.replicas,
            features=self.features,
            store=self.store,
            configs=self.configs,
            security=PLAINTEXT_CHANNEL,
        )
        return make_coordinators(
            self.config,
            cast("Any", base),
            cast("Any", self),
            self._clock_ms,
            next_producer_id,
            self.features.transaction_version,
        )

    def _live(self) -> dict[int, LiveBroker]:
        cluster = self.controller.cluster
        return {} if cluster is None else dict(cluster.brokers)

    def _link(self) -> ControllerChannel:
        timeout_ms: int = self.config["controller.socket.timeout.ms"]
        return ControllerChannel(self.broker_id, self.image, self.answers, LISTENER, timeout_ms, self.gate)

    def _broker_epoch(self) -> int:
        return self.local.broker_epoch

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """As gregor.broker.jobs.background does."""
        self._loop.create_task(coroutine)

    def _end(self, reason: str) -> None:
        self._loop.problems.append(f"broker {self.broker_id} gives up: {reason}")

    async def start(self) -> None:
        store = self.store
        self.logs.load_meta(None, self.broker_id)
        self._loading = self.logs.load()
        for _ in self._loading:
            if self._loading_s and self.logs.listed:
                break
        if self._sessions is not None:
            self._sessions.begin()
            store.on_new_session.append(self._sessions.begun)
        await store.start()
        if self._sessions is not None:
            await self._sessions.close_predecessor()
        await make_persistent_nodes(store)
        await join_cluster(store)
        self.replicating = replicating = Replicating(
            self.config,
            self.replicas,
            self.image,
            cast("Any", self),
            self._clock_ms,
            self._broker_epoch,
            self._checkpoint,
            AlterPartitionManager(
                self.broker_id, self._link(), store, self._broker_epoch, self._clock_ms, self.spawn, self.gate
            ),
        )
        nothing: Any = dict.fromkeys(Broker.__slots__)
        self.broker = Broker(**nothing)
        self._fill(self.broker)
        await self.configs.start()
        await self.features.start()
        self.image.expect_topics(bool(await store.children(TOPICS)))
        self._network.listen(host_of(self.broker_id), self.process, lambda source: _ServerEnd(self, source))
        await self.member.join()
        await self.controller.start()
        replicating.start()
        self.spawn(self._load_rest())
        Cleaner(
            self.config, self.logs, cast("Any", self), self._clock_ms, self.replicas.has, cast("Any", self.files)
        ).start()
        self.spawn(AutoLeaderRebalance(self.controller, 0, BALANCE_S, self.gate).run())
        self.spawn(self._maintain())
        self.started = True

    async def _load_rest(self) -> None:
        """As gregor.broker.wiring does it, at a disk's pace."""
        await asyncio.sleep(self._loading_s)
        for log in self._loading:
            if log is not None:
                self.recovering.loaded(log, self.local.min_request_epoch)
                await asyncio.sleep(self._loading_s)
        self.recovering.all_loaded(self.local.min_request_epoch)
        while self.recovering.must_notify_controller:
            try:
                await announce_disk_event(self.store, self.broker_id)
                return
            except StoreError:
                await asyncio.sleep(1.0)

    # In place of the threads of gregor.broker.jobs.background.

    async def run(self, call: Callable[[], Any]) -> Any:
        return call()

    fsync = read = run

    async def search(self, work: Steps[Any]) -> Any:
        return run_all(work)

    run_steps = search

    def remove_later(self, paths: Iterable[str], _delay_ms: int) -> None:
        for path in paths:
            self.files.unlink(path)

    def _fill(self, broker: Broker) -> None:
        broker.config = self.config
        broker.broker_id = self.broker_id
        broker.cluster_id = "simulated"
        broker.loop = self._loop
        broker.gate = self.gate
        broker.logs = self.logs
        broker.replicas = self.replicas
        broker.metadata = self.image
        broker.topic_configs = self.configs
        broker.controller_requests = self.local
        broker.handlers = self.handlers
        broker.admin = Admin(
            self.store, self.config, self.broker_id, self.controller, self.image, self.configs, self.gate
        )
        broker.controller = self.answers
        blocks = BlocksOfController(self._link(), self.store, self.broker_id, self._broker_epoch)
        broker.producer_ids = self.producer_ids = ProducerIdAllocator(self.store, self.broker_id, blocks.claim)
        broker.features = self.features
        broker.groups = self.coordinators.groups
        broker.transactions = self.coordinators.transactions
        broker.transaction_verifier = self.coordinators.verifier
        broker.local_markers = self.coordinators.local_markers
        broker.topic_creator = cast("Any", _NoTopics())
        broker.producer_clients = ProducerClients()
        broker.follower_sessions = self.replicating.follower_sessions
        broker.fetch_sessions = FetchSessions(1000)
        broker.delayed_reads = TurnQueue(self._loop, self.gate, self.spawn)
        broker.addresses = OwnAddresses(self.config, True, self._clock_ms)
        broker.background = cast("Any", self)
        broker.sends_to_racks = self.config["replica.selector.class"] == RACK_AWARE_SELECTOR

    def _registration(self) -> BrokerRegistration:
        endpoint = Listener(LISTENER, host_of(self.broker_id), 9092, LISTENER)
        return BrokerRegistration(
            self.broker_id, (endpoint,), timestamp_ms=self._clock_ms(), rack=rack_of(self.broker_id)
        )

    async def stop(self) -> None:
        """Stop as controlled_shutdown and close of gregor.broker.wiring do."""
        epoch = self.local.broker_epoch
        if await controlled_shutdown(self.config, self._link(), self.store, self.image, self.replicas, epoch):
            await self.replicating.close()
        await self.controller.until_notified(TOLD_WITHIN_S)
        self.coordinators.close()
        self._network.stop_listening(host_of(self.broker_id), self.process)
        await self.controller.stop()
        await self.replicating.close()
        await self.store.close()
        if self._sessions is not None:
            self._sessions.end(self.store.session_closed)
        self.logs.close_all(self.local.broker_epoch)

    async def _checkpoint(self) -> None:
        self.logs.report(run_all(self.logs.checkpoints.recovery_points())())

    async def _maintain(self) -> None:
        """Flush logs and write checkpoints, as gregor.broker.jobs.maintenance does."""
        turn = 0
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            turn += 1
            if turn % int(FLUSH_S / CHECKPOINT_S) == self.broker_id % 2:
                for log in list(self.logs.logs.values()):
                    log.flusher.flush(self._clock_ms())
                    if self.replicas.get(log.topic, log.partition) is None:
                        continue  # it may not have received the settings of its topic yet
                    for path in log.retention.delete_due(self._clock_ms()):
                        self.files.unlink(path)
                await self._checkpoint()
            self.logs.report(write_high_watermarks(self.logs) or {})


class _NoTopics:
    """Stands for the creation of internal topics, which exist from the beginning: the broker does not know them yet."""

    async def create(self, name: str) -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is not known")


class _ServerEnd:
    """Start requests in their order, as gregor.broker.net.connection does."""

    def __init__(self, node: Node, host: str) -> None:
        self._node = node
        self._owed: list[Deferred[Any]] = []
        self.number = next(node.connection_numbers)
        self.host = host
        self.listener = LISTENER

    # The part of a connection that handlers use.

    def hold(self) -> None:
        return

    def end_hold(self) -> None:
        return

    def fail(self, reason: str) -> None:
        return

    def lost(self) -> None:
        for owed in self._owed:
            owed.cancel()

    async def frame(self, data: bytes) -> bytes | None:
        view = memoryview(data)
        key = int.from_bytes(view[4:6], "big")
        version = int.from_bytes(view[6:8], "big")
        header, position = RequestHeader.decode(view, request_header_version(key, version), SIZE_BYTES)
        node = self._node
        entry = node.handlers[key]
        if key == ApiKey.API_VERSIONS:
            chunks = encode_response(entry, version, header.correlation_id, _offered())
            return b"".join(_read(chunk) for chunk in chunks)
        request = entry.decoders[version](view, position)[0]
        call = Call(cast("Any", self), key, version, header.correlation_id, header.client_id)
        try:
            result = entry.handler(node.broker, request, call)
            if isinstance(result, Deferred):
                result = await self._later(result)
            elif hasattr(result, "__await__"):
                result = await result
        except DeferredCancelled:
            return None
        except StoreError as error:
            _log.info("%s: %r", ApiKey(key).name, error)
            return None
        except Exception:
            _log.exception("%s failed", ApiKey(key).name)
            return None
        if result is None:
            return None
        chunks = encode_response(entry, version, header.correlation_id, result)
        return b"".join(_read(chunk) for chunk in chunks)

    async def _later(self, later: Deferred[Any]) -> Any:
        self._owed.append(later)
        try:
            return await outcome_of(later, asyncio.get_running_loop().create_future())
        finally:
            self._owed.remove(later)


_handlers = functools.cache(load_handlers)
"""The import system lists the modules of all handlers for this, which a run would otherwise do for each life."""


@functools.cache
def _offered() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=entry.key, min_version=entry.min_version, max_version=entry.max_version
            )
            for entry in _handlers().values()
        ]
    )


def _read(chunk: Any) -> bytes:
    if isinstance(chunk, LogSlice):
        data = chunk.read()
        chunk.release()
        return data
    return bytes(chunk)
