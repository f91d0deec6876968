"""The same batches, good and bad, to gregor and to Apache Kafka 4.3.1: both answers, and the records stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from gregor.protocol.records.batch import Record, build_batch, iter_batches
from tests.compat.records import until
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import BrokerProcess, free_port
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS  # a limit, and hours away from it: times are relative to the import, long before the tests run
PATIENCE_S = 120
NOW_MS = int(time.time() * 1000)
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "bounds": {"message.timestamp.before.max.ms": str(DAY_MS), "message.timestamp.after.max.ms": str(DAY_MS)},
    "small": {"max.message.bytes": "500"},
    "preallocated": {"preallocate": "true"},
    **{f"to-{name}": {"compression.type": name} for name in CODECS},
    "to-gzip-append-time": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
    "to-gzip-compact": {"compression.type": "gzip", "cleanup.policy": "compact"},
}
ADDS_PARTITIONS_FROM = 12
"""Version of Produce: the newer protocol of transactions."""
TRANSACTIONS = "transactions"
"""The topic of the transactional producer."""
DEEP = "deep"
"""In gregor these topics have deep validation; Apache Kafka always checks all records."""


def records(*times: int, key: bytes | None = b"k", size: int = 20) -> bytearray:
    """Records of so many ms from now."""
    some = [Record(n, NOW_MS + late, key, b"v" * size, [("h", None)]) for n, late in enumerate(times)]
    return build_batch(some)


def with_codec(codec: int, *times: int, **fields: Any) -> bytearray:
    some = [Record(n, NOW_MS + late, b"k", b"value " * 9, []) for n, late in enumerate(times)]
    return build_batch(some, compression=codec, **fields)


def patched(data: bytes | bytearray, position: int, size_bytes: int, value: int, *, crc: bool = True) -> bytes:
    changed = bytearray(data)
    changed[position : position + size_bytes] = value.to_bytes(size_bytes, signed=value < 0)
    if crc:
        changed[17:21] = crc32c(memoryview(changed)[21:]).to_bytes(4)
    return bytes(changed)


def keyless(codec: int) -> bytearray:
    pairs = [(None if n in (1, 3) else b"k", b"v") for n in range(5)]
    return build_batch(pairs, timestamp_ms=NOW_MS, compression=codec)


GOOD = records(0, 1, 2)
CASES: dict[str, tuple[str, bytes | bytearray]] = {
    "good": ("plain", GOOD),
    "good compressed": ("plain", with_codec(4, 0, 5)),
    "cut off": ("plain", GOOD[:-1]),
    "half a header": ("plain", GOOD[:40]),
    "only a length": ("plain", GOOD[:12]),
    "five bytes": ("plain", GOOD[:5]),
    "one byte behind": ("plain", GOOD + b"\0"),
    "zeros behind": ("plain", GOOD + bytes(17)),
    "half a batch behind": ("plain", GOOD + GOOD[:60]),
    "two batches": ("plain", GOOD + GOOD),
    "wrong magic behind": ("plain", GOOD + patched(GOOD, 16, 1, 3)),
    **{f"magic {magic}": ("plain", patched(GOOD, 16, 1, magic)) for magic in (0, 1, 3, 127, -1)},
    **{f"length {length}": ("plain", patched(GOOD, 8, 4, length)) for length in (-13, 0, 13, 14, 48, 2**31 - 1)},
    "checksum": ("plain", patched(GOOD, 17, 4, 7, crc=False)),
    **{f"codec {codec}": ("plain", patched(GOOD, 21, 2, codec)) for codec in (5, 6, 7)},
    "base offset": ("plain", patched(GOOD, 0, 8, 3)),
    "no records": ("plain", patched(patched(GOOD, 57, 4, 0), 23, 4, -1)),
    "count too high": ("plain", patched(GOOD, 57, 4, 4)),
    "count negative": ("plain", patched(GOOD, 57, 4, -1)),
    "delta too high": ("plain", patched(GOOD, 23, 4, 5)),
    "control batch": ("plain", patched(GOOD, 21, 2, 0x20)),
    "producer without a sequence": ("plain", patched(patched(GOOD, 43, 8, 77), 51, 2, 0)),
    "append time bit": ("plain", patched(GOOD, 21, 2, 8)),
    "append time bit without a time": ("plain", patched(patched(GOOD, 21, 2, 8), 35, 8, -1)),
    "append time bit of long ago": ("bounds", patched(patched(GOOD, 21, 2, 8), 35, 8, 1)),
    "unused bits": ("plain", patched(GOOD, 21, 2, 0x80)),
    "append time": ("append-time", records(-9, -5)),
    "append time, far off": ("append-time", records(-(10**11), 10**11)),
    "append time bit in append time": ("append-time", patched(GOOD, 21, 2, 8)),
    "keyless": ("compact", keyless(0)),
    "keyless compressed": ("compact", keyless(2)),
    "keyless and late": ("compact", records(0, DAY_MS, key=None)),
    "with keys": ("compact", GOOD),
    "within bounds": ("bounds", records(-DAY_MS + 4 * HOUR_MS, DAY_MS - 4 * HOUR_MS)),
    "no timestamps": ("bounds", build_batch([(b"k", b"v")], timestamp_ms=-1)),
    "one too old": ("bounds", records(0, -2 * DAY_MS, 0)),
    "one too late": ("bounds", records(0, 2 * DAY_MS, -5 * DAY_MS)),
    "one too late by default": ("plain", records(0, DAY_MS)),
    "one too late, compressed": ("bounds", with_codec(1, 0, 2 * DAY_MS)),
    "too large": ("small", records(0, size=600)),
    "preallocated": ("preallocated", GOOD),
    **{
        f"{source} to {name}": (f"to-{name}", with_codec(codec, 0, 3, 1, producer_id=500 + codec, producer_epoch=0,
                                                         base_sequence=0))
        for name in CODECS for source, codec in CODECS.items()
    },
    "gzip to append time": ("to-gzip-append-time", with_codec(1, -5, 3)),
    "lz4 to append time": ("to-gzip-append-time", with_codec(3, -5, 3)),
    "keyless to gzip": ("to-gzip-compact", keyless(3)),
    "not gzip at all": ("to-zstd", patched(GOOD, 21, 2, 1)),
    "max timestamp too low": (DEEP, patched(records(0, 5), 35, 8, NOW_MS)),
    "max timestamp too high": (DEEP, patched(records(0, 5), 35, 8, NOW_MS + 99)),
    "max timestamp too low, compressed": (DEEP, patched(with_codec(1, 0, 5), 35, 8, NOW_MS)),
    "fewer records than it says": (DEEP, patched(patched(GOOD, 57, 4, 4), 23, 4, 3)),
    "more records than it says": (DEEP, patched(patched(GOOD, 57, 4, 2), 23, 4, 1)),
    "a record that is too long": (DEEP, patched(GOOD, 61, 1, 0x7E)),
    "a value that is too long": (DEEP, patched(GOOD, 61 + 6, 1, 2 * 25)),
}  # fmt: skip

OTHER_CODES = {
    **{f"codec {codec}": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR)
       for codec in (5, 6, 7)},
    "not gzip at all": (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR),
    "length 2147483647": (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR),
}  # fmt: skip
"""gregor's code and Apache Kafka's, which is that of an exception that no part of it caught."""


def name_of(case: str) -> str:
    return case.replace(" ", "_").replace(",", "")


class Side:
    """One of the two brokers, with a topic for each case."""

    def __init__(self, port: int, *, is_gregor: bool) -> None:
        self.wire = RawConnection(port)
        self._is_gregor = is_gregor
        topics = []
        for case, (kind, _) in {**CASES, TRANSACTIONS: ("plain", b"")}.items():
            configs = {"gregor.deep.validation": "true"} if kind == DEEP and is_gregor else TOPICS.get(kind, {})
            make = CreateTopicsRequest.CreatableTopicConfig
            topics.append(
                CreateTopicsRequest.CreatableTopic(
                    name=name_of(case),
                    num_partitions=1,
                    replication_factor=1,
                    configs=[make(name=key, value=value) for key, value in configs.items()],
                )
            )
        answer = self.wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        assert {topic.error_code for topic in answer.topics} == {0}, answer
        for topic in topics:
            self._wait_for(topic.name)

    def _wait_for(self, name: str) -> None:
        until(lambda: not self._fetch(name).error_code, f"a leader of {name}", PATIENCE_S)

    def tell(self, case: str, version: int) -> tuple[Any, list[Any]]:
        """Return the broker's answer, and the records that a consumer then finds."""
        name = name_of(case)
        make = ProduceRequest.PartitionProduceData
        wanted = ProduceRequest.TopicProduceData(
            name=name, partition_data=[make(index=0, records=bytes(CASES[case][1]))]
        )
        answer = self.wire.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted]), version)
        (topic,) = answer.responses
        (told,) = topic.partition_responses
        has_time = told.log_append_time_ms >= 0
        code = ErrorCode(told.error_code)
        if case in OTHER_CODES:
            assert code is OTHER_CODES[case][not self._is_gregor]
            code = ErrorCode.NONE  # the same for both from here on
        said = (code, told.base_offset, has_time, [one.batch_index for one in told.record_errors])
        return said, self.stored(name)

    def producer(self, transactional_id: str) -> tuple[int, int]:
        """Return producer id and epoch once the coordinator is there."""
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answers = []

        def is_initialised() -> bool:
            self.wire.ask(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
            answers.append(self.wire.ask(init, 4))
            return not answers[-1].error_code

        until(is_initialised, f"a coordinator of {transactional_id}", PATIENCE_S)
        return answers[-1].producer_id, answers[-1].producer_epoch

    def code_of(self, transactional_id: str, batch: bytes | bytearray) -> ErrorCode:
        """Return the answer to a batch of a transaction of the newer protocol."""
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        wanted = ProduceRequest.TopicProduceData(name=TRANSACTIONS, partition_data=[data])
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[wanted])
        answer = self.wire.ask(request, ADDS_PARTITIONS_FROM)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def _fetch(self, name: str) -> Any:
        make = FetchRequest.FetchPartition
        wanted = FetchRequest.FetchTopic(
            topic=name, partitions=[make(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        )
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[wanted])
        answer = self.wire.ask(request, 11)
        (data,) = answer.responses[0].partitions
        return data

    def stored(self, name: str) -> list[Any]:
        data = self._fetch(name)
        assert data.error_code == 0
        found = []
        for batch in iter_batches(data.records or b""):
            assert batch.crc_ok()
            is_append_time = batch.timestamp_type == 1
            if is_append_time:
                assert abs(batch.max_timestamp - time.time() * 1000) < 60_000
            found.append(
                (
                    batch.base_offset,
                    batch.last_offset_delta,
                    batch.attributes,
                    None if is_append_time else (batch.base_timestamp, batch.max_timestamp),
                    (batch.producer_id, batch.producer_epoch, batch.base_sequence),
                    [record._replace(timestamp=0) if is_append_time else record for record in batch.records()],
                )
            )
        return found


@pytest.fixture(scope="module")
def gregor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with BrokerProcess(tmp_path_factory.mktemp("gregor")) as broker:
        side = Side(broker.port, is_gregor=True)
        yield side
        side.wire.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    folder = tmp_path_factory.mktemp("kafka")
    port, controller = free_port(), free_port()
    file = folder / "server.properties"
    one_replica = "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    one_partition = "transaction.state.log.num.partitions=1\n"
    file.write_text(SINGLE_NODE.format(controller=controller, port=port, folder=folder) + one_replica + one_partition)
    with KafkaPeer(file, port):
        side = Side(port, is_gregor=False)
        yield side
        side.wire.close()


@pytest.mark.parametrize("kind", [*TOPICS, DEEP])
def test_the_same_answers_and_the_same_batches(gregor: Side, kafka: Side, kind: str) -> None:
    for version in (7, 9):
        for case in [case for case, (of_kind, _) in CASES.items() if of_kind == kind]:
            expected = kafka.tell(case, version)
            assert (case, version, *gregor.tell(case, version)) == (case, version, *expected)


def test_the_same_answers_to_control_batches_of_a_transactional_producer(gregor: Side, kafka: Side) -> None:
    answers = []
    for side in (gregor, kafka):
        producer_id, epoch = side.producer("control")
        sent = [(1, True), (0, True), (1, False), (0, False), (0, True), (5, True), (1, False)]
        batches = [
            build_batch(
                [(b"k", b"v")],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
                control=control,
            )
            for sequence, control in sent
        ]
        answers.append([side.code_of("control", batch) for batch in batches])
    assert answers[0] == answers[1]
    assert set(answers[0]) == {ErrorCode.INVALID_RECORD, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE}
