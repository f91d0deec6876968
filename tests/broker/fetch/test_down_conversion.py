"""Fetch versions 0 to 3: the records that consumers before 0.11 read, and how little they delay other clients."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from typing import Any

import pytest

from gregor.broker.fetch.down_conversion import ANSWER_BYTES, AT_ONCE_BYTES
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FetchResponse
from gregor.protocol.records.batch import Record, build_batch
from gregor.protocol.records.compression import CODEC_NAMES
from gregor.protocol.records.message_sets import Message, iter_messages
from tests.broker.harness import Harness, batch, bytes_of, fetch_request, message_set, produce_request

VERSIONS = pytest.mark.parametrize("version", range(4))
MAGIC = {0: 0, 1: 0, 2: 1, 3: 1}
NOW = 1_700_000_000_000


def fetch(harness: Harness, version: int, *wanted: tuple[str, int, int], **fields: Any) -> list[Any]:
    request = fetch_request(list(wanted), **{"max_wait_ms": 0, **fields})
    response: FetchResponse = harness.ask(request, version)
    return [data for topic in response.responses for data in topic.partitions]


def messages(data: FetchResponse.PartitionData) -> list[Message]:
    assert data.error_code == 0, ErrorCode(data.error_code)
    return list(iter_messages(bytes_of(data)))


def values(data: FetchResponse.PartitionData) -> list[bytes | None]:
    return [message.value for message in messages(data)]


@VERSIONS
@pytest.mark.parametrize("codec", range(4), ids=CODEC_NAMES[:4])
def test_each_version_and_codec(harness: Harness, topic: str, version: int, codec: int) -> None:
    harness.create_topic(topic)
    first = batch((b"k", b"a"), (None, b"b"), compression=codec, timestamp_ms=NOW)
    harness.ask(produce_request(topic, first), 3)
    harness.ask(produce_request(topic, batch((b"l", None), compression=codec, timestamp_ms=NOW + 1)), 3)
    (data,) = fetch(harness, version, (topic, 0, 0))
    magic = MAGIC[version]
    assert messages(data) == [
        Message(at, NOW + late if magic else -1, 0, key, value, magic, codec)
        for at, late, key, value in [(0, 0, b"k", b"a"), (1, 0, None, b"b"), (2, 1, b"l", None)]
    ]
    assert data.high_watermark == 3
    assert (data.last_stable_offset, data.log_start_offset, data.aborted_transactions) == (-1, -1, [])


@VERSIONS
def test_from_the_middle_of_a_batch(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, partitions=2)
    harness.produce(topic, b"0", b"1", b"2")
    harness.produce(topic, b"0", b"1", b"2", partition=1, compression=1)
    plain, packed = fetch(harness, version, (topic, 0, 1), (topic, 1, 1))
    assert (values(plain), values(packed)) == ([b"1", b"2"], [b"0", b"1", b"2"])


@VERSIONS
def test_append_time(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, message_timestamp_type="LogAppendTime")
    info = harness.produce(topic, b"a", compression=1)
    (one,) = messages(fetch(harness, version, (topic, 0, 0))[0])
    assert (one.timestamp, one.timestamp_type) == ((info.log_append_time_ms, 1) if MAGIC[version] else (-1, 0))


@VERSIONS
def test_zstd_is_refused(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"plain")
    harness.produce(topic, b"packed", compression=4)
    (data,) = fetch(harness, version, (topic, 0, 0))
    assert values(data) == [b"plain"]
    (data,) = fetch(harness, version, (topic, 0, 1))
    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (data.high_watermark, bytes(bytes_of(data))) == (-1, b"")


@VERSIONS
def test_a_damaged_batch_is_told(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"whole")
    log = harness.broker.replicas.partitions[topic, 0].log
    assert log is not None
    with open(log.segments[-1].log.path, "r+b") as file:
        file.seek(-2, 2)
        file.write(b"?")
    (data,) = fetch(harness, version, (topic, 0, 0))
    assert data.error_code == ErrorCode.CORRUPT_MESSAGE


@VERSIONS
def test_what_one_version_wrote_the_others_read(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    for magic, its_version in ((0, 1), (1, 2)):
        harness.ask(produce_request(topic, message_set(magic, b"x%d" % magic, timestamp_ms=NOW)), its_version)
    (data,) = fetch(harness, version, (topic, 0, 0))
    assert values(data) == [b"x0", b"x1"]
    times = [-1, NOW] if MAGIC[version] else [-1, -1]
    assert [message.timestamp for message in messages(data)] == times


@VERSIONS
def test_a_partition_gives_no_more_than_asked_for(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    for at in range(4):
        harness.produce(topic, b"%d" % at * 1000)
    size = 1000 + (26 if MAGIC[version] == 0 else 34)
    for limit, count in ((size, 1), (2 * size - 1, 1), (2 * size, 1), (3 * size, 2)):
        # A batch that exceeds the limit in the log's format is not read, although its message set would be smaller.
        (data,) = fetch(harness, version, (topic, 0, 0), partition_max_bytes=limit)
        assert len(values(data)) == count, limit


@VERSIONS
def test_a_message_that_is_larger_is_cut_off_before_version_3(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    for _ in range(2):
        harness.produce(topic, b"x" * 1000)
    (data,) = fetch(harness, version, (topic, 0, 1))
    whole = bytes(bytes_of(data))
    for limit in (0, 1, 12, 500, 1000):
        (data,) = fetch(harness, version, (topic, 0, 1), partition_max_bytes=limit)
        assert bytes(bytes_of(data)) == (whole[:limit] if version < 3 else whole)


@VERSIONS
def test_a_codec_makes_no_message_too_large(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    harness.produce(topic, *(b"%d" % at for at in range(100)), compression=1)
    (data,) = fetch(harness, version, (topic, 0, 0), partition_max_bytes=50)
    assert len(values(data)) == 100


def test_what_is_larger_than_a_part_is_not_cut_off(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, max_message_bytes="3000000")
    harness.produce(topic, b"x" * 2 * AT_ONCE_BYTES)
    (data,) = fetch(harness, 1, (topic, 0, 0), partition_max_bytes=3 * AT_ONCE_BYTES)
    assert values(data) == [b"x" * 2 * AT_ONCE_BYTES]


@VERSIONS
def test_every_partition_gets_something_before_there_was_an_order(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, partitions=3)
    for partition in range(3):
        harness.produce(topic, b"x" * 1000, partition=partition)
    wanted = [(topic, partition, 0) for partition in range(3)]
    found = fetch(harness, version, *wanted, partition_max_bytes=100)
    assert [bool(bytes_of(data)) for data in found] == ([True, True, True] if version < 3 else [True, False, False])


def test_the_limit_of_version_3_is_for_the_whole_answer(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=3)
    for partition in range(3):
        for _ in range(5):
            harness.produce(topic, b"x" * 1000, partition=partition)
    wanted = [(topic, partition, 0) for partition in (1, 2, 0)]
    found = fetch(harness, 3, *wanted, max_bytes=7000)
    assert [data.partition_index for data in found] == [1, 2, 0]
    assert sum(len(bytes_of(data)) for data in found) <= 7000
    assert [len(values(data)) for data in found] == [5, 1, 0]


def test_as_much_as_a_consumer_may_ask_for_is_served_in_parts(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for _ in range(3):
        harness.produce(topic, random.Random(1).randbytes(700_000))
    (data,) = fetch(harness, 3, (topic, 0, 0), partition_max_bytes=2**31 - 1, max_bytes=2**31 - 1, min_bytes=2**30)
    assert len(values(data)) == 1 and len(bytes_of(data)) <= AT_ONCE_BYTES
    assert ANSWER_BYTES > AT_ONCE_BYTES


@VERSIONS
def test_what_holds_no_message_is_read_past(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    partition = harness.broker.replicas.partitions[topic, 0]
    marker = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=7, producer_epoch=0, control=True)
    for _ in range(3):
        assert partition.log is not None
        partition.log.append_as_leader(bytearray(marker), 0, harness.broker.now_ms(), from_client=False)
    harness.produce(topic, b"after")
    # Each marker is a piece of its own to such a small limit.
    (data,) = fetch(harness, version, (topic, 0, 0), partition_max_bytes=40)
    assert [(message.offset, message.value) for message in messages(data)] == [(3, b"after")]


@VERSIONS
def test_with_nothing_behind_it_the_request_waits_on(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, partitions=2)
    partition = harness.broker.replicas.partitions[topic, 0]
    marker = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=7, producer_epoch=0, control=True)
    partition.append(bytearray(marker), harness.broker.now_ms(), 1, from_client=False)
    task = harness.begin(fetch_request([(topic, 0, 0), (topic, 1, 0)], max_wait_ms=30_000), version)
    harness.until(lambda: bool(partition.delayed.active) or task.done())
    assert not task.done()
    harness.produce(topic, b"after")
    found = [data for one in harness.run(task).responses for data in one.partitions]
    assert [values(data) for data in found] == [[b"after"], []]
    # A time that is over ends it, too.
    (data,) = fetch(harness, version, (topic, 0, 0), partition_max_bytes=40)
    assert values(data) == [b"after"]
    partition.append(bytearray(marker), harness.broker.now_ms(), 1, from_client=False)
    (data,) = fetch(harness, version, (topic, 0, 2), max_wait_ms=20)
    assert (values(data), data.high_watermark) == ([], 3)


@VERSIONS
def test_a_long_poll_is_answered_by_the_append(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    task = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), version)
    assert not task.done()
    harness.produce(topic, b"late")
    response = harness.run(task)
    assert values(response.responses[0].partitions[0]) == [b"late"]


def test_a_client_that_leaves_gives_everything_back(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    partition = harness.broker.replicas.partitions[topic, 0]
    assert partition.log is not None
    file: Any = partition.log.segments[0].log
    waiting = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 2)
    assert partition.delayed.active
    waiting.cancel()
    harness.turn()
    assert not partition.delayed.active
    # Records arrive in the turn of the loop in which the client disconnected: no client is left to read them.
    errors: list[Any] = []
    harness.loop.set_exception_handler(lambda loop, context: errors.append(context))
    waiting = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 2)
    waiting.cancel()
    harness.produce(topic, *[b"x"] * 2000)
    harness.turn()
    harness.loop.set_exception_handler(None)
    assert (errors, file.held) == ([], 0)
    busy = harness.begin(fetch_request([(topic, 0, 0)]), 2, turns=1)
    assert file.held
    busy.cancel()
    harness.turn()
    assert not file.held
    assert len(values(fetch(harness, 2, (topic, 0, 0))[0])) == 2000
    assert not file.held


@VERSIONS
def test_what_is_on_the_disk_alone_is_read_on_threads(
    harness: Harness, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    harness.produce(topic, *[b"x" * 100] * 500)
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    log.roll(harness.broker.now_ms())
    for segment in log.segments:
        segment.write_indexes()
        segment.close()
    log._segments.positions.clear()
    fetched: set[int] = set()
    waited: list[str] = []
    preadv, pread = os.preadv, os.pread

    def read_now(descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags and position not in fetched:
            raise BlockingIOError
        return preadv(descriptor, buffers, position, flags)

    def read(descriptor: int, size_bytes: int, position: int) -> bytes:
        waited.append(threading.current_thread().name)
        fetched.add(position)
        return pread(descriptor, size_bytes, position)

    monkeypatch.setattr(os, "preadv", read_now)
    monkeypatch.setattr(os, "pread", read)
    (data,) = fetch(harness, version, (topic, 0, 250))
    monkeypatch.undo()
    assert len(values(data)) == 250
    assert waited and all(name.startswith("reads") for name in waited)


@pytest.mark.slow
def test_the_loop_goes_on_while_batches_of_many_records_are_converted(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    for partition, codec in ((0, 0), (1, 1)):
        records = [Record(at, NOW, None, b"x" * 50, []) for at in range(12_000)]
        harness.ask(produce_request(topic, bytes(build_batch(records, compression=codec)), partition=partition), 3)

    async def longest_turn(task: asyncio.Task[Any]) -> float:
        longest = 0.0
        while not task.done():
            begin = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begin)
        return longest

    for partition in (0, 1):
        request = fetch_request([(topic, partition, 0)], partition_max_bytes=1 << 20)
        task = harness.begin(request, 2)
        longest = harness.run(longest_turn(task))
        count = len(values(task.result().responses[0].partitions[0]))
        assert count == (12_000 if partition else pytest.approx(12_000, rel=0.1))
        assert longest < 0.01
