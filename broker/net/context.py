"""The parts of the broker that connections and listeners need."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.jobs.background import Background
    from gregor.broker.net.connections import Connections
    from gregor.broker.net.receive_buffers import BufferPool, ReceiveBudget
    from gregor.broker.net.request_turns import EarlyRequests, RequestTurns
    from gregor.broker.net.route_slots import RouteSlots
    from gregor.broker.quotas.quotas import Quotas
    from gregor.broker.registry import Entry
    from gregor.broker.request_log.log import RequestLog
    from gregor.broker.security.parts import SecurityParts
    from gregor.protocol.ids import Uuid
    from gregor.protocol.turns import Gate
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.topic_configs import TopicConfigs


class ConnectionContext(Protocol):
    """The parts for a connection. It passes the object on to the handlers, which need other parts of it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def security(self) -> SecurityParts | None: ...
    @property
    def handlers(self) -> Mapping[int, Entry]: ...
    @property
    def connections(self) -> Connections: ...
    @property
    def buffers(self) -> BufferPool: ...
    @property
    def receive_budget(self) -> ReceiveBudget: ...
    @property
    def route_slots(self) -> RouteSlots: ...
    @property
    def request_turns(self) -> RequestTurns: ...
    @property
    def early_requests(self) -> EarlyRequests: ...
    @property
    def max_request_bytes(self) -> int: ...
    @property
    def background(self) -> Background: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def quotas(self) -> Quotas | None: ...
    @property
    def authorizer(self) -> Authorizer | None: ...
    @property
    def request_log(self) -> RequestLog | None: ...
    @property
    def metadata(self) -> MetadataImage: ...
    @property
    def replicas(self) -> ReplicaManager: ...
    def partition_of(self, topic: str, topic_id: Uuid, index: int) -> Partition | None: ...


class ListenersContext(ConnectionContext, Protocol):
    """The parts for listeners, which follow the settings of the broker."""

    @property
    def topic_configs(self) -> TopicConfigs: ...
