"""A small synchronous producer that writes under an identity that it is given.

It alone writes its partitions under that identity, and begins each at sequence 0. Each broker has up to
MAX_IN_FLIGHT requests in flight; with one batch of a partition in each, the broker knows the sequences of all batches
in flight (it keeps those of the last five) and appends a batch that is sent again only once. After a failure all
responses are awaited first; then each partition has at most one batch in flight until all are written.

The second batch of a partition is sent when the first is written: a broker that knows no sequence of a producer accepts
any as its first, so that a second batch could become the first in place of one that was refused.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ProduceRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure, decisive
from gregor.spark_jobs.sink.batches import ClosedBatch, Collector, EncodableRows, Headers
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions

MAX_IN_FLIGHT = 5
"""Requests to one broker (max.in.flight.requests.per.connection; more are not allowed with sequences)."""

_PRODUCE_VERSIONS = 3, 11
_ALL_IN_SYNC = -1
_MAX_SEQUENCE = 2**31 - 1

AddPartitions = Callable[[ProducerIdentity, Collection[TopicPartition]], None]


@dataclass
class Written:
    """The records that a producer has written to one partition. An offset is -1 if the broker has not returned it."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def add(self, records: int, base_offset: int) -> None:
        """Add the records of a batch."""
        self.records += records
        if base_offset >= 0:
            if self.first_offset < 0:
                self.first_offset = base_offset
            self.last_offset = base_offset + records - 1


class _Line:
    """The batches of one partition that are not written yet, in their order."""

    def __init__(self) -> None:
        self.unwritten: deque[ClosedBatch] = deque()
        self.next_sequence = 0
        self.written: Written | None = None

    def add(self, batch: ClosedBatch) -> None:
        """Add a sealed batch, which has the next sequence."""
        self.next_sequence = (self.next_sequence + batch.records) & _MAX_SEQUENCE
        self.unwritten.append(batch)

    def wrote(self, batch: ClosedBatch, base_offset: int) -> None:
        """Note that a batch is written; `base_offset` is -1 if the broker has not returned it."""
        self.unwritten = deque(one for one in self.unwritten if one is not batch)
        self.written = self.written or Written()
        self.written.add(batch.records, base_offset)


_Request = list[ClosedBatch]
"""The batches of a request, one of each partition."""


