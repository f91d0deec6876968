"""The controller's shell: stands for election, watches the nodes, has `controller.decide` decide, and does it.

One task takes one event at a time. Every write goes through a multi that checks the version of /controller_epoch, so
that a controller which was replaced without knowing it can write nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse, StopReplicaRequest, StopReplicaResponse
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.channels.messages import BrokerRequest, BrokerResponse
from gregor.replication.channels.senders import RETRY_DELAY_S, BrokerChannels, BrokerSenders
from gregor.replication.controller import orders as controller_orders
from gregor.replication.controller.context import Cluster, LiveBroker
from gregor.replication.controller.controller_election import ControllerElection
from gregor.replication.controller.decide import decide
from gregor.replication.controller.events import (
    Action,
    AlterPartitionReceived,
    BrokersChanged,
    DiskEvents,
    DropDeletion,
    DropReassignments,
    Elected,
    Event,
    IsrChanged,
    PreferredElection,
    Reassigned,
    RemoveTopic,
    ReplicasFailed,
    ReplicasRecovered,
    ReplicasStopped,
    Send,
    Step,
    TopicsChanged,
    TopicsQueuedForDeletion,
    UncleanChanged,
    Write,
    WriteLast,
)
from gregor.replication.controller.reader import ControllerReader
from gregor.replication.controller.reassignment import reassignment_refusal
from gregor.replication.controller.requests import answered_with, removed_by
from gregor.replication.controller.writes import ControllerWrites, Fenced
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import (
    BadVersion,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreError,
    StoreFailed,
    StoreFull,
    TooLarge,
)
from gregor.replication.store.topic_configs import TopicConfigs

THREADED_FROM = 50
"""Decisions about more partitions are made on a thread: 1000 partitions take 30 ms."""
FULL_DELAY_S = 1.0
STAND_AGAIN_S = 1.0
"""So long after an election that failed the next one is tried."""
_WATCHES = "watches"
"""In place of a path: some nodes are to be watched."""

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class _Read(NamedTuple):
    """Something to read again: a path whose watch was called."""

    path: str


class _Turn(NamedTuple):
    work: Callable[[Cluster, Step], Awaitable[Any]]
    done: asyncio.Future[Any]


_Item = _Read | _Turn | Event


class ControllerLoop:
    """Runs on every broker; on one of them it is active. All methods belong to the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        channels: BrokerChannels,
        configs: TopicConfigs,
        clock_ms: Callable[[], int],
        gate: Gate,
        *,
        listener: str = "PLAINTEXT",
        delete_topics: bool = True,
    ) -> None:
        """`listener`: the one brokers talk on. `delete_topics`: delete.topic.enable."""
        self.broker_id = broker_id
        self.gate = gate
        self.cluster: Cluster | None = None
        """The picture while active, else None."""
        self._store = store
        self._channels = channels
        self._configs = configs
        self._listener = listener
        self._delete_topics = delete_topics
        self._reader = ControllerReader(store, configs, lambda path: self._put(_Read(path)), gate)
        self._election = ControllerElection(broker_id, store, self._reader.exists, clock_ms)
        self._writes = ControllerWrites(store, gate)
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._queued: set[str] = set()  # paths waiting to be read again: reading once is enough
        self._working = False
        self._senders = BrokerSenders(channels, self._answered)
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None
        store.on_session_expired.append(self._session_expired)
        configs.on_topics_changed.append(self._topic_configs_changed)

    @property
    def is_active(self) -> bool:
        return self.cluster is not None

    @property
    def live_brokers(self) -> Mapping[int, LiveBroker]:
        """By id; none unless active."""
        return {} if self.cluster is None else self.cluster.brokers

    async def start(self) -> None:
        """Stand for election. Returns when this broker is the controller and has told its own replicas and metadata
        everything, or when another broker is the controller."""
        self._task = asyncio.create_task(self._run(), name="controller")
        self._put(_Read(nodes.CONTROLLER))
        await self.wait_until(self._is_quiet)

    async def stop(self) -> None:
        """Resign, so that another broker can take over at once."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if self.is_active:
            self._resign()
            await self._election.give_up(self._writes.epoch_version)
        while not self._queue.empty():
            item = self._queue.get_nowait()
            if isinstance(item, _Turn):
                _refuse(item.done)
        for _, future in self._waiting:
            if not future.done():
                future.set_result(False)

    async def wait_until(self, predicate: Callable[[], bool], timeout_ms: int | None = None) -> bool:
        """Wait until `predicate` holds; it is asked between two steps of the controller, not in the midst of one. False
        on timeout or stop."""
        if not self._working and predicate():
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (predicate, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await future
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)

    def look(self) -> None:
        """Something has changed, outside, that somebody may be waiting for."""
        if not self._working:
            self._progress()

    async def until_notified(self, most_s: float) -> None:
        """Until all live brokers have answered what this controller has told them by now, but not longer than this."""
        await self._senders.until_answered(most_s)

    async def in_turn(self, work: Callable[[Cluster, Step], Awaitable[ResultT]]) -> ResultT:
        """What `work` returns: it gets the picture between two events, and may have more of them decided. Raises
        KafkaError: what `work` raises, and NOT_CONTROLLER, also if that comes out on the way."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        done: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._put(_Turn(work, done))
        return await done

    async def elect(self, keys: Collection[TopicPartition], unclean: bool) -> dict[TopicPartition, int | KafkaError]:
        """The new leader of each of these partitions, or why there is none; see elect_leaders. Of a broker that is
        not the controller: NOT_CONTROLLER for each."""
        return await controller_orders.elect(self, keys, unclean)

    async def reassign(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send partitions to other brokers, or with None back; for each why not, or None: it is on its way or there.
        See reassignment.reassignment_refusal. Of a broker that is not the controller: NOT_CONTROLLER for each."""
        return await controller_orders.reassign(self, self._writes, targets, keep_factor)

    async def reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, nodes.ReplicaAssignment]:
        """Those of the partitions, or of all, that are on their way. Who is not has arrived, and its node says so.
        Raises NOT_CONTROLLER."""
        return await controller_orders.reassignments(self, wanted)

    def answered_late(self, request: BrokerRequest, response: BrokerResponse) -> None:
        """What this broker's own answer left out, about logs that were not loaded then, has happened now."""
        if self.is_active:
            self._answered(self.broker_id, request, response)

    # -- the queue -------------------------------------------------------------------------------------------------

    def _put(self, item: _Item) -> None:
        if isinstance(item, _Read):
            if item.path in self._queued:
                return
            self._queued.add(item.path)
        self._queue.put_nowait(item)

    def _is_quiet(self) -> bool:
        return self._queue.empty() and not self._working

    async def _run(self) -> None:
        while True:
            item = await self._queue.get()
            self._working = True
            if isinstance(item, _Read):
                self._queued.discard(item.path)
            try:
                await self._handle(item)
            except (Fenced, SessionExpired) as error:
                _log.info("This broker is no longer the controller: %s", type(error).__name__)
                self._resign()
                self._put(_Read(nodes.CONTROLLER))
            except StoreFull:
                # Whoever watches over the disk says so. What was decided on the way is void.
                await asyncio.sleep(FULL_DELAY_S)
                self._put(_Read("/"))
            except StoreFailed:
                _log.exception("The controller stops: the metadata store failed")
                self._resign()
                self._stand_later()
            except Exception:
                if self.is_active:
                    _log.exception("The controller failed at an event and reads all nodes again")
                    await asyncio.sleep(RETRY_DELAY_S)
                    self._put(_Read("/"))
                else:
                    _log.exception(
                        "The election of a controller failed; check the value of the node %s", nodes.CONTROLLER_EPOCH
                    )
                    self._stand_later()
            finally:
                # Also when this task ends: nobody shall wait for ever.
                if isinstance(item, _Turn):
                    _refuse(item.done)
            self._working = False
            self._progress()

    def _stand_later(self) -> None:
        """Without holding up who waits for this one to be done. What was being watched then, nobody knows."""
        self._reader.forget_watches()
        asyncio.get_running_loop().call_later(STAND_AGAIN_S, self._put, _Read(nodes.CONTROLLER))

    def _progress(self) -> None:
        for predicate, future in self._waiting:
            if not future.done() and predicate():
                future.set_result(True)

    async def _handle(self, item: _Item) -> None:
        if isinstance(item, _Read) and item.path == nodes.CONTROLLER:
            await self._stand_for_election()
        elif self.cluster is None:
            return
        elif isinstance(item, _Read):
            await self._read_again(item.path)
        elif isinstance(item, _Turn):
            if item.done.done():  # given up by who asked: not to be done behind their back
                return
            try:
                _tell(item.done, await item.work(self.cluster, self._step))
            except KafkaError as error:
                if isinstance(error, TooLarge):
                    self._put(_Read("/"))  # what stood before it in the same order may be done
                elif isinstance(error, StoreError):
                    raise
                _refuse(item.done, error)
        else:
            await self._step(item)
        if self.is_active and self._reader.has_unwatched:
            self._put(_Read(_WATCHES))

    def _session_expired(self) -> None:
        # The election node is gone or another session's: reading it ends our term, in its turn.
        self._reader.forget_watches()
        self._put(_Read(nodes.CONTROLLER))

    def _topic_configs_changed(self, topics: Collection[str]) -> Iterator[None]:
        changed = {}
        for topic in topics:
            known = None if self.cluster is None else self.cluster.topics.get(topic)
            unclean = self._configs.log_config(topic).unclean_leader_election_enable
            if known is not None and known.unclean != unclean:
                changed[topic] = unclean
            yield
        if changed:
            self._put(UncleanChanged(changed))

    # -- election --------------------------------------------------------------------------------------------------

    async def _stand_for_election(self) -> None:
        term = await self._election.stand(self.is_active, self._resign)
        if term is None:
            return
        _log.info("This broker is the controller, epoch %d", term.epoch)
        self._writes.begin_term(term.epoch_version)
        self.cluster = Cluster(self.broker_id, term.epoch)
        with suppress(NodeExists):
            if await self._store.exists(nodes.FEATURE) is None:
                await self._store.create(nodes.FEATURE, nodes.encode_feature())
        await self._drop_notices(nodes.ISR_CHANGE_NOTIFICATIONS)
        await self._drop_notices(nodes.LOG_DIR_EVENTS)
        await self._read_everything()

    def _resign(self) -> None:
        self.cluster = None
        self._senders.cancel()

    async def _drop_notices(self, path: str) -> None:
        """Notices to earlier controllers: everything is read now anyway."""
        with suppress(NoNode):
            for name in await self._store.children(path):
                with suppress(NoNode):
                    await self._writes.guarded([Delete(f"{path}/{name}")])

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _read_again(self, path: str) -> None:
        if path == "/":
            await self._read_everything()
        elif path == nodes.BROKER_IDS or path.startswith(nodes.BROKER_IDS + "/"):
            await self._step(BrokersChanged(await self._reader.brokers()))
        elif path == nodes.TOPICS:
            await self._read_topics()
        elif path.startswith(nodes.TOPICS + "/"):
            name = path.removeprefix(nodes.TOPICS + "/")
            await self._step(TopicsChanged(await self._reader.topics([name])))
        elif path == nodes.DELETE_TOPICS:
            await self._read_deletions()
        elif path == nodes.ISR_CHANGE_NOTIFICATIONS:
            await self._read_isr_notifications()
        elif path == nodes.LOG_DIR_EVENTS:
            await self._read_disk_events()
        elif path == nodes.PREFERRED_ELECTION:
            await self._read_preferred_election()
        elif path == nodes.REASSIGNMENT:
            await self._read_reassignments()
        elif path == _WATCHES:
            await self._reader.set_watches()

    async def _read_topics(self) -> None:
        assert self.cluster is not None
        names = await self._reader.topic_names()
        known = self.cluster.topics.keys()
        added = await self._reader.topics(sorted(names - known))
        await self._step(TopicsChanged(added, frozenset(known - names)))

    async def _read_deletions(self) -> None:
        assert self.cluster is not None
        names = await self._queued_for_deletion()
        if not names <= self.cluster.topics.keys():
            # Asked for in the same breath as it was created: its creation may not have been read yet.
            await self._read_topics()
        await self._step(TopicsQueuedForDeletion(names))

    async def _queued_for_deletion(self) -> frozenset[str]:
        """The topics to delete; requests to do so are thrown away where that is not allowed."""
        names = frozenset(await self._reader.children(nodes.DELETE_TOPICS))
        if self._delete_topics:
            return names
        for name in names:
            _log.warning("Topic %s is not deleted: delete.topic.enable is false", name)
            with suppress(NoNode):
                await self._writes.guarded([Delete(nodes.delete_topic_path(name))])
        return frozenset()

    async def _read_isr_notifications(self) -> None:
        states, paths = await self._reader.isr_notifications()
        await self._step(IsrChanged(states))
        for path in paths:
            with suppress(NoNode):
                await self._writes.guarded([Delete(path)])

    async def _read_disk_events(self) -> None:
        brokers, paths = await self._reader.disk_events()
        if brokers:
            await self._step(DiskEvents(brokers))
        for path in paths:
            with suppress(NoNode):
                await self._writes.guarded([Delete(path)])

    async def _read_preferred_election(self) -> None:
        keys = await self._reader.preferred_election()
        if keys is not None and await self._step(PreferredElection(frozenset(keys))):  # else all is read again
            with suppress(NoNode):
                await self._writes.guarded([Delete(nodes.PREFERRED_ELECTION)])

    async def _read_reassignments(self) -> None:
        assert self.cluster is not None
        wanted = await self._reader.reassignments()
        if wanted is None:
            return
        refused: dict[TopicPartition, tuple[int, ...] | None] = {}
        targets: dict[TopicPartition, tuple[int, ...] | None] = {}
        for key, target in wanted.items():
            # As with Apache Kafka, old tools may name brokers that are not alive.
            error = reassignment_refusal(self.cluster, key, target, any_broker=True)
            if error is not None:
                _log.warning("Reassignment of %s-%d to %s ignored: %s", *key, list(target), error)
                refused[key] = target
            else:
                targets[key] = target
        if refused or not wanted:
            await self._writes.drop_reassignments(refused)
        if targets:
            await self._step(Reassigned(targets))

    async def _read_everything(self) -> None:
        """Build the picture from nothing but the nodes, and act as if just elected."""
        assert self.cluster is not None
        self.cluster = await self._reader.cluster(self.cluster)
        await self._step(Elected(await self._queued_for_deletion()))
        await self._read_isr_notifications()
        await self._read_disk_events()
        await self._read_preferred_election()
        await self._read_reassignments()

    # -- doing -----------------------------------------------------------------------------------------------------

    async def _step(self, event: Event) -> bool:
        """Decide and do. False if what was decided is void, as the picture was old: everything will be read again."""
        assert self.cluster is not None
        cluster, actions = await self._decide(self.cluster, event)
        try:
            for action in actions:
                if isinstance(action, Write):
                    await self._writes.write(action)
        except (BadVersion, NoNode, NodeExists) as error:
            # The picture was old. What was decided on it is void.
            _log.info("The controller reads all nodes again: %s: %s", type(error).__name__, error)
            self._put(_Read("/"))
            return False
        self.cluster = cluster
        self._senders.keep((id_, broker.epoch) for id_, broker in cluster.brokers.items())
        try:
            # The others first: they are at it while this broker is with its own replicas, thousands of which take long.
            for action in sorted(actions, key=lambda one: not isinstance(one, Send) or one.broker_id == self.broker_id):
                await self._do(action)
        except (BadVersion, NoNode, NodeExists) as error:
            _log.info("The controller reads all nodes again: %s: %s", type(error).__name__, error)
            self._put(_Read("/"))
        return True

    async def _decide(self, cluster: Cluster, event: Event) -> tuple[Cluster, list[Action]]:
        """Pure, on values that nobody changes: it may as well be done on a thread, which the loop shares the processor
        with."""
        if isinstance(event, TopicsChanged):
            partitions = sum(len(read.assignment.partitions) for read in event.topics.values())
        elif isinstance(event, ReplicasStopped):
            partitions = len(event.deleted)
        elif isinstance(event, AlterPartitionReceived):
            partitions = len(event.states)
        else:
            partitions = sum(len(topic.partitions) for topic in cluster.topics.values())
        if partitions < THREADED_FROM:
            return decide(cluster, event, self._listener)
        return await asyncio.get_running_loop().run_in_executor(None, decide, cluster, event, self._listener)

    async def _do(self, action: Action) -> None:
        if isinstance(action, Send):
            await self._send(action.broker_id, action.request)
        elif isinstance(action, WriteLast):
            await self._writes.write(action)
        elif isinstance(action, DropReassignments):
            await self._writes.drop_reassignments(action.targets)
        elif isinstance(action, RemoveTopic):
            await self._writes.remove_topic(action.topic)
            self._configs.forget(action.topic)
        elif isinstance(action, DropDeletion):
            with suppress(NoNode):
                await self._writes.guarded([Delete(nodes.delete_topic_path(action.topic))])

    async def _send(self, broker_id: int, request: BrokerRequest) -> None:
        assert self.cluster is not None
        if broker_id == self.broker_id:
            self._answered(broker_id, request, await self._channels.send(broker_id, request))
            return
        self._senders.put(broker_id, self.cluster.brokers[broker_id].epoch, request)

    def _answered(self, broker_id: int, request: BrokerRequest, response: BrokerResponse) -> None:
        if response.error_code:
            _log.warning("Broker %d refused %s: error %d", broker_id, type(request).__name__, response.error_code)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
            failed = answered_with(ErrorCode.KAFKA_STORAGE_ERROR, request, response)
            if failed:
                self._put(ReplicasFailed(broker_id, failed))
            if self.cluster is not None and self.cluster.failed:
                served = answered_with(ErrorCode.NONE, request, response)
                recovered = frozenset(key for key in served if (*key, broker_id) in self.cluster.failed)
                if recovered:
                    self._put(ReplicasRecovered(broker_id, recovered))
        elif isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            removed, refused = removed_by(request, response)
            if removed or refused:
                self._put(ReplicasStopped(broker_id, removed, refused))


def _tell(done: asyncio.Future[ResultT], result: ResultT) -> None:
    """The answer to whoever asked, unless it was given already or nobody waits for it any more."""
    if not done.done():
        done.set_result(result)


def _refuse(done: asyncio.Future[Any], error: KafkaError | None = None) -> None:
    if not done.done():
        done.set_exception(error or KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller"))
