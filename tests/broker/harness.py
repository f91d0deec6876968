"""One broker inside the test's own event loop, without sockets: requests in as messages, answers out as messages.

Each request is encoded and decoded at its version before its handler sees it, each answer likewise before the test
does: an answer with a field that its version cannot carry is an error here, as it would be for a client. As in a
connection, the memory of a request is overwritten as soon as its handler has returned.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from gregor.broker.authorization.known_client import KnownClient
from gregor.broker.context import UNKNOWN_SOFTWARE, Call, ClientSoftware
from gregor.broker.net.connection import Connection
from gregor.broker.net.outbound import Chunk
from gregor.broker.net.responses import encode_response
from gregor.broker.parts import Broker
from gregor.broker.registry import Entry
from gregor.broker.wiring import Node
from gregor.config.broker import BrokerConfig
from gregor.protocol.client import RequestCodec
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    LeaderAndIsrRequest,
    ProduceRequest,
    ProduceResponse,
    ResponseHeader,
)
from gregor.protocol.principal import ANONYMOUS, Principal
from gregor.protocol.records.batch import Record, build_batch, iter_batches
from gregor.protocol.turns import run_all

ResultT = TypeVar("ResultT")

PORT = 9092
LIMIT_S = 120.0
"""The limit of every wait, on a busy machine as well."""
QUICK: Mapping[str, str] = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "10",
    "group.consumer.assignment.interval.ms": "0",
}


class FakeConnection:
    """A connection as a handler sees it."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.listener = "PLAINTEXT"
        self.host = host
        self.peer = f"{host}:5555"
        self.sockname = ("127.0.0.1", PORT)
        self.number = 0
        self.principal = ANONYMOUS
        self.software = UNKNOWN_SOFTWARE
        self.session = None
        self.failures: list[str] = []
        self.held = False
        self.known = KnownClient()
        self.known_for: object = None
        """The authorizer whose decisions are in `known`."""
        self.throttled_ms: list[int] = []

    def admit(self, principal: Principal) -> None:
        self.principal, self.known = principal, KnownClient()

    def throttle(self, duration_ms: int) -> None:
        self.throttled_ms.append(duration_ms)

    def identify(self, software: ClientSoftware) -> None:
        self.software = software

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def hold(self) -> None:
        self.held = True

    def end_hold(self) -> None:
        self.held = False


