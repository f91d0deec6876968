"""The ends of logs that other brokers lead: fetched for a scrape, kept for a second, or missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cluster import peer_queue
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.metrics.lag import log_ends
from gregor.broker.metrics.lag.log_ends import LogEnds
from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateTopicsRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    UpdateMetadataRequest,
)
from gregor.protocol.turns import run_all
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import MetadataImage
from tests.broker.harness import batch, produce_request
from tests.broker.metrics.test_listener import client_of, with_server

OWN, SECOND, THIRD = 1, 2, 3
LEADERS = {0: OWN, 1: SECOND, 2: SECOND, 3: THIRD}
KEYS = [("t", index) for index in LEADERS]
LIMIT_S = 60


class FakePeer:
    """Another broker. Its partitions end at `end`; those in `refused` are in error."""

    end = 0
    refused: set[int]
    silent: set[int]
    """Ports that never answer."""
    unreachable: set[int]
    sent: list[tuple[int, list[int]]]
    """Ports, and the partitions that they were sent requests about."""

    def __init__(self, host: str, port: int, *_others: object, security: object = None) -> None:
        self.address = host, port

    async def send(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        port = self.address[1]
        self.sent.append((port, [part.partition_index for part in topic.partitions]))
        assert request.replica_id == -1, "a follower's request would be answered with the log end offset"
        if port in self.unreachable:
            raise PeerError("nothing listens there")
        if port in self.silent:
            await asyncio.Event().wait()
        parts = [
            ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=part.partition_index,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if part.partition_index in self.refused else 0,
                offset=self.end + part.partition_index,
            )
            for part in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=parts)])

    def close(self) -> None:
        pass


def image_of(leaders: dict[int, int], ports: dict[int, int]) -> MetadataImage:
    brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=broker_id,
            endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="127.0.0.1", port=port, listener="PLAINTEXT")],
        )
        for broker_id, port in ports.items()
    ]
    states = [
        UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=leader)
        for index, leader in leaders.items()
    ]
    image = MetadataImage()
    topics = [UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", partition_states=states)]
    run_all(image.apply(UpdateMetadataRequest(live_brokers=brokers, topic_states=topics)))
    return image


def ends_of(image: MetadataImage, clock_s: Callable[[], float] = lambda: 0.0) -> LogEnds:
    """Broker OWN, which leads partition 0 of `t` with a high watermark of 50."""
    log = SimpleNamespace(offsets=SimpleNamespace(high_watermark=50))
    own = SimpleNamespace(leadership=SimpleNamespace(log=log))
    replicas: Any = SimpleNamespace(broker_id=OWN, partitions={KEYS[0]: own})
    config = BrokerConfig({"broker.id": str(OWN)})
    return LogEnds(config, replicas, image, Background(LoopGate()), clock_s=clock_s)


Test = Callable[[LogEnds, list[float]], Awaitable[None]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Test], None]]:
    FakePeer.end, FakePeer.refused, FakePeer.silent, FakePeer.unreachable, FakePeer.sent = 100, set(), set(), set(), []
    monkeypatch.setattr(peer_queue, "Peer", FakePeer)
    monkeypatch.setattr(log_ends, "MAX_WAIT_S", LIMIT_S)

    def runner(test: Test) -> None:
        async def body() -> None:
            now_s = [0.0]
            ends = ends_of(image_of(LEADERS, {OWN: 11, SECOND: 12, THIRD: 13}), lambda: now_s[0])
            await test(ends, now_s)
            ends.close()

        asyncio.run(asyncio.wait_for(body(), LIMIT_S))

    yield runner


def test_leaders_are_sent_requests_and_own_logs_are_read(run: Callable[[Test], None]) -> None:
    async def test(ends: LogEnds, now_s: list[float]) -> None:
        await ends.refresh([*KEYS, ("gone", 0)])
        assert ends.of(KEYS) == [50, 101, 102, 103]
        assert ends.of([("gone", 0)]) == [None]
        assert sorted((port, index) for port, indexes in FakePeer.sent for index in indexes) == [
            (12, 1),
            (12, 2),
            (13, 3),
        ]

    run(test)


def test_an_end_is_kept_for_a_second(run: Callable[[Test], None]) -> None:
    async def test(ends: LogEnds, now_s: list[float]) -> None:
        await ends.refresh(KEYS)
        FakePeer.end, now_s[0] = 200, 0.9
        await ends.refresh(KEYS)
        assert ends.of([("t", 3)]) == [103]
        now_s[0] = 1.1
        await ends.refresh(KEYS)
        assert ends.of([("t", 3)]) == [203]

    run(test)


def test_what_no_leader_answers_is_missing_and_not_old(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(ends: LogEnds, now_s: list[float]) -> None:
        await ends.refresh(KEYS)
        FakePeer.end, now_s[0] = 200, 2.0
        FakePeer.refused, FakePeer.unreachable = {2}, {13}
        await ends.refresh(KEYS)
        assert ends.of(KEYS) == [50, 201, None, None]
        FakePeer.refused, FakePeer.unreachable, now_s[0] = set(), set(), 4.0
        FakePeer.silent = {13}
        monkeypatch.setattr(log_ends, "MAX_WAIT_S", 0.05)
        for _ in range(2):
            await ends.refresh(KEYS)
        assert ends.of([("t", 3)]) == [None]
        assert FakePeer.sent.count((13, [3])) == 3, "a request that is under way is not repeated"

    run(test)


@pytest.mark.slow
def test_a_leader_shows_the_high_watermark_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "MAX_WAIT_S", LIMIT_S)

    async def check(server: Server, _url: str) -> None:
        client = await client_of(server)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic]), 5)
        await client.ask(produce_request("t", batch(b"a", b"b", b"c"), partition=1), 9)
        ends = ends_of(image_of({1: SECOND}, {SECOND: server.info.listeners[0][2]}))
        await ends.refresh([("t", 1)])
        assert ends.of([("t", 1)]) == [3]
        ends.close()
        client.writer.close()

    with_server(tmp_path, check)
