"""Produce requests on the fast path that other replicas must have first: deferred, and completed in their order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ProduceResponse, ResponseHeader
from gregor.replication.partition.partition import Partition
from tests.broker.harness import Harness, Wire, batch, one_partition, produce_request, request_frame
from tests.storage.logs import sequenced

FOLLOWER = 5
VERSION = 12


class Producer:
    """A connection that knows the route already, and the answers that it got."""

    def __init__(self, harness: Harness, topic: str) -> None:
        self.harness = harness
        self.topic = topic
        self.wire = Wire(harness)
        self.partition = harness.broker.replicas.get(topic, 0)
        assert self.partition is not None
        self.send(b"first", acks=-1)
        self.fetched()
        assert self.answers() == [(0, 0)]

    def send(self, *values: bytes, acks: int = -1, timeout_ms: int = 60_000) -> None:
        request = produce_request(self.topic, batch(*values), acks=acks, timeout_ms=timeout_ms)
        self.wire.send(request_frame(request, VERSION))

    def fetched(self, offset: int = -1) -> None:
        """The follower has all, or all below an offset."""
        partition = self.partition
        assert partition is not None
        end = partition.log_end_offset if offset < 0 else offset
        partition.leadership.update_follower(FOLLOWER, end, self.harness.broker.now_ms())
        self.harness.turn()

    def answers(self) -> list[tuple[int, int]]:
        """Return (error, base offset) of all answers since the last call."""
        data, found = bytes(self.wire.transport.written), []
        del self.wire.transport.written[:]
        while data:
            size = int.from_bytes(data[:4]) + 4
            _, position = ResponseHeader.decode(data, 1, 4)
            answer, end = ProduceResponse.decode(data, VERSION, position)
            assert end == size
            data = data[size:]
            found.append((one_partition(answer).error_code, one_partition(answer).base_offset))
        return found


@pytest.fixture
def producer(harness: Harness, topic: str) -> Producer:
    harness.create_topic(topic)
    harness.add_follower(topic)
    return Producer(harness, topic)


@pytest.fixture
def general(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests for the general handler."""
    handlers, requests = harness.broker.handlers, list[Any]()
    entry = handlers[ApiKey.PRODUCE]

    def counted(broker: Any, request: Any, call: Any) -> Any:
        requests.append(request)
        return entry.handler(broker, request, call)

    monkeypatch.setitem(handlers, ApiKey.PRODUCE, replace(entry, handler=counted))
    return requests


def test_answers_wait_for_the_follower_and_keep_their_order(producer: Producer, general: list[Any]) -> None:
    producer.send(b"a")
    producer.send(b"b", b"c")
    producer.send(b"d", acks=1)
    producer.send(b"e")
    assert producer.answers() == []
    producer.fetched(2)
    assert producer.answers() == [(0, 1)]
    producer.fetched(4)
    assert producer.answers() == [(0, 2), (0, 4)]
    producer.fetched()
    assert producer.answers()[-1] == (0, 5)
    # acks=1 has a route of its own, which that request was the first to show.
    assert len(general) == 1


def test_an_answer_known_at_once_waits_behind_owed_ones(producer: Producer, general: list[Any]) -> None:
    producer.send(b"a", acks=1)
    assert (producer.answers(), len(general)) == ([(0, 1)], 1)
    producer.send(b"b")
    producer.send(b"c", acks=1)
    producer.send(b"d", acks=1)
    assert (producer.answers(), len(general)) == ([], 1)
    producer.fetched(3)
    assert producer.answers() == [(0, 2), (0, 3), (0, 4)]


def test_nothing_waits_when_the_leader_alone_is_in_sync(producer: Producer, general: list[Any]) -> None:
    partition = producer.partition
    assert isinstance(partition, Partition)
    producer.send(b"a")
    partition.isr_decided([0], partition.partition_epoch + 1, producer.harness.broker.now_ms())
    assert producer.answers() == [(0, 1)]
    producer.send(b"b")
    producer.send(b"c")
    assert (producer.answers(), general) == ([(0, 2), (0, 3)], [])


def test_too_late_is_told_and_the_rest_goes_on(producer: Producer, general: list[Any]) -> None:
    producer.send(b"x", timeout_ms=1)
    producer.fetched()
    producer.answers()
    assert len(general) == 1
    producer.send(b"a")
    producer.send(b"b", timeout_ms=1)
    passed: list[bool] = []  # timers of a loop fire in their order
    producer.harness.loop.call_later(0.01, passed.append, True)
    producer.harness.until(lambda: bool(passed))
    assert producer.answers() == [], "behind the first, which may wait for longer"
    producer.fetched()
    assert producer.answers() == [(0, 2), (ErrorCode.REQUEST_TIMED_OUT, 3)]
    assert len(general) == 1


def test_the_end_of_the_leadership_is_told(producer: Producer, general: list[Any]) -> None:
    producer.send(b"a")
    producer.harness.hand_over(producer.topic)
    assert producer.answers() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)]
    producer.send(b"b")
    producer.harness.turn()
    assert producer.answers() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert len(general) == 1


def test_too_few_in_sync(producer: Producer) -> None:
    producer.harness.alter_topic(producer.topic, min_insync_replicas="2")
    partition = producer.partition
    assert partition is not None
    producer.send(b"a")
    partition.isr_decided([0], partition.partition_epoch + 1, producer.harness.broker.now_ms())
    producer.send(b"b")
    producer.fetched()
    assert producer.answers() == [] or len(partition.isr) >= 2
    partition.isr_decided([0, FOLLOWER], partition.partition_epoch + 1, producer.harness.broker.now_ms())
    producer.harness.turn()
    assert producer.answers() == [(0, 1), (ErrorCode.NOT_ENOUGH_REPLICAS, -1)]


def test_what_an_idempotent_producer_sent_behind_refused_batches_waits_for_them(producer: Producer) -> None:
    harness, partition = producer.harness, producer.partition
    assert partition is not None
    harness.alter_topic(producer.topic, min_insync_replicas="2")

    def send(sequence: int) -> None:
        request = produce_request(producer.topic, sequenced(7, 0, sequence), acks=-1, timeout_ms=60_000)
        producer.wire.send(request_frame(request, VERSION))
        harness.turn()

    send(0)
    producer.fetched()
    partition.isr_decided([0], partition.partition_epoch + 1, harness.broker.now_ms())
    for sequence in (1, 2, 3):
        send(sequence)
    partition.isr_decided([0, FOLLOWER], partition.partition_epoch + 1, harness.broker.now_ms())
    for sequence in (4, 3, 1, 2, 3, 4):  # the client had 4 on its way when it learned about the others
        send(sequence)
    producer.fetched()
    refused = ErrorCode.NOT_ENOUGH_REPLICAS, -1
    assert producer.answers() == [(0, 1), *[refused] * 5, (0, 2), (0, 3), (0, 4), (0, 5)]


def test_client_that_leaves_is_sent_nothing(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    timers, loop = list[asyncio.TimerHandle](), producer.harness.loop
    call_later = loop.call_later

    def noted(*arguments: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*arguments))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    producer.send(b"a")
    producer.send(b"b")
    waiting = [timer for timer in timers if not timer.cancelled()]
    producer.wire.close()
    assert waiting and all(timer.cancelled() for timer in waiting)
    producer.fetched()
    assert producer.answers() == []
