"""net.dispatch: handlers that begin before they are tasks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gregor.broker.net.request_turns import BYTES_PER_COUNT, MAX_IN_A_TURN
from gregor.broker.registry import Entry
from gregor.broker.request_log.log import RequestLog
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.broker.net.test_connection import Harness, frame, harness, heartbeat, loop, sync_group, turn

__all__ = ["harness", "loop"]  # fixtures


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
    assert harness.answers() == list(range(1, MAX_IN_A_TURN))
    other_transport, other = harness.connect()
    harness.send(frame(ApiVersionsRequest(), 4, 7), other)
    before = bytes(other_transport.written)
    assert before
    harness.send(heartbeat(8), other)
    assert other_transport.written == before
    for _ in range(8):
        turn(loop)
    assert harness.answers() == list(range(1, 101))
    assert len(other_transport.written) > len(before)


def test_a_new_turn_of_the_loop_admits_as_many_requests_again(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    harness.broker.handlers[ApiKey.HEARTBEAT.value] = Entry(ApiKey.HEARTBEAT, 0, 4, harness.heartbeat, eager=True)
    for first in (1, MAX_IN_A_TURN):
        numbers = range(first, first + MAX_IN_A_TURN - 1)
        harness.send(b"".join(heartbeat(number) for number in numbers))
        assert harness.answers() == list(range(1, numbers[-1] + 1))
        turn(loop)


def test_requests_of_many_connections_are_served_in_the_order_of_their_arrival(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    harness.broker.handlers[ApiKey.HEARTBEAT.value] = Entry(ApiKey.HEARTBEAT, 0, 4, harness.heartbeat, eager=True)
    many = [harness.connect() for _ in range(3 * MAX_IN_A_TURN)]
    names = [f"g{number}" for number in range(len(many))]
    for (_, connection), name in zip(many, names, strict=True):
        harness.send(heartbeat(1, name), connection)
    assert harness.seen == names[: MAX_IN_A_TURN - 1]
    closed_transport, closed = many[-1]
    closed.close()
    for _ in range(2 * len(many)):
        turn(loop)
    assert harness.seen == names[:-1]  # the request of a connection that ended is not begun
    assert all(transport.written for transport, _ in many[:-1])
    assert not closed_transport.written


def test_a_postponed_request_that_waits_or_fails_is_like_any_other(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    async def wait(broker: Any, request: SyncGroupRequest, call: Any) -> SyncGroupResponse:
        return await harness.sync_group(broker, request, call)

    async def fail(broker: Any, request: Any, call: Any) -> Any:
        raise RuntimeError("a bug")

    entries = [
        Entry(ApiKey.HEARTBEAT, 0, 4, harness.heartbeat, eager=True),
        Entry(ApiKey.SYNC_GROUP, 0, 5, wait, eager=True),
        Entry(ApiKey.LEAVE_GROUP, 0, 5, fail, eager=True),
    ]
    harness.broker.handlers.update({entry.key.value: entry for entry in entries})
    harness.send(b"".join(heartbeat(number) for number in range(1, MAX_IN_A_TURN)))
    failing_transport, failing = harness.connect()
    broken_transport, broken = harness.connect()
    harness.send(sync_group(MAX_IN_A_TURN) + heartbeat(MAX_IN_A_TURN + 1))
    harness.send(frame(LeaveGroupRequest(group_id="g"), 5, 1), failing)
    harness.send(heartbeat(1)[:-1] + b"\xff", broken)
    assert not harness.parked
    for _ in range(8):
        turn(loop)
    assert failing_transport.aborted
    assert broken_transport.aborted
    assert harness.answers() == list(range(1, MAX_IN_A_TURN))
    harness.parked[0].set_result(SyncGroupResponse())
    turn(loop)
    assert harness.answers() == list(range(1, MAX_IN_A_TURN + 2))


def test_a_change_is_made_although_its_client_has_left(harness: Harness, loop: asyncio.AbstractEventLoop) -> None:
    """A consumer that closes sends LeaveGroup, and its connection may end before the turn of the request."""
    left: list[str] = []

    async def leave(broker: Any, request: LeaveGroupRequest, call: Any) -> LeaveGroupResponse:
        await asyncio.sleep(0)
        left.append(request.group_id)
        return LeaveGroupResponse()

    entries = [
        Entry(ApiKey.HEARTBEAT, 0, 4, harness.heartbeat, eager=True),
        Entry(ApiKey.LEAVE_GROUP, 0, 5, leave, changes=True, eager=True),
    ]
    harness.broker.handlers.update({entry.key.value: entry for entry in entries})
    harness.send(b"".join(heartbeat(number) for number in range(1, MAX_IN_A_TURN)))
    transport, leaving = harness.connect()
    harness.send(frame(LeaveGroupRequest(group_id="g"), 5, 1), leaving)
    leaving.close()
    assert left == []
    for _ in range(8):
        turn(loop)
    assert left == ["g"]
    assert not transport.written


def test_a_repeated_request_is_decoded_once(harness: Harness) -> None:
    requests: list[HeartbeatRequest] = []

    def answer(broker: Any, request: HeartbeatRequest, call: Any) -> HeartbeatResponse:
        assert call.client_id == "me"
        requests.append(request)
        return harness.heartbeat(broker, request, call)

    entry = Entry(ApiKey.HEARTBEAT, 0, 4, answer, eager=True, repeats=True)
    harness.broker.handlers[ApiKey.HEARTBEAT.value] = entry
    for number, group in enumerate(("g", "g", "h", "g"), 1):
        harness.send(heartbeat(number, group))
    assert harness.answers() == [1, 2, 3, 4]
    assert harness.seen == ["g", "g", "h", "g"]
    assert requests[0] is requests[1]
    assert requests[0] is not requests[3]


def renewable(harness: Harness, renews: list[bool]) -> None:
    """Let heartbeats have a renewal that returns the last of `renews`."""

    def make(broker: Any, request: HeartbeatRequest, call: Any, response: HeartbeatResponse) -> Any:
        assert response.throttle_time_ms == len(request.group_id)
        return lambda: renews[-1]

    harness.broker.handlers[ApiKey.HEARTBEAT.value] = Entry(
        ApiKey.HEARTBEAT, 0, 4, harness.heartbeat, eager=True, repeats=True, renewal=make
    )


def test_a_renewed_request_has_the_bytes_of_the_general_path(loop: asyncio.AbstractEventLoop) -> None:
    harness, general = Harness(loop), Harness(loop)
    renews = [True]
    renewable(harness, renews)
    for number in range(1, 7):
        if number == 5:
            renews.append(False)
        harness.send(heartbeat(number))
        general.send(heartbeat(number))
    # The first is served by the handler; from the fifth on none is renewed, and each is served as a repeated one.
    assert harness.seen == ["g"] * 3
    assert bytes(harness.transport.written) == bytes(general.transport.written)


def test_renewed_requests_keep_their_order_behind_one_that_waits(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop)
    renewable(harness, [True])
    for number in (1, 2, 3):
        harness.send(heartbeat(number))
    harness.send(sync_group(4) + heartbeat(5))
    assert harness.answers() == [1, 2, 3]
    harness.parked[0].set_result(SyncGroupResponse())
    for _ in range(4):
        turn(loop)
    assert harness.answers() == [1, 2, 3, 4, 5]
    assert harness.seen == ["g"]


def test_a_request_is_not_renewed_after_a_change_of_the_rules(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop)
    harness.broker.authorizer = SimpleNamespace(generation=1)
    renewable(harness, [True])
    for number in (1, 2, 3):
        harness.send(heartbeat(number))
    assert harness.seen == ["g"]
    harness.broker.authorizer.generation = 2
    harness.send(heartbeat(4))
    assert harness.seen == ["g", "g"]
    harness.send(heartbeat(5))
    assert harness.seen == ["g", "g"]


def test_a_request_whose_time_counts_is_not_renewed(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop)
    metering = SimpleNamespace(begin=lambda: None, end=lambda: None, handler_of=lambda _key, handler: handler)
    harness.broker.quotas = quotas = SimpleNamespace(measures_time=False, metering=metering)
    renewable(harness, [True])
    for number in (1, 2, 3):
        harness.send(heartbeat(number))
    assert harness.seen == ["g"]
    quotas.measures_time = True
    for number in (4, 5):
        harness.send(heartbeat(number))
    assert harness.seen == ["g"] * 3
    assert harness.answers() == [1, 2, 3, 4, 5]


def test_a_request_that_is_logged_is_not_renewed(loop: asyncio.AbstractEventLoop) -> None:
    harness = Harness(loop, request_log=RequestLog(loop))
    renewable(harness, [True])
    for number in range(1, 6):
        harness.send(heartbeat(number))
    for _ in range(6):
        turn(loop)
    assert harness.seen == ["g"] * 5
    assert harness.answers() == [1, 2, 3, 4, 5]


def test_few_long_eager_requests_are_answered_in_the_same_turn(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    async def answer(broker: Any, request: HeartbeatRequest, call: Any) -> HeartbeatResponse:
        return harness.heartbeat(broker, request, call)

    harness.broker.handlers[ApiKey.HEARTBEAT.value] = Entry(ApiKey.HEARTBEAT, 0, 4, answer, eager=True)
    long_group = "g" * (MAX_IN_A_TURN // 4 * BYTES_PER_COUNT)
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
