"""The context of a request: its connection and header, and the parts of the broker that its handler may use.

Each handler names the narrowest of these protocols that it needs; gregor.broker.parts has all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gregor.protocol.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from gregor.broker.authorization.known_client import KnownClient
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.jobs.background import Background
    from gregor.broker.jobs.log_mover import LogMover
    from gregor.broker.quotas.quotas import Quotas
    from gregor.config.broker import BrokerConfig
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.coordinator.txn.coordinator import TransactionCoordinator
    from gregor.protocol.api_keys import ApiKey
    from gregor.protocol.deferred import Deferred
    from gregor.protocol.errors import ErrorCode
    from gregor.protocol.ids import Uuid
    from gregor.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
    from gregor.protocol.records.control import EndTransaction
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.protocol.turns import Gate
    from gregor.replication.admin.producer_ids import ProducerIdAllocator
    from gregor.replication.admin.topics import Admin
    from gregor.replication.controller.answers import ControllerAnswers
    from gregor.replication.partition.metadata_image import LiveBroker, MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.consumer_offsets import ConsumerOffsets
    from gregor.replication.store.features import FinalizedFeatures
    from gregor.storage.folders.manager import LogManager


class AuthenticationSession(Protocol):
    """How the client of a connection authenticates; a listener without SASL has none."""

    @property
    def token_authenticated(self) -> bool:
        """Whether the client authenticated with a delegation token."""
        ...

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Any: ...
    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Any: ...


class ClientSoftware(NamedTuple):
    """Name and version of the client library, as its ApiVersions request named them."""

    name: str | None = None
    version: str | None = None


UNKNOWN_SOFTWARE = ClientSoftware()


class ClientConnection(Protocol):
    """The connection of a request."""

    @property
    def listener(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def sockname(self) -> Any: ...
    @property
    def number(self) -> int: ...
    @property
    def peer(self) -> str: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def known(self) -> KnownClient: ...

    @property
    def software(self) -> ClientSoftware: ...
    def identify(self, software: ClientSoftware) -> None: ...
    @property
    def session(self) -> AuthenticationSession | None: ...
    def fail(self, reason: str) -> None: ...
    def hold(self) -> None: ...
    def end_hold(self) -> None: ...
    def throttle(self, duration_ms: int) -> None: ...


@dataclass(slots=True)
class Call:
    """The connection of a request, and its header."""

    connection: ClientConnection
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka writes it into group metadata (Java's InetAddress.toString)."""
        return f"/{self.connection.host}"

    @property
    def may_use_tokens(self) -> bool:
        """Whether the client may make and see delegation tokens: not one that is anonymous, or came with a token."""
        session = self.connection.session
        return self.connection.principal != ANONYMOUS and not (session is not None and session.token_authenticated)


class NodeEndpoint(NamedTuple):
    """The address of a broker for one client: that of the listener that the client is connected to."""

    host: str
    port: int
    rack: str | None


def endpoint_for(node: LiveBroker, connection: ClientConnection, *, own: bool) -> NodeEndpoint | None:
    """Return the address of `node` for the client of `connection`; None if the node lacks the listener.

    `own`: the node is this broker, and it advertises no host on this listener. Then the address is the one that
    this client is connected to, which is right on a machine with several networks; a forwarded port still needs
    advertised.listeners.
    """
    endpoint = node.endpoints.get(connection.listener)
    if endpoint is None:
        return None
    host = str(connection.sockname[0]) if own and connection.sockname else endpoint.host
    return NodeEndpoint(host, endpoint.port, node.rack)


class ServedApi(Protocol):
    """One API that the broker serves, with its versions."""

    @property
    def key(self) -> ApiKey: ...
    @property
    def min_version(self) -> int: ...
    @property
    def max_version(self) -> int: ...


class ApiContext(Protocol):
    """The table of served APIs, the features, and the identity that clients expect."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def handlers(self) -> Mapping[int, ServedApi]: ...
    @property
    def features(self) -> FinalizedFeatures: ...


class Paced(Protocol):
    """The gate, for a request about many items: it is handled in pieces, between which other work proceeds."""

    @property
    def gate(self) -> Gate: ...


class MetadataContext(Paced, Protocol):
    """The cluster as this broker knows it."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def metadata(self) -> MetadataImage: ...
    @property
    def authorizer(self) -> Authorizer | None: ...
    def endpoint_of(self, node_id: int, call: Call) -> NodeEndpoint | None: ...


class ProducerNotes(Protocol):
    """The clients of transactional producers."""

    def note(self, producer_id: int, client_id: str | None, host: str) -> None: ...
    def details(self, producer_ids: Iterable[int]) -> str | None: ...


class DataContext(MetadataContext, Protocol):
    """Records: the replicas of this broker, and the threads that read and write their files."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def background(self) -> Background: ...
    @property
    def replicas(self) -> ReplicaManager: ...
    @property
    def producer_clients(self) -> ProducerNotes: ...
    @property
    def quotas(self) -> Quotas | None: ...
    def now_ms(self) -> int: ...
    def partition_of(self, topic: str, topic_id: Uuid, index: int) -> Partition | None: ...
    async def write_log_start_offsets(self) -> None: ...


class ProducerIdContext(Protocol):
    """Producer ids."""

    @property
    def producer_ids(self) -> ProducerIdAllocator: ...


class TopicCreation(Protocol):
    """The creation of topics on first use."""

    async def create(self, name: str) -> None: ...


class GroupContext(MetadataContext, Protocol):
    """Consumer groups, and the offsets that old clients store in ZooKeeper."""

    @property
    def logs(self) -> LogManager: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def consumer_offsets(self) -> ConsumerOffsets: ...
    @property
    def topic_creator(self) -> TopicCreation: ...


class ConsumerGroupContext(GroupContext, Protocol):
    """Consumer groups of KIP-848, which are served from a level of group.version on."""

    @property
    def features(self) -> FinalizedFeatures: ...


class VerifiedPartitions(Protocol):
    """The verification that partitions are part of a transaction, by its coordinator on any broker."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        verify_only: bool,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Complete with an error or NONE for each partition. Without `verify_only` they become part of it."""


class MarkerWrites(Protocol):
    """The markers of transactions in the partitions that this broker leads."""

    def write(
        self, marker: EndTransaction, topic: str, partition: int, written: Callable[[ErrorCode], None]
    ) -> None: ...


class ProduceContext(DataContext, Protocol):
    """Records, and the transactions that they are part of."""

    @property
    def transaction_verifier(self) -> VerifiedPartitions: ...


class TransactionContext(GroupContext, ProducerIdContext, Protocol):
    """Transactions: their coordinator, the offsets that they commit, and their ends in the partitions."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...
    @property
    def transaction_verifier(self) -> VerifiedPartitions: ...
    @property
    def local_markers(self) -> MarkerWrites: ...


class RequestLogging(Protocol):
    """The log of requests, which levels of loggers switch on and off."""

    def follow(self) -> None: ...


class AdminContext(MetadataContext, Protocol):
    """Topics, their settings and their replicas, which the controller changes."""

    @property
    def quotas(self) -> Quotas | None: ...

    @property
    def request_logging(self) -> RequestLogging: ...

    @property
    def admin(self) -> Admin: ...
    @property
    def controller(self) -> ControllerAnswers: ...


class LogDirsContext(MetadataContext, Protocol):
    """The data folders, and the moves of replicas between them."""

    @property
    def background(self) -> Background: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def mover(self) -> LogMover: ...
