"""Ways between the controller and brokers: whom they reach, and when a connection ends."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.listeners import Listener
from gregor.protocol.channel_security import ChannelSecurity
from gregor.protocol.messages import AllocateProducerIdsRequest, UpdateMetadataRequest
from gregor.protocol.turns import Gate, run_all
from gregor.replication.channels import broker_channels as brokers_module
from gregor.replication.channels import controller_channel as link_module
from gregor.replication.channels.broker_channels import Brokers
from gregor.replication.channels.controller_channel import ControllerChannel
from gregor.replication.channels.peer import PeerError
from gregor.replication.controller.context import LiveBroker
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.store.nodes import BrokerRegistration
from tests.replication.fakes import on_loop


class FakePeer:
    """Answers with its address."""

    made: list[FakePeer]

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, security: ChannelSecurity
    ) -> None:
        self.address = host, port
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.closed = False
        self.asked: list[tuple[Any, int | None]] = []
        self.made.append(self)

    async def send(self, request: Any, *, newest: int | None = None) -> Any:
        assert not self.closed
        self.asked.append((request, newest))
        return self.address

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        return None

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakePeer]:
    FakePeer.made = []
    monkeypatch.setattr(brokers_module, "Peer", FakePeer)
    monkeypatch.setattr(link_module, "Peer", FakePeer)
    return FakePeer.made


class Local:
    async def handle(self, request: Any) -> Any:
        return "handled"


def live(*ports: int, epoch: int = 10) -> dict[int, LiveBroker]:
    """Brokers 1, 2, …, each with a listener for clients and one, on this port, for brokers."""
    return {
        id_: LiveBroker(
            BrokerRegistration(
                id_,
                (Listener("OUTSIDE", "far", 1, "PLAINTEXT"), Listener("INSIDE", "near", port, "PLAINTEXT")),
            ),
            epoch,
        )
        for id_, port in enumerate(ports, 1)
    }


def request(epoch: int = 10) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(broker_epoch=epoch)


@on_loop
async def test_the_listener_among_brokers_over_one_connection(made: list[FakePeer]) -> None:
    local: Any = Local()
    brokers = Brokers(1, local, lambda: live(91, 92), "INSIDE", 5000, LoopGate())
    assert await brokers.send(1, request()) == "handled"
    assert made == []
    for _ in range(2):
        answer: Any = await brokers.send(2, request())
        assert answer == ("near", 92)
    (peer,) = made
    assert (peer.client_id, peer.timeout_ms, len(peer.asked)) == ("controller-1", 5000, 2)


@on_loop
async def test_a_connection_lasts_as_long_as_the_registration(made: list[FakePeer]) -> None:
    local: Any = Local()
    alive = live(91, 92)
    brokers = Brokers(1, local, lambda: alive, "INSIDE", 5000, LoopGate())
    await brokers.send(2, request())
    # Another life, another address.
    alive = live(91, 92, epoch=11)
    await brokers.send(2, request(11))
    alive = live(91, 93, epoch=11)
    await brokers.send(2, request(11))
    assert [(peer.address[1], peer.closed) for peer in made] == [(92, True), (92, True), (93, False)]
    with pytest.raises(PeerError, match="not registered"):
        await brokers.send(2, request(10))
    brokers.close(2)
    brokers.close(2)
    assert made[-1].closed
    alive = {}
    with pytest.raises(PeerError, match="not registered"):
        await brokers.send(2, request(11))
    alive = {2: LiveBroker(BrokerRegistration(2, ()), 11)}
    with pytest.raises(PeerError, match="no listener INSIDE"):
        await brokers.send(2, request(11))


class Own:
    def __init__(self) -> None:
        self.is_active = False

    async def answer(self, request: Any, version: int) -> Any:
        return "own", version


def image(controller_id: int) -> MetadataImage:
    made = MetadataImage()
    run_all(
        made.apply(
            UpdateMetadataRequest(
                controller_id=controller_id,
                controller_epoch=1,
                live_brokers=[
                    UpdateMetadataRequest.UpdateMetadataBroker(
                        id=id_,
                        endpoints=[
                            UpdateMetadataRequest.UpdateMetadataEndpoint(listener="INSIDE", host="near", port=90 + id_)
                        ],
                    )
                    for id_ in (1, 2, 3)
                ],
            )
        )
    )
    return made


@on_loop
async def test_the_way_to_the_controller(made: list[FakePeer]) -> None:
    own: Any = Own()
    known = image(2)
    link = ControllerChannel(1, known, own, "INSIDE", 5000, LoopGate())
    asked = AllocateProducerIdsRequest()
    assert await link.offered(67) is None
    for _ in range(2):
        assert await link.send(asked, 0) == ("near", 92)
    (peer,) = made
    assert (peer.client_id, peer.asked) == ("broker-1", [(asked, 0), (asked, 0)])
    known.controller_id = 3
    assert await link.send(asked) == ("near", 93)
    assert [peer.closed for peer in made] == [True, False]
    # Elected here, though the image names another broker.
    own.is_active = True
    assert await link.send(asked) == ("own", AllocateProducerIdsRequest.MAX_VERSION)
    assert await link.offered(67) == (0, 0)
    assert await link.offered(56) == (0, 3)
    own.is_active = False
    for nobody in (1, -1, 9):
        known.controller_id = nobody
        with pytest.raises(PeerError, match="not known"):
            await link.send(asked)
    assert all(peer.closed for peer in made)
    link.close()
