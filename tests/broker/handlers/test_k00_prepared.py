"""Produce to topics that prepare batches before the append: small ones at once, large ones in slices, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ProduceRequest, ProduceResponse, response_header_version
from gregor.protocol.records.batch import Record, RecordBatch, build_batch, iter_batches
from gregor.protocol.records.compression import CODEC_NAMES
from tests.broker.handlers.test_k00_produce import refused
from tests.broker.harness import (
    Harness,
    Wire,
    batch,
    bytes_of,
    message_set,
    one_partition,
    produce_request,
    request_frame,
)
from tests.broker.loop_lag import loop_lag_during

LARGE = [b"value %d of quite some length" % number for number in range(3000)]


def stored(harness: Harness, topic: str) -> list[RecordBatch]:
    data = harness.fetch(topic, 0, partition_max_bytes=1 << 26)
    return list(iter_batches(bytes_of(data)))


def answers(wire: Wire, version: int) -> list[ProduceResponse.PartitionProduceResponse]:
    """All Produce answers that a connection has sent."""
    found = []
    view, position = bytes(wire.transport.written), 0
    while position < len(view):
        end = position + SIZE_BYTES + int.from_bytes(view[position : position + SIZE_BYTES])
        start = position + SIZE_BYTES + 4 + (1 if response_header_version(0, version) else 0)
        found.append(one_partition(ProduceResponse.decode(view[:end], version, start)[0]))
        position = end
    return found


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("values", [[b"one", b"two"], LARGE], ids=["small", "large"])
def test_stored_in_the_codec_of_the_topic(harness: Harness, topic: str, name: str, values: list[bytes]) -> None:
    harness.create_topic(topic, compression_type=name)
    for codec in (0, 1, 4):
        records = batch(*values, compression=codec)
        assert harness.ask(produce_request(topic, records), 9).responses[0].partition_responses[0].error_code == 0
    found = stored(harness, topic)
    assert {CODEC_NAMES[one.compression] for one in found} == {"none" if name == "uncompressed" else name}
    assert [one.base_offset for one in found] == [0, len(values), 2 * len(values)]
    for one in found:
        assert one.crc_ok()
        assert [record.value for record in one.records()] == values


@pytest.mark.parametrize("version", [2, 9, 13])
def test_requests_behind_a_large_one_come_later(harness: Harness, topic: str, version: int) -> None:
    """All in one delivery, as a client with several requests in flight sends them."""
    topic_id = harness.create_topic(topic, compression_type="zstd")
    name: str | bytes = topic_id if version >= 13 else topic
    make: Any = batch if version >= 3 else lambda *values: message_set(1, *values)
    wire = Wire(harness)
    sent = [[b"first"], LARGE, [b"second"], [b"third"], LARGE[:2000], [b"fourth"]]
    stream = b"".join(request_frame(produce_request(name, make(*values)), version) for values in sent)
    for start in range(0, len(stream), 20_000):
        harness.until(lambda: wire.transport.reading)
        wire.send(stream[start : start + 20_000])
    harness.until(lambda: len(answers(wire, version)) == len(sent))
    ends = [sum(map(len, sent[:number])) for number in range(len(sent))]
    assert [(one.error_code, one.base_offset) for one in answers(wire, version)] == [(0, end) for end in ends]
    assert [record.value for record in harness.records(topic)] == [value for values in sent for value in values]
    wire.close()


def test_acks_0(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, compression_type="gzip")
    wire = Wire(harness)
    for values in (LARGE, [b"x"]):
        wire.send(request_frame(produce_request(topic, batch(*values), acks=0), 9))
    harness.until(lambda: len(harness.records(topic)) == len(LARGE) + 1)
    assert not wire.transport.aborted
    wire.send(request_frame(produce_request(topic, batch(*LARGE, timestamp_ms=10**15), acks=0), 9))
    harness.until(lambda: wire.transport.aborted)


def test_what_was_sent_is_appended_though_its_client_left(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, compression_type="gzip")
    wire = Wire(harness)
    wire.send(request_frame(produce_request(topic, batch(*LARGE)), 9))
    wire.close()
    harness.until(lambda: len(harness.records(topic)) == len(LARGE))


@pytest.mark.parametrize("version", [7, 8, 13])
@pytest.mark.parametrize("others", [0, 2000], ids=["small", "large"])
def test_single_records_are_named_from_version_8(harness: Harness, topic: str, version: int, others: int) -> None:
    topic_id = harness.create_topic(topic, cleanup_policy="compact")
    records = batch((b"k", b"v"), (None, b"v"), *[(b"k", b"v")] * others, (None, b"v"))
    answer = one_partition(harness.ask(produce_request(topic_id if version >= 13 else topic, records), version))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    named = [one.batch_index for one in answer.record_errors]
    assert named == ([1, others + 2] if version >= 8 else [])
    assert ("2 records" in str(answer.error_message)) is (version >= 8)
    assert harness.records(topic) == []


def test_timestamps_out_of_bounds(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, message_timestamp_before_max_ms="60000")
    now_ms = harness.broker.now_ms()
    records = build_batch([Record(n, now_ms - 100_000 * n, b"k", b"v", []) for n in range(3)])
    answer = one_partition(harness.ask(produce_request(topic, bytes(records)), 12))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in answer.record_errors] == [1, 2]


def test_deep_validation_can_be_switched_on(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    wire = Wire(harness)
    records = bytearray(batch(b"value"))
    records[61] += 2  # the record claims one byte more than there is
    from crc32c import crc32c

    records[17:21] = crc32c(memoryview(records)[21:]).to_bytes(4)
    request = produce_request(topic, bytes(records))
    for _ in range(2):
        assert one_partition(wire.ask(request, 9)).error_code == 0
    harness.alter_topic(topic, gregor_deep_validation="true")
    assert one_partition(wire.ask(request, 9)).error_code == ErrorCode.INVALID_RECORD
    assert one_partition(wire.ask(produce_request(topic, batch(b"value")), 9)).error_code == 0


def test_size_counts_after_compression_too(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, compression_type="uncompressed", max_message_bytes="50000")
    assert refused(harness, topic, batch(bytes(60_000), compression=1)) == ErrorCode.MESSAGE_TOO_LARGE


def test_one_partition_of_several_is_large(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, 3, compression_type="lz4")
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=records)
        for index, records in enumerate([batch(b"a"), batch(*LARGE), batch(*LARGE, timestamp_ms=10**15)])
    ]
    wanted = ProduceRequest.TopicProduceData(name=topic, partition_data=data)
    answer = harness.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted]), 9)
    found = [(one.index, one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]
    assert found == [(0, 0, 0), (1, 0, 0), (2, ErrorCode.INVALID_TIMESTAMP, -1)]
    assert not harness.connection.held


def test_a_leader_that_steps_down_meanwhile(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, compression_type="gzip")
    asked = harness.begin(produce_request(topic, batch(*LARGE)), 12, turns=1)
    assert harness.connection.held
    harness.hand_over(topic)
    assert one_partition(harness.run(asked)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not harness.connection.held


@pytest.mark.parametrize("before", [False, True], ids=["new producer", "known producer"])
@pytest.mark.parametrize("size_bytes", [100, 100_000], ids=["at once", "prepared"])
def test_no_later_batch_overtakes_one_that_too_few_replicas_had(
    harness: Harness, topic: str, size_bytes: int, before: bool
) -> None:
    harness.create_topic(topic, cleanup_policy="compact", min_insync_replicas="2")
    harness.add_follower(topic)
    partition = harness.broker.replicas.partitions[topic, 0]
    assert partition.log is not None
    partition.log.producers.led_since_ms = None  # it has led for long

    def send(sequence: int, size_bytes: int = 10) -> ErrorCode:
        records = batch((b"k", bytes(size_bytes)), producer_id=7, producer_epoch=0, base_sequence=sequence)
        request = produce_request(topic, records, acks=-1, timeout_ms=1)
        return ErrorCode(one_partition(harness.ask(request, 9)).error_code)

    appended, again = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS
    first = 0
    if before:
        assert send(0) == appended  # no follower fetches here
        first = 1
    partition.in_sync.commit([0])
    assert send(first, size_bytes) == again
    partition.in_sync.commit([0, 5])
    assert send(first + 1) == again
    assert [send(first, size_bytes), send(first + 1)] == [appended, appended]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"compression_type": "gzip"}, {"cleanup_policy": "compact"}], ids=str)
def test_the_loop_goes_on_meanwhile(harness: Harness, topic: str, settings: dict[str, str]) -> None:
    harness.create_topic(topic, max_message_bytes="2000000", **settings)
    records = batch(*[(b"key %d" % n, bytes(60)) for n in range(12_000)])
    answer, lag = harness.run(loop_lag_during(harness.answer(produce_request(topic, records), 9, "tests")))
    assert one_partition(answer).error_code == 0
    assert lag.within(), lag


@pytest.mark.parametrize("config", [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}])
def test_many_small_batches_in_one_request_go_in_turns(harness: Harness, topic: str, config: dict[str, str]) -> None:
    harness.create_topic(topic, partitions=50, **config)
    make = ProduceRequest.PartitionProduceData
    records = bytes(batch(*[(b"k%d" % number, b"x" * 30) for number in range(200)]))
    data = [make(index=index, records=records) for index in range(50)]
    topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    task = harness.begin(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topic_data), 9, turns=1)
    partitions = [harness.broker.replicas.partitions[topic, index] for index in range(50)]
    assert 1 <= [one.high_watermark for one in partitions].count(200) < 25
    (told,) = harness.run(task).responses
    assert [(one.error_code, one.base_offset) for one in told.partition_responses] == [(0, 0)] * 50
    assert {one.high_watermark for one in partitions} == {200}


def test_what_a_request_has_for_many_partitions_is_appended_in_turns(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic, partitions=5)
    for module in ("gregor.broker.handlers.k00_produce", "gregor.broker.jobs.turns"):
        monkeypatch.setattr(f"{module}.TURN_S", -1.0)  # time is up after each
    request = produce_request(topic, batch(b"0"))
    parts = request.topic_data[0].partition_data
    parts += [ProduceRequest.PartitionProduceData(index=index, records=batch(b"%d" % index)) for index in range(1, 5)]
    parts.append(ProduceRequest.PartitionProduceData(index=9, records=batch(b"9")))
    parts.append(ProduceRequest.PartitionProduceData(index=3, records=None))
    ends = []

    async def ask() -> ProduceResponse:
        asked = asyncio.ensure_future(harness.answer(request, 12, "tests"))
        while not asked.done():
            await asyncio.sleep(0)
            found = [harness.broker.replicas.partitions[topic, index].log_end_offset for index in range(5)]
            ends.append((sum(found), harness.connection.held))
        response: ProduceResponse = asked.result()
        return response

    answers = harness.run(ask()).responses[0].partition_responses
    assert [(answer.index, answer.error_code, answer.base_offset) for answer in answers] == [
        *((index, ErrorCode.NONE, 0) for index in range(5)),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (3, ErrorCode.INVALID_RECORD, -1),
    ]
    assert [harness.records(topic, partition=index)[0].value for index in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert {(number, True) for number in range(1, 5)} <= set(ends)
    assert not harness.connection.held
