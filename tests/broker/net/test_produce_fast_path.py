"""net.produce_fast_path against its slow twin, the general Produce handler: the same appends, the same answers."""

from __future__ import annotations

import random
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.authorization.model import Operation, ResourceType
from gregor.broker.handlers.k00_produce import produce as general_produce
from gregor.broker.net.produce_fast_path import ROUTES_FROM, PendingProduce, ProduceRoutes
from gregor.broker.net.request_turns import EarlyRequests
from gregor.broker.net.responses import encode_response
from gregor.broker.net.route_slots import RouteSlots
from gregor.broker.registry import Entry
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ProduceRequest, ProduceResponse, RequestHeader
from gregor.protocol.principal import ANONYMOUS, Principal
from gregor.protocol.records.batch import build_batch
from gregor.replication.traffic import Traffic
from tests.support.authorizers import FakeAuthorizer

TOPIC_ID = bytes(range(16))
ENTRY = Entry(ApiKey.PRODUCE, 0, 13, general_produce, True)
VERSIONS = range(ROUTES_FROM, 14)


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: the general way does all of a request on the spot."""
    monkeypatch.setattr("gregor.broker.handlers.k00_produce.TURN_S", 3600.0)


class FakePartition:
    topic = "t"

    def __init__(self) -> None:
        self.commits_at_once = True
        self.is_leader = True
        self.leadership = self
        config = SimpleNamespace(flush_messages=2**63 - 1)
        self.log = SimpleNamespace(config=config, offsets=SimpleNamespace(unflushed_messages=1), is_special=False)
        self.appended: list[bytes] = []
        self.error: KafkaError | None = None
        self.verdict: ErrorCode | None = None
        self.waiting: list[tuple[int, Any]] = []

    def when_committed(self, offset: int, callback: Any) -> None:
        if self.verdict is None:
            self.waiting.append((offset, callback))
        else:
            callback(self.verdict)

    def append(self, records: memoryview, now_ms: int, required_acks: int) -> Any:
        if self.error is not None:
            if self.error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                records[:8] = (77).to_bytes(8, "big")  # as a log does before a write that then fails
            raise self.error
        self.appended.append(bytes(records))
        return SimpleNamespace(
            first_offset=1000 + len(self.appended),
            last_offset=1,
            log_append_time_ms=-1,
            log_start_offset=3,
            duplicate=False,
        )


class World:
    def __init__(self) -> None:
        self.partitions = {index: FakePartition() for index in range(4)}
        self.broker: Any = SimpleNamespace(
            authorizer=None,
            replicas=SimpleNamespace(generation=1, traffic=Traffic()),
            route_slots=RouteSlots(),
            early_requests=EarlyRequests(are_held=False),
            partition_of=self.partition_of,
            now_ms=lambda: 5,
            loop=None,
            quotas=None,
            request_log=None,
        )
        self.client = SimpleNamespace(principal=Principal("User", "alice"), throttle=self._throttle)
        self.throttled_ms: list[int] = []
        self.routes = ProduceRoutes(self.broker, self.client)

    def _throttle(self, duration_ms: int) -> None:
        self.throttled_ms.append(duration_ms)

    def partition_of(self, topic: str, topic_id: bytes, index: int) -> FakePartition | None:
        return self.partitions.get(index) if topic == "t" or topic_id == TOPIC_ID else None

    def learn(self, frame: bytes, version: int) -> None:
        request, _ = ProduceRequest.decode(frame, version, body_position(frame, version))
        self.routes.learn(request, memoryview(frame), 4, len(frame), version, "app")

    def fast(self, frame: bytes, version: int, correlation_id: int) -> bytes | None:
        return self.routes.produce(memoryview(bytearray(frame)), 4, len(frame), version, correlation_id)

    def slow(self, frame: bytes, version: int, correlation_id: int) -> bytes:
        request, _ = ProduceRequest.decode(frame, version, body_position(frame, version))
        response = general_produce(self.broker, request, SimpleNamespace(version=version))  # type: ignore[arg-type]
        return b"".join(bytes(part) for part in encode_response(ENTRY, version, correlation_id, response))  # type: ignore[arg-type]


def error_of(frame: bytes | bytearray) -> int:
    """Return the partition's error in a response of version 12."""
    answer, _ = ProduceResponse.decode(bytes(frame), 12, 9)
    return answer.responses[0].partition_responses[0].error_code


