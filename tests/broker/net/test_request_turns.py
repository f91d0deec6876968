"""Requests and answers about thousands of things: others get their turns, the answers stay the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs import turns
from gregor.broker.net.receive_buffers import SHARED_BYTES
from gregor.broker.net.request_turns import LARGE_REQUEST_BYTES
from gregor.protocol.messages import (
    AlterReplicaLogDirsRequest,
    ApiVersionsRequest,
    CreateAclsRequest,
    CreateAclsResponse,
    FetchRequest,
    MetadataRequest,
    ResponseHeader,
    response_class,
)
from gregor.protocol.turns import ITEMS_PER_STEP
from tests.broker.harness import Harness, Wire, request_frame, running

MANY = 3000


@pytest.fixture(autouse=True)
def a_turn_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)


@pytest.fixture
def wire(harness: Harness) -> Wire:
    return Wire(harness)


def acls(count: int) -> CreateAclsRequest:
    creation = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="a-resource", resource_pattern_type=3, principal="User:x", host="*"
    )
    return CreateAclsRequest(creations=[creation] * count)


def split(data: bytes, *versions: tuple[Any, int]) -> list[Any]:
    """Return the answers in the written bytes, by the requests' classes and versions."""
    found = []
    for request, version in versions:
        size = int.from_bytes(data[:4], "big")
        answers: Any = response_class(request.API_KEY)
        flexible = version >= answers.FLEXIBLE_FROM and request.API_KEY != ApiVersionsRequest.API_KEY
        _, position = ResponseHeader.decode(data, 1 if flexible else 0, 4)
        found.append(answers.decode(data[: 4 + size], version, position)[0])
        data = data[4 + size :]
    assert not data
    return found


def turns_until(wire: Wire, size_bytes: int) -> int:
    """Turns of the loop until so much was written."""

    async def count() -> int:
        taken = 0
        while len(wire.transport.written) < size_bytes:
            assert not wire.transport.aborted
            taken += 1
            assert taken < 100_000
            await asyncio.sleep(0)
        return taken

    counted: int = wire.harness.run(count())
    return counted


def deliver(wire: Wire, data: bytes) -> None:
    """Deliver bytes as a loop would: no more than the connection has room for, and only while it reads."""
    sent = 0
    while sent < len(data):
        wire.harness.until(lambda: wire.transport.reading, 30)
        view = wire.connection.get_buffer(65536)
        piece = data[sent : sent + len(view)]
        wire.send(piece)
        sent += len(piece)


@pytest.mark.parametrize("version", [1, 2])
def test_others_get_their_turns_while_it_is_decoded_and_its_answer_encoded(wire: Wire, version: int) -> None:
    request = acls(MANY)
    frame = request_frame(request, version)
    assert len(frame) > SHARED_BYTES
    wire.send(frame)
    assert turns_until(wire, 4) >= MANY // ITEMS_PER_STEP
    (answer,) = split(bytes(wire.transport.written), (request, version))
    assert len(answer.results) == MANY
    assert answer.results[0].error_code


def test_small_ones_are_answered_at_once(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 30.0)
    request = acls(1000)
    wire.send(request_frame(request, 2))
    assert len(wire.transport.written) > 4
    (answer,) = split(bytes(wire.transport.written), (request, 2))
    assert len(answer.results) == 1000


def whole_frames(wire: Wire, begin: int = 0) -> int:
    """How many responses have been written from that position on, to their ends."""
    written, count = wire.transport.written, 0
    while begin + 4 <= len(written):
        begin += 4 + int.from_bytes(written[begin : begin + 4])
        count += begin <= len(written)
    return count


@pytest.mark.parametrize("count", [800, MANY])
def test_what_comes_behind_it_waits_for_its_turn(wire: Wire, count: int) -> None:
    """The large one lies in the shared buffer (800), or in an owned one with the beginning of the next behind it."""
    large, small = acls(count), ApiVersionsRequest()
    stream = request_frame(small, 0) + request_frame(large, 1) + request_frame(small, 0) + request_frame(large, 2)
    deliver(wire, stream)
    wire.harness.until(lambda: whole_frames(wire) == 4, 30)
    wire.harness.turn()
    assert wire.harness.broker.receive_budget.used_bytes == 0
    if count == MANY:
        assert wire.harness.broker.buffers.acquire_warm() is not None, "the owned buffer is back in the pool"
    answers = split(bytes(wire.transport.written), (small, 0), (large, 1), (small, 0), (large, 2))
    assert [len(answers[1].results), len(answers[3].results)] == [count, count]


def test_a_malformed_one_ends_the_connection(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    frame = bytearray(request_frame(acls(MANY), 1))
    frame[-5:] = b"\xff\xff\xff\xff\xff"
    frame[40_000:40_002] = b"\x7f\xff"
    wire.send(bytes(frame))
    wire.harness.until(lambda: wire.transport.aborted)
    assert "CreateAclsRequest v1" in caplog.text
    assert "failed" not in caplog.text


def test_a_client_that_leaves_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        budget, pool = harness.broker.receive_budget, harness.broker.buffers
        for turns_before in range(6):
            wire = Wire(harness)
            wire.send(request_frame(acls(20_000), 1))
            harness.turn(turns_before * 10)
            wire.close()
            harness.turn(10)
        harness.until(lambda: budget.used_bytes == 0)  # a change is completed without its client
        while (buffer := pool.acquire_warm()) is not None:
            assert buffer.view.nbytes == buffer.capacity


def test_its_memory_counts_until_it_is_answered(wire: Wire) -> None:
    budget = wire.harness.broker.receive_budget
    frame = request_frame(acls(10_000), 1)
    wire.send(frame)
    assert budget.used_bytes == len(frame)
    turns_until(wire, 4)
    wire.harness.turn()
    assert budget.used_bytes == 0


def test_a_handler_that_fails_is_logged(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    def explode(*_: Any) -> CreateAclsResponse:
        raise RuntimeError("a bug")

    entry = wire.harness.broker.handlers[CreateAclsRequest.API_KEY]
    object.__setattr__(entry, "handler", explode)
    try:
        wire.send(request_frame(acls(MANY), 1))
        wire.harness.until(lambda: wire.transport.aborted)
    finally:
        from gregor.broker.handlers.k30_create_acls import create_acls

        object.__setattr__(entry, "handler", create_acls)
    assert "CREATE_ACLS version 1" in caplog.text


def test_fetches_and_awaited_answers(wire: Wire) -> None:
    """A handler that answers later, one that is a coroutine, and one that answers at once."""
    wire.harness.create_topic("a", 3)
    partitions = [FetchRequest.FetchPartition(partition=index % 3, partition_max_bytes=1000) for index in range(1000)]
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="a", partitions=partitions)])
    metadata = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=f"no-{number}") for number in range(MANY)],
        allow_auto_topic_creation=False,
    )
    folder = AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path="/nowhere",
        topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="a", partitions=list(range(10_000)))],
    )
    moves = AlterReplicaLogDirsRequest(dirs=[folder])
    for request, version in ((fetch, 11), (metadata, 9), (moves, 2)):
        begin = len(wire.transport.written)
        frame = request_frame(request, version)
        assert len(frame) > LARGE_REQUEST_BYTES
        wire.send(frame)
        wire.harness.until(lambda begin=begin: whole_frames(wire, begin) == 1)  # type: ignore[misc]
        (answer,) = split(bytes(wire.transport.written[begin:]), (request, version))
        if request is moves:
            assert len(answer.results[0].partitions) == 10_000
        elif request is metadata:
            assert len(answer.topics) == MANY