class Harness:
    """A node in a loop of its own. A second one on the same folder shows the state that survives."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """Settings are broker keys with underscores for dots."""
        self.folder = folder
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.config = BrokerConfig({**QUICK, "log.dirs": str(folder), **given})
        self.loop = asyncio.new_event_loop()
        self.node = Node(self.config)
        self.connection = FakeConnection()
        self.raw = b""
        """The last answer's frame, less its length."""

    @property
    def broker(self) -> Broker:
        return self.node.broker

    def start(self) -> Harness:
        self.run(self.node.open_storage())
        self.run(self.node.join(lambda: {"PLAINTEXT": PORT}))
        return self

    def stop(self) -> None:
        """The clean stop."""
        self.run(self.node.close())
        self.loop.close()

    @contextmanager
    def settings(self, **settings: str) -> Iterator[None]:
        """Other static settings for a time, as after a reload of the properties file."""
        before = dict(self.config.static_texts)
        self.config.update_static({**before, **{key.replace("_", "."): text for key, text in settings.items()}})
        try:
            yield
        finally:
            self.config.update_static(before)

    def copy(self, folder: Path) -> Path:
        """Copy the files that a crash at this moment would leave, including the contents of the page cache."""
        # A thread may be replacing checkpoint files just now.
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(".lock", "*.tmp"))
        return folder

    def run(self, work: Awaitable[ResultT], timeout_s: float = LIMIT_S) -> ResultT:
        return self.loop.run_until_complete(asyncio.wait_for(work, timeout_s))

    def turn(self, times: int = 5) -> None:
        """Let the loop run the callbacks that are due."""
        for _ in range(times):
            self.loop.run_until_complete(asyncio.sleep(0))

    def until(self, condition: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
        """Run the loop until the condition holds; the condition may query the broker itself."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, "it did not come to pass"
            self.loop.run_until_complete(asyncio.sleep(0.001))

    # -- requests ---------------------------------------------------------------------------------------------------

    def ask(self, request: Any, version: int, client_id: str | None = "tests") -> Any:
        """The answer to a request; None if there is none (Produce with acks=0)."""
        return self.run(self.answer(request, version, client_id))

    def begin(self, request: Any, version: int, *, turns: int = 5) -> asyncio.Task[Any]:
        """Start a request without waiting for its answer; the handler has begun when this returns."""
        task = self.loop.create_task(self.answer(request, version, "tests"))
        self.turn(turns)
        return task

    async def answer(self, request: Any, version: int, client_id: str | None) -> Any:
        entry = self.broker.handlers[request.API_KEY]
        assert entry.min_version <= version <= entry.max_version, f"version {version} is not served"
        buffer = bytearray(request.encode(version))
        decoded, end = type(request).decode(memoryview(buffer), version)
        assert end == len(buffer)
        connection: Any = self.connection
        result = entry.handler(self.broker, decoded, Call(connection, request.API_KEY, version, 7, client_id))
        buffer[:] = b"\xee" * len(buffer)
        if isinstance(result, Deferred):
            result = await outcome_of(result, self.loop.create_future())
        elif isinstance(result, Awaitable):
            result = await result
        return None if result is None else self._received(entry, version, result)

    def _received(self, entry: Entry, version: int, response: Any) -> Any:
        """The answer as a client decodes it."""
        self.raw = frame = join(encode_response(entry, version, 7, response))[4:]
        header, position = ResponseHeader.decode(frame, entry.response_header_version(version))
        assert header.correlation_id == 7
        response_class: Any = entry.response_class
        message, end = response_class.decode(frame, version, position)
        assert end == len(frame)
        return message

    # -- what many tests do ----------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Make a topic with settings (underscores for dots); returns its id."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer: CreateTopicsResponse = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        (made,) = answer.topics
        assert made.error_code == 0, (made.error_code, made.error_message)
        return made.topic_id

    def alter_topic(self, name: str, version: int = 1, **configs: str) -> None:
        """Set some of a topic's settings (underscores for dots)."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name=key.replace("_", "."), config_operation=0, value=value
                )
                for key, value in configs.items()
            ],
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), version)
        assert answer.responses[0].error_code == 0, answer

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 12, acks: int = 1, **fields: Any
    ) -> ProduceResponse.PartitionProduceResponse:
        """Produce one batch; `fields` are those of `batch`."""
        request = produce_request(topic, batch(*values, **fields), partition=partition, acks=acks)
        return one_partition(self.ask(request, version))

    def fetch(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **fields: Any
    ) -> FetchResponse.PartitionData:
        """Fetch from one partition without waiting."""
        request = fetch_request([(topic, partition, offset)], **{"max_wait_ms": 0, **fields})
        answer: FetchResponse = self.ask(request, version)
        assert answer.error_code == 0
        (found,) = answer.responses
        (data,) = found.partitions
        return data

    def records(self, topic: str, offset: int = 0, partition: int = 0) -> list[Record]:
        """All records of a partition from an offset on."""
        found: list[Record] = []
        while True:
            data = self.fetch(topic, offset, partition=partition)
            assert data.error_code == 0, data.error_code
            part = [record for record in records_of(data) if record.offset >= offset]
            if not part:
                return found
            found += part
            offset = part[-1].offset + 1

    # -- other brokers ----------------------------------------------------------------------------------------------

    def hand_over(self, topic: str, partition: int = 0) -> None:
        """Apply the controller's decision that broker 5 leads the partition from now on; this broker follows."""
        self._lead(topic, partition, leader=5)

    def add_follower(self, topic: str, partition: int = 0) -> None:
        """Broker 5 has a replica, too, and is in sync."""
        self._lead(topic, partition, leader=0)

    def _lead(self, topic: str, index: int, leader: int) -> None:
        replicas = self.broker.replicas
        partition = replicas.get(topic, index)
        assert partition is not None
        state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=replicas.controller_epoch,
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            isr=[0, 5],
            partition_epoch=partition.partition_epoch + 1,
            replicas=[0, 5],
        )
        told = LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name=topic, topic_id=partition.topic_id, partition_states=[state]
        )
        answer = run_all(
            replicas.apply(LeaderAndIsrRequest(controller_epoch=replicas.controller_epoch, type=1, topic_states=[told]))
        )
        assert answer.topics[0].partition_errors[0].error_code == 0


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[Harness]:
    """A started harness that is stopped cleanly in the end."""
    harness = Harness(folder, **settings).start()
    try:
        yield harness
    finally:
        harness.stop()


