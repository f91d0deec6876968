"""The parts of one broker that serve requests."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.context import endpoint_for
from gregor.protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from gregor.broker.answers.metadata import EncodedTopics
    from gregor.broker.answers.producer_clients import ProducerClients
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.cluster.auto_topics import TopicCreator
    from gregor.broker.context import (
        AdminContext,
        ApiContext,
        Call,
        ConsumerGroupContext,
        GroupContext,
        LogDirsContext,
        MarkerWrites,
        NodeEndpoint,
        ProduceContext,
        ProducerIdContext,
        TransactionContext,
        VerifiedPartitions,
    )
    from gregor.broker.features.updates import FeatureUpdates
    from gregor.broker.fetch.context import FetchPathContext
    from gregor.broker.fetch.follower_sessions import FollowerSessions
    from gregor.broker.fetch.sessions import FetchSessions
    from gregor.broker.handlers.k03_metadata import EncodedMetadataContext
    from gregor.broker.handlers.k48_describe_client_quotas import ClientQuotasContext
    from gregor.broker.jobs.background import Background
    from gregor.broker.jobs.log_mover import LogMover
    from gregor.broker.jobs.turns import TurnQueue
    from gregor.broker.net.advertised_addresses import OwnAddresses
    from gregor.broker.net.connections import Connections
    from gregor.broker.net.context import ConnectionContext, ListenersContext
    from gregor.broker.net.receive_buffers import BufferPool, ReceiveBudget
    from gregor.broker.net.request_turns import EarlyRequests, RequestTurns
    from gregor.broker.net.route_slots import RouteSlots
    from gregor.broker.part_of import PartsContext
    from gregor.broker.quotas.following import FollowedQuotas
    from gregor.broker.quotas.quotas import Quotas
    from gregor.broker.registry import Entry
    from gregor.broker.request_log.log import RequestLog
    from gregor.broker.request_log.switch import RequestLogSwitch
    from gregor.broker.security.parts import SecurityParts
    from gregor.broker.telemetry.telemetry import Telemetry
    from gregor.config.broker import BrokerConfig
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.coordinator.txn.coordinator import TransactionCoordinator
    from gregor.protocol.turns import Gate
    from gregor.replication.admin.producer_ids import ProducerIdAllocator
    from gregor.replication.admin.topics import Admin
    from gregor.replication.controller.answers import ControllerAnswers
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.consumer_offsets import ConsumerOffsets
    from gregor.replication.store.features import FinalizedFeatures
    from gregor.replication.store.topic_configs import TopicConfigs
    from gregor.storage.folders.manager import LogManager


@dataclass(slots=True, eq=False)
class Broker:
    """The parts, made by gregor.broker.wiring. All belong to the thread of the event loop."""

    config: BrokerConfig
    broker_id: int
    cluster_id: str
    loop: asyncio.AbstractEventLoop
    handlers: dict[int, Entry]
    connections: Connections
    buffers: BufferPool
    receive_budget: ReceiveBudget
    route_slots: RouteSlots
    request_turns: RequestTurns
    early_requests: EarlyRequests
    max_request_bytes: int
    background: Background
    gate: Gate
    logs: LogManager
    mover: LogMover
    replicas: ReplicaManager
    metadata: MetadataImage
    topic_configs: TopicConfigs
    controller_requests: ControllerRequestHandler
    controller: ControllerAnswers
    admin: Admin
    features: FinalizedFeatures
    feature_admin: FeatureUpdates
    topic_creator: TopicCreator
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_verifier: VerifiedPartitions
    local_markers: MarkerWrites
    consumer_offsets: ConsumerOffsets
    security: SecurityParts
    producer_ids: ProducerIdAllocator
    fetch_sessions: FetchSessions
    delayed_reads: TurnQueue
    follower_sessions: FollowerSessions
    encoded_topics: EncodedTopics
    addresses: OwnAddresses
    producer_clients: ProducerClients
    client_quotas: FollowedQuotas
    request_logging: RequestLogSwitch
    authorizer: Authorizer | None = None
    """None: no authorizer is configured, and every request is allowed."""
    request_log: RequestLog | None = None
    """The log of requests; None while it is off."""
    quotas: Quotas | None = None
    """The quotas of clients; None while none is set."""
    telemetry: Telemetry | None = None
    """The metrics that clients push; None where no listener shows them."""
    sends_to_racks: bool = False
    """Whether consumers are directed to the replica in their rack (replica.selector.class)."""

    @staticmethod
    def now_ms() -> int:
        return int(time.time() * 1000)

    def enforce(self, quotas: Quotas | None) -> None:
        """Measure clients and throttle them by these quotas from now on."""
        self.quotas = quotas

    def log_requests(self, log: RequestLog | None) -> None:
        """Log requests from now on, or none."""
        self.request_log = log

    async def write_log_start_offsets(self) -> None:
        """Make the present log start offsets survive a crash of this process. If a write fails, the next checkpoints
        repeat it.
        """
        self.logs.report(await self.background.run(self.logs.checkpoints.log_starts()))

    def partition_of(self, topic: str, topic_id: Uuid, index: int) -> Partition | None:
        """Return the local replica that a request names, by topic id if it has one."""
        if topic_id != ZERO_UUID:
            return self.replicas.get_by_id(topic_id, index)
        return self.replicas.get(topic, index)

    def endpoint_of(self, node_id: int, call: Call) -> NodeEndpoint | None:
        """Return the address of a live broker for the client of this request."""
        node = self.metadata.brokers.get(node_id)
        if node is None:
            return None
        own = node_id == self.broker_id and call.connection.listener in self.addresses.unadvertised
        return endpoint_for(node, call.connection, own=own)


if TYPE_CHECKING:

    def _serves(
        broker: Broker,
    ) -> tuple[
        AdminContext,
        ApiContext,
        ClientQuotasContext,
        ConnectionContext,
        ConsumerGroupContext,
        EncodedMetadataContext,
        FetchPathContext,
        GroupContext,
        ListenersContext,
        LogDirsContext,
        PartsContext,
        ProduceContext,
        ProducerIdContext,
        TransactionContext,
    ]:
        """Let the type checker compare the parts with the needs of each handler: the registry does not. Handlers of
        one part are compared where `on_part` names it."""
        one = broker
        return one, one, one, one, one, one, one, one, one, one, one, one, one, one
