"""The times of first unread records: read from own logs and from other leaders, or missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gregor.broker.cluster import peer_queue
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.metrics.lag import first_unread
from gregor.broker.metrics.lag.first_unread import NO_RECORD, PARTITION_BYTES, FirstUnread, Position
from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.records.batch import (
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    build_batch,
)
from gregor.replication.channels.peer import PeerError
from gregor.storage.fs.cached_reads import NotCached
from tests.broker.harness import batch, produce_request
from tests.broker.metrics.lag.test_groups import create
from tests.broker.metrics.lag.test_log_ends import image_of
from tests.broker.metrics.scraped import series_of
from tests.broker.metrics.test_listener import client_of, with_server

OWN, OTHER = 1, 2
LIMIT_S = 60
END = 100


def stored(base_offset: int, time_ms: int, *, count: int = 2, control: bool = False, size_bytes: int = 1) -> bytes:
    """A batch as a log has it."""
    records: list[tuple[bytes | None, bytes | None]] = [(None, b"v" * size_bytes)] * count
    return bytes(build_batch(records, timestamp_ms=time_ms, base_offset=base_offset, control=control))


class FakePeer:
    """The other broker: it has batches by partition, in order, and sends the first that does not end before an offset
    as Kafka does: within the limit, but the first of a response whole."""

    logs: dict[int, list[tuple[int, bytes]]]
    """By partition: last offset and bytes of each batch."""
    starts: dict[int, int]
    fetched: list[list[tuple[int, int]]]
    """Partition and offset of each fetch."""
    unreachable = False
    answering: asyncio.Event | None = None
    """If there is one, fetches wait for it."""

    def __init__(self, host: str, port: int, *_others: object, security: object = None) -> None:
        self.address = host, port

    async def send(self, request: Any, newest: int | None = None) -> Any:
        if self.unreachable:
            raise PeerError("nothing listens there")
        if self.answering is not None:
            await self.answering.wait()
        if isinstance(request, ListOffsetsRequest):
            (listed,) = request.topics
            (wanted,) = listed.partitions
            assert wanted.timestamp == -2
            start = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index, offset=self.starts[wanted.partition_index]
            )
            return ListOffsetsResponse(
                topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name=listed.name, partitions=[start])]
            )
        assert isinstance(request, FetchRequest) and newest == 12, "the request names topics"
        assert request.replica_id == -2, "its bytes would count as those of consumers"
        fetched: FetchRequest = request
        (topic,) = fetched.topics
        self.fetched.append([(part.partition, part.fetch_offset) for part in topic.partitions])
        parts: list[FetchResponse.PartitionData] = []
        for part in topic.partitions:
            data = FetchResponse.PartitionData(partition_index=part.partition, high_watermark=END, records=b"")
            if part.fetch_offset < self.starts.get(part.partition, 0):
                data.error_code, data.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, -1
            else:
                found = next((b for last, b in self.logs[part.partition] if last >= part.fetch_offset), b"")
                if len(found) <= part.partition_max_bytes or not any(other.records for other in parts):
                    data.records = found
            parts.append(data)
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=parts)])

    def close(self) -> None:
        pass


class Subject(NamedTuple):
    unread: FirstUnread

    async def times(self, *places: tuple[int, int]) -> list[int | None]:
        """Refresh, and return the times at these partitions and offsets."""
        positions = [Position("t", *place) for place in places]
        await self.unread.refresh(positions)
        return [self.unread.time_ms(position) for position in positions]


Run = Callable[[Callable[[Subject], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    FakePeer.logs, FakePeer.starts, FakePeer.fetched, FakePeer.unreachable = {}, {}, [], False
    monkeypatch.setattr(FakePeer, "answering", None)
    monkeypatch.setattr(peer_queue, "Peer", FakePeer)
    monkeypatch.setattr(first_unread, "MAX_WAIT_S", LIMIT_S)

    def runner(test: Callable[[Subject], Coroutine[Any, Any, None]]) -> None:
        async def body() -> None:
            image = image_of(dict.fromkeys(range(5), OTHER), {OWN: 11, OTHER: 12})
            replicas: Any = SimpleNamespace(broker_id=OWN, get=lambda *_key: None)
            config = BrokerConfig({"broker.id": str(OWN)})
            unread = FirstUnread(config, replicas, image, Background(LoopGate()))
            await test(Subject(unread))
            unread.close()

        asyncio.run(asyncio.wait_for(body(), LIMIT_S))

    return runner


def test_the_time_is_that_of_the_batch_at_the_position(run: Run) -> None:
    FakePeer.logs = {0: [(1, stored(0, 1000)), (3, stored(2, 2000))], 1: [(9, stored(8, 3000))]}

    async def test(subject: Subject) -> None:
        # The second record of a batch has the batch's time, and a position in a gap that of the next batch.
        assert await subject.times((0, 0), (0, 2), (0, 3), (1, 5)) == [1000, 2000, 2000, 3000]

    run(test)


def test_each_refresh_reads_what_is_there_now(run: Run) -> None:
    FakePeer.logs = {0: [(1, stored(0, 1000)), (3, stored(2, 2000))]}

    async def test(subject: Subject) -> None:
        assert await subject.times((0, 0)) == [1000]
        FakePeer.logs[0][0] = 1, stored(0, 5000)
        assert await subject.times((0, 0)) == [5000], "another record is there"
        assert await subject.times((0, 2)) == [2000]
        assert subject.unread.time_ms(Position("t", 0, 0)) is None, "forgotten: the refresh did not concern it"

    run(test)


def test_a_late_answer_is_that_of_the_next_refresh(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    FakePeer.logs = {0: [(1, stored(0, 1000))]}

    async def test(subject: Subject) -> None:
        FakePeer.answering = asyncio.Event()
        monkeypatch.setattr(first_unread, "MAX_WAIT_S", 0)
        assert await subject.times((0, 0)) == [None]
        monkeypatch.setattr(first_unread, "MAX_WAIT_S", LIMIT_S)
        FakePeer.answering.set()
        for _ in range(20):  # the answer comes between the two
            await asyncio.sleep(0)
        assert await subject.times((0, 0)) == [1000]
        assert FakePeer.fetched == [[(0, 0)]]
        assert await subject.times((0, 0)) == [1000]
        assert len(FakePeer.fetched) == 2, "it counts once"

    run(test)


def test_a_batch_that_does_not_fit_is_fetched_alone(run: Run) -> None:
    large = PARTITION_BYTES + 1
    FakePeer.logs = {
        0: [(1, stored(0, 1000))],
        1: [(1, stored(0, 2000, size_bytes=large))],
        2: [(1, stored(0, 3000, size_bytes=large))],
    }

    async def test(subject: Subject) -> None:
        assert await subject.times((0, 0), (1, 0), (2, 0)) == [1000, 2000, 3000]
        assert FakePeer.fetched[0] == [(0, 0), (1, 0), (2, 0)]
        assert sorted(FakePeer.fetched[1:]) == [[(1, 0)], [(2, 0)]]

    run(test)


def test_markers_of_transactions_are_skipped(run: Run) -> None:
    control = stored(2, 2000, count=1, control=True)
    last = stored(END - 1, 2000, count=1, control=True)
    FakePeer.logs = {0: [(1, stored(0, 1000)), (2, control), (4, stored(3, 3000))], 1: [(END - 1, last)]}

    async def test(subject: Subject) -> None:
        assert await subject.times((0, 2), (1, END - 1)) == [3000, NO_RECORD]
        FakePeer.logs[1] = [(END - 1, stored(END - 1, 4000, count=1))]
        assert await subject.times((1, END - 1)) == [4000], "that there is no record is not kept"

    run(test)


def test_the_log_start_counts_where_records_were_removed(run: Run) -> None:
    FakePeer.logs, FakePeer.starts = {0: [(11, stored(10, 4000))]}, {0: 10}

    async def test(subject: Subject) -> None:
        assert await subject.times((0, 3)) == [4000]

    run(test)


@pytest.mark.parametrize(("bit", "time_ms"), [(0, 1000), (TIMESTAMP_TYPE_BIT, 5000), (DELETE_HORIZON_BIT, 5000)])
def test_the_first_time_is_read_unless_the_field_has_another_meaning(run: Run, bit: int, time_ms: int) -> None:
    header = bytearray(stored(0, 1000))
    header[22] |= bit
    header[35:43] = (5000).to_bytes(8, "big")
    FakePeer.logs = {0: [(1, bytes(header))]}

    async def test(subject: Subject) -> None:
        assert await subject.times((0, 0)) == [time_ms]

    run(test)


def test_unreachable_leaders_and_old_formats_leave_it_missing(run: Run) -> None:
    old = bytearray(stored(0, 1000))
    old[16] = 1
    FakePeer.logs = {0: [(1, bytes(old))], 1: [(1, stored(0, 1000))]}

    async def test(subject: Subject) -> None:
        assert await subject.times((0, 0), (4, END)) == [None, NO_RECORD]
        FakePeer.unreachable = True
        assert await subject.times((1, 0)) == [None]
        FakePeer.unreachable = False
        assert await subject.times((1, 0)) == [1000]

    FakePeer.logs[4] = []
    run(test)


def test_a_broker_that_loses_the_leadership_between_two_reads_does_not_know_the_time() -> None:
    """The high watermark of a follower is behind: no record would seem to be unread."""

    file: Any = SimpleNamespace(path="a segment", fetcher=lambda *_range: lambda: None)

    class Own:
        log, is_leader = SimpleNamespace(log_start_offset=0), True

        def read(self, offset: int, _max_bytes: int, *, waits_for_disk: bool, leader_only: bool) -> Any:
            if leader_only and not self.is_leader:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.is_leader:
                self.is_leader = False
                raise NotCached(file, 1, 0)
            return SimpleNamespace(size_bytes=0, release=lambda: None)

    async def test() -> None:
        own = Own()
        replicas: Any = SimpleNamespace(broker_id=OWN, get=lambda *_key: own)
        image = image_of({0: OWN}, {OWN: 11})
        subject = Subject(FirstUnread(BrokerConfig({"broker.id": str(OWN)}), replicas, image, Background(LoopGate())))
        assert await subject.times((0, 5)) == [None]
        subject.unread.close()

    asyncio.run(asyncio.wait_for(test(), LIMIT_S))


@pytest.mark.slow
def test_own_logs_and_those_of_another_leader_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_unread, "MAX_WAIT_S", LIMIT_S)

    async def check(server: Server, url: str) -> None:
        client = await client_of(server)
        await create(client, "t", 2)
        for number in range(4):
            records = batch(b"a", b"b", timestamp_ms=1000 * (number + 1))
            await client.ask(produce_request("t", records, partition=1), 9)
        before = await series_of(url)
        own_id = server.broker.broker_id
        positions = [Position("t", 1, offset) for offset in (0, 3, 6, 8)]
        found = []
        for broker_id in (own_id, own_id + 1):
            image = image_of({1: own_id}, {own_id: server.info.listeners[0][2]})
            replicas = server.broker.replicas if broker_id == own_id else None
            known: Any = replicas or SimpleNamespace(broker_id=broker_id, get=lambda *_key: None)
            unread = FirstUnread(BrokerConfig({"broker.id": str(broker_id)}), known, image, Background(LoopGate()))
            await unread.refresh(positions)
            found.append([unread.time_ms(position) for position in positions])
            unread.close()
        assert found == [[1000, 2000, 4000, NO_RECORD]] * 2
        after = await series_of(url)
        for name in ("bytesout", "totalfetchrequests"):
            counter = f'kafka_server_brokertopicmetrics_{name}_total{{topic="t"}}'
            assert after[counter] == before[counter] == 0, "such a fetch is none of a consumer"
        client.writer.close()

    with_server(tmp_path, check)
