"""A ControllerLoop over the embedded store, with brokers that record the requests they receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.config.listeners import Listener
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import Delete
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from gregor.replication.store.registration import make_persistent_nodes, register
from gregor.replication.store.topic_configs import TopicConfigs
from tests.replication.fakes import HandClock

ENDPOINT = Listener("PLAINTEXT", "h", 1, "PLAINTEXT")


class Brokers:
    """The other end: records the requests to each broker, and responds without error unless set otherwise."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Any]] = []
        self.unreachable: set[int] = set()
        self.broken: set[tuple[int, str, int]] = set()
        self.ready = asyncio.Event()
        """Without it broker 1 still handles a request."""
        self.ready.set()
        self.changed = asyncio.Event()

    def close(self, broker_id: int) -> None:
        return

    async def send(self, broker_id: int, request: Any) -> Any:
        if broker_id in self.unreachable:
            raise ConnectionRefusedError(f"broker {broker_id}")
        self.heard.append((broker_id, request))
        self.changed.set()
        if broker_id == 1:
            await self.ready.wait()
        if isinstance(request, LeaderAndIsrRequest):
            topics = [
                LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                            partition_index=p.partition_index,
                            error_code=self.error(broker_id, topic.topic_name, p.partition_index),
                        )
                        for p in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
            return LeaderAndIsrResponse(topics=topics)
        if isinstance(request, StopReplicaRequest):
            errors = [
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=p.partition_index,
                    error_code=self.error(broker_id, topic.topic_name, p.partition_index),
                )
                for topic in request.topic_states
                for p in topic.partition_states
            ]
            return StopReplicaResponse(partition_errors=errors)
        return UpdateMetadataResponse()

    def error(self, broker_id: int, topic: str, index: int) -> ErrorCode:
        return ErrorCode.KAFKA_STORAGE_ERROR if (broker_id, topic, index) in self.broken else ErrorCode.NONE

    async def until(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 30)

    def to(self, broker_id: int) -> list[Any]:
        return [request for id_, request in self.heard if id_ == broker_id]

    def led_by(self, broker_id: int) -> set[tuple[str, int]]:
        """Return the partitions that the broker leads by its last requests."""
        led: set[tuple[str, int]] = set()
        for id_, request in self.heard:
            if id_ == broker_id and isinstance(request, LeaderAndIsrRequest):
                for topic in request.topic_states:
                    for p in topic.partition_states:
                        key = (topic.topic_name, p.partition_index)
                        (led.add if p.leader == broker_id else led.discard)(key)
        return led


class ExpiringStore(EmbeddedStore):
    """A store whose session can end as one of ZooKeeper does."""

    async def lose_session(self) -> None:
        """Begin another session: the ephemeral nodes of the old one are gone, its watches dead."""
        self._tree.drop_watches()
        await self.multi([Delete(path) for path in self._tree.owned_by(self.session_id)])
        self.session_id += 1


class Subject:
    def __init__(self, folder: Path) -> None:
        self.store = ExpiringStore(str(folder / FILE_NAME))
        self.brokers = Brokers()
        self.tasks: set[asyncio.Future[None]] = set()

    def spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def start(self, *others: int) -> None:
        await self.store.start()
        await make_persistent_nodes(self.store)
        configs = TopicConfigs(self.store, BrokerConfig({}), 1, self.spawn, HandClock(), LoopGate())
        await configs.start()
        for broker_id in (1, *others):
            await self.join(broker_id)
        self.loop = ControllerLoop(1, self.store, self.brokers, configs, HandClock(), LoopGate())
        await self.loop.start()

    async def join(self, broker_id: int) -> None:
        await register(self.store, BrokerRegistration(broker_id, (ENDPOINT,)))

    async def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        partitions = {index: ReplicaAssignment(ids) for index, ids in enumerate(replicas)}
        data = nodes.encode_topic(TopicAssignment(name.encode().ljust(16), partitions))
        await self.store.create(nodes.topic_path(name), data)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the controller is idle and every reachable broker has received everything."""
        for _ in range(20):
            await self.loop.until_idle(30_000)
            await asyncio.sleep(0)

    async def state(self, name: str, index: int = 0) -> PartitionState:
        found = await self.store.get(nodes.state_path(name, index))
        assert found is not None
        return nodes.decode_state(found[0])


@asynccontextmanager
async def running(folder: Path, *others: int) -> AsyncIterator[Subject]:
    subject = Subject(folder)
    await subject.start(*others)
    try:
        yield subject
    finally:
        await subject.loop.stop()
        await subject.store.close()
