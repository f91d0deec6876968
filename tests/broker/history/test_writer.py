"""The writer of the history of rebalances: never in the way of groups, bounded, on any leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from gregor.broker.cluster import peer_queue
from gregor.broker.history import writer
from gregor.broker.history.topic_births import STARTING_MS, TopicBirths
from gregor.broker.history.writer import DELAY_S, FINISH_S, RETRY_S, RebalanceHistory
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.coordinator.history.causes import Cause, Trigger
from gregor.coordinator.history.rebalance import GroupType, Outcome, Rebalance
from gregor.coordinator.history.records import Slot, decode
from gregor.coordinator.history.storms import BURST, REFILL_MS
from gregor.coordinator.partitioner import partition_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ProduceRequest, ProduceResponse, UpdateMetadataRequest
from gregor.protocol.records.batch import iter_batches
from gregor.protocol.topic_names import REBALANCES_TOPIC
from gregor.protocol.turns import Gate, run_all
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import MetadataImage
from tests.coordinator.machinery import SkippingLoop

OWN, SECOND = 1, 2
PARTITIONS = 2


class Log:
    """The partitions that this broker leads."""

    def __init__(self) -> None:
        self.records: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.errors: list[ErrorCode] = []
        self.on_append: Callable[[], object] = lambda: None

    def append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        self.on_append()
        if self.errors:
            raise KafkaError(self.errors.pop(0))
        self.records.setdefault(partition, []).extend(records)
        return 0


class FakePeer:
    """The other broker: it appends what it is sent, or answers with the errors that the test sets."""

    log: Log
    requests: list[ProduceRequest]
    client_ids: set[str]
    reachable: bool
    answers: bool

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, security: object = None
    ) -> None:
        self.address = host, port
        self.client_ids.add(client_id)

    async def send(self, request: ProduceRequest, *, newest: int) -> ProduceResponse:
        if not self.reachable:
            raise PeerError("nothing listens there")
        assert newest < 13
        if not self.answers:
            await asyncio.sleep(100)
        self.requests.append(request)
        answers = []
        for one in request.topic_data[0].partition_data:
            code = ErrorCode.NONE
            data: Any = one.records
            records = [(record.key or b"", record.value) for batch in iter_batches(data) for record in batch.records()]
            try:
                self.log.append(one.index, records)
            except KafkaError as error:
                code = error.code
            answers.append(ProduceResponse.PartitionProduceResponse(index=one.index, error_code=code))
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name=REBALANCES_TOPIC, partition_responses=answers)]
        )

    def close(self) -> None:
        pass


class World:
    def __init__(self, loop: SkippingLoop) -> None:
        self.loop = loop
        self.image = MetadataImage()
        self.log = Log()
        self.background = Background(LoopGate())
        self.created: list[str] = []
        self.creation_error: KafkaError | None = None
        self.leader = OWN
        log: Any = self.log
        self.births = TopicBirths(self.image, self.now_ms)
        self.history = RebalanceHistory(
            BrokerConfig({"broker.id": str(OWN)}), self.image, log, self.births, self.background, self.now_ms
        )

    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    async def create(self, name: str) -> None:
        self.created.append(name)
        if self.creation_error is not None:
            raise self.creation_error
        self.apply(**{name: PARTITIONS})

    def apply(self, **topics: int) -> None:
        """Metadata with these topics and their numbers of partitions."""
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_,
                endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=id_, listener="PLAINTEXT")],
            )
            for id_ in (OWN, SECOND)
        ]
        states = [
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name,
                partition_states=[
                    UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=self.leader)
                    for index in range(count)
                ],
            )
            for name, count in topics.items()
        ]
        run_all(self.image.apply(UpdateMetadataRequest(live_brokers=brokers, topic_states=states)))

    def slots(self, log: Log | None = None) -> list[Slot]:
        found = [decode(*record) for _, records in sorted((log or self.log).records.items()) for record in records]
        return [slot for slot in found if slot is not None]

    def epochs(self, log: Log | None = None) -> list[int]:
        return [slot.value.epoch for slot in self.slots(log) if slot.value is not None]


def rebalance(epoch: int, group: str = "g") -> Rebalance:
    one = Rebalance(group, GroupType.CLASSIC, epoch, 0, joined_ms=1, ended_ms=2, outcome=Outcome.ASSIGNED)
    one.add_cause(Cause(Trigger.MEMBER_LEFT), 0)
    return one


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    peer: Any = FakePeer
    monkeypatch.setattr(peer_queue, "Peer", peer)
    FakePeer.log, FakePeer.requests, FakePeer.client_ids, FakePeer.reachable = Log(), [], set(), True
    FakePeer.answers = True
    loop = SkippingLoop()
    asyncio.set_event_loop(loop)
    made: list[World] = []

    async def make() -> None:
        made.append(World(loop))

    loop.run_until_complete(make())
    yield made[0]
    loop.run_until_complete(_closed(made[0]))
    asyncio.set_event_loop(None)
    loop.close()


async def _closed(world: World) -> None:
    world.history.close()
    await world.background.close()


def run(world: World, body: Callable[[], object], for_s: float = 1.5 * DELAY_S) -> None:
    """Call, and let time pass."""

    async def test() -> None:
        body()
        await asyncio.sleep(for_s)

    world.loop.run_until_complete(test())


def start(world: World) -> None:
    run(world, lambda: world.history.start(world.create), 0)


def test_record_is_written_off_the_path_of_the_join_and_the_topic_is_created_for_it(world: World) -> None:
    start(world)

    def record() -> None:
        world.history.record(rebalance(1))
        assert (world.created, world.log.records) == ([], {})

    run(world, record, 0.01 * DELAY_S)
    assert (world.created, world.epochs()) == ([REBALANCES_TOPIC], [1])
    assert list(world.log.records) == [partition_of("g", PARTITIONS)]


def test_one_that_ends_soon_after_a_write_waits_for_others(world: World) -> None:
    start(world)
    world.leader = SECOND
    run(world, lambda: world.history.record(rebalance(1)), 0.2 * DELAY_S)
    run(world, lambda: world.history.record(rebalance(2)), 0.2 * DELAY_S)
    run(world, lambda: world.history.record(rebalance(3)), 0.2 * DELAY_S)
    assert world.epochs(FakePeer.log) == [1]
    run(world, lambda: None, 0.5 * DELAY_S)
    assert (len(FakePeer.requests), world.epochs(FakePeer.log)) == (2, [1, 2, 3])
    run(world, lambda: None, DELAY_S)
    run(world, lambda: world.history.record(rebalance(4)), 0.01 * DELAY_S)
    assert world.epochs(FakePeer.log) == [1, 2, 3, 4]


def test_work_that_fails_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    start(world)
    failures = [RuntimeError("broken")]
    real = world.log.append

    def append(partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        if failures:
            raise failures.pop()
        return real(partition, records)

    monkeypatch.setattr(world.log, "append", append)
    run(world, lambda: world.history.record(rebalance(1)), 0.1 * DELAY_S)
    assert not failures and world.epochs() == []
    run(world, lambda: None, 2 * RETRY_S)
    assert world.epochs() == [1]


def test_rebalances_before_the_start_are_written_after_it(world: World) -> None:
    run(world, lambda: world.history.record(rebalance(1)))
    assert world.created == []
    run(world, lambda: world.history.start(world.create))
    assert world.epochs() == [1]


def test_rebalances_that_end_together_share_a_batch(world: World) -> None:
    start(world)
    world.leader = SECOND
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in (1, 2, 3)])
    assert (len(FakePeer.requests), world.epochs(FakePeer.log)) == (1, [1, 2, 3])
    assert FakePeer.requests[0].acks == -1
    assert FakePeer.client_ids == {"__admin_client"}


def test_line_of_each_rebalance_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    start(world)
    with caplog.at_level(logging.INFO, "gregor"):
        run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in (1, 2)])
    lines = [record.getMessage() for record in caplog.records]
    text = "Group 'g': generation {} assigned after 2 ms, members: 0; member left; partitions: 0"
    assert lines == [text.format(epoch) for epoch in (1, 2)]


def test_storm_is_limited(world: World) -> None:
    start(world)
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in range(1, 1_001)])
    assert len(world.epochs()) == BURST
    run(world, lambda: None, REFILL_MS / 1000 + DELAY_S)
    last = world.slots()[-1].value
    assert last is not None
    assert (last.epoch, last.not_recorded) == (1_000, 1_000 - BURST - 1)
    run(world, lambda: None, 100)
    assert len(world.epochs()) == BURST + 1


@pytest.mark.parametrize("leader", [OWN, SECOND])
def test_leader_that_refuses_gets_the_records_later_in_their_order(world: World, leader: int) -> None:
    start(world)
    world.leader = leader
    log = world.log if leader == OWN else FakePeer.log
    log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    run(world, lambda: world.history.record(rebalance(1)))
    run(world, lambda: world.history.record(rebalance(2)), 0)
    assert world.epochs(log) == []
    run(world, lambda: None, 2 * RETRY_S)
    assert world.epochs(log) == [1, 2]


@pytest.mark.parametrize("leader", [OWN, SECOND])
@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_records_that_do_not_fit_the_topic_do_not_hold_up_the_next_ones(
    world: World, monkeypatch: pytest.MonkeyPatch, leader: int, code: ErrorCode
) -> None:
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 1)
    start(world)
    world.leader = leader
    log = world.log if leader == OWN else FakePeer.log
    log.errors = [code]
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in (1, 2)])
    assert world.epochs(log) == [2]


@pytest.mark.parametrize("leader", [OWN, SECOND])
def test_batches_are_bounded_in_bytes(world: World, monkeypatch: pytest.MonkeyPatch, leader: int) -> None:
    start(world)
    world.leader = leader
    log = world.log if leader == OWN else FakePeer.log
    run(world, lambda: world.history.record(rebalance(1)))
    size_bytes = sum(len(key) + len(value or b"") for records in log.records.values() for key, value in records)
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 2 * size_bytes)
    batches: list[int] = []
    log.on_append = lambda: batches.append(len(world.epochs(log)) - 1)
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in range(2, 7)], 2 * RETRY_S)
    assert (batches, world.epochs(log)) == ([0, 2, 4], [1, 2, 3, 4, 5, 6])


def test_records_that_have_waited_are_appended_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 1)
    start(world)
    world.background.gate.clock = count().__next__  # each turn is over at once
    events: list[str] = []

    def appended() -> None:
        events.append("append")
        world.loop.call_soon(events.append, "other work")

    world.log.on_append = appended
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in (1, 2, 3)])
    assert events == ["append", "other work"] * 3


def test_leader_that_cannot_be_reached_gets_the_records_later(world: World) -> None:
    start(world)
    world.leader = SECOND
    FakePeer.reachable = False
    run(world, lambda: world.history.record(rebalance(1)), 20)
    FakePeer.reachable = True
    run(world, lambda: None, 2 * RETRY_S)
    assert world.epochs(FakePeer.log) == [1]


def test_new_leader_gets_the_records(world: World) -> None:
    start(world)
    world.leader = SECOND
    FakePeer.reachable = False
    run(world, lambda: world.history.record(rebalance(1)), 20)

    def lead() -> None:
        world.leader = OWN
        world.apply(**{REBALANCES_TOPIC: PARTITIONS})

    run(world, lead, 2 * RETRY_S)
    assert world.epochs() == [1]


def test_topic_that_cannot_be_created_is_tried_again(world: World) -> None:
    start(world)
    world.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    run(world, lambda: world.history.record(rebalance(1)), 5 * RETRY_S)
    assert len(world.created) > 1
    world.creation_error = None
    run(world, lambda: None, 2 * RETRY_S)
    assert world.epochs() == [1]


def test_what_waits_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 1_000)
    start(world)
    world.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    with caplog.at_level(logging.INFO, "gregor"):
        run(world, lambda: [world.history.record(rebalance(1, f"g{number}")) for number in range(100)], 60)
    assert any("records dropped so far: 9" in record.getMessage() for record in caplog.records)
    world.creation_error = None
    run(world, lambda: None, 2 * RETRY_S)
    assert 0 < len(world.epochs()) < 20


def test_history_of_a_deleted_group_is_removed_before_that_of_its_successor(world: World) -> None:
    start(world)
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in (1, 2)])

    def delete() -> None:
        world.history.record(rebalance(3))
        world.history.forget("g", 3)
        world.history.record(rebalance(1))

    run(world, delete)
    slots = world.slots()[2:]
    assert [slot.slot for slot in slots if slot.value is None] == [0, 1, 2, 3]
    last = slots[-1].value
    assert last is not None
    assert last.epoch == 1


def test_history_of_a_group_that_was_deleted_twice_is_removed_as_a_whole(world: World) -> None:
    start(world)
    run(world, lambda: [world.history.record(rebalance(epoch)) for epoch in (1, 2, 3)])
    run(world, lambda: [world.history.forget("g", epoch) for epoch in (3, 1)])
    assert [slot.slot for slot in world.slots()[3:] if slot.value is None] == [0, 1, 2, 3]


def test_deletion_does_not_create_the_topic(world: World) -> None:
    start(world)
    run(world, lambda: world.history.forget("g", 3), 5)
    assert (world.created, world.log.records) == ([], {})


def test_topic_that_was_deleted_and_has_fewer_partitions_drops_what_waits(world: World) -> None:
    start(world)
    world.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    run(world, lambda: [world.history.record(rebalance(1, group)) for group in "abcd"])

    def recreate() -> None:
        world.apply(**{REBALANCES_TOPIC: PARTITIONS})
        partitions = [
            UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=-2) for index in (1,)
        ]
        topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=REBALANCES_TOPIC, partition_states=partitions)
        run_all(world.image.apply(UpdateMetadataRequest(topic_states=[topic])))

    run(world, recreate, 2 * RETRY_S)
    assert set(world.log.records) == {0}


def test_broker_that_stops_writes_what_it_can(world: World) -> None:
    start(world)
    run(world, lambda: world.history.record(rebalance(1)))
    run(world, lambda: world.history.record(rebalance(2)), 0)
    run(world, world.history.close, 0)
    assert world.epochs() == [1, 2]
    run(world, lambda: world.history.record(rebalance(3)), 10)
    assert world.epochs() == [1, 2]


@pytest.mark.parametrize("leader", [OWN, SECOND])
def test_broker_that_is_about_to_stop_writes_at_once(world: World, leader: int) -> None:
    start(world)
    world.leader = leader
    log = world.log if leader == OWN else FakePeer.log

    async def finish() -> None:
        world.history.record(rebalance(1))
        await world.history.finish()

    world.loop.run_until_complete(finish())
    assert (world.created, world.epochs(log), world.loop.time()) == ([REBALANCES_TOPIC], [1], 0)


def test_broker_that_is_about_to_stop_does_not_wait_long(world: World) -> None:
    start(world)
    world.leader = SECOND
    FakePeer.answers = False

    async def finish() -> None:
        world.history.record(rebalance(1))
        await world.history.finish()

    world.loop.run_until_complete(finish())
    assert world.loop.time() == FINISH_S


def test_topics_that_appear_after_the_start_are_new(world: World) -> None:
    run(world, lambda: world.apply(old=1), 1)
    run(world, lambda: world.apply(late=1), STARTING_MS / 1000)
    run(world, lambda: world.apply(new=2), 0)
    assert [world.births.created_ms(topic) for topic in ("old", "late")] == [None, None]
    assert world.births.created_ms("new") == world.now_ms()
    assert [world.births.partition_count(topic) for topic in ("new", "none")] == [2, 0]
