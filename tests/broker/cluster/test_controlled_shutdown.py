"""Controlled shutdown from the broker's side: its requests, their number, and its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cluster import controlled_shutdown as handing_over
from gregor.broker.cluster.controlled_shutdown import controlled_shutdown
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse
from gregor.replication.channels.peer import PeerError

DONE = ControlledShutdownResponse()
LEFT = ControlledShutdownResponse(
    remaining_partitions=[ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=0)]
)


class Cluster:
    """Three brokers; this one, 1, leads t-0 until the controller answers that it has moved it."""

    def __init__(self, *answers: Any, **settings: Any) -> None:
        given = {"controlled.shutdown.retry.backoff.ms": 1}
        given.update({f"controlled.shutdown.{key.replace('_', '.')}": value for key, value in settings.items()})
        self.config = BrokerConfig({key: str(value) for key, value in given.items()})
        self.answers = list(answers)
        self.asked: list[ControlledShutdownRequest] = []
        self.image = SimpleNamespace(brokers={1: None, 2: None, 3: None}, controller_id=2)
        self.led = SimpleNamespace(is_leader=True, replicas=[1, 2])
        alone = SimpleNamespace(is_leader=True, replicas=[1])
        self.replicas = SimpleNamespace(broker_id=1, partitions={("t", 0): self.led, ("u", 0): alone})
        self.store = SimpleNamespace(is_connected=True)

    async def send(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is DONE:
            asyncio.get_running_loop().call_later(0.02, setattr, self.led, "is_leader", False)
        assert isinstance(answer, ControlledShutdownResponse)
        return answer

    def stop(self) -> bool:
        parts: list[Any] = [self, self.store, self.image, self.replicas]
        return asyncio.run(controlled_shutdown(self.config, *parts, 44))


def test_it_waits_until_it_leads_nothing() -> None:
    cluster = Cluster(DONE)
    assert cluster.stop()
    assert not cluster.led.is_leader
    assert [(one.broker_id, one.broker_epoch) for one in cluster.asked] == [(1, 44)]


def test_it_tries_again() -> None:
    cluster = Cluster(PeerError("gone"), LEFT, DONE)
    assert cluster.stop()
    assert len(cluster.asked) == 3


def test_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    refused = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    assert not Cluster(refused, LEFT, LEFT).stop()
    assert "although it still leads partitions" in caplog.text
    again = Cluster(LEFT, max_retries=1)
    assert not again.stop()
    assert len(again.asked) == 1


def test_another_controller_is_asked_at_once() -> None:
    cluster = Cluster(PeerError("gone"), DONE, retry_backoff_ms=1000_000)

    async def stop() -> bool:
        asyncio.get_running_loop().call_later(0.02, setattr, cluster.image, "controller_id", 3)
        parts: list[Any] = [cluster, cluster.store, cluster.image, cluster.replicas]
        return await asyncio.wait_for(controlled_shutdown(cluster.config, *parts, 44), 30)

    assert asyncio.run(stop())


def test_who_has_nobody_to_take_over_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_over, "_NOTIFIED_WITHIN_S", 0)
    last = Cluster()
    last.image.brokers = {1: None}
    assert not last.stop()
    assert not Cluster(enable="false").stop()
    # It sends only one request where nothing can be decided.
    cut_off = Cluster(LEFT)
    cut_off.store.is_connected = False
    assert not cut_off.stop()
    assert len(cut_off.asked) == 1
