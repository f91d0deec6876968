"""Partitions of a transaction: verified and added by its coordinator, on this broker or on another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any

import pytest

from gregor.broker.cluster import peer_queue
from gregor.broker.cluster.transaction_verifier import PartitionVerifier
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, UpdateMetadataRequest
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate, run_all
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import MetadataImage

OWN, SECOND = 1, 2
IN, OUT = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Answers with the errors that the test sets, NONE for other partitions."""

    def __init__(self) -> None:
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.omitted: set[TopicPartition] = set()
        """Not in the answer to another broker."""
        self.error_of_all = ErrorCode.NONE
        self.checked: list[tuple[str, int, int, bool]] = []
        self.requests: list[AddPartitionsToTxnRequest] = []

    def partition_for(self, transactional_id: str) -> int:
        return 0

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Answer on the same broker."""
        outcome: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()
        self.checked.append((transactional_id, producer_id, producer_epoch, verify_only))
        outcome.complete({one: self.error_of_all or self.errors.get(one, ErrorCode.NONE) for one in partitions})
        return outcome

    def answer(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Answer another broker."""
        self.requests.append(request)
        self.checked += [
            (one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only) for one in request.transactions
        ]
        if self.error_of_all:
            return AddPartitionsToTxnResponse(error_code=self.error_of_all)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=self.errors.get(TopicPartition(topic.name, index), 0),
                                )
                                for index in topic.partitions
                                if TopicPartition(topic.name, index) not in self.omitted
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in request.transactions
            ]
        )


class FakePeer:
    """The other broker, which is the coordinator too."""

    coordinator: Coordinator
    versions: tuple[int, int] | None
    allowed: asyncio.Event
    reachable: bool

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, security: object = None
    ) -> None:
        self.address = host, port

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        await self.allowed.wait()
        if not self.reachable:
            raise PeerError("nothing listens there")
        return self.versions

    async def send(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return self.coordinator.answer(request)

    def close(self) -> None:
        pass


class World:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.here = Coordinator()
        self.background = Background(LoopGate())
        config = BrokerConfig({"broker.id": str(OWN)})
        self.verifier = PartitionVerifier(config, self.image, self.here, self.background)

    def led_by(self, leader: int) -> Coordinator:
        """Apply metadata in which this broker coordinates; return the coordinator."""
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_,
                endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=id_, listener="PLAINTEXT")],
            )
            for id_ in (OWN, SECOND)
        ]
        states = [UpdateMetadataRequest.UpdateMetadataPartitionState(leader=leader)]
        topics = [
            UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=TRANSACTION_STATE_TOPIC, partition_states=states)
        ]
        run_all(self.image.apply(UpdateMetadataRequest(live_brokers=brokers, topic_states=topics)))
        return self.here if leader == OWN else FakePeer.coordinator

    def begin(self, name: str = "id", *, verify_only: bool = True) -> Deferred[dict[TopicPartition, ErrorCode]]:
        return self.verifier.verify(name, 7, 1, [IN, OUT], verify_only)

    async def verify(self, *, verify_only: bool = True) -> dict[TopicPartition, ErrorCode]:
        async with asyncio.timeout(20):
            outcome = self.begin(verify_only=verify_only)
            return await outcome_of(outcome, asyncio.get_running_loop().create_future())


Test = Callable[[World], Awaitable[None]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Test], None]]:
    def runner(test: Test) -> None:
        async def body() -> None:
            peer: Any = FakePeer
            monkeypatch.setattr(peer_queue, "Peer", peer)
            FakePeer.coordinator, FakePeer.versions, FakePeer.reachable = Coordinator(), (0, 5), True
            FakePeer.allowed = asyncio.Event()
            FakePeer.allowed.set()
            world = World()
            try:
                await test(world)
            finally:
                world.verifier.close()
                await world.background.close()

        asyncio.run(body())

    yield runner


def both(code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return {IN: code, OUT: code}


@pytest.mark.parametrize("leader", [OWN, SECOND])
@pytest.mark.parametrize("verify_only", [True, False])
def test_each_partition_has_its_own_result(run: Callable[[Test], None], leader: int, verify_only: bool) -> None:
    async def test(world: World) -> None:
        coordinator = world.led_by(leader)
        coordinator.errors[OUT] = ErrorCode.INVALID_TXN_STATE
        assert await world.verify(verify_only=verify_only) == {IN: ErrorCode.NONE, OUT: ErrorCode.INVALID_TXN_STATE}
        assert coordinator.checked == [("id", 7, 1, verify_only)]

    run(test)


@pytest.mark.parametrize("leader", [OWN, SECOND])
def test_a_fenced_producer_gets_the_error_that_producers_know(run: Callable[[Test], None], leader: int) -> None:
    async def test(world: World) -> None:
        world.led_by(leader).errors = both(ErrorCode.PRODUCER_FENCED)
        assert await world.verify() == both(ErrorCode.INVALID_PRODUCER_EPOCH)

    run(test)


@pytest.mark.parametrize("leader", [OWN, SECOND])
def test_an_error_of_the_whole_request(run: Callable[[Test], None], leader: int) -> None:
    async def test(world: World) -> None:
        coordinator = world.led_by(leader)
        coordinator.error_of_all = ErrorCode.NOT_COORDINATOR
        assert await world.verify() == both(ErrorCode.NOT_COORDINATOR)
        coordinator.error_of_all = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await world.verify() == both(ErrorCode.INVALID_TXN_STATE)

    run(test)


@pytest.mark.parametrize("verify_only", [True, False])
def test_a_partition_that_the_answer_omits_is_not_verified(run: Callable[[Test], None], verify_only: bool) -> None:
    async def test(world: World) -> None:
        world.led_by(SECOND).omitted = {OUT}
        assert await world.verify(verify_only=verify_only) == {
            IN: ErrorCode.NONE,
            OUT: ErrorCode.UNKNOWN_SERVER_ERROR,
        }

    run(test)


def test_without_a_coordinator(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        assert await world.verify() == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        world.led_by(-1)
        assert await world.verify() == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    run(test)


def test_a_coordinator_that_cannot_be_reached(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.led_by(SECOND)
        FakePeer.reachable = False
        assert await world.verify() == both(ErrorCode.NETWORK_EXCEPTION)

    run(test)


@pytest.mark.parametrize("versions", [None, (0, 3)])
def test_an_old_coordinator_verifies_nothing(run: Callable[[Test], None], versions: tuple[int, int] | None) -> None:
    async def test(world: World) -> None:
        coordinator = world.led_by(SECOND)
        FakePeer.versions = versions
        assert await world.verify() == both(ErrorCode.NONE)
        assert await world.verify(verify_only=False) == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert coordinator.requests == []

    run(test)


def test_checks_that_wait_are_sent_together_but_those_of_one_id_one_after_the_other(
    run: Callable[[Test], None],
) -> None:
    async def test(world: World) -> None:
        coordinator = world.led_by(SECOND)
        FakePeer.allowed.clear()
        outcomes = [world.begin(name) for name in ("a", "b", "c", "b", "b")]
        await asyncio.sleep(0)
        FakePeer.allowed.set()
        for outcome in outcomes:
            async with asyncio.timeout(20):
                await outcome_of(outcome, asyncio.get_running_loop().create_future())
        sent = [[one.transactional_id for one in request.transactions] for request in coordinator.requests]
        assert sent == [["a", "b", "c"], ["b"], ["b"]]

    run(test)
