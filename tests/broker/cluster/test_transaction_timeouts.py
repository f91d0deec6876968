"""Timeouts of transactions: known to the coordinator of this broker, or to those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from gregor.broker.cluster import peer_queue
from gregor.broker.cluster.transaction_timeouts import TransactionTimeouts
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    UpdateMetadataRequest,
)
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC
from gregor.protocol.turns import Gate, run_all
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import MetadataImage

OWN, SECOND, THIRD = 1, 2, 3


class Coordinator:
    """Knows the timeouts that the test sets, by producer id; the transactional id of 7 is `id-7`."""

    def __init__(self) -> None:
        self.timeouts_ms: dict[int, int] = {}
        self.denied: set[str] = set()
        self.searched: list[list[int]] = []

    async def list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        self.searched.append(request.producer_id_filters)
        assert not request.state_filters and request.duration_filter == -1 and not request.transactional_id_pattern
        listed = [
            ListTransactionsResponse.TransactionState(transactional_id=f"id-{one}", producer_id=one)
            for one in self.timeouts_ms
            if one in request.producer_id_filters
        ]
        return ListTransactionsResponse(transaction_states=listed)

    async def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(transaction_states=[self._state(one) for one in request.transactional_ids])

    def _state(self, name: str) -> DescribeTransactionsResponse.TransactionState:
        if name in self.denied:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return DescribeTransactionsResponse.TransactionState(transactional_id=name, error_code=error)
        producer_id = int(name.removeprefix("id-"))
        return DescribeTransactionsResponse.TransactionState(
            transactional_id=name,
            producer_id=producer_id,
            transaction_timeout_ms=self.timeouts_ms[producer_id],
        )


class FakePeer:
    """Another broker; its port is its id."""

    coordinators: dict[int, Coordinator]
    unreachable: set[int]

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, security: object = None
    ) -> None:
        self.address = host, port

    async def send(self, request: Any) -> Any:
        port = self.address[1]
        if port in self.unreachable:
            raise PeerError("nothing listens there")
        coordinator = self.coordinators[port]
        if isinstance(request, ListTransactionsRequest):
            return await coordinator.list(request, ListTransactionsRequest.MIN_VERSION)
        return await coordinator.describe(request)

    def close(self) -> None:
        pass


class World:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.here = Coordinator()
        self.background = Background(LoopGate())
        config = BrokerConfig({"broker.id": str(OWN)})
        self.timeouts = TransactionTimeouts(config, self.image, self.here, self.background)

    def led_by(self, *leaders: int) -> None:
        """Apply metadata in which these lead the partitions of the transaction log."""
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_,
                endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=id_, listener="PLAINTEXT")],
            )
            for id_ in (OWN, SECOND, THIRD)
        ]
        states = [
            UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=leader)
            for index, leader in enumerate(leaders)
        ]
        topics = [
            UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=TRANSACTION_STATE_TOPIC, partition_states=states)
        ]
        run_all(self.image.apply(UpdateMetadataRequest(live_brokers=brokers, topic_states=topics)))

    async def of(self, *producer_ids: int) -> dict[int, int]:
        async with asyncio.timeout(20):
            return await self.timeouts.of(producer_ids)


Test = Callable[[World], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    def runner(test: Test) -> None:
        async def body() -> None:
            peer: Any = FakePeer
            monkeypatch.setattr(peer_queue, "Peer", peer)
            FakePeer.coordinators, FakePeer.unreachable = {id_: Coordinator() for id_ in (SECOND, THIRD)}, set()
            world = World()
            try:
                await test(world)
            finally:
                world.timeouts.close()
                await world.background.close()

        asyncio.run(body())

    yield runner


def test_coordinator_of_this_broker_comes_first(run: Run) -> None:
    async def test(world: World) -> None:
        world.led_by(OWN, SECOND)
        world.here.timeouts_ms = {7: 60_000, 9: 1}
        assert await world.of(7) == {7: 60_000}
        assert FakePeer.coordinators[SECOND].searched == []

    run(test)


def test_other_coordinators_know_the_rest(run: Run) -> None:
    async def test(world: World) -> None:
        world.led_by(OWN, SECOND, THIRD, SECOND)
        world.here.timeouts_ms = {7: 60_000}
        FakePeer.coordinators[SECOND].timeouts_ms = {8: 5_000}
        FakePeer.coordinators[THIRD].timeouts_ms = {9: 6_000}
        assert await world.of(7, 8, 9, 10) == {7: 60_000, 8: 5_000, 9: 6_000}
        assert [FakePeer.coordinators[id_].searched for id_ in (SECOND, THIRD)] == [[[8, 9, 10]], [[8, 9, 10]]]

    run(test)


def test_broker_that_coordinates_nothing_is_not_searched(run: Run) -> None:
    async def test(world: World) -> None:
        world.led_by(OWN, SECOND, -1)
        assert await world.of(7) == {}
        assert FakePeer.coordinators[THIRD].searched == []

    run(test)


def test_without_a_transaction_log(run: Run) -> None:
    async def test(world: World) -> None:
        assert await world.of(7) == {}

    run(test)


def test_coordinator_that_is_not_reached_or_denies_knows_none(run: Run) -> None:
    async def test(world: World) -> None:
        world.led_by(SECOND, THIRD)
        FakePeer.coordinators[SECOND].timeouts_ms = {8: 5_000}
        FakePeer.coordinators[THIRD].timeouts_ms = {9: 6_000, 10: 7_000}
        FakePeer.coordinators[THIRD].denied = {"id-9"}
        FakePeer.unreachable = {SECOND}
        assert await world.of(8, 9, 10) == {10: 7_000}

    run(test)
