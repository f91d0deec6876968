"""net.dispatch: handlers that begin before they are tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gregor.broker.net.dispatch import BYTES_PER_COUNT, MAX_IN_A_ROW
from gregor.broker.registry import Entry
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest, SyncGroupResponse
from tests.broker.net.test_connection import Harness, heartbeat, sync_group, turn


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def harness(loop: asyncio.AbstractEventLoop) -> Harness:
    return Harness(loop)


def test_eager_requests_are_answered_in_their_turn_but_not_too_many(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    async def answer(broker: Any, request: HeartbeatRequest, call: Any) -> HeartbeatResponse:
        return harness.heartbeat(broker, request, call)

    entry = Entry(ApiKey.HEARTBEAT, 0, 4, answer, eager=True)
    harness.broker.handlers[ApiKey.HEARTBEAT.value] = entry
    harness.send(heartbeat(1))
    assert harness.answers() == [1]
    harness.send(b"".join(heartbeat(number) for number in range(2, 101)))
    assert harness.answers() == list(range(1, MAX_IN_A_ROW))
    other_transport, other = harness.connect()
    harness.send(heartbeat(7), other)
    assert other_transport.written
    for _ in range(4):
        turn(loop)
    assert harness.answers() == list(range(1, 101))


def test_few_long_eager_requests_are_answered_in_the_same_turn(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    async def answer(broker: Any, request: HeartbeatRequest, call: Any) -> HeartbeatResponse:
        return harness.heartbeat(broker, request, call)

    harness.broker.handlers[ApiKey.HEARTBEAT.value] = Entry(ApiKey.HEARTBEAT, 0, 4, answer, eager=True)
    long_group = "g" * (MAX_IN_A_ROW // 4 * BYTES_PER_COUNT)
    harness.send(b"".join(heartbeat(number, long_group) for number in range(1, 11)))
    assert harness.answers() == [1, 2, 3]
    for _ in range(6):
        turn(loop)
    assert harness.answers() == list(range(1, 11))


def test_an_eager_request_that_waits_becomes_a_task(harness: Harness, loop: asyncio.AbstractEventLoop) -> None:
    async def wait(broker: Any, request: SyncGroupRequest, call: Any) -> SyncGroupResponse:
        return await harness.sync_group(broker, request, call)

    harness.broker.handlers[ApiKey.SYNC_GROUP.value] = Entry(ApiKey.SYNC_GROUP, 0, 5, wait, eager=True)
    harness.send(sync_group(1) + heartbeat(2))
    assert len(harness.parked) == 1
    assert harness.answers() == []
    harness.parked[0].set_result(SyncGroupResponse())
    turn(loop)
    assert harness.answers() == [1, 2]
    harness.send(sync_group(3))
    turn(loop)
    harness.connection.close()
    turn(loop)
    assert harness.parked[1].cancelled()


def test_an_eager_handler_that_fails_ends_the_connection(harness: Harness) -> None:
    async def fail(broker: Any, request: Any, call: Any) -> Any:
        raise RuntimeError("a bug")

    harness.broker.handlers[ApiKey.HEARTBEAT.value] = Entry(ApiKey.HEARTBEAT, 0, 4, fail, eager=True)
    harness.send(heartbeat(1))
    assert harness.transport.aborted
