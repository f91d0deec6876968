"""Fetch and ListOffsets of data that is on the disk alone: threads read it, and the event loop stays free."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.cluster.coordinator_log import CoordinatorLog
from gregor.broker.net.connection import Connection
from gregor.protocol.messages import FindCoordinatorRequest, ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.records.batch import Record, build_batch, iter_batches
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from tests.broker.harness import Harness, fetch_request, produce_request, records_of, running
from tests.broker.loop_lag import loop_lag_during
from tests.support.evicted import evict_all
from tests.support.wire import RawConnection

TOPIC = "cold"
RECORDS = 4000
PER_BATCH = 20
SLOW_DISK_S = 0.005


def value(number: int) -> bytes:
    return b"%06d" % number * 40


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A topic of 1 MB in five segments, its record n of n ms after 1970."""
    with running(tmp_path_factory.mktemp("node")) as harness:
        harness.create_topic(TOPIC, internal_segment_bytes="200000", compression_type="producer")
        for first in range(0, RECORDS, PER_BATCH):
            some = [Record(n, first + n, b"k", value(first + n), []) for n in range(PER_BATCH)]
            harness.ask(produce_request(TOPIC, bytes(build_batch(some))), 9)
        yield harness


def forget(harness: Harness) -> None:
    """Remove the topic from all memory: the page cache, loaded indexes, known positions."""
    partition = harness.broker.replicas.get(TOPIC, 0)
    assert partition is not None
    assert partition.log is not None
    for segment in partition.log.segments:
        segment.write_indexes()
        segment.close()
        if segment is not partition.log.segments[-1]:
            segment.max_timestamp = -2
    partition.log._segments.positions.clear()
    if not evict_all(Path(harness.folder) / f"{TOPIC}-0"):
        pytest.skip("files of this system cannot be taken out of memory")


def list_offsets_request(*timestamps: int) -> ListOffsetsRequest:
    make = ListOffsetsRequest.ListOffsetsPartition
    wanted = [make(partition_index=0, timestamp=timestamp) for timestamp in timestamps]
    return ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=wanted)])


def told(answer: ListOffsetsResponse) -> list[tuple[int, int, int]]:
    (topic,) = answer.topics
    return [(one.error_code, one.timestamp, one.offset) for one in topic.partitions]


