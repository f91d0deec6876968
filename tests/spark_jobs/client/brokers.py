"""Brokers in memory: they respond to the requests of the client, in the versions that they offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.client import newest_version
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import (
    ApiMessage,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    request_class,
    response_class,
)
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings

BOOTSTRAP = {"kafka.bootstrap.servers": "b0:9092,b1:9092"}
KAFKA_0_11 = {1: (0, 5), 2: (0, 2), 3: (0, 4), 8: (0, 3), 10: (0, 1), 18: (0, 1)}
NEWEST = {key: (0, request_class(key).MAX_VERSION) for key in (1, 2, 3, 8, 10, 18)}


@dataclass
class Partition:
    """A partition; `records` are timestamps by offset, for searches by time."""

    earliest: int = 0
    latest: int = 0
    leader: int = 0
    records: dict[int, int] = field(default_factory=dict)


@dataclass
class Topic:
    partitions: dict[int, Partition]
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False


class ManualClock:
    """A clock that moves on only when it is waited for."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self.waits: list[float] = []

    def now_ms(self) -> float:
        return self.time_ms

    def wait_ms(self, duration_ms: float) -> None:
        self.waits.append(duration_ms)
        self.time_ms += duration_ms


class Brokers:
    """A cluster of brokers b0, b1 ... at port 9092. `errors` are returned first, one per request of an API; `changes`
    are made before the response to the next request of an API."""

    def __init__(self, topics: Mapping[str, Topic] | None = None, versions: Mapping[int, Any] = NEWEST) -> None:
        self.topics = dict(topics or {})
        self.versions = {0: dict(versions), 1: dict(versions)}
        self.down: set[int] = set()
        self.lost_connections: set[int] = set()
        self.errors: dict[int, list[int]] = {}
        self.changes: dict[int, Callable[[], None]] = {}
        self.requests: list[tuple[int, str, int]] = []
        self.committed: dict[str, dict[tuple[str, int], int]] = {}
        self.clock = ManualClock()

    def cluster(self, options: Mapping[str, str] | None = None) -> Cluster:
        settings = ClientSettings.from_options({**BOOTSTRAP, **(options or {})})
        return Cluster(settings, self.clock, lambda host, port, given: Connection(self, int(host[1:])))

    def add(self, name: str, *partitions: Partition, topic_id: bytes = ZERO_UUID, is_internal: bool = False) -> None:
        self.topics[name] = Topic(dict(enumerate(partitions)), topic_id, is_internal)

    def partition(self, topic: str, number: int) -> Partition | None:
        return self.topics[topic].partitions.get(number) if topic in self.topics else None

    def error(self, api_key: int) -> int:
        planned = self.errors.get(api_key)
        return planned.pop(0) if planned else ErrorCode.NONE

    def respond(self, node_id: int, request: Any, version: int) -> Any:
        self.requests.append((node_id, ApiKey(request.API_KEY).name, version))
        self.changes.pop(request.API_KEY, lambda: None)()
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(node_id, request)
        if isinstance(request, FindCoordinatorRequest):
            return self._coordinator(request, version)
        assert isinstance(request, OffsetCommitRequest)
        return self._commit(request)

    def _metadata(self, request: Any) -> Any:
        assert not request.allow_auto_topic_creation
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        error = self.error(ApiKey.METADATA)
        described = []
        for name in names:
            topic = self.topics.get(name)
            code = error or (0 if topic is not None else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            found = MetadataResponse.MetadataResponseTopic(error_code=code, name=name)
            if topic is not None and not code:
                found.topic_id, found.is_internal = topic.topic_id, topic.is_internal
                found.partitions = [
                    MetadataResponse.MetadataResponsePartition(partition_index=number, leader_id=partition.leader)
                    for number, partition in topic.partitions.items()
                ]
            described.append(found)
        live = [
            MetadataResponse.MetadataResponseBroker(node_id=node_id, host=f"b{node_id}", port=9092)
            for node_id in self.versions
            if node_id not in self.down
        ]
        return MetadataResponse(brokers=live, cluster_id="in-memory", controller_id=0, topics=described)

    def _list_offsets(self, node_id: int, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            found = []
            for part in topic.partitions:
                partition = self.partition(topic.name, part.partition_index)
                answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=part.partition_index)
                answer.error_code = self.error(ApiKey.LIST_OFFSETS)
                if partition is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif partition.leader != node_id:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif not answer.error_code:
                    answer.offset, answer.timestamp = _offset(partition, part.timestamp)
                found.append(answer)
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def _coordinator(self, request: Any, version: int) -> Any:
        code = self.error(ApiKey.FIND_COORDINATOR)
        found = {"node_id": 1, "host": "b1", "port": 9092, "error_code": code, "error_message": None}
        if version < 4:
            return FindCoordinatorResponse(**found)
        [key] = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(key=key, **found)])

    def _commit(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            code = self.error(ApiKey.OFFSET_COMMIT)
            found = []
            for part in topic.partitions:
                if not code:
                    group = self.committed.setdefault(request.group_id, {})
                    group[topic.name, part.partition_index] = part.committed_offset
                found.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code
                    )
                )
            topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=found))
        return OffsetCommitResponse(topics=topics)


def _offset(partition: Partition, time_ms: int) -> tuple[int, int]:
    if time_ms == -1:
        return partition.latest, -1
    if time_ms == -2:
        return partition.earliest, -1
    found = [(offset, at_ms) for offset, at_ms in sorted(partition.records.items()) if at_ms >= time_ms]
    return found[0] if found else (-1, -1)


class Connection:
    """A connection to one of the brokers. Messages are encoded and decoded in the version of the request."""

    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self.features: Mapping[str, int] = {"transaction.version": 2}
        if node_id in brokers.down:
            raise KafkaFailure(ErrorCode.NETWORK_EXCEPTION, f"no connection to b{node_id}")

    def version(self, api_key: int, highest: int, lowest: int = 0) -> int:
        kind = request_class(api_key)
        offered = self._brokers.versions[self._node_id]
        version = newest_version(offered, kind, highest)
        assert version >= lowest
        return version

    def exchange(self, request: ApiMessage, version: int) -> Any:
        if self._node_id in self._brokers.down or self._node_id in self._brokers.lost_connections:
            self._brokers.lost_connections.discard(self._node_id)
            raise KafkaFailure(ErrorCode.NETWORK_EXCEPTION, f"the connection to b{self._node_id} was lost")
        sent, _ = type(request).decode(request.encode(version), version)
        response = self._brokers.respond(self._node_id, sent, version)
        kind = response_class(request.API_KEY)
        return kind.decode(response.encode(version), version)[0]

    def close(self) -> None:
        pass
