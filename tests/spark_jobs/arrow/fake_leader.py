"""A cluster of two brokers with one partition, whose leader follows a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiMessage,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST
from gregor.spark_jobs.client.settings import ClientSettings

SETTINGS = ClientSettings((("fake", 9092),), max_partition_fetch_bytes=400)
TOPIC_ID = bytes(range(16))
CLUSTER_ID = "of-the-leader"


class FakeClock:
    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> float:
        return self.ms

    def wait_ms(self, duration_ms: float) -> None:
        self.ms += duration_ms


class FakeLeader:
    """Two brokers with one log, of which `leader` leads; `errors` fail the next fetches, one each."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = list(batches)
        self.first = 0
        self.end = max((_offsets(batch)[1] for batch in batches), default=0)
        self.stable: int | None = None
        self.aborted: list[tuple[int, int]] = []
        self.leader = 1
        self.epoch = 5
        self.topic_id = TOPIC_ID
        self.fetch_version = 18
        """The highest version of Fetch that the brokers serve."""
        self.exists = True
        self.events: list[Callable[[], int | None]] = []
        """Called one at each fetch: the error of that fetch, if any."""
        self.checks: list[Callable[[], object]] = []
        """Called one at each request for the latest offset, before the response."""
        self.fetched: list[int] = []
        self.throttle_ms: list[int] = []
        """For each fetch the time of a quota that is exceeded, 0 if none is."""
        self.empty: list[bool] = []
        """For each fetch, whether its read is not done in time, so that it returns no records."""
        self.wait_ms = 0
        """Of the last fetch."""
        self.diverging = -1
        self.open = 0
        self.log_dir: str | None = None
        """The data folder with the partition."""
        self.acls_error: int = ErrorCode.SECURITY_DISABLED

    def connect(self, host: str, port: int, settings: ClientSettings) -> FakeConnection:
        self.open += 1
        return FakeConnection(self, port)

    def answer(self, node: int, request: ApiMessage) -> Any:
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        if isinstance(request, DescribeLogDirsRequest):
            return self._describe_log_dirs()
        if isinstance(request, DescribeAclsRequest):
            return DescribeAclsResponse(error_code=self.acls_error)
        assert isinstance(request, FetchRequest)
        return self._fetch(node, request)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        part = MetadataResponse.MetadataResponsePartition(
            partition_index=0, leader_id=self.leader, leader_epoch=self.epoch
        )
        topic = MetadataResponse.MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=[part])
        if not self.exists:
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=n, host="fake", port=n) for n in (1, 2)]
        topics = [topic] if request.topics else []
        return MetadataResponse(brokers=brokers, topics=topics, controller_id=1, cluster_id=CLUSTER_ID)

    def _describe_log_dirs(self) -> DescribeLogDirsResponse:
        if self.log_dir is None:
            return DescribeLogDirsResponse()
        part = DescribeLogDirsResponse.DescribeLogDirsPartition(partition_index=0)
        topic = DescribeLogDirsResponse.DescribeLogDirsTopic(name="t", partitions=[part])
        return DescribeLogDirsResponse(
            results=[DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=self.log_dir, topics=[topic])]
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        wanted = request.topics[0].partitions[0]
        if wanted.timestamp == LATEST and self.checks:
            self.checks.pop(0)()
        offset = self.first if wanted.timestamp == EARLIEST else self.end
        if wanted.timestamp == LATEST and request.isolation_level and self.stable is not None:
            offset = self.stable
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        if wanted.current_leader_epoch != self.epoch:
            part.error_code = ErrorCode.FENCED_LEADER_EPOCH
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[part])])

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        throttle_ms = self.throttle_ms.pop(0) if self.throttle_ms else 0
        if throttle_ms:
            return FetchResponse(throttle_time_ms=throttle_ms)
        self.fetched.append(wanted.fetch_offset)
        self.wait_ms = request.max_wait_ms
        part = FetchResponse.PartitionData(partition_index=0, high_watermark=self.end)
        part.last_stable_offset = self.end if self.stable is None else self.stable
        part.error_code = (self.events.pop(0)() if self.events else None) or ErrorCode.NONE
        limit = part.last_stable_offset if request.isolation_level else self.end
        if node != self.leader:
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.first <= wanted.fetch_offset <= self.end:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        if self.diverging >= 0 and wanted.last_fetched_epoch >= 0:
            part.diverging_epoch = FetchResponse.EpochEndOffset(epoch=1, end_offset=self.diverging)
        part.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in self.aborted
        ]
        is_late = self.empty.pop(0) if self.empty else False
        if not part.error_code and not is_late:
            part.records = self._records(wanted.fetch_offset, limit, wanted.partition_max_bytes)
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", topic_id=self.topic_id, partitions=[part])]
        )

    def _records(self, offset: int, limit: int, max_bytes: int) -> bytes:
        data = b"".join(
            batch for batch in self.batches if _offsets(batch)[1] > max(offset, self.first) and
            _offsets(batch)[1] <= limit
        )  # fmt: skip
        first_batch = int.from_bytes(data[8:12]) + 12
        return data[: max(max_bytes, first_batch)]


class FakeConnection:
    features: Mapping[str, int] = {}

    def __init__(self, log: FakeLeader, node: int) -> None:
        self._log = log
        self._node = node
        self._sent: list[ApiMessage] = []

    def version(self, api_key: int, highest: int, lowest: int = 0) -> int:
        return min(highest, self._log.fetch_version) if api_key == FetchRequest.API_KEY else highest

    def exchange(self, request: ApiMessage, version: int) -> Any:
        assert not self._sent
        return self._log.answer(self._node, request)

    def send(self, request: ApiMessage, version: int) -> None:
        self._sent.append(type(request).decode(request.encode(version), version)[0])

    def receive(self) -> Any:
        return self._log.answer(self._node, self._sent.pop(0))

    def close(self) -> None:
        self._log.open -= 1


def _offsets(batch: bytes) -> tuple[int, int]:
    first = int.from_bytes(batch[:8])
    return first, first + int.from_bytes(batch[23:27]) + 1
