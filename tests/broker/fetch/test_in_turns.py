"""Fetches of many partitions: the response is that of a fetch of few, and others get their turn in between."""

from __future__ import annotations

import asyncio

import pytest

from gregor.broker.fetch import watched_partitions
from gregor.broker.fetch.consumer import FetchRead
from gregor.broker.handlers import k01_fetch
from gregor.broker.jobs import turns
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.protocol.turns import ITEMS_PER_STEP
from tests.broker.harness import Harness, bytes_of, fetch_request, records_of
from tests.support.loop_clock import standing_clock

COUNT = 2 * ITEMS_PER_STEP + 2


def request_of(topic: str, **fields: int) -> FetchRequest:
    return fetch_request([(topic, index, 0) for index in range(COUNT)], **fields)


def sizes(response: FetchResponse) -> dict[int, int]:
    """Bytes by partition, of those that have records."""
    (found,) = response.responses
    return {data.partition_index: len(bytes_of(data)) for data in found.partitions if data.records}


@pytest.fixture
def many(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of partitions that are many in these tests."""
    monkeypatch.setattr(k01_fetch, "MANY_PARTITIONS", COUNT - 1)
    harness.create_topic(topic, partitions=COUNT)
    return topic


@pytest.mark.parametrize("max_bytes", [1, 3300, 1 << 20])
def test_limits_are_those_of_the_whole_request(
    harness: Harness, many: str, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    for index in (1, 2, ITEMS_PER_STEP + 1, COUNT - 1):
        harness.produce(many, bytes(1000), partition=index)
    found = sizes(harness.ask(request_of(many, max_bytes=max_bytes), 12))
    monkeypatch.setattr(k01_fetch, "MANY_PARTITIONS", COUNT)
    assert found == sizes(harness.ask(request_of(many, max_bytes=max_bytes), 12))
    assert len(found) == {1: 1, 3300: 3, 1 << 20: 4}[max_bytes]


def test_others_get_their_turn(harness: Harness, many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)  # time is up after each step

    async def turns_taken() -> int:
        taken = 0
        fetched = asyncio.ensure_future(harness.answer(request_of(many, max_wait_ms=0), 12, "tests"))
        while not fetched.done():
            taken += 1
            await asyncio.sleep(0)
        assert sizes(fetched.result()) == {}
        return taken

    assert harness.run(turns_taken()) > COUNT // ITEMS_PER_STEP


def test_each_partition_counts_once_however_often_it_is_read(harness: Harness, many: str) -> None:
    partition = harness.broker.replicas.get(many, 0)
    assert partition is not None
    before = partition.traffic.fetch_requests
    poll = harness.begin(request_of(many, max_wait_ms=10_000, min_bytes=1000), 12)
    while not poll.done():
        harness.produce(many, bytes(100), partition=COUNT - 1)
        harness.turn()
    assert partition.traffic.fetch_requests == before + COUNT


@pytest.mark.parametrize("index", [0, COUNT - 1])
def test_records_that_come_later_end_the_wait(harness: Harness, many: str, index: int) -> None:
    poll = harness.begin(request_of(many, max_wait_ms=10_000), 12)
    assert not poll.done()
    harness.produce(many, b"news", partition=index)
    assert sizes(harness.run(poll)).keys() == {index}


def test_records_that_come_while_others_are_read_end_the_wait(
    harness: Harness, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    partition = harness.broker.replicas.get(many, COUNT - 1)
    assert partition is not None
    poll = harness.begin(request_of(many, max_wait_ms=10_000), 12, turns=0)
    harness.until(lambda: partition.delayed.active)
    harness.turn(2)  # the first step is read
    harness.produce(many, b"news", partition=0)
    assert sizes(harness.run(poll)).keys() == {0}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an item whenever the partitions are read, from the first one on."""
    begun: list[int] = []
    collect = FetchRead.collect

    def counted(read: FetchRead, begin: int = 0, end: int | None = None) -> None:
        begun.extend([] if begin else [1])
        collect(read, begin, end)

    monkeypatch.setattr(FetchRead, "collect", counted)
    return begun


def test_an_append_that_is_not_committed_causes_no_read(harness: Harness, many: str, looks: list[int]) -> None:
    harness.add_follower(many, COUNT - 1)
    poll = harness.begin(request_of(many, max_wait_ms=10_000), 12)
    before = len(looks)
    harness.produce(many, b"news", partition=COUNT - 1)
    harness.turn(10)
    assert len(looks) == before
    poll.cancel()
    harness.turn()


def test_it_rests_between_two_reads(
    harness: Harness, many: str, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_partitions, "REST_PER_PARTITION_S", 3600)
    monkeypatch.setattr(watched_partitions, "MAX_REST_S", 3600)
    with standing_clock(harness.loop):
        poll = harness.begin(request_of(many, max_wait_ms=20, min_bytes=100_000), 12)
        for _ in range(5):
            harness.produce(many, b"little")
            harness.turn(10)
        assert len(looks) == 2
    assert sizes(harness.run(poll)).keys() == {0}


def test_the_wait_ends_with_its_time(harness: Harness, many: str) -> None:
    harness.produce(many, b"little")
    found = harness.run(harness.begin(request_of(many, max_wait_ms=10, min_bytes=100_000), 12))
    (data, *_) = found.responses[0].partitions
    assert len(records_of(data)) == 1


def test_a_client_that_leaves_ends_the_wait(harness: Harness, many: str) -> None:
    partition = harness.broker.replicas.get(many, 0)
    assert partition is not None
    poll = harness.begin(request_of(many, max_wait_ms=10_000), 12)
    assert partition.delayed.active
    poll.cancel()
    harness.turn()
    assert not partition.delayed.active
