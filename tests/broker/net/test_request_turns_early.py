"""net.request_turns: what clients send before the broker knows its cluster is served afterwards, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gregor.broker.net.request_turns import LARGE_REQUEST_BYTES, EarlyRequests
from gregor.broker.registry import AMONG_BROKERS, Entry
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import ApiVersionsRequest, LeaveGroupRequest
from tests.broker.net.test_connection import Harness, frame, harness, heartbeat, loop, turn

__all__ = ["harness", "loop"]  # fixtures


@pytest.fixture
def early(harness: Harness) -> tuple[Harness, EarlyRequests]:
    harness.broker.early_requests = EarlyRequests(are_held=True)
    harness.transport, harness.connection = harness.connect()
    return harness, harness.broker.early_requests


def test_requests_of_clients_are_held_and_served_in_order(
    early: tuple[Harness, EarlyRequests], loop: asyncio.AbstractEventLoop
) -> None:
    harness, requests = early
    harness.send(frame(ApiVersionsRequest(), 4, 1) + heartbeat(2) + frame(ApiVersionsRequest(), 4, 3) + heartbeat(4))
    turn(loop)
    assert harness.answers() == [1], "versions are negotiated at once"
    assert harness.seen == []
    requests.serve_all()
    for _ in range(3):
        turn(loop)
    assert harness.answers() == [1, 2, 3, 4]
    harness.send(heartbeat(5))
    assert harness.answers() == [1, 2, 3, 4, 5]


def test_a_connection_of_before_serves_all_afterwards(early: tuple[Harness, EarlyRequests]) -> None:
    harness, requests = early
    requests.serve_all()
    harness.send(heartbeat(1) + heartbeat(2))
    assert harness.answers() == [1, 2]


def test_requests_between_brokers_are_not_held() -> None:
    def served(broker: Any, request: Any, call: Any) -> None: ...

    entries = {key.value: Entry(key, 0, 1, served, eager=False) for key in (ApiKey.UPDATE_METADATA, ApiKey.FETCH)}
    requests = EarlyRequests(are_held=True)
    assert list(requests.served_at_once(entries)) == [ApiKey.UPDATE_METADATA]
    assert ApiKey.LEADER_AND_ISR in AMONG_BROKERS
    requests.serve_all()
    assert requests.served_at_once(entries) is entries


def test_unknown_apis_and_versions_end_the_connection_at_once(early: tuple[Harness, EarlyRequests]) -> None:
    harness, _ = early
    harness.send(frame(ApiVersionsRequest(), 4, 1).replace(b"\0\x12\0\x04", b"\0\x12\0\x63", 1))
    assert harness.answers() == [1], "an unknown version of ApiVersions has a response of its own"
    harness.send(heartbeat(2).replace(b"\0\x0c\0\x04", b"\0\x0c\0\x63", 1))
    assert harness.transport.aborted


def test_a_request_of_a_connection_that_has_ended_is_dropped(
    early: tuple[Harness, EarlyRequests], loop: asyncio.AbstractEventLoop
) -> None:
    harness, requests = early
    harness.send(heartbeat(1))
    harness.connection.close()
    requests.serve_all()
    turn(loop)
    assert harness.seen == [] and harness.answers() == []


def test_bytes_of_a_held_request_are_its_own(
    early: tuple[Harness, EarlyRequests], loop: asyncio.AbstractEventLoop
) -> None:
    """All connections receive into one buffer. A long request is held as a short one is."""
    harness, requests = early
    members = [LeaveGroupRequest.MemberIdentity(member_id="m" * 100) for _ in range(LARGE_REQUEST_BYTES // 50)]
    asked: list[Any] = []

    def leave(broker: Any, request: LeaveGroupRequest, call: Any) -> None:
        asked.append(request)

    harness.broker.handlers[ApiKey.LEAVE_GROUP.value] = Entry(ApiKey.LEAVE_GROUP, 0, 5, leave, False)
    harness.send(frame(LeaveGroupRequest(group_id="g", members=members), 5, 1))
    other_transport, other = harness.connect()
    harness.send(heartbeat(9) * 50, other)
    requests.serve_all()
    for _ in range(3):
        turn(loop)
    (request,) = asked
    assert len(request.members) == len(members) and {one.member_id for one in request.members} == {"m" * 100}
    assert other_transport.written