class Producer:
    """Appends records to partitions; `flush` returns when all are written to all in-sync replicas.

    `add_partitions` is called before the first batch of a partition, if the identity is transactional.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        options: SinkOptions,
        add_partitions: AddPartitions | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        assert identity.transactional == (add_partitions is not None)
        self._cluster = cluster
        self._identity = identity
        self._options = options
        self._add_partitions = add_partitions
        self._collector = Collector(options, now_ms)
        self._lines: dict[TopicPartition, _Line] = {}
        self._in_flight: dict[int, deque[_Request]] = {}

    @property
    def written(self) -> dict[TopicPartition, Written]:
        """Return what is written, by partition."""
        return {key: line.written for key, line in self._lines.items() if line.written is not None}

    def append(self, partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Append a record to the open batch of its partition, which is sent first if the record does not fit."""
        self._collector.append(partition, key, value, headers)
        self.write(self._collector.closed())

    def append_rows(self, rows: EncodableRows) -> None:
        """Append rows to the open batches of their partitions, each of which is sent first when it is full."""
        self._collector.append_rows(rows)
        self.write(self._collector.closed())

    def flush(self) -> None:
        """Write all open batches."""
        self._collector.flush()
        self.write(self._collector.closed())
        self._write_again(self._complete_all())

    def write(self, batches: Iterable[ClosedBatch]) -> None:
        """Send batches, of which the last ones may be in flight at the end."""
        queue = list(batches)
        if not queue:
            return
        new = {batch.partition for batch in queue} - self._lines.keys()
        failures: list[KafkaFailure] = []
        if new:
            failures += self._complete_all()  # the coordinator may be a broker with requests in flight
            if self._add_partitions is not None:
                self._add_partitions(self._identity, new)
            self._lines.update({partition: _Line() for partition in new})
        for batch in queue:
            line = self._lines[batch.partition]
            batch.seal(self._identity, self._options.codec, line.next_sequence)
            line.add(batch)
        while queue and not failures:
            some = {batch.partition: batch for batch in reversed(queue)}  # the first one of each partition
            sent = set(map(id, some.values()))
            queue = [batch for batch in queue if id(batch) not in sent]
            failures += self._send_all(list(some.values()))
        if failures:
            self._write_again(failures + self._complete_all())

    def _send_all(self, batches: list[ClosedBatch]) -> list[KafkaFailure]:
        """Send batches of different partitions to their leaders; return the failures of these and earlier requests."""
        failures: list[KafkaFailure] = []
        by_leader: dict[int, list[ClosedBatch]] = {}
        for batch in batches:
            try:
                by_leader.setdefault(self._cluster.leader(*batch.partition), []).append(batch)
            except KafkaFailure as failure:
                failures.append(failure)
        for leader, own in by_leader.items():
            for request in self._requests(own):
                failures += self._make_room(leader, request)
                if failures:
                    return failures
                failures += self._send(leader, request)
        return failures

    def _requests(self, batches: list[ClosedBatch]) -> list[_Request]:
        """Divide batches among requests of at most max.request.size; a batch above it has a request of its own."""
        requests: list[_Request] = []
        size_bytes = 0
        for batch in batches:
            if not requests or size_bytes + len(batch.data) > self._options.max_request_bytes:
                requests.append([])
                size_bytes = 0
            size_bytes += len(batch.data)
            requests[-1].append(batch)
        return requests

    def _make_room(self, leader: int, request: _Request) -> list[KafkaFailure]:
        """Receive responses until one more request may be in flight."""
        failures: list[KafkaFailure] = []
        in_flight = self._in_flight.setdefault(leader, deque())
        while in_flight and not failures and (len(in_flight) >= MAX_IN_FLIGHT or self._follows_first(request)):
            failures += self._receive(leader)
        return failures

    def _follows_first(self, request: _Request) -> bool:
        """Return whether a batch comes after the first one of its partition, which is not written yet."""
        return any(
            line.written is None and line.unwritten[0] is not batch
            for batch, line in ((one, self._lines[one.partition]) for one in request)
        )

    def _send(self, leader: int, batches: _Request) -> list[KafkaFailure]:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for (name, index), data, *_ in batches:
            topic = topics.setdefault(name, ProduceRequest.TopicProduceData(name=name))
            topic.partition_data.append(ProduceRequest.PartitionProduceData(index=index, records=data))
        request = ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=_ALL_IN_SYNC,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        lowest, highest = _PRODUCE_VERSIONS
        try:
            version = self._cluster.version(leader, ProduceRequest, highest, lowest)
            self._cluster.send(leader, request, version)
        except KafkaFailure as failure:
            # The connection is closed: responses of earlier requests do not arrive any more.
            self._in_flight.pop(leader, None)
            return [failure]
        self._in_flight.setdefault(leader, deque()).append(batches)
        return []

    def _receive(self, leader: int) -> list[KafkaFailure]:
        """Receive the oldest response of a broker; return its failures."""
        try:
            response = self._cluster.receive(leader)
        except KafkaFailure as failure:
            del self._in_flight[leader]
            return [failure]
        batches = {batch.partition: batch for batch in self._in_flight[leader].popleft()}
        failures: list[KafkaFailure] = []
        for topic in response.responses:
            for answer in topic.partition_responses:
                refused = self._note(batches.pop(TopicPartition(topic.name, answer.index)), answer)
                if refused is not None:
                    failures.append(refused)
        for partition in batches:
            failures.append(_refusal(partition, ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not contain it"))
        return failures

    def _complete_all(self) -> list[KafkaFailure]:
        """Receive all responses; return their failures."""
        failures: list[KafkaFailure] = []
        for leader in list(self._in_flight):
            while self._in_flight.get(leader):
                failures += self._receive(leader)
        self._in_flight.clear()
        return failures

    def _note(self, batch: ClosedBatch, answer: Any) -> KafkaFailure | None:
        """Note that a batch is written, or return its failure."""
        line = self._lines[batch.partition]
        # A duplicate is a batch whose first response was lost.
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and line.unwritten[0] is not batch:
                return None  # one before it has failed, with a failure of its own
            return _refusal(batch.partition, answer.error_code, answer.error_message)
        line.wrote(batch, answer.base_offset)
        return None

    def _write_again(self, failures: list[KafkaFailure]) -> None:
        """Write what is not written, one batch of each partition at a time; raise a failure that no retry mends."""
        retries = self._cluster.retrying()
        failure = decisive(failures)
        while failure is not None or any(line.unwritten for line in self._lines.values()):
            if failure is not None:
                retries.after(failure)
            heads = [line.unwritten[0] for line in self._lines.values() if line.unwritten]
            failure = decisive(self._send_all(heads) + self._complete_all())


def _refusal(partition: TopicPartition, code: int, message: str | None) -> KafkaFailure:
    text = f"a batch for {partition.topic}-{partition.partition} was not written"
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        text += "; raise max.message.bytes of the topic, or lower kafka.batch.size"
    elif message:
        text += f": {message}"
    return KafkaFailure(code, text)
