"""Targets of the wire protocol: the codec of every message in every version, and connections that get broken frames."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

from gregor.broker.net.connection import Connection
from gregor.broker.net.connections import Connections
from gregor.broker.net.receive_buffers import BufferPool, ReceiveBudget
from gregor.broker.net.request_turns import EarlyRequests
from gregor.broker.net.route_slots import RouteSlots
from gregor.broker.registry import Entry
from gregor.config.broker import BrokerConfig
from gregor.protocol import messages
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from gregor.protocol.messages import ProduceRequest
from gregor.protocol.records.batch import CorruptBatch, RecordBatch, build_batch
from gregor.storage.log.append import AppendInfo
from tests.fuzz.runner import Seed, Target
from tests.protocol.message_values import every_version, random_message
from tests.support.wire import request_bytes

MAX_REQUEST_BYTES = 100 * 1024 * 1024
CONTROLLER_KEYS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)


def targets() -> list[Target]:
    peer = Peer()
    return [
        Target("messages", decode_message, message_seeds, (MalformedMessage,), weight=72),
        Target("connections", peer.receive, frame_seeds, (), weight=24, close=peer.close),
    ]


# -- messages ----------------------------------------------------------------------------------------------------------


def message_seeds() -> list[Seed]:
    random = Random(4711)
    return [
        ((name, version), random_message(random, name, version).encode(version))
        for name, version in every_version()
        for _ in range(3)
    ]


def decode_message(context: tuple[str, int], data: bytes) -> None:
    """Check that a message that could be decoded is encoded to an equal one."""
    name, version = context
    class_ = getattr(messages, name)
    message, end = class_.decode(memoryview(data), version)
    assert end <= len(data), f"ends at {end} of {len(data)}"
    encoded = message.encode(version)
    again, end = class_.decode(encoded, version)
    assert end == len(encoded)
    assert again == message, "not equal after encoding"


# -- connections -------------------------------------------------------------------------------------------------------


def frame_seeds() -> list[Seed]:
    """One to three requests in a row, of every API and version; Produce, which has a fast path, more often."""
    random = Random(4712)
    frames = [
        request_bytes(random_message(random, name, version), version, 7, random.choice([None, "", "a client", "ü"]))
        for name, version in every_version()
        if name.endswith("Request")
    ]
    produces = [request_bytes(produce_request(version), version, 7, "p") for version in range(3, 14) for _ in range(4)]
    frames += produces
    seeds = [(cut, frame) for cut, frame in zip(cuts(random), frames, strict=False)]
    seeds += [(cut, b"".join(random.choice(frames) for _ in range(random.choice([2, 3])))) for cut in cuts(random, 60)]
    seeds += [(cut, frame * 3) for cut, frame in zip(cuts(random), produces, strict=False)]
    return seeds


def cuts(random: Random, count: int = 10_000) -> Iterator[int]:
    """Into how many pieces the bytes of a seed arrive."""
    for _ in range(count):
        yield random.choice([1, 1, 2, 5])


def produce_request(version: int) -> ProduceRequest:
    records = build_batch([(None, b"value")] * 3, timestamp_ms=1)
    data = ProduceRequest.PartitionProduceData(index=1, records=records)
    topic = ProduceRequest.TopicProduceData(partition_data=[data])
    if version >= 13:
        topic.topic_id = b"\x01" * 16
    else:
        topic.name = "orders"
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


class Peer:
    """A broker without handlers, and the other end of its connections."""

    def __init__(self) -> None:
        self.broker: Any = None

    def close(self) -> None:
        if self.broker is not None:
            self.broker.loop.close()
            self.broker = None

    def receive(self, pieces: int, data: bytes) -> None:
        """Deliver the bytes to a new connection: it receives them or ends, whatever they are."""
        if self.broker is None:
            self.broker = make_broker()
        transport = Transport()
        connection = Connection(self.broker, "PLAINTEXT")
        connection.connection_made(transport)
        step = max(1, -(-len(data) // pieces))
        taken = 0
        while taken < len(data) and transport.reading and not transport.aborted:
            view = connection.get_buffer(65536)
            piece = data[taken : min(taken + step, len(data), taken + len(view))]
            view[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            taken += len(piece)
        assert connection.closed == transport.aborted
        assert taken == len(data) or transport.aborted or not transport.reading
        connection.connection_lost(None)
        budget = self.broker.receive_budget
        assert budget.waiting == 0 and budget.used_bytes == 0, "the memory budget is not whole"
        assert len(self.broker.connections) == 0 and self.broker.connections.queued == 0


class Transport(asyncio.Transport):
    """Swallows what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 5555), "sockname": ("10.0.0.1", 9092)})
        self.reading = True
        self.aborted = False

    def write(self, data: Any) -> None:
        assert not self.aborted, "written after the end"

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True


class Partition:
    """Accept batches that appear complete."""

    commits_at_once = True
    is_leader = True
    topic = "orders"
    log = SimpleNamespace(config=SimpleNamespace(flush_messages=2**63 - 1))

    def append(self, view: memoryview, now_ms: int, acks: int) -> AppendInfo:
        try:
            batch = RecordBatch(view)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if not batch.crc_ok():
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
        return AppendInfo(0, batch.last_offset_delta, -1, 0, False)


def make_broker() -> Any:
    """The broker of a connection, with handlers of all APIs that send no response."""
    partition = Partition()

    def answer_nothing(broker: Any, request: Any, call: Any) -> None:
        return None

    handlers = {}
    for key in messages.APIS:
        class_: Any = messages.request_class(key)
        handlers[key] = Entry(ApiKey(key), class_.MIN_VERSION, class_.MAX_VERSION, answer_nothing, False)
    return SimpleNamespace(
        buffers=BufferPool(),
        receive_budget=ReceiveBudget(-1),
        security=None,
        authorizer=None,
        background=None,
        request_log=None,
        quotas=None,
        route_slots=RouteSlots(),
        early_requests=EarlyRequests(are_held=False),
        loop=asyncio.new_event_loop(),
        max_request_bytes=MAX_REQUEST_BYTES,
        handlers=handlers,
        connections=Connections(BrokerConfig()),
        replicas=SimpleNamespace(generation=0),
        partition_of=lambda name, topic_id, index: partition if name == "orders" or any(topic_id) else None,
    )
