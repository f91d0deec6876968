"""The requests of old clients, good and bad, to gregor and to Apache Kafka 3.9.1, the last that serves them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import CreateTopicsRequest, FetchRequest, FindCoordinatorRequest, ProduceRequest
from gregor.protocol.records.batch import iter_batches
from gregor.protocol.records.compression import GZIP, LZ4, SNAPPY
from tests.compat.old_message_sets import TOPICS, packed_cases, plain_cases
from tests.compat.old_requests import Asked, consumed, filled_topics, other_requests
from tests.support.apache_kafka import ApacheKafka
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

WAIT_S = 120

NO_CODE = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)
WHOLE_ONLY = (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)
MANY_KINDS = (ErrorCode.INVALID_RECORD, ErrorCode.NONE)
OTHER_CODES: dict[str, tuple[ErrorCode, ErrorCode]] = {
    # Apache Kafka answers with an unknown error where it did not expect the case.
    **{case: NO_CODE for case in ("codec 5", "codec 7", "no codec 1", "no codec 2", "no codec 3", "empty compressed")},
    # It acknowledges a set that is cut off and keeps the whole messages, which may be none.
    **{case: WHOLE_ONLY for case in ("cut off", "cut off in the first", "a tail", "cut off within", "a tail within")},
    # Brokers up to 0.10 accepted sets of several wrappers, and so does gregor.
    **{case: MANY_KINDS for case in ("both formats", "two", "and plain", "plain and")},
}
"""Where the two differ: (Apache Kafka's answer, gregor's)."""
OTHER_CODES_OF_MAGIC_1 = {"a time below none": NO_CODE}


class Side:
    """One of the two brokers."""

    def __init__(self, wire: RawConnection) -> None:
        self.wire = wire
        self._ends = dict.fromkeys(TOPICS, 0)
        make = CreateTopicsRequest.CreatableTopicConfig
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[make(name=key, value=value) for key, value in settings.items()],
            )
            for name, settings in {**TOPICS, **{name: {} for name in filled_topics()}}.items()
        ]
        answer = self.wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 4)
        assert {topic.error_code for topic in answer.topics} == {0}, answer
        self._until(lambda: all(not self._fetch(topic.name, 10, 0).error_code for topic in topics))
        for name, batches in filled_topics().items():
            for batch in batches:
                assert self.produce(name, batch, 7).error_code == 0
        self._until(lambda: self.wire.ask(FindCoordinatorRequest(key="g"), 1).error_code == 0)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def produce(self, name: str, records: bytes, version: int) -> Any:
        data = ProduceRequest.PartitionProduceData(index=0, records=records)
        wanted = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        answer = self.wire.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted]), version)
        return answer.responses[0].partition_responses[0]

    def _fetch(self, name: str, version: int, offset: int) -> Any:
        part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = FetchRequest.FetchTopic(topic=name, partitions=[part])
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[wanted])
        return self.wire.ask(request, version).responses[0].partitions[0]

    def tell(self, kind: str, records: bytes, version: int) -> tuple[ErrorCode, list[Any]]:
        """Return the broker's answer, and the records that consumers of today and of each old version then find."""
        start = self._ends[kind]
        told = self.produce(kind, records, version)
        code = ErrorCode(told.error_code)
        offset = told.base_offset if told.base_offset < 0 else told.base_offset - start
        found: list[Any] = [offset, told.log_append_time_ms >= 0]
        data = self._fetch(kind, 10, start)
        assert data.error_code == 0
        for batch in iter_batches(data.records or b""):
            stamped = batch.timestamp_type == 1
            times = None if stamped else (batch.base_timestamp, batch.max_timestamp)
            found.append((batch.base_offset - start, batch.last_offset_delta, batch.attributes, times))
            for record in batch.records():
                found.append(
                    record._replace(offset=record.offset - start, timestamp=0 if stamped else record.timestamp)
                )
            self._ends[kind] = batch.next_offset
        for old in range(4):
            data = self._fetch(kind, old, start)
            found.append(ErrorCode(data.error_code))
            for message in consumed(bytes(data.records or b"")):
                time_type = message.timestamp_type
                found.append(
                    message._replace(offset=message.offset - start, timestamp=0 if time_type else message.timestamp)
                )
        return code, found


def _asked(port: int) -> Iterator[Side]:
    with RawConnection(port) as wire:
        yield Side(wire)


@pytest.fixture(scope="module")
def gregor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    # Apache Kafka 3.9.1 has no bound on times to come by default.
    settings = {"log.message.timestamp.after.max.ms": str(2**63 - 1), "offsets.topic.num.partitions": "3"}
    with BrokerProcess(tmp_path_factory.mktemp("gregor"), settings) as broker:
        yield from _asked(broker.port)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    folder = tmp_path_factory.mktemp("kafka")
    (folder / "data").mkdir()
    broker = ApacheKafka(folder, folder / "data", None, 0)
    try:
        yield from _asked(broker.port)
    finally:
        broker.kill()


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets(gregor: Side, kafka: Side, magic: int, codec: int) -> None:
    cases = packed_cases(magic, codec) if codec else plain_cases(magic)
    others = {**OTHER_CODES, **OTHER_CODES_OF_MAGIC_1} if magic else OTHER_CODES
    for version in (1, 2):
        for case, (kind, records) in cases.items():
            theirs, expected = kafka.tell(kind, records, version)
            ours, found = gregor.tell(kind, records, version)
            assert (case, ours) == (case, others[case][1] if case in others else theirs)
            if case in others:
                assert (case, theirs) == (case, others[case][0])
            else:
                assert (case, found) == (case, expected)


def test_other_requests(gregor: Side, kafka: Side) -> None:
    asked = [Asked(side.wire) for side in (kafka, gregor)]
    for name, version, make in other_requests():
        expected, found = [one.ask(make, version) for one in asked]
        assert (name, version, found) == (name, version, expected)
