"""The controller's shell: stands for election, watches the nodes, has `decision.decide` decide, and carries it out.

One task handles one event at a time. Every write goes through a multi that checks the version of /controller_epoch, so
that a controller which was replaced without its knowledge cannot write any more.
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
from gregor.replication.controller.decision.decide import decide
from gregor.replication.controller.events import (
    Action,
    AlterPartitionReceived,
    DropDeletion,
    DropReassignments,
    Event,
    RemoveTopic,
    ReplicasFailed,
    ReplicasRecovered,
    ReplicasStopped,
    Send,
    Step,
    TopicsChanged,
    UncleanChanged,
    Write,
    WriteLast,
)
from gregor.replication.controller.node_changes import UNWATCHED, NodeChanges
from gregor.replication.controller.reader import ControllerReader
from gregor.replication.controller.requests import answered_with, removed_by
from gregor.replication.controller.writes import ControllerWrites, Fenced
from gregor.replication.store import nodes
from gregor.replication.store.features import create_feature_node, undo_downgrades
from gregor.replication.store.metadata_store import (
    BadVersion,
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
"""Decisions about at least this many partitions are made on a thread: a decision about 1000 lasts 30 ms."""
FULL_DELAY_S = 1.0
ELECTION_RETRY_S = 1.0
"""The pause between an election that failed and the next attempt."""
_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class _Read(NamedTuple):
    """A node that is to be read again, because its watch was called."""

    path: str


class _Turn(NamedTuple):
    work: Callable[[Cluster, Step], Awaitable[Any]]
    done: asyncio.Future[Any]


_Item = _Read | _Turn | Event


class ControllerLoop:
    """Runs on every broker; on one of them it is active. All methods are called on the event loop's thread."""

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
        before_removals: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`listener`: the one for traffic between brokers. `delete_topics`: delete.topic.enable. `before_removals` is
        awaited when all replicas of a topic are deleted and its nodes are about to be."""
        self.broker_id = broker_id
        self.gate = gate
        self.cluster: Cluster | None = None
        """The controller context while this broker is the controller, else None."""
        self.unclean_elections_count = 0
        """Leaders that were elected though they were not in sync, since the start, as far as the nodes were written."""
        self._store = store
        self._channels = channels
        self._configs = configs
        self._listener = listener
        self._reader = ControllerReader(store, configs, lambda path: self._put(_Read(path)), gate)
        self._election = ControllerElection(broker_id, store, self._reader.exists, clock_ms)
        self._writes = ControllerWrites(store, gate)
        self._before_removals = before_removals
        self._nodes = NodeChanges(self._reader, self._writes, delete_topics)
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._queued: set[str] = set()  # paths in the queue: a node is read again once
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
        """Live brokers by id; none unless active."""
        return {} if self.cluster is None else self.cluster.brokers

    async def start(self) -> None:
        """Stand for election. Returns when this broker is the controller and has applied everything to its own replicas
        and metadata, or when another broker is the controller."""
        self._task = asyncio.create_task(self._run(), name="controller")
        self._put(_Read(nodes.CONTROLLER))
        await self.until_idle()

    async def stop(self) -> None:
        """Resign, so that another broker is elected at once."""
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
        """Wait until `predicate` holds; it is checked between two steps of the controller, never during one. False on
        timeout or stop."""
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

    async def until_idle(self, timeout_ms: int | None = None) -> bool:
        """Wait until no event is queued or being handled. False on timeout or stop."""
        return await self.wait_until(self._is_idle, timeout_ms)

    def check_conditions(self) -> None:
        """Check the conditions of `wait_until` again: something outside of the controller has changed."""
        if not self._working:
            self._complete_waits()

    async def until_notified(self, timeout_s: float) -> None:
        """Wait until all live brokers have answered the requests that were sent by now, at most this long."""
        await self._senders.until_answered(timeout_s)

    async def in_turn(self, work: Callable[[Cluster, Step], Awaitable[ResultT]]) -> ResultT:
        """Run `work` between two events and return its result. `work` receives the context and a function that has a
        further event decided. Raises KafkaError: what `work` raises, and NOT_CONTROLLER, also if the term ends
        before `work` is done."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        done: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._put(_Turn(work, done))
        return await done

    async def elect(self, keys: Collection[TopicPartition], unclean: bool) -> dict[TopicPartition, int | KafkaError]:
        """Elect leaders; return the new leader of each partition, or why there is none (see elect_leaders). On a broker
        that is not the controller: NOT_CONTROLLER for each."""
        return await controller_orders.elect(self, self._writes, keys, unclean)

    async def reassign(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions to other brokers, or with None back; return for each the refusal, or None if it moves or is
        there already. See reassignment.reassignment_refusal. On a broker that is not the controller: NOT_CONTROLLER
        for each."""
        return await controller_orders.reassign(self, self._writes, targets, keep_factor)

    async def reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, nodes.ReplicaAssignment]:
        """Return those of the partitions, or of all, that move. The move of any other is complete, also in the node
        of its topic. Raises NOT_CONTROLLER."""
        return await controller_orders.reassignments(self, wanted)

    def handle_deferred_response(self, request: BrokerRequest, response: BrokerResponse) -> None:
        """Handle the part of this broker's own response that waited for logs to be loaded."""
        if self.is_active:
            self._answered(self.broker_id, request, response)

    # -- the queue -------------------------------------------------------------------------------------------------

    def _put(self, item: _Item) -> None:
        if isinstance(item, _Read):
            if item.path in self._queued:
                return
            self._queued.add(item.path)
        self._queue.put_nowait(item)

    def _is_idle(self) -> bool:
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
                # The watch over the disk logs it. The decision that was being carried out, or the election, is void.
                await asyncio.sleep(FULL_DELAY_S)
                self._put(_Read("/" if self.is_active else nodes.CONTROLLER))
            except StoreFailed:
                _log.exception("The controller stops: the metadata store failed")
                self._resign()
                self._retry_election_later()
            except Exception as error:
                if self.is_active:
                    _log.exception(
                        "The controller could not handle %s: %r. It reads all nodes again in %g s",
                        _described(item), error, RETRY_DELAY_S,
                    )  # fmt: skip
                    await asyncio.sleep(RETRY_DELAY_S)
                    self._put(_Read("/"))
                else:
                    _log.exception(
                        "The election of a controller failed; check the value of the node %s", nodes.CONTROLLER_EPOCH
                    )
                    self._retry_election_later()
            finally:
                # Also when this task is cancelled: the caller of in_turn must not wait without end.
                if isinstance(item, _Turn):
                    _refuse(item.done)
            self._working = False
            self._complete_waits()

    def _retry_election_later(self) -> None:
        """Let `start` return meanwhile. Which watches were set before the failure is not known."""
        self._reader.forget_watches()
        asyncio.get_running_loop().call_later(ELECTION_RETRY_S, self._put, _Read(nodes.CONTROLLER))

    def _complete_waits(self) -> None:
        for predicate, future in self._waiting:
            if not future.done() and predicate():
                future.set_result(True)

    async def _handle(self, item: _Item) -> None:
        if isinstance(item, _Read) and item.path == nodes.CONTROLLER:
            await self._stand_for_election()
        elif self.cluster is None:
            return
        elif isinstance(item, _Read):
            await self._read(item.path)
        elif isinstance(item, _Turn):
            if item.done.done():  # the caller gave up: it would not expect a later change
                return
            try:
                _complete(item.done, await item.work(self.cluster, self._step))
            except KafkaError as error:
                if isinstance(error, TooLarge):
                    self._put(_Read("/"))  # writes before it in the same decision may be done
                elif isinstance(error, StoreError):
                    raise
                _refuse(item.done, error)
        else:
            await self._step(item)
        if self.is_active and self._reader.has_unwatched:
            self._put(_Read(UNWATCHED))

    async def _read(self, path: str) -> None:
        assert self.cluster is not None
        if path == "/":
            await self._read_everything()
        else:
            await self._nodes.read(path, self.cluster, self._step)

    async def _read_everything(self) -> None:
        """Build the context from the nodes alone, and act as if just elected."""
        assert self.cluster is not None
        self.cluster = await self._reader.cluster(self.cluster)
        await self._nodes.read_everything(self.cluster, self._step)

    def _session_expired(self) -> None:
        # The election node is gone or another session's: the term ends when it is read.
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
        await create_feature_node(self._store, {})
        await undo_downgrades(self._store)
        # Notices to earlier controllers: all nodes are read now anyway.
        await self._writes.delete_children(nodes.ISR_CHANGE_NOTIFICATIONS)
        await self._writes.delete_children(nodes.LOG_DIR_EVENTS)
        await self._read_everything()

    def _resign(self) -> None:
        self.cluster = None
        self._senders.cancel()

    # -- decisions -------------------------------------------------------------------------------------------------

    async def _step(self, event: Event) -> Cluster | None:
        """See events.Step."""
        assert self.cluster is not None
        cluster, actions = await self._decide(self.cluster, event)
        try:
            for action in actions:
                if isinstance(action, Write):
                    await self._writes.write(action)
                    self.unclean_elections_count += action.unclean_elections
        except (BadVersion, NoNode, NodeExists) as error:
            # The context was outdated, and so was the decision.
            _log.info("The controller reads all nodes again: %s: %s", type(error).__name__, error)
            self._put(_Read("/"))
            return None
        self.cluster = cluster
        self._senders.keep((id_, broker.epoch) for id_, broker in cluster.brokers.items())
        try:
            # The others first: they work on it while this broker changes its own replicas, perhaps thousands.
            for action in sorted(actions, key=lambda one: not isinstance(one, Send) or one.broker_id == self.broker_id):
                await self._carry_out(action)
        except (BadVersion, NoNode, NodeExists) as error:
            _log.info("The controller reads all nodes again: %s: %s", type(error).__name__, error)
            self._put(_Read("/"))
        return cluster

    async def _decide(self, cluster: Cluster, event: Event) -> tuple[Cluster, list[Action]]:
        """Decide, on a thread if there are many partitions: the decision is pure and works on immutable values."""
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

    async def _carry_out(self, action: Action) -> None:
        if isinstance(action, Send):
            await self._send(action.broker_id, action.request)
        elif isinstance(action, WriteLast):
            await self._writes.write(action)
        elif isinstance(action, DropReassignments):
            await self._writes.drop_reassignments(action.targets)
        elif isinstance(action, RemoveTopic):
            if self._before_removals is not None:
                await self._before_removals()
            await self._writes.remove_topic(action.topic)
            self._configs.forget(action.topic)
        elif isinstance(action, DropDeletion):
            await self._writes.delete([nodes.delete_topic_path(action.topic)])

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


def _described(item: _Item) -> str:
    """Name an item for the log; an event may hold thousands of partitions."""
    if isinstance(item, _Read):
        return {"/": "all nodes", UNWATCHED: "the watches"}.get(item.path, f"a change of the node {item.path}")
    if isinstance(item, _Turn):
        return f"the request {getattr(item.work, '__qualname__', repr(item.work))}"
    return f"the event {type(item).__name__}"


def _complete(done: asyncio.Future[ResultT], result: ResultT) -> None:
    """Complete the wait of the caller, unless it is over already."""
    if not done.done():
        done.set_result(result)


def _refuse(done: asyncio.Future[Any], error: KafkaError | None = None) -> None:
    if not done.done():
        done.set_exception(error or KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller"))