class SlowDisk:
    """Refuses reads that must not wait until another read has waited for the same bytes; that wait is long."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._fetched: set[tuple[int, int]] = set()
        self.refusals = self.waits_on_the_loop = 0
        self._preadv, self._pread = os.preadv, os.pread
        self._loop_thread = threading.get_ident()
        patch.setattr(os, "preadv", self.preadv)
        patch.setattr(os, "pread", self.pread)

    def preadv(self, descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags and any(page not in self._fetched for page in self._pages(descriptor, len(buffers[0]), position)):
            self.refusals += 1
            raise BlockingIOError
        return self._preadv(descriptor, buffers, position, flags)

    def pread(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        pages = self._pages(descriptor, size_bytes, position)
        if not pages <= self._fetched:
            if threading.get_ident() == self._loop_thread:
                self.waits_on_the_loop += 1
            time.sleep(SLOW_DISK_S)
            self._fetched |= pages
        return self._pread(descriptor, size_bytes, position)

    def _pages(self, descriptor: int, size_bytes: int, position: int) -> set[tuple[int, int]]:
        status = os.fstat(descriptor)
        end = min(position + size_bytes, status.st_size)
        return {(status.st_ino, page) for page in range(position >> 12, (end + 4095) >> 12)}


REQUESTS: list[tuple[str, Callable[[], Any], int]] = [
    *((f"fetch {offset}", lambda offset=offset: fetch_request([(TOPIC, 0, offset)], max_wait_ms=0), 12)
      for offset in (0, 777, 2500, RECORDS - 30)),
    ("fetch of read_committed", lambda: fetch_request([(TOPIC, 0, 777)], max_wait_ms=0, isolation_level=1,
                                                      partition_max_bytes=50_000), 12),
    ("fetch that waits", lambda: fetch_request([(TOPIC, 0, 100)], max_wait_ms=5000), 12),
    *((f"offset at {stamp}", lambda stamp=stamp: list_offsets_request(stamp), 7) for stamp in (0, 1999, 3999, 4000)),
    ("offset of the latest", lambda: list_offsets_request(-3), 7),
]  # fmt: skip


def test_aborted_transactions_are_read_on_threads(cold: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    cold.create_topic("aborted", internal_segment_bytes="20000")
    partition = cold.broker.replicas.get("aborted", 0)
    assert partition is not None and partition.log is not None
    now_ms = cold.broker.now_ms()
    for number in range(30):
        records = [(None, bytes(1000))]
        partition.append(
            build_batch(records, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True), now_ms, 1
        )
        partition.append_marker(EndTransaction(7, 0, 0, False, 0), now_ms)
    wanted = fetch_request([("aborted", 0, 0)], max_wait_ms=0, isolation_level=1)
    warm = cold.ask(wanted, 12)
    (data,) = warm.responses[0].partitions
    assert len(data.aborted_transactions) > 10
    for segment in partition.log.segments[:-1]:
        segment.close()
    disk = SlowDisk(monkeypatch)
    answer = cold.ask(wanted, 12)
    monkeypatch.undo()
    assert answer.encode(12) == warm.encode(12)
    assert disk.refusals > 0
    # The harness reads the piece of a file that the answer has on the loop.
    assert disk.waits_on_the_loop <= 1


@pytest.mark.parametrize(("name", "request_of", "version"), REQUESTS, ids=[name for name, _, _ in REQUESTS])
def test_a_slow_disk_holds_up_its_reader_alone(
    cold: Harness, monkeypatch: pytest.MonkeyPatch, name: str, request_of: Callable[[], Any], version: int
) -> None:
    warm = cold.ask(request_of(), version)
    partition = cold.broker.replicas.get(TOPIC, 0)
    assert partition is not None
    assert partition.log is not None
    for segment in partition.log.segments[:-1]:
        segment.close()
        segment.max_timestamp = -2
    partition.log._segments.positions.clear()
    disk = SlowDisk(monkeypatch)
    task = cold.begin(request_of(), version, turns=1)
    answer = cold.run(task)
    monkeypatch.undo()
    assert answer.encode(version) == warm.encode(version)
    if name != "offset at 4000":  # beyond the last record: the active segment answers this from memory
        assert disk.refusals > 0
    # The harness reads the piece of a file that an answer to a fetch has on the loop.
    assert disk.waits_on_the_loop <= name.startswith("fetch")


def test_the_offsets_topic_is_loaded_off_the_loop(cold: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    cold.ask(FindCoordinatorRequest(key="g"), 0)
    coordinator_log = CoordinatorLog(GROUP_METADATA_TOPIC, cold.broker.replicas, cold.broker.background)
    for number in range(400):
        coordinator_log.append(0, [(b"key %d" % number, bytes(1500))])
    log = cold.broker.logs.get(GROUP_METADATA_TOPIC, 0)
    assert log is not None
    _, end_offset = coordinator_log.bounds(0)
    log._segments.positions.clear()

    async def load() -> int:
        offset = 0
        while offset < end_offset:
            for batch in iter_batches(await coordinator_log.read(0, offset, 5 << 20)):
                offset = batch.next_offset
        return offset

    disk = SlowDisk(monkeypatch)
    assert cold.run(load()) == end_offset
    assert disk.refusals > 0
    assert disk.waits_on_the_loop == 0


@pytest.mark.slow
def test_a_search_in_a_batch_of_many_records_goes_in_slices(cold: Harness) -> None:
    cold.create_topic("many", max_message_bytes="4000000")
    some = [Record(n, n, b"key", bytes(60), []) for n in range(12_000)]
    cold.ask(produce_request("many", bytes(build_batch(some, compression=4))), 9)
    request = list_offsets_request(11_999)
    request.topics[0].name = "many"
    answer, lag = cold.run(loop_lag_during(cold.answer(request, 7, "tests")))
    assert told(answer) == [(0, 11_999, 11_999)]
    assert lag.within(), lag


@pytest.mark.slow
def test_evicted_files_do_not_stall_the_loop(cold: Harness) -> None:
    """With the real kernel and disk."""
    for name, request_of, version in REQUESTS:
        if name.startswith("fetch"):
            continue  # the harness reads their pieces of files on the loop
        forget(cold)
        answer, lag = cold.run(loop_lag_during(cold.answer(request_of(), version, "tests")))
        assert told(answer)[0][0] == 0
        assert lag.within(), (name, str(lag))
    forget(cold)
    data = cold.fetch(TOPIC, 1234)
    assert records_of(data)[0].offset <= 1234
    assert value(1234) in [record.value for record in records_of(data)]


@pytest.mark.slow
def test_a_consumer_of_evicted_files_holds_up_nobody_else(cold: Harness) -> None:
    """The whole way, from a socket to a socket: the places are found, the pieces sent, everything off the disk."""
    server = cold.run(cold.loop.create_server(lambda: Connection(cold.broker, "PLAINTEXT"), "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]

    def consume() -> int:
        offset = 0
        with RawConnection(port) as wire:
            while offset < RECORDS:
                answer = wire.ask(fetch_request([(TOPIC, 0, offset)], max_wait_ms=100, partition_max_bytes=150_000), 12)
                (data,) = answer.responses[0].partitions
                assert data.error_code == 0
                for batch in iter_batches(data.records):
                    assert batch.base_offset == offset
                    assert batch.crc_ok()
                    offset = batch.next_offset
        return offset

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as a broker does: the consumer is a thread of this very process
    try:
        forget(cold)
        offset, lag = cold.run(loop_lag_during(cold.loop.run_in_executor(None, consume)))
        assert offset == RECORDS
    finally:
        sys.setswitchinterval(interval)
        server.close()
        cold.broker.connections.close_all()
    assert lag.within(), lag