def body_position(frame: bytes, version: int) -> int:
    return RequestHeader.decode(frame, 2 if version >= 9 else 1, 4)[1]


def batch(size: int = 100, **fields: Any) -> bytes:
    return bytes(build_batch([(None, random.Random(size).randbytes(size))], timestamp_ms=1, **fields))


def request_frame(
    version: int,
    records: bytes | None,
    *,
    index: int = 0,
    acks: int = -1,
    correlation_id: int = 9,
    client_id: str = "client",
    **fields: Any,
) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    topic = ProduceRequest.TopicProduceData(partition_data=[data])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.name = "t"
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic], **fields)
    out = bytearray(4)
    header = RequestHeader(
        request_api_key=0, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    header.encode_into(out, 2 if version >= 9 else 1)
    request.encode_into(out, version)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_append_and_answer_the_same(version: int) -> None:
    fast, slow = World(), World()
    fast.learn(request_frame(version, batch(10)), version)
    # Sizes around the places where the varint of the records' length grows.
    for number, size in enumerate([1, 10, 65, 66, 67, 128, 16_000, 16_316, 16_320, 16_400, 70_000]):
        frame = request_frame(version, batch(size), correlation_id=number)
        assert fast.fast(frame, version, number) == slow.slow(frame, version, number)
    assert fast.partitions[0].appended == slow.partitions[0].appended != []


@pytest.mark.parametrize("version", [9, 12, 13])
def test_each_partition_has_its_route(version: int) -> None:
    world = World()
    for index in range(4):
        frame = request_frame(version, batch(), index=index)
        assert world.fast(frame, version, 1) is None
        world.learn(frame, version)
    for index in range(4):
        assert world.fast(request_frame(version, batch(), index=index), version, 1)
        assert len(world.partitions[index].appended) == 1


@pytest.mark.parametrize("version", [7, 12])
def test_prefixes_of_several_lengths(version: int) -> None:
    fast, slow = World(), World()
    frames = [
        request_frame(version, batch(size), index=index, client_id="c" * length)
        for length in (1, 20, 3)
        for index in range(4)
        for size in (10, 200)
    ]
    for frame in frames:
        fast.learn(frame, version)
    random.Random(1).shuffle(frames)
    for frame in frames:
        assert fast.fast(frame, version, 1) == slow.slow(frame, version, 1)
    for index in range(4):
        assert fast.partitions[index].appended == slow.partitions[index].appended != []


def test_routes_are_counted_and_no_more_are_learnt_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.broker.net.produce_fast_path._MAX_ROUTES", 3)
    world, frames = World(), [request_frame(12, batch(), index=index) for index in range(4)]
    for frame in frames * 2:
        world.learn(frame, 12)
    slots = world.broker.route_slots
    assert slots.used == 3
    assert [world.fast(frame, 12, 1) is not None for frame in frames] == [True, True, True, False]
    for _ in range(2):  # in vain for the fourth time
        world.learn(frames[3], 12)
    assert slots.used == 0
    world.learn(frames[3], 12)
    assert world.fast(frames[3], 12, 1)
    slots.limit = 1  # as if other connections had the rest
    world.learn(frames[0], 12)
    assert world.fast(frames[0], 12, 1) is None
    world.routes.clear()
    assert slots.used == 0


def test_thousands_of_routes_are_freed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.broker.net.produce_fast_path.ITEMS_PER_STEP", 2)
    world, freed = World(), []
    partitions = [weakref.ref(one) for one in world.partitions.values()]
    world.broker.background = SimpleNamespace(spawn=freed.append, run_steps=lambda steps: steps)
    frames = [request_frame(12, batch(), index=index) for index in range(4)]
    for frame in frames:
        world.learn(frame, 12)
    for partition in world.partitions.values():
        del partition.leadership  # a cycle
    world.partitions.clear()
    del partition
    world.routes.close()
    assert world.broker.route_slots.used == 0
    assert [world.fast(frame, 12, 1) for frame in frames] == [None] * 4
    (steps,) = freed
    left = []
    for _ in steps:
        left.append(sum(one() is not None for one in partitions))
    assert left == [2, 0]


def test_many_lengths_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    frames = [request_frame(12, batch(), client_id="c" * length) for length in range(1, 60)]
    for frame in frames:
        world.learn(frame, 12)
        assert world.fast(frame, 12, 1)
    assert 1 <= sum(world.fast(frame, 12, 1) is not None for frame in frames) <= 4


@pytest.mark.parametrize("version", [7, 12])
def test_a_long_prefix_is_not_kept(version: int) -> None:
    world = World()
    for length in (900, 1024):
        world.learn(request_frame(version, batch(), client_id="c" * length), version)
    assert world.broker.route_slots.used == 1


def test_acks_0_appends_and_answers_nothing() -> None:
    world = World()
    frame = request_frame(12, batch(), acks=0)
    world.learn(frame, 12)
    assert world.fast(frame, 12, 1) == b""
    assert len(world.partitions[0].appended) == 1


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_errors_are_left_to_the_general_way(error: ErrorCode) -> None:
    world = World()
    frame = request_frame(12, batch())
    world.learn(frame, 12)
    world.partitions[0].error = KafkaError(error)
    buffer = bytearray(frame)
    assert world.routes.produce(memoryview(buffer), 4, len(buffer), 12, 1) is None
    assert buffer == frame


def test_a_route_ends_with_the_generation_it_was_learnt_in() -> None:
    world = World()
    frame = request_frame(12, batch())
    world.learn(frame, 12)
    world.broker.replicas.generation += 1
    assert world.fast(frame, 12, 1) is None
    world.learn(frame, 12)
    assert world.fast(frame, 12, 1)


def test_requests_with_surprises_have_no_route() -> None:
    two = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=i, records=batch()) for i in range(2)]
    )
    for frame in (
        request_frame(12, batch(), transactional_id="x"),
        request_frame(12, None),
        request_frame(12, b""),
        request_frame(12, b"short"),
        request_frame(12, batch() + batch()),
    ):
        world = World()
        world.learn(frame, 12)
        assert world.fast(frame, 12, 1) is None
    world = World()
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[two])
    out = bytearray(4)
    RequestHeader(request_api_key=0, request_api_version=12, client_id="c").encode_into(out, 2)
    request.encode_into(out, 12)
    world.learn(bytes(out), 12)
    assert world.fast(bytes(out), 12, 1) is None


