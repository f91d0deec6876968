"""Produce as clients see it, every version, good and bad. Apache Kafka's answers: KafkaApis, ReplicaManager."""

from __future__ import annotations

import struct
from typing import Any, NoReturn
from zlib import crc32

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FindCoordinatorRequest, ProduceRequest
from gregor.protocol.records.batch import RecordBatch, iter_batches
from gregor.replication.partition.delete_records import delete_records_before
from gregor.replication.partition.partition import Partition
from tests.broker.harness import (
    Harness,
    Wire,
    batch,
    bytes_of,
    fetch_request,
    message_set,
    one_partition,
    produce_request,
    records_of,
    request_frame,
)

VERSIONS = range(14)
BATCH_VERSIONS = range(3, 14)


def refused(harness: Harness, topic: str, records: bytes | None, version: int = 12, **fields: Any) -> int:
    """The error a partition gets; nothing may have been appended."""
    partition = harness.broker.replicas.get(topic, 0)
    before = None if partition is None else partition.log_end_offset
    name: str | bytes = topic if version < 13 or partition is None else partition.topic_id
    answer = one_partition(harness.ask(produce_request(name, records, **fields), version))
    assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)
    assert before is None or partition is None or partition.log_end_offset == before
    return answer.error_code


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_appends_and_tells_the_offset(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name: str | bytes = topic_id if version >= 13 else topic
    records = batch(b"one", b"two") if version >= 3 else message_set(0 if version < 2 else 1, b"one", b"two")
    for base_offset in (0, 2):
        response = harness.ask(produce_request(name, records), version)
        answer = one_partition(response)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, base_offset, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        assert response.responses[0].name == ("" if version >= 13 else topic)
        assert response.responses[0].topic_id == (topic_id if version >= 13 else bytes(16))
    assert [record.value for record in harness.records(topic)] == [b"one", b"two"] * 2


@pytest.mark.parametrize("version", range(7, 14))
def test_the_short_way_of_a_connection_gives_the_same_answers(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    wire = Wire(harness)
    for base_offset in range(3):
        request = produce_request(topic_id if version >= 13 else topic, batch(b"x"), acks=-1)
        answer = one_partition(wire.ask(request, version))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, base_offset, 0)
    wire.close()


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks(harness: Harness, topic: str, acks: int) -> None:
    harness.create_topic(topic)
    answer = harness.ask(produce_request(topic, batch(b"x"), acks=acks), 12)
    assert (answer is None) == (acks == 0)
    assert len(harness.records(topic)) == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(harness: Harness, topic: str, version: int, acks: int) -> None:
    harness.create_topic(topic)
    assert refused(harness, topic, batch(b"x"), version, acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


def test_unknown_partition_and_topic(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for version in BATCH_VERSIONS:
        name: str | bytes = topic if version < 13 else harness.broker.metadata.topic(topic).topic_id  # type: ignore[union-attr]
        request = produce_request(name, batch(b"x"), partition=9)
        assert one_partition(harness.ask(request, version)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version in range(3, 13):
        assert refused(harness, "absent", batch(b"x"), version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = produce_request(b"\x07" * 16, batch(b"x"))
    assert one_partition(harness.ask(request, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_good_partition_is_served_beside_bad_ones(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    make = ProduceRequest.PartitionProduceData
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    make(index=0, records=batch(b"x")),
                    make(index=7, records=batch(b"x")),
                    make(index=1, records=batch(b"x")[:-1] + b"!"),
                ],
            ),
            ProduceRequest.TopicProduceData(name="absent", partition_data=[make(index=0, records=batch(b"x"))]),
        ],
    )
    response = harness.ask(request, 9)
    found = [(one.name, part.index, part.error_code) for one in response.responses for part in one.partition_responses]
    assert found == [(topic, 0, 0), (topic, 7, 3), (topic, 1, 2), ("absent", 0, 3)]
    assert len(harness.records(topic)) == 1
    assert harness.records(topic, partition=1) == []


def patched(records: bytes, position: int, data: bytes, *, crc: bool = True) -> bytes:
    """A batch with some bytes replaced, and its checksum put right."""
    changed = bytearray(records)
    changed[position : position + len(data)] = data
    if crc:
        from crc32c import crc32c

        changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("version", BATCH_VERSIONS)
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda records: None, ErrorCode.INVALID_RECORD),
        (lambda records: b"", ErrorCode.INVALID_RECORD),
        (lambda records: records[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (lambda records: records[:40], ErrorCode.INVALID_RECORD),
        (lambda records: records[:-1], ErrorCode.INVALID_RECORD),
        (lambda records: records * 2, ErrorCode.INVALID_RECORD),
        (lambda records: patched(records, 16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
        (lambda records: message_set(1, b"x" * 70), ErrorCode.INVALID_RECORD),
        (lambda records: message_set(0, b"x" * 70), ErrorCode.INVALID_RECORD),
        (lambda records: patched(records, 22, b"\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda records: patched(records, 22, b"\x20"), ErrorCode.INVALID_RECORD),  # control
        (lambda records: patched(records, 23, struct.pack(">i", 7)), ErrorCode.INVALID_RECORD),
        (lambda records: patched(records, 0, struct.pack(">q", 3)), ErrorCode.INVALID_RECORD),
        (lambda records: batch(b"x", producer_id=5, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
        (lambda records: batch(bytes(200_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (lambda records: batch(b"x", timestamp_ms=10**15), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=[
        "null",
        "empty",
        "checksum",
        "header cut off",
        "cut off",
        "two batches",
        "magic 3",
        "magic 1",
        "magic 0",
        "unknown codec",
        "control batch",
        "count",
        "base offset",
        "no sequence",
        "too large",
        "in the future",
    ],
)
def test_bad_batches(harness: Harness, version: int, spoil: Any, error: ErrorCode) -> None:
    if harness.broker.metadata.topic("bad") is None:
        harness.create_topic("bad", max_message_bytes="100000")
    assert ErrorCode(refused(harness, "bad", spoil(batch(b"some value")), version)) is error


def test_the_topic_of_the_bad_batches_is_as_before(harness: Harness) -> None:
    if harness.broker.metadata.topic("bad") is None:
        harness.create_topic("bad", max_message_bytes="100000")
    assert harness.produce("bad", b"good").base_offset == 0


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_zstd_needs_version_7(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    request = produce_request(topic_id if version >= 13 else topic, batch(b"x" * 50, compression=4))
    expected = 0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert one_partition(harness.ask(request, version)).error_code == expected


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_records_of_a_transaction_need_a_transactional_id(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transactional = batch(b"x", producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    assert refused(harness, topic, transactional, version) == refusal


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_the_brokers_own_topics_are_not_for_clients_to_write(harness: Harness, version: int) -> None:
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    assert refused(harness, "__consumer_offsets", batch((b"k", b"v")), version) == ErrorCode.INVALID_TOPIC_EXCEPTION
    state = harness.broker.metadata.topic("__consumer_offsets")
    assert state is not None
    request = produce_request(state.topic_id if version >= 13 else "__consumer_offsets", batch((b"\0\x7f", b"v")))
    assert one_partition(harness.ask(request, version, client_id="__admin_client")).error_code == 0


@pytest.mark.parametrize("version", range(7, 13))
def test_what_is_refused_is_refused_again_on_the_short_way(harness: Harness, topic: str, version: int) -> None:
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    harness.create_topic(topic)
    for request, error in (
        (produce_request(topic, batch(b"x"), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce_request("__consumer_offsets", batch((b"k", b"v"))), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        wire = Wire(harness)
        assert [one_partition(wire.ask(request, version)).error_code for _ in range(3)] == [error] * 3
        wire.close()
    assert harness.records(topic) == []


@pytest.mark.parametrize("version", [7, 12])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda records: patched(records, 0, struct.pack(">q", 5)),
        lambda records: records[:-1] + b"!",
        lambda records: records + records,
        lambda records: patched(records, 22, b"\x20"),
        lambda records: patched(records, 16, b"\x03"),
        lambda records: batch(b"x", timestamp_ms=10**15),
    ],
    ids=["base offset", "checksum", "two batches", "control batch", "magic 3", "in the future"],
)
def test_a_bad_batch_is_refused_on_a_route_that_was_learnt(
    harness: Harness, topic: str, version: int, spoil: Any
) -> None:
    harness.create_topic(topic)
    wire, good = Wire(harness), batch(b"value")
    for records, base_offset in ((good, 0), (good, 1), (spoil(good), -1), (spoil(good), -1), (good, 2)):
        answer = one_partition(wire.ask(produce_request(topic, records), version))
        assert answer.base_offset == base_offset
        assert (answer.error_code == 0) is (base_offset >= 0)
    wire.close()


@pytest.mark.parametrize(
    ("records", "error", "log_start"),
    [
        (batch(b"x", timestamp_ms=10**15), ErrorCode.INVALID_TIMESTAMP, 1),
        (batch(b"x", producer_id=5, producer_epoch=0, base_sequence=7), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1),
        (patched(batch(b"x"), 0, struct.pack(">q", 5)), ErrorCode.INVALID_RECORD, 1),
        (batch(b"x") * 2, ErrorCode.INVALID_RECORD, -1),
        (b"", ErrorCode.INVALID_RECORD, -1),
        (batch(b"x")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE, -1),
    ],
    ids=["in the future", "sequence", "base offset", "two batches", "nothing", "checksum"],
)
@pytest.mark.parametrize("version", [4, 5, 12])
def test_a_refusal_by_the_log_has_its_start(
    harness: Harness, topic: str, version: int, records: bytes, error: ErrorCode, log_start: int
) -> None:
    harness.create_topic(topic)
    first = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    assert one_partition(harness.ask(produce_request(topic, first), version)).error_code == 0
    partition = harness.broker.replicas.get(topic, 0)
    assert partition is not None
    delete_records_before(partition, 1)
    answer = one_partition(harness.ask(produce_request(topic, records), version))
    assert (answer.error_code, answer.log_start_offset) == (error, log_start if version >= 5 else -1)


def test_refused_appends_are_requests_too(harness: Harness, topic: str) -> None:
    """Each counts once, though the short way of a connection refuses it before the handler does."""
    harness.create_topic(topic)
    wire, good = Wire(harness), batch(b"value")
    too_new = batch(b"x", timestamp_ms=10**15)
    for number, (records, failed) in enumerate(((good, 0), (good, 0), (too_new, 1), (good[:-1] + b"!", 1)), 1):
        wire.ask(produce_request(topic, records), 9)
        partition = harness.broker.replicas.get(topic, 0)
        assert partition is not None
        traffic = partition.traffic
        assert (traffic.produce_requests, traffic.failed_produce_requests) == (number, failed)
    wire.close()


@pytest.mark.parametrize("request_of", [lambda topic: ("absent", batch(b"x")), lambda topic: (topic, b"junk")])
def test_a_failed_request_with_acks_0_ends_its_connection(harness: Harness, topic: str, request_of: Any) -> None:
    harness.create_topic(topic)
    before = len(harness.broker.connections)
    wire = Wire(harness)
    wire.send(request_frame(produce_request(*request_of(topic), acks=0), 9))
    assert wire.transport.aborted
    assert not wire.transport.written
    assert wire.connection.closed and len(harness.broker.connections) == before


def test_messages_say_what_is_wrong_from_version_8(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for version in BATCH_VERSIONS[:-1]:
        answer = one_partition(harness.ask(produce_request(topic, b"short"), version))
        assert (answer.error_message is not None) == (version >= 8)


def test_batches_carry_the_offsets_and_the_epoch_they_got(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for _ in range(3):
        harness.produce(topic, b"a", b"b")
    batches = list(iter_batches(bytes_of(harness.fetch(topic, 0))))
    assert [(one.base_offset, one.leader_epoch) for one in batches] == [(0, 0), (2, 0), (4, 0)]
    assert all(one.crc_ok() for one in batches)


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches_are_kept_as_they_came(harness: Harness, topic: str, codec: int) -> None:
    harness.create_topic(topic)
    sent = batch(*[b"value %d" % number for number in range(20)], compression=codec)
    harness.ask(produce_request(topic, sent), 12)
    data = harness.fetch(topic, 0)
    assert bytes(bytes_of(data))[16:] == sent[16:]
    assert [record.value for record in records_of(data)] == [b"value %d" % number for number in range(20)]


@pytest.mark.parametrize("version", [2, 3, 5, 12])
def test_log_append_time_is_told_and_written(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, message_timestamp_type="LogAppendTime")
    records = batch(b"x", timestamp_ms=1) if version > 2 else message_set(1, b"x")
    answer = one_partition(harness.ask(produce_request(topic, records), version))
    assert answer.error_code == 0
    assert answer.log_append_time_ms > 1_600_000_000_000
    (record,) = harness.records(topic)
    assert RecordBatch(bytes_of(harness.fetch(topic, 0))).max_timestamp == answer.log_append_time_ms
    assert record.value == b"x"


def test_idempotence(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)

    def send(sequence: int, epoch: int = 0, count: int = 2) -> tuple[ErrorCode, int]:
        records = batch(*[b"x"] * count, producer_id=77, producer_epoch=epoch, base_sequence=sequence)
        answer = one_partition(harness.ask(produce_request(topic, records, acks=-1), 9))
        return ErrorCode(answer.error_code), answer.base_offset

    assert send(0) == (ErrorCode.NONE, 0)
    assert send(2) == (ErrorCode.NONE, 2)
    assert send(0) == (ErrorCode.NONE, 0)  # again: the first time's offset
    assert send(7) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, epoch=1) == (ErrorCode.NONE, 4)
    assert send(4, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(2, epoch=1) == (ErrorCode.NONE, 6)
    assert len(harness.records(topic)) == 8
    for sequence in range(4, 30, 2):
        assert send(sequence, epoch=1)[0] == ErrorCode.NONE
    # A batch of long ago: its offset is not known any more, and clients treat this error as a success.
    assert send(0, epoch=1) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert len(harness.records(topic)) == 34


@pytest.mark.parametrize("epoch", [0, 1], ids=["new producer", "new epoch"])
def test_no_later_batch_overtakes_one_that_could_not_be_written(
    harness: Harness, topic: str, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)

    def send(sequence: int, epoch: int) -> ErrorCode:
        records = batch(b"x", producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        return ErrorCode(one_partition(harness.ask(produce_request(topic, records), 12)).error_code)

    if epoch:
        assert send(0, epoch=0) == ErrorCode.NONE

    def fail(*_: Any) -> NoReturn:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", fail)
        assert send(0, epoch) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [send(sequence, epoch) for sequence in (1, 2)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    assert [send(sequence, epoch) for sequence in (0, 1, 2)] == [ErrorCode.NONE] * 3


def test_compacted_topics_want_keys(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, cleanup_policy="compact")
    assert refused(harness, topic, batch(b"no key")) == ErrorCode.INVALID_RECORD
    assert one_partition(harness.ask(produce_request(topic, batch((b"k", b"v"))), 9)).error_code == 0


def test_settings_count_at_once_on_a_route_that_was_learnt(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    wire = Wire(harness)
    request = produce_request(topic, batch(bytes(5000)))
    assert [one_partition(wire.ask(request, 9)).error_code for _ in range(3)] == [0, 0, 0]
    harness.alter_topic(topic, max_message_bytes="1000")
    assert one_partition(wire.ask(request, 9)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    harness.alter_topic(topic, max_message_bytes="10000", message_timestamp_type="LogAppendTime")
    answers = [one_partition(wire.ask(request, 9)) for _ in range(2)]
    assert [answer.error_code for answer in answers] == [0, 0]
    assert all(answer.log_append_time_ms > 0 for answer in answers)
    harness.alter_topic(topic, flush_messages="1", message_timestamp_type="CreateTime")
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    for _ in range(2):
        task = harness.begin(request, 9)
        assert harness.run(task).responses[0].partition_responses[0].error_code == 0
        assert log.offsets.unflushed_messages == 0
    wire.close()


def test_flush_messages_holds_the_acknowledgement_until_the_disk_has_it(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, flush_messages="3")
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    for acks in (1, -1):
        log.flusher.flush()
        for unflushed in (1, 2, 0):
            harness.produce(topic, b"x", acks=acks)
            assert log.offsets.unflushed_messages == unflushed


def test_a_deleted_topic_is_unknown_on_a_route_that_was_learnt(harness: Harness, topic: str) -> None:
    from gregor.protocol.messages import DeleteTopicsRequest

    harness.create_topic(topic)
    wire = Wire(harness)
    request = produce_request(topic, batch(b"x"))
    assert [one_partition(wire.ask(request, 9)).base_offset for _ in range(3)] == [0, 1, 2]
    assert harness.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5).responses[0].error_code == 0
    assert one_partition(wire.ask(request, 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.create_topic(topic)
    assert [one_partition(wire.ask(request, 9)).base_offset for _ in range(2)] == [0, 1]
    wire.close()


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_a_partition_led_elsewhere(harness: Harness, topic: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topic_id = harness.create_topic(topic)
    harness.hand_over(topic)
    nodes = harness.broker.metadata.brokers
    monkeypatch.setattr(harness.broker.metadata, "brokers", {**nodes, 5: nodes[0]._replace(id=5)})
    response = harness.ask(produce_request(topic_id if version >= 13 else topic, batch(b"x")), version)
    answer = one_partition(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # The replica knows the new leader before the metadata of the cluster do.
    leader = answer.current_leader
    assert (leader.leader_id, leader.leader_epoch) == ((5, 1) if version >= 10 else (-1, -1))
    assert [node.node_id for node in response.node_endpoints] == ([5] if version >= 10 else [])


def test_acks_all_waits_for_the_followers_or_times_out(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    late = harness.ask(produce_request(topic, batch(b"x"), acks=-1, timeout_ms=20), 9)
    assert one_partition(late).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert one_partition(harness.ask(produce_request(topic, batch(b"x"), acks=1), 9)).error_code == 0
    waiting = harness.begin(produce_request(topic, batch(b"x"), acks=-1, timeout_ms=30_000), 9)
    assert not waiting.done()
    harness.ask(fetch_request([(topic, 0, 3)], max_wait_ms=0, replica_id=5), 11)
    assert one_partition(harness.run(waiting)).error_code == 0


def test_acks_all_is_told_when_the_leader_changes(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    waiting = harness.begin(produce_request(topic, batch(b"x"), acks=-1, timeout_ms=30_000), 9)
    harness.hand_over(topic)
    assert one_partition(harness.run(waiting)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- message sets ----------------------------------------------------------------------------------------------------

GOOD_SET = message_set(1, b"a", b"b")


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda records: records[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (lambda records: records[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda records: with_crc32(records, 17, 1), ErrorCode.INVALID_RECORD),
        (lambda records: with_crc32(records, 17, 4), ErrorCode.INVALID_RECORD),
    ],
    ids=["checksum", "cut-off", "no-gzip", "codec-4"],
)
def test_bad_message_sets(
    harness: Harness, topic: str, version: int, large: bool, spoil: Any, error: ErrorCode
) -> None:
    harness.create_topic(topic)
    records = message_set(1, b"x" * 20, *[b"y" * 500] * 20) if large else GOOD_SET
    assert ErrorCode(refused(harness, topic, spoil(records), version)) is error
    assert harness.fetch(topic, 0).high_watermark == 0


def with_crc32(records: bytes, at: int, value: int) -> bytes:
    """The first message of a set with another byte in it."""
    changed = bytearray(records)
    changed[at] = value
    end = 12 + int.from_bytes(records[8:12])
    changed[12:16] = crc32(changed[16:end]).to_bytes(4)
    return bytes(changed)


@pytest.mark.parametrize("version", range(3))
def test_an_empty_message_set_is_taken(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    for records in (b"", None):
        answer = one_partition(harness.ask(produce_request(topic, records), version))
        assert (answer.error_code, answer.base_offset) == (0, -1)


@pytest.mark.parametrize("version", range(3))
def test_a_batch_of_today_in_an_old_request(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    assert one_partition(harness.ask(produce_request(topic, batch(b"x")), version)).base_offset == 0
    refusal = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(harness, topic, batch(b"x" * 50, compression=4), version) == refusal


@pytest.mark.parametrize("version", range(3))
def test_the_limit_is_for_each_message_and_for_their_batch(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, max_message_bytes="10000")
    assert one_partition(harness.ask(produce_request(topic, message_set(1, b"x" * 9000)), version)).error_code == 0
    for values in ([b"x" * 10_000], [b"x" * 3000] * 4):
        assert refused(harness, topic, message_set(1, *values), version) == ErrorCode.MESSAGE_TOO_LARGE
    harness.create_topic(f"{topic}-packed", max_message_bytes="10000", compression_type="gzip")
    request = produce_request(f"{topic}-packed", message_set(1, *[b"x" * 3000] * 40))
    assert one_partition(harness.ask(request, version)).error_code == 0
    harness.create_topic(f"{topic}-little", max_message_bytes="500", compression_type="gzip")
    request = produce_request(f"{topic}-little", message_set(1, b"x" * 300, b"x" * 300))
    assert one_partition(harness.ask(request, version)).error_code == 0


def test_many_small_message_sets_do_not_hold_the_loop_up(harness: Harness, topic: str) -> None:
    """They are small each, and many in one request."""
    harness.create_topic(topic, partitions=50)
    make = ProduceRequest.PartitionProduceData
    records = message_set(1, *[b"x" * 30] * 60)
    data = [make(index=index, records=records) for index in range(50)]
    topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    task = harness.begin(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topic_data), 2, turns=1)
    partitions = [harness.broker.replicas.partitions[topic, index] for index in range(50)]
    assert 1 <= [one.high_watermark for one in partitions].count(60) < 10
    answer = harness.run(task)
    assert {told.base_offset for told in answer.responses[0].partition_responses} == {0}
    assert {one.high_watermark for one in partitions} == {60}
