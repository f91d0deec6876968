"""The channel to the active controller: which broker it is, and the end of a request when another one becomes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from gregor.replication.channels import controller_channel
from gregor.replication.channels.controller_channel import ControllerChannel, retried
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import Endpoint, LiveBroker, MetadataImage
from tests.replication.fakes import on_loop


class OwnController:
    """Stands in for ControllerAnswers."""

    def __init__(self) -> None:
        self.is_active = False

    async def answer(self, request: Any, version: int) -> Any:
        return AllocateProducerIdsResponse(producer_id_start=version)


def told(image: MetadataImage, controller_id: int, ports: dict[int, int]) -> None:
    image.controller_id = controller_id
    image.brokers = {
        id_: LiveBroker(id_, {"PLAINTEXT": Endpoint("127.0.0.1", port, 0)}, None) for id_, port in ports.items()
    }
    for listener in image.on_update:
        listener()


def link_of(image: MetadataImage, own: OwnController) -> ControllerChannel:
    controller: Any = own
    return ControllerChannel(0, image, controller, "PLAINTEXT", 60_000, LoopGate())


@on_loop
async def test_a_controller_that_was_replaced_is_not_waited_for() -> None:
    image = MetadataImage()
    link = link_of(image, OwnController())
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        told(image, 1, {0: 1, 1: port})
        question = asyncio.ensure_future(link.send(AllocateProducerIdsRequest()))
        await asked.wait()
        told(image, 1, {0: 1, 1: port, 2: 3})
        await asyncio.sleep(0.01)
        assert not question.done()
        told(image, 2, {0: 1, 1: port, 2: 3})
        with pytest.raises(PeerError):
            await asyncio.wait_for(question, 30)


@on_loop
async def test_nobody_is_known() -> None:
    image, own = MetadataImage(), OwnController()
    link = link_of(image, own)
    for controller_id, ports in ((-1, {}), (1, {0: 1}), (0, {0: 1})):
        told(image, controller_id, ports)
        with pytest.raises(PeerError, match="not known"):
            await link.send(AllocateProducerIdsRequest())
    own.is_active = True
    assert (await link.send(AllocateProducerIdsRequest(), 0)).producer_id_start == 0
    assert await link.offered(AllocateProducerIdsRequest.API_KEY) == (0, 0)


@on_loop
async def test_a_channel_without_the_own_controller_sends_to_others_only() -> None:
    image = MetadataImage()
    channel = ControllerChannel(0, image, None, "PLAINTEXT", 60_000, LoopGate())
    told(image, 0, {0: 1})
    with pytest.raises(PeerError, match="not known"):
        await channel.send(AllocateProducerIdsRequest())
    with pytest.raises(PeerError, match="not known"):
        await channel.offered(AllocateProducerIdsRequest.API_KEY)


@on_loop
async def test_attempts_are_repeated_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "RETRY_DELAY_S", 0)
    failures = [PeerError("first"), PeerError("second")]

    async def attempt() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    assert await retried(attempt) == "done"
    assert not failures


@on_loop
async def test_the_last_failure_is_raised_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "RETRIED_FOR_S", -1)

    async def attempt() -> str:
        raise PeerError("nothing")

    with pytest.raises(PeerError, match="nothing"):
        await retried(attempt)


@on_loop
async def test_other_failures_are_not_repeated() -> None:
    async def attempt() -> str:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await retried(attempt)
