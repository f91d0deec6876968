"""A cluster as a client sees it: its brokers, topics, leaders and coordinators."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import TracebackType
from typing import Any, Protocol, Self

from gregor.config.listeners import address_text
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiMessage, FindCoordinatorRequest, MetadataRequest
from gregor.spark_jobs.client.connection import TRANSACTION_VERSION, BrokerConnection
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.retries import Clock, Retries, SystemClock
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.client.topics import Partition, Topic, topics_of

ANY_BROKER = -1
"""In place of a broker id: the broker to which the client has connected first."""

_METADATA_VERSIONS = 4, 12
"""From 4 on a request can decline the creation of a missing topic. 12 is the last with one error per topic only."""
_FIND_COORDINATOR_VERSIONS = 1, 4


class CoordinatorKind(IntEnum):
    """The kind of a coordinator, as FindCoordinator has it."""

    GROUP = 0
    TRANSACTION = 1


class Connection(Protocol):
    """A connection to one broker, see BrokerConnection."""

    @property
    def features(self) -> Mapping[str, int]: ...

    def version(self, api_key: int, highest: int, lowest: int = 0) -> int: ...

    def exchange(self, request: ApiMessage, version: int) -> Any: ...

    def send(self, request: ApiMessage, version: int) -> None: ...

    def receive(self) -> Any: ...

    def close(self) -> None: ...


Connect = Callable[[str, int, ClientSettings], Connection]


class Cluster:
    """The connections to the brokers of a cluster, one per broker, made on first use. It is not thread safe.

    Each call is one attempt, which raises KafkaFailure; `retrying` repeats attempts. Topics and coordinators that were
    fetched are kept until `refresh`.
    """

    def __init__(
        self, settings: ClientSettings, clock: Clock | None = None, connect: Connect = BrokerConnection
    ) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._connect = connect
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}
        self._all_topics = False
        self._coordinators: dict[tuple[str, CoordinatorKind], int] = {}
        self._cluster_id: str | None = None
        self._controller_id = -1

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def refresh(self) -> None:
        """Forget leaders, topics and coordinators; the next call fetches them again."""
        self._topics.clear()
        self._all_topics = False
        self._coordinators.clear()

    def retrying(self, timeout_ms: float | None = None, backoff_ms: float | None = None) -> Retries:
        """Return the retries of one operation: until default.api.timeout.ms, with a refresh before each.

        A `timeout_ms` replaces that limit, a `backoff_ms` the time of all waits.
        """
        own = self.settings
        limit_ms = own.default_api_timeout_ms if timeout_ms is None else timeout_ms
        if backoff_ms is None:
            return Retries(self.refresh, limit_ms, own.retry_backoff_ms, own.retry_backoff_max_ms, self._clock)
        return Retries(self.refresh, limit_ms, backoff_ms, backoff_ms, self._clock)

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if the brokers have none."""
        if not self._addresses:
            self._fetch_metadata([])
        return self._cluster_id

    def addresses(self) -> Mapping[int, tuple[str, int]]:
        """Return the address that each live broker advertises on the listener of this client."""
        if not self._addresses:
            self._fetch_metadata([])
        return dict(self._addresses)

    def version(self, node_id: int, api: type[ApiMessage] | int, highest: int, lowest: int = 0) -> int:
        """Return the highest version of a request from `lowest` to `highest` that the broker serves."""
        key = api if isinstance(api, int) else api.API_KEY
        return self._connection(node_id).version(key, highest, lowest)

    def transaction_version(self, node_id: int = ANY_BROKER) -> int:
        """Return the level of the feature transaction.version in force; 0 where there is none (KIP-890)."""
        return self._connection(node_id).features.get(TRANSACTION_VERSION, 0)

    def topics(self, names: Sequence[str] | None = None) -> Mapping[str, Topic]:
        """Return these topics, or all of the cluster. A topic that cannot be described has an `error_code`."""
        if names is None:
            if not self._all_topics:
                self._topics = self._fetch_metadata(None)
                self._all_topics = True
            return dict(self._topics)
        missing = [name for name in names if name not in self._topics]
        if missing:
            self._topics.update(self._fetch_metadata(missing))
        return {name: self._topics[name] for name in names if name in self._topics}

    def partition(self, topic: str, partition: int) -> Partition:
        """Return a partition; raise KafkaFailure if it does not exist or the brokers do not describe it."""
        found = self._topics.get(topic) or self.topics([topic]).get(topic)
        if found is None or found.error_code or partition not in found.partitions:
            code = found.error_code if found is not None else ErrorCode.NONE
            raise KafkaFailure(
                code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the cluster does not describe {topic}-{partition}"
            )
        return found.partitions[partition]

    def leader(self, topic: str, partition: int) -> int:
        """Return the broker id of the leader; raise KafkaFailure if there is none."""
        leader = self.partition(topic, partition).leader
        if leader < 0 or leader not in self._addresses:
            raise KafkaFailure(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{topic}-{partition} has no leader; `gregor topics --describe --topic {topic}` shows its replicas",
            )
        return leader

    def controller(self) -> int:
        """Return the broker id to which administrative requests are sent."""
        if self._controller_id not in self._addresses:
            self._fetch_metadata([])
        if self._controller_id not in self._addresses:
            raise KafkaFailure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the cluster has no controller at present")
        return self._controller_id

    def exchange(self, node_id: int, request: ApiMessage, version: int) -> Any:
        """Send a request to a broker and return the response. A failed connection is not used again."""
        with self._dropped_on_failure(node_id) as connection:
            return connection.exchange(request, version)

    def send(self, node_id: int, request: ApiMessage, version: int) -> None:
        """Send a request without waiting for its response, which `receive` returns. Until then no other request may be
        exchanged with this broker."""
        with self._dropped_on_failure(node_id) as connection:
            connection.send(request, version)

    def receive(self, node_id: int) -> Any:
        """Return the response of the oldest request that was sent to a broker."""
        with self._dropped_on_failure(node_id) as connection:
            return connection.receive()

    def drop(self, node_id: int) -> None:
        """Close the connection to a broker: a response that arrives late must not be matched with the next request."""
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    @contextmanager
    def _dropped_on_failure(self, node_id: int) -> Iterator[Connection]:
        connection = self._connection(node_id)
        try:
            yield connection
        except KafkaFailure:
            self.drop(node_id)
            raise

    def coordinator(self, key: str, kind: CoordinatorKind) -> int:
        """Return the broker id of the coordinator of a group or a transactional id."""
        found = self._coordinators.get((key, kind))
        if found is None:
            found = self._coordinators[key, kind] = self._find_coordinator(key, kind)
        return found

    def _find_coordinator(self, key: str, kind: CoordinatorKind) -> int:
        lowest, highest = _FIND_COORDINATOR_VERSIONS
        version = self.version(ANY_BROKER, FindCoordinatorRequest, highest, lowest)
        request = FindCoordinatorRequest(key_type=int(kind))
        if version >= 4:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response = self.exchange(ANY_BROKER, request, version)
        answer = response.coordinators[0] if version >= 4 else response
        if answer.error_code:
            what = "group" if kind is CoordinatorKind.GROUP else "transactional id"
            cause = f": {answer.error_message}" if answer.error_message else ""
            raise KafkaFailure(answer.error_code, f"the {what} {key!r} has no coordinator at present{cause}")
        self._addresses[answer.node_id] = answer.host, answer.port
        return int(answer.node_id)

    def _fetch_metadata(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """Fetch brokers and these topics (None: all)."""
        lowest, highest = _METADATA_VERSIONS
        version = self.version(ANY_BROKER, MetadataRequest, highest, lowest)
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self.exchange(ANY_BROKER, request, version)
        self._note_brokers({node.node_id: (node.host, node.port) for node in response.brokers})
        self._cluster_id = response.cluster_id
        self._controller_id = response.controller_id
        return topics_of(response)

    def _note_brokers(self, addresses: dict[int, tuple[str, int]]) -> None:
        """Replace the addresses, and close connections to brokers that have left or moved."""
        for node_id in [known for known in self._connections if known != ANY_BROKER]:
            if addresses.get(node_id) != self._addresses.get(node_id):
                self._connections.pop(node_id).close()
        self._addresses = addresses

    def _connection(self, node_id: int) -> Connection:
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._any_connection() if node_id == ANY_BROKER else self._connection_to(node_id)
            self._connections[node_id] = connection
        return connection

    def _connection_to(self, node_id: int) -> Connection:
        if node_id not in self._addresses:
            self._fetch_metadata([])
        address = self._addresses.get(node_id)
        if address is None:
            live = ", ".join(map(str, sorted(self._addresses)))
            raise KafkaFailure(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not alive; live brokers: {live}")
        try:
            return self._connect(*address, self.settings)
        except KafkaFailure as failure:
            if failure.code != ErrorCode.NETWORK_EXCEPTION:
                raise
            raise KafkaFailure(
                failure.code,
                f"{failure.text}. Broker {node_id} advertises this address: if it runs, set its advertised.listeners "
                f"to one that {socket.gethostname()} reaches; `gregor doctor` checks them",
            ) from None

    def _any_connection(self) -> Connection:
        """Connect to one of the bootstrap servers, or else to a broker known from earlier metadata."""
        causes = []
        for host, port in dict.fromkeys([*self.settings.bootstrap_servers, *self._addresses.values()]):
            try:
                return self._connect(host, port, self.settings)
            except KafkaFailure as failure:
                if not failure.retriable:
                    raise
                causes.append(f"{address_text(host, port)}: {failure.text}")
        raise KafkaFailure(
            ErrorCode.NETWORK_EXCEPTION,
            f"no broker accepts connections ({'; '.join(causes)}). Start one, or correct kafka.bootstrap.servers",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
