"""Topics that another broker, the controller, creates: its answers, its moves, and the metadata here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gregor.broker.cluster import topic_forwarder
from gregor.broker.cluster.topic_forwarder import TopicForwarder
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, UpdateMetadataRequest
from gregor.protocol.turns import Gate, run_all
from gregor.replication.channels import controller_channel
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import MetadataImage


class FakePeer:
    """Brokers by port; each gives the answers of the test."""

    answers: dict[int, list[ErrorCode | PeerError]]
    asked: list[tuple[int, CreateTopicsRequest]]

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, security: object = None
    ) -> None:
        self.address = host, port

    async def send(self, request: CreateTopicsRequest, *, newest: int | None = None) -> CreateTopicsResponse:
        self.asked.append((self.address[1], request))
        answer = self.answers[self.address[1]].pop(0)
        await asyncio.sleep(0)
        if isinstance(answer, PeerError):
            raise answer
        result = CreateTopicsResponse.CreatableTopicResult(name=request.topics[0].name, error_code=answer)
        return CreateTopicsResponse(topics=[result])

    def close(self) -> None:
        pass


def told(image: MetadataImage, controller_id: int, leader: int | None = None) -> None:
    brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=id_,
            endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=id_, listener="PLAINTEXT")],
        )
        for id_ in (1, 2, 3)
    ]
    states = [] if leader is None else [UpdateMetadataRequest.UpdateMetadataPartitionState(leader=leader)]
    topics = [UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", partition_states=states)] if states else []
    run_all(image.apply(UpdateMetadataRequest(controller_id=controller_id, live_brokers=brokers, topic_states=topics)))


Test = Callable[[TopicForwarder, MetadataImage], Awaitable[None]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    def runner(test: Test) -> None:
        async def body() -> None:
            image = MetadataImage()
            peer: Any = FakePeer
            monkeypatch.setattr(controller_channel, "Peer", peer)
            monkeypatch.setattr(controller_channel, "RETRY_DELAY_S", 0)
            FakePeer.answers, FakePeer.asked = {2: [], 3: []}, []
            await test(TopicForwarder(BrokerConfig({"broker.id": "1"}), image, LoopGate()), image)

        asyncio.run(body())

    return runner


def test_it_ends_when_the_leaders_are_known_here(run: Callable[[Test], None]) -> None:
    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, 2)
        FakePeer.answers[2] = [ErrorCode.NONE]
        asking = asyncio.create_task(requests.create_topic("t", 1, 3, {"a": "b"}))
        while not (FakePeer.asked or asking.done()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        told(image, 2, leader=-1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        told(image, 2, leader=3)
        await asking
        (topic,) = FakePeer.asked[0][1].topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 1, 3)
        assert [(config.name, config.value) for config in topic.configs] == [("a", "b")]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT])
def test_a_topic_that_is_there_or_on_its_way(run: Callable[[Test], None], code: ErrorCode) -> None:
    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, 2, leader=1)
        FakePeer.answers[2] = [code]
        created = await requests.create_topic("t", 1, 1, {})
        assert created is (code is not ErrorCode.TOPIC_ALREADY_EXISTS)

    run(test)


def test_a_controller_that_moves_is_found(run: Callable[[Test], None]) -> None:
    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, 2, leader=1)
        FakePeer.answers = {2: [PeerError("refused"), ErrorCode.NOT_CONTROLLER], 3: [ErrorCode.NONE]}
        asking = asyncio.create_task(requests.create_topic("t", 1, 1, {}))
        while len(FakePeer.asked) < 2 and not asking.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        told(image, 3)
        await asking
        assert [port for port, _ in FakePeer.asked] == [2, 2, 3]

    run(test)


def test_the_controllers_refusal_is_raised(run: Callable[[Test], None]) -> None:
    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, 2)
        FakePeer.answers[2] = [ErrorCode.INVALID_REPLICATION_FACTOR]
        with pytest.raises(KafkaError) as refused:
            await requests.create_topic("t", 1, 9, {})
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR

    run(test)


@pytest.mark.parametrize("controller", [-1, 1])
def test_no_controller(run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch, controller: int) -> None:
    monkeypatch.setattr(controller_channel, "RETRIED_FOR_S", 0)

    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, controller)
        with pytest.raises(KafkaError, match="not known which broker") as refused:
            await requests.create_topic("t", 1, 1, {})
        assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE

    run(test)


def test_calls_that_wait_while_no_controller_is_reached_end_with_the_first(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_channel, "RETRIED_FOR_S", -1)  # one attempt

    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, 2, leader=1)
        for _ in range(2):
            FakePeer.answers[2] = [PeerError("refused")] * 10
            creations = [requests.create_topic("t", 1, 1, {}) for _ in range(10)]
            refusals = await asyncio.gather(*creations, return_exceptions=True)
            assert len(FakePeer.answers[2]) == 9
            assert [str(refusal) for refusal in refusals] == [str(refusals[0])] * 10
            assert isinstance(refusals[9], KafkaError)
            assert refusals[9].code is ErrorCode.LEADER_NOT_AVAILABLE
        # A later call is a new attempt.
        FakePeer.answers[2] = [ErrorCode.NONE]
        assert await requests.create_topic("t", 1, 1, {})

    run(test)


def test_leaders_that_stay_unknown(run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_forwarder, "KNOWN_WITHIN_S", 0.001)

    async def test(requests: TopicForwarder, image: MetadataImage) -> None:
        told(image, 2)
        FakePeer.answers[2] = [ErrorCode.NONE]
        with pytest.raises(KafkaError) as refused:
            await requests.create_topic("t", 1, 1, {})
        assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
        told(image, 2, leader=1)  # no waiter is left

    run(test)