def test_the_answer_of_a_replicated_partition_is_deferred_until_it_is_committed() -> None:
    world, at_once = World(), World()
    frame = request_frame(12, batch())
    at_once.learn(frame, 12)
    world.partitions[0].commits_at_once = False
    world.learn(frame, 12)
    timers: list[Any] = []

    def call_later(delay_s: float, callback: Any) -> Any:
        timers.append(callback)
        return SimpleNamespace(when=lambda: 1.0)

    world.broker.loop = SimpleNamespace(time=lambda: 0.0, call_later=call_later)
    pending: Any = world.routes.produce(memoryview(bytearray(frame)), 4, len(frame), 12, 1)
    assert isinstance(pending, PendingProduce) and not pending.done
    ((offset, decide),) = world.partitions[0].waiting
    assert offset == 2
    decide(ErrorCode.NONE)
    assert pending.value == [at_once.fast(frame, 12, 1)]
    decide(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert error_of(pending.value[0]) == ErrorCode.NONE
    late: Any = world.routes.produce(memoryview(bytearray(frame)), 4, len(frame), 12, 2)
    world.broker.loop.time = lambda: 2.0
    timers.pop()()
    assert error_of(late.value[0]) == ErrorCode.REQUEST_TIMED_OUT
    assert world.routes.pending_count == 0 and timers == []


def test_what_is_committed_on_the_spot_is_not_deferred_and_what_is_pending_ends_with_the_connection() -> None:
    world, at_once = World(), World()
    frame = request_frame(12, batch())
    at_once.learn(frame, 12)
    world.partitions[0].commits_at_once = False
    world.learn(frame, 12)
    timers: list[str] = []
    timer = SimpleNamespace(when=lambda: 1.0, cancel=lambda: timers.append("cancelled"))
    world.broker.loop = SimpleNamespace(time=lambda: 0.0, call_later=lambda *_: timer)
    world.partitions[0].verdict = ErrorCode.NONE
    assert world.fast(frame, 12, 1) == at_once.fast(frame, 12, 1)
    world.partitions[0].verdict = None
    pending: Any = world.routes.produce(memoryview(bytearray(frame)), 4, len(frame), 12, 2)
    world.routes.close()
    assert pending.cancelled and timers == ["cancelled"] and world.routes.pending_count == 0
    world.partitions[0].waiting[-1][1](ErrorCode.NONE)
    assert pending.value is None


def test_partitions_that_flush_by_messages_have_no_route() -> None:
    world = World()
    world.partitions[0].log.config.flush_messages = 10
    frame = request_frame(12, batch())
    world.learn(frame, 12)
    assert world.fast(frame, 12, 1) is None


def test_internal_topics_have_no_route() -> None:
    world = World()
    world.partitions[0].topic = "__consumer_offsets"
    frame = request_frame(12, batch())
    world.learn(frame, 12)
    assert world.fast(frame, 12, 1) is None


def test_an_unknown_partition_has_no_route() -> None:
    world = World()
    frame = request_frame(12, batch(), index=77)
    world.learn(frame, 12)
    assert world.fast(frame, 12, 1) is None


@pytest.mark.parametrize("version", [8, 12, 13])
def test_mutated_requests_of_a_known_route_append_nothing_that_the_general_way_would_not(version: int) -> None:
    good = request_frame(version, batch())
    rng = random.Random(3)
    for _ in range(2000):
        world, twin = World(), World()
        world.learn(good, version)
        frame = bytearray(good)
        at = rng.randrange(12, len(frame))
        frame[at] = rng.randrange(256)
        cut = rng.choice([len(frame), len(frame), rng.randrange(12, len(frame))])
        mutant = bytes(frame[:cut])
        if world.fast(mutant, version, 1) is None:
            assert world.partitions[0].appended == []
            continue
        twin.slow(mutant, version, 1)
        assert world.partitions[0].appended == twin.partitions[0].appended


# ---- with an authorizer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 13])
def test_a_route_is_learnt_where_the_write_is_allowed_and_ends_with_the_rules(version: int) -> None:
    world, authorizer = World(), FakeAuthorizer()
    world.broker.metadata = SimpleNamespace(topic_name={TOPIC_ID: "t"}.get)
    client: Any = SimpleNamespace(principal=ANONYMOUS, host="127.0.0.1")
    world.broker.authorizer = authorizer
    world.routes = ProduceRoutes(world.broker, client)
    frame = request_frame(version, batch(10))
    world.learn(frame, version)
    assert authorizer.checks == [(Operation.WRITE, ResourceType.TOPIC, "t")]
    assert world.fast(frame, version, 1) is not None
    assert len(authorizer.checks) == 1, "a route needs no check"
    authorizer.deny(Operation.WRITE, ResourceType.TOPIC, "t")
    assert world.fast(frame, version, 2) is None
    world.learn(frame, version)
    assert world.broker.route_slots.used == 0
    assert world.fast(frame, version, 3) is None
    assert len(world.partitions[0].appended) == 1
    authorizer.denied.clear()
    authorizer.generation += 1
    world.learn(frame, version)
    assert world.fast(frame, version, 4) is not None
