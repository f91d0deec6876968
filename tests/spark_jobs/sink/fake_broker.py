"""A broker in memory, with logs and a transaction coordinator, behind the connections of the client.

It serves the requests of the sink as Apache Kafka does, by the rules of the protocol before KIP-890, and each
request can fail: the process ends before or after it, or the request or its response is lost.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiMessage,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from gregor.protocol.records.batch import Record, RecordBatch
from gregor.protocol.records.control import end_marker
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings


class Killed(BaseException):
    """The process of the client has ended."""


class Fault(Enum):
    """The failure of one request."""

    KILLED_BEFORE = auto()
    KILLED_AFTER = auto()
    REQUEST_LOST = auto()
    RESPONSE_LOST = auto()
    THROTTLED = auto()
    """By a quota: of no effect unless the request is a fetch."""
    READ_LATE = auto()
    """The read of a fetch has lasted too long, and it returns no records: of no effect unless it is one."""


@dataclass
class ProducerState:
    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last sequence, and base offset, of the last five batches."""
    transaction_start: int | None = None


@dataclass
class Log:
    batches: list[RecordBatch] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Producer id and first offset."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def last_stable_offset(self) -> int:
        starts = [one.transaction_start for one in self.producers.values() if one.transaction_start is not None]
        return min(starts, default=self.end_offset)

    def append(self, data: bytes | bytearray | memoryview) -> tuple[int, int]:
        """Append a batch of a producer; return the error and the base offset."""
        batch = RecordBatch(bytearray(data))
        assert batch.crc_ok() and batch.producer_id >= 0
        known = self.producers.get(batch.producer_id)
        if known is not None and batch.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        is_new = known is None
        if known is None or batch.producer_epoch > known.epoch:
            if batch.base_sequence and known is not None:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            start = known.transaction_start if known is not None else None
            known = self.producers[batch.producer_id] = ProducerState(batch.producer_epoch, [], start)
        for first, last, offset in known.batches:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, offset
        # A producer that is unknown may begin with any sequence: its state may have expired (ProducerAppendInfo).
        if not is_new and batch.base_sequence != (known.batches[-1][1] + 1 if known.batches else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = self._store(batch)
        known.batches = [*known.batches[-4:], (batch.base_sequence, batch.last_sequence, offset)]
        if batch.is_transactional and known.transaction_start is None:
            known.transaction_start = offset
        return ErrorCode.NONE, offset

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Write the marker that ends a transaction."""
        self._store(RecordBatch(bytearray(end_marker(producer_id, epoch, 0, commit, 0))))
        known = self.producers.setdefault(producer_id, ProducerState(epoch))
        if known.transaction_start is not None and not commit:
            self.aborted.append((producer_id, known.transaction_start))
        if epoch > known.epoch:
            known.epoch, known.batches = epoch, []
        known.transaction_start = None

    def _store(self, batch: RecordBatch) -> int:
        offset = self.end_offset
        struct.pack_into(">q", batch.buffer, 0, offset)
        self.batches.append(RecordBatch(batch.buffer))
        return offset

    def committed(self) -> Iterator[Record]:
        """Yield the records that read_committed shows."""
        aborted = sorted(self.aborted, key=lambda one: one[1])
        hidden: set[int] = set()
        for batch in self.batches:
            if batch.base_offset >= self.last_stable_offset:
                return
            while aborted and aborted[0][1] <= batch.base_offset:
                hidden.add(aborted.pop(0)[0])
            if batch.is_control:
                hidden.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in hidden):
                yield from batch.records()


@dataclass
class Transaction:
    producer_id: int
    epoch: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)
    prepared: bool | None = None
    """Whether it commits, while its markers are to be written."""
    ended: bool | None = None
    """Whether the last one was committed."""


class FakeBroker:
    """The only broker of a cluster. `faults` returns the fault of a request by its number, from 0."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = {name: [Log() for _ in range(count)] for name, count in topics.items()}
        self.policies: dict[str, str] = {}
        self.transactions: dict[str, Transaction] = {}
        self.faults: Callable[[int, ApiMessage], Fault | None] = lambda _number, _request: None
        self.requests: list[str] = []
        self.features: dict[str, int] = {}
        self.creates_topics = False
        """As with auto.create.topics.enable."""
        self.max_in_flight = 0
        self.refusals: dict[int, ErrorCode | None] = {}
        """By the number of a batch that is produced the code of its refusal, or None for no answer at all."""
        self._batches = itertools.count()
        self._next_producer_id = 1000

    def cluster(self) -> Cluster:
        settings = ClientSettings((("fake", 9092),))
        return Cluster(settings, FakeClock(), lambda _host, _port, _settings: FakeConnection(self))

    def serve(self, request: ApiMessage) -> Any:
        """Return the response of a request, or raise its fault."""
        number = len(self.requests)
        self.requests.append(type(request).__name__)
        fault = self.faults(number, request)
        if fault is Fault.KILLED_BEFORE:
            raise Killed
        if fault is Fault.REQUEST_LOST:
            raise KafkaFailure(ErrorCode.NETWORK_EXCEPTION, "the request is lost")
        if fault is Fault.THROTTLED and isinstance(request, FetchRequest):
            return FetchResponse(throttle_time_ms=200)
        response = getattr(self, f"_{type(request).__name__}")(request)
        if fault is Fault.READ_LATE and isinstance(response, FetchResponse):
            response.responses[0].partitions[0].records = b""
        if fault is Fault.KILLED_AFTER:
            raise Killed
        if fault is Fault.RESPONSE_LOST:
            raise KafkaFailure(ErrorCode.NETWORK_EXCEPTION, "the response is lost")
        return response

    # --- metadata

    def _MetadataRequest(self, request: MetadataRequest) -> MetadataResponse:
        names = [one.name or "" for one in request.topics] if request.topics is not None else list(self.topics)
        response = MetadataResponse(controller_id=1, cluster_id="fake")
        response.brokers = [MetadataResponse.MetadataResponseBroker(node_id=1, host="fake", port=9092)]
        for name in names:
            topic = MetadataResponse.MetadataResponseTopic(name=name)
            if name not in self.topics and self.creates_topics and request.allow_auto_topic_creation:
                self.topics[name] = [Log()]
            if name not in self.topics:
                topic.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for index in range(len(self.topics.get(name, ()))):
                part = MetadataResponse.MetadataResponsePartition(partition_index=index, leader_id=1)
                topic.partitions.append(part)
            response.topics.append(topic)
        return response

    def _FindCoordinatorRequest(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = FindCoordinatorResponse.Coordinator(key=request.coordinator_keys[0], node_id=1, host="fake", port=9092)
        return FindCoordinatorResponse(coordinators=[found])

    def _CreateTopicsRequest(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        topic = request.topics[0]
        result = CreateTopicsResponse.CreatableTopicResult(name=topic.name)
        if topic.name in self.topics:
            result.error_code = ErrorCode.TOPIC_ALREADY_EXISTS
        else:
            self.topics[topic.name] = [Log() for _ in range(topic.num_partitions)]
            self.policies[topic.name] = {one.name: one.value or "" for one in topic.configs}["cleanup.policy"]
        return CreateTopicsResponse(topics=[result])

    def _DescribeConfigsRequest(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        policy = self.policies.get(request.resources[0].resource_name, "delete")
        config = DescribeConfigsResponse.DescribeConfigsResourceResult(name="cleanup.policy", value=policy)
        return DescribeConfigsResponse(results=[DescribeConfigsResponse.DescribeConfigsResult(configs=[config])])

    # --- logs

    def _ListOffsetsRequest(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topic = request.topics[0]
        asked = topic.partitions[0]
        log = self.topics[topic.name][asked.partition_index]
        answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        latest = log.last_stable_offset if request.isolation_level else log.end_offset
        answer.offset = 0 if asked.timestamp == -2 else latest
        return ListOffsetsResponse(
            topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=[answer])]
        )

    def _FetchRequest(self, request: FetchRequest) -> FetchResponse:
        topic = request.topics[0]
        asked = topic.partitions[0]
        log = self.topics[topic.topic][asked.partition]
        stable = log.last_stable_offset
        wanted = [one for one in log.batches if asked.fetch_offset <= one.last_offset < stable]
        data = FetchResponse.PartitionData(
            partition_index=asked.partition, high_watermark=log.end_offset, last_stable_offset=stable
        )
        data.records = b"".join(bytes(one.memory()) for one in wanted[:3])
        data.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in log.aborted
            if first >= asked.fetch_offset
        ]
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[data])])

    def _ProduceRequest(self, request: ProduceRequest) -> ProduceResponse:
        response = ProduceResponse()
        for topic in request.topic_data:
            answered = ProduceResponse.TopicProduceResponse(name=topic.name)
            for part in topic.partition_data:
                assert isinstance(part.records, bytearray)
                code, offset = ErrorCode.INVALID_TXN_STATE, -1
                refusal = self.refusals.get(next(self._batches), ErrorCode.NONE)
                if refusal is None:
                    continue
                if refusal:
                    code = refusal
                elif self._is_part(request.transactional_id, TopicPartition(topic.name, part.index)):
                    code, offset = self.topics[topic.name][part.index].append(part.records)
                answered.partition_responses.append(
                    ProduceResponse.PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset)
                )
            response.responses.append(answered)
        return response

    def _is_part(self, transactional_id: str | None, partition: TopicPartition) -> bool:
        return transactional_id is None or partition in self.transactions[transactional_id].partitions

    # --- transactions

    def _InitProducerIdRequest(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        self._next_producer_id += 1
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
        found = self.transactions.get(request.transactional_id)
        if found is None:
            found = self.transactions[request.transactional_id] = Transaction(self._next_producer_id)
            return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=0)
        if found.prepared is not None or found.partitions:
            if found.prepared is None:
                found.epoch += 1  # fences the producer before its transaction is aborted
                found.prepared = False
            else:
                self._complete(found)
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        found.epoch += 1
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _AddPartitionsToTxnRequest(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        found = self.transactions[request.v3_and_below_transactional_id]
        code = self._identity_error(found, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        if not code and found.prepared is not None:
            self._complete(found)
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        response = AddPartitionsToTxnResponse()
        for topic in request.v3_and_below_topics:
            answered = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic.name)
            for index in topic.partitions:
                part = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(partition_index=index)
                part.partition_error_code = code
                answered.results_by_partition.append(part)
                if not code:
                    found.partitions.add(TopicPartition(topic.name, index))
                    found.ended = None
            response.results_by_topic_v3_and_below.append(answered)
        return response

    def _EndTxnRequest(self, request: EndTxnRequest) -> EndTxnResponse:
        found = self.transactions[request.transactional_id]
        code = self._identity_error(found, request.producer_id, request.producer_epoch)
        if not code and found.prepared is not None:
            code = (
                ErrorCode.CONCURRENT_TRANSACTIONS
                if found.prepared == request.committed
                else ErrorCode.INVALID_TXN_STATE
            )
            self._complete(found)
        elif not code and found.partitions:
            found.prepared = request.committed
        elif not code and found.ended != request.committed:
            code = ErrorCode.INVALID_TXN_STATE
        return EndTxnResponse(error_code=code)

    def _identity_error(self, found: Transaction, producer_id: int, epoch: int) -> int:
        if found.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if found.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def _complete(self, found: Transaction) -> None:
        """Write the markers of a prepared transaction: they are late, so that the next request meets it prepared."""
        assert found.prepared is not None
        for topic, partition in sorted(found.partitions):
            self.topics[topic][partition].mark(found.producer_id, found.epoch, commit=found.prepared)
        found.partitions, found.ended, found.prepared = set(), found.prepared, None

    def complete_all(self) -> None:
        """Write the markers of all prepared transactions."""
        for found in self.transactions.values():
            if found.prepared is not None:
                self._complete(found)


class FakeConnection:
    """A connection to the broker. After a lost request or response all that is in flight on it is lost."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._responses: list[Any] = []
        self._is_lost = False
        self.features = broker.features

    def version(self, _api_key: int, highest: int, lowest: int = 0) -> int:
        return highest

    def close(self) -> None:
        self._is_lost = True

    def send(self, request: ApiMessage, _version: int) -> None:
        self._broker.max_in_flight = max(self._broker.max_in_flight, len(self._responses) + 1)
        lost = KafkaFailure(ErrorCode.NETWORK_EXCEPTION, "the connection is lost")
        try:
            self._responses.append(lost if self._is_lost else self._broker.serve(request))
        except KafkaFailure as failure:
            self._is_lost = failure.retriable
            self._responses.append(failure)

    def receive(self) -> Any:
        response = self._responses.pop(0)
        if isinstance(response, KafkaFailure):
            raise response
        return response

    def exchange(self, request: ApiMessage, version: int) -> Any:
        assert not self._responses, "requests are in flight"
        self.send(request, version)
        return self.receive()


class FakeClock:
    """Its time passes only while someone waits."""

    def __init__(self) -> None:
        self.time_ms = 0.0

    def now_ms(self) -> float:
        return self.time_ms

    def wait_ms(self, duration_ms: float) -> None:
        self.time_ms += duration_ms