def join(chunks: list[Chunk]) -> bytes:
    """The bytes of an answer, file regions included and released."""
    parts = []
    for chunk in chunks:
        if isinstance(chunk, (bytes, bytearray)):
            parts.append(bytes(chunk))
        else:
            parts.append(chunk.read())
            assert len(parts[-1]) == chunk.size_bytes
            chunk.release()
    return b"".join(parts)


def batch(*values: bytes | tuple[bytes | None, bytes | None], timestamp_ms: int | None = None, **fields: Any) -> bytes:
    """A record batch of values, or of (key, value) pairs; without a time of its own it is of just now."""
    if timestamp_ms is None:
        timestamp_ms = Broker.now_ms()
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    return bytes(build_batch(pairs, timestamp_ms=timestamp_ms, **fields))


def message_set(magic: int, *values: bytes, timestamp_ms: int = 1) -> bytes:
    """The same in the format of clients before 0.11 (magic 0 or 1)."""
    parts = []
    for offset, value in enumerate(values):
        stamp = struct.pack(">q", timestamp_ms) if magic else b""
        body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">ii", -1, len(value)) + value
        parts.append(struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body)
    return b"".join(parts)


def produce_request(
    topic: str | bytes, records: bytes | None, *, partition: int = 0, acks: int = 1, timeout_ms: int = 1000
) -> ProduceRequest:
    """One batch for one partition of a topic that is named by its name or, for version 13, by its id."""
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    wanted = ProduceRequest.TopicProduceData(partition_data=[data])
    if isinstance(topic, bytes):
        wanted.topic_id = topic
    else:
        wanted.name = topic
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[wanted])


def one_partition(response: ProduceResponse) -> ProduceResponse.PartitionProduceResponse:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def fetch_request(
    wanted: list[tuple[str | bytes, int, int]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 * 1024 * 1024,
    partition_max_bytes: int = 1024 * 1024,
    current_leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """`wanted` are (topic name or, for version 13 on, id; partition; offset)."""
    topics: dict[str | bytes, FetchRequest.FetchTopic] = {}
    for name, partition, offset in wanted:
        if name not in topics:
            topics[name] = (
                FetchRequest.FetchTopic(topic_id=name, partitions=[])
                if isinstance(name, bytes)
                else FetchRequest.FetchTopic(topic=name, partitions=[])
            )
        topics[name].partitions.append(
            FetchRequest.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=list(topics.values()), **fields
    )


def bytes_of(data: FetchResponse.PartitionData) -> memoryview:
    """The batches of a fetched partition."""
    assert isinstance(data.records, memoryview)
    return data.records


def records_of(data: FetchResponse.PartitionData) -> list[Record]:
    return [record for found in iter_batches(bytes_of(data)) for record in found.records()]


class FakeTransport(asyncio.Transport):
    """Accepts everything that is written."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__({"peername": (host, 5555), "sockname": ("127.0.0.1", PORT)})
        self.written = bytearray()
        self.aborted = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True


class Wire:
    """A connection of a harness, fed with whole requests: the way that learns produce routes."""

    def __init__(self, harness: Harness, host: str = "127.0.0.1") -> None:
        self.harness = harness
        self.transport = FakeTransport(host)
        self.connection = Connection(harness.broker, "PLAINTEXT")
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Deliver bytes, as long as the connection reads."""
        self.harness.run(self._deliver(data))

    async def _deliver(self, data: bytes) -> None:
        taken = 0
        while taken < len(data) and self.transport.reading and not self.transport.aborted:
            view = self.connection.get_buffer(65536)
            piece = data[taken : taken + len(view)]
            view[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))
            taken += len(piece)

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request; None when the connection was closed or nothing came at once."""
        begin = len(self.transport.written)
        self.send(request_frame(request, version))
        self.harness.turn()
        frame = bytes(self.transport.written[begin:])
        if not frame:
            return None
        entry = self.harness.broker.handlers[request.API_KEY]
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        _, position = ResponseHeader.decode(frame, entry.response_header_version(version), 4)
        response_class: Any = entry.response_class
        message, end = response_class.decode(frame, version, position)
        assert end == len(frame)
        return message

    def close(self) -> None:
        self.connection.connection_lost(None)


def request_frame(request: Any, version: int, client_id: str | None = "tests") -> bytes:
    """A request as it goes over the wire."""
    return bytes(RequestCodec(request.API_KEY, version, client_id).frame(request, 7))


def errors(*codes: int) -> list[str]:
    """Return the names of error codes, so that a failing comparison shows names."""
    return [ErrorCode(code).name for code in codes]
