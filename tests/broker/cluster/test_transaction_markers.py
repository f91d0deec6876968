"""Markers of transactions: to the leaders of the partitions, here and on other brokers, until all have them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from gregor.broker.cluster import peer_queue, transaction_markers
from gregor.broker.cluster.transaction_markers import WRITTEN_AT_ONCE, LocalMarkers, TransactionMarkers
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import UpdateMetadataRequest, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate, run_all
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import LEADER_DURING_DELETE, MetadataImage

OWN, SECOND, THIRD = 1, 2, 3
COMMIT = EndTransaction(7, 3, 5, True, 2)
ABORT = EndTransaction(8, 0, 5, False, 0)

Key = tuple[int, str, int]


class FakePeer:
    """Brokers by port. Each writes markers once the test allows it, or raises the error of the test."""

    made: list[FakePeer]
    allowed: asyncio.Event
    written: list[tuple[int, Key]]
    errors: dict[Key, list[ErrorCode]]
    unreachable: set[int]
    requests: list[tuple[int, WriteTxnMarkersRequest]]

    def __init__(
        self, host: str, port: int, client_id: str, timeout_ms: int, gate: Gate, security: object = None
    ) -> None:
        self.address = host, port
        self._ended: asyncio.Event = asyncio.Event()
        self.made.append(self)

    async def send(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        port = self.address[1]
        self.requests.append((port, request))
        waits = [asyncio.ensure_future(event.wait()) for event in (self.allowed, self._ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._ended.is_set() or port in self.unreachable:
            raise PeerError(f"broker {port} is not there")
        return WriteTxnMarkersResponse(
            markers=[
                WriteTxnMarkersResponse.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self._write((marker.producer_id, topic.name, index)),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _write(self, key: Key) -> ErrorCode:
        if self.errors.get(key):
            return self.errors[key].pop(0)
        self.written.append((self.address[1], key))
        return ErrorCode.NONE

    def close(self) -> None:
        self._ended.set()

    def __str__(self) -> str:
        return f"h:{self.address[1]}"


class FakeReplica:
    """A partition that this broker leads; the test commits what was appended."""

    def __init__(self) -> None:
        self.appended: list[EndTransaction] = []
        self.error: ErrorCode | None = None
        self.commits_at_once = True
        self.leadership = self
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def append_marker(self, marker: EndTransaction, now_ms: int) -> Any:
        if self.error is not None:
            raise KafkaError(self.error)
        self.appended.append(marker)

        class Info:
            last_offset = len(self.appended) - 1

        return Info

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        if self.commits_at_once:
            callback(ErrorCode.NONE)
        else:
            self.waiting.append(callback)


class FakeGroups:
    def __init__(self) -> None:
        self.ended: list[tuple[int, EndTransaction]] = []
        self.errors: list[ErrorCode] = []

    def end_transaction(self, partition: int, marker: EndTransaction) -> Deferred[bool]:
        outcome: Deferred[bool] = Deferred()
        if self.errors:
            outcome.fail(KafkaError(self.errors.pop(0)))
        else:
            self.ended.append((partition, marker))
            outcome.complete(True)
        return outcome


class World:
    """The markers of broker 1, with the metadata that the test sets."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.replicas: dict[tuple[str, int], FakeReplica] = {}
        self.groups = FakeGroups()
        self.background = Background(LoopGate())
        config = BrokerConfig({"broker.id": str(OWN)})
        local = LocalMarkers(cast("Any", self), self.groups, lambda: 99)
        self.markers = TransactionMarkers(config, self.image, local, self.background)

    def get(self, topic: str, index: int) -> FakeReplica | None:
        return self.replicas.get((topic, index))

    def told(self, topic: str, *leaders: int, alive: tuple[int, ...] = (OWN, SECOND, THIRD)) -> None:
        """Apply metadata: the leaders of the topic's partitions, and the brokers that are alive."""
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_,
                endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=id_, listener="PLAINTEXT")],
            )
            for id_ in alive
        ]
        states = [
            UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=leader)
            for index, leader in enumerate(leaders)
        ]
        topics = [UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=topic, partition_states=states)]
        run_all(self.image.apply(UpdateMetadataRequest(live_brokers=brokers, topic_states=topics)))

    def send(self, marker: EndTransaction, topic: str, *indexes: int) -> Deferred[None]:
        return self.markers.send(marker, [TopicPartition(topic, index) for index in indexes])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def done(outcome: Deferred[None]) -> None:
    async with asyncio.timeout(20):
        await outcome_of(outcome, asyncio.get_running_loop().create_future())


Test = Callable[[World], Awaitable[None]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Test], None]]:
    def runner(test: Test) -> None:
        async def body() -> None:
            peer: Any = FakePeer
            monkeypatch.setattr(peer_queue, "Peer", peer)
            monkeypatch.setattr(transaction_markers, "RETRY_DELAY_S", 0)
            FakePeer.made, FakePeer.written, FakePeer.requests = [], [], []
            FakePeer.errors, FakePeer.unreachable, FakePeer.allowed = {}, set(), asyncio.Event()
            FakePeer.allowed.set()
            world = World()
            try:
                await test(world)
            finally:
                world.markers.close()
                await world.background.close()

        asyncio.run(body())

    yield runner


def test_partitions_of_this_broker_alone_have_their_markers_at_once(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", OWN, OWN)
        world.replicas = {("t", 0): FakeReplica(), ("t", 1): FakeReplica()}
        assert world.send(COMMIT, "t", 0, 1).done
        assert [replica.appended for replica in world.replicas.values()] == [[COMMIT], [COMMIT]]
        assert world.send(ABORT, "t").done

    run(test)


def test_markers_of_many_partitions_are_written_in_turns(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        count = 3 * WRITTEN_AT_ONCE
        world.told("t", *[OWN] * count)
        world.replicas = {("t", index): FakeReplica() for index in range(count)}
        outcome = world.send(COMMIT, "t", *range(count))
        assert not outcome.done
        await done(outcome)
        assert all(replica.appended == [COMMIT] for replica in world.replicas.values())

    run(test)


def test_transaction_ends_once_the_marker_is_committed(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", OWN)
        replica = world.replicas["t", 0] = FakeReplica()
        replica.commits_at_once = False
        outcome = world.send(COMMIT, "t", 0)
        await turns()
        assert not outcome.done
        replica.waiting.pop()(ErrorCode.NONE)
        assert outcome.done

    run(test)


def test_offsets_of_groups_are_ended_by_their_coordinator(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told(GROUP_METADATA_TOPIC, OWN)
        world.groups.errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
        await done(world.send(COMMIT, GROUP_METADATA_TOPIC, 0))
        assert world.groups.ended == [(0, COMMIT)]

    run(test)


def test_other_brokers_get_the_markers_of_their_partitions(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", SECOND, THIRD, OWN, SECOND)
        world.replicas["t", 2] = FakeReplica()
        await done(world.send(COMMIT, "t", 0, 1, 2, 3))
        assert sorted(FakePeer.written) == [(SECOND, (7, "t", 0)), (SECOND, (7, "t", 3)), (THIRD, (7, "t", 1))]
        (marker,) = next(request for port, request in FakePeer.requests if port == SECOND).markers
        assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result) == (3, 5, True)
        assert marker.transaction_version == 2

    run(test)


def test_markers_for_the_same_broker_wait_for_its_answer_and_are_sent_together(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        FakePeer.allowed.clear()
        world.told("t", *[SECOND] * 4)
        first = world.send(COMMIT, "t", 0)
        await turns()
        others = [world.send(EndTransaction(100 + index, 0, 5, True, 0), "t", index) for index in range(4)]
        await turns()
        assert len(FakePeer.requests) == 1
        FakePeer.allowed.set()
        for outcome in [first, *others]:
            await done(outcome)
        assert [len(request.markers) for _, request in FakePeer.requests] == [1, 4]
        assert len(FakePeer.made) == 1

    run(test)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_marker_that_is_refused_for_now_is_sent_again(run: Callable[[Test], None], error: ErrorCode) -> None:
    async def test(world: World) -> None:
        world.told("t", SECOND, SECOND)
        FakePeer.errors[7, "t", 1] = [error] * 3
        await done(world.send(COMMIT, "t", 0, 1))
        assert FakePeer.written == [(SECOND, (7, "t", 0)), (SECOND, (7, "t", 1))]

    run(test)


def test_one_marker_at_a_time_tries_a_partition_that_refuses_them(run: Callable[[Test], None]) -> None:
    """Of thousands of transactions that end in the same partition each would be sent again and again."""

    async def test(world: World) -> None:
        world.told("t", SECOND, SECOND)
        count = 300
        for producer_id in range(100, 100 + count):
            FakePeer.errors[producer_id, "t", 0] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
        outcomes = [world.send(EndTransaction(100 + index, 0, 5, True, 0), "t", 0, 1) for index in range(count)]
        await world.until(lambda: len(FakePeer.written) == count)  # partition 1
        outcomes[0].cancel()
        before = len(FakePeer.requests)
        await world.until(lambda: len(FakePeer.requests) > before + 50)
        assert max(len(request.markers) for _, request in FakePeer.requests[before:]) < 10
        assert not any(outcome.done for outcome in outcomes[1:])
        FakePeer.errors.clear()
        for outcome in outcomes[1:]:
            await done(outcome)
        assert len(FakePeer.requests) < before + 70
        assert sorted(FakePeer.written) == sorted(
            (SECOND, (100 + index, "t", part)) for index in range(count) for part in (0, 1) if index or part
        )

    run(test)


@pytest.mark.parametrize("answer", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_any_decision_of_a_partition_lets_the_others_follow(run: Callable[[Test], None], answer: ErrorCode) -> None:
    async def test(world: World) -> None:
        world.told("t", SECOND)
        refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        FakePeer.errors = {(7, "t", 0): [*refusals, answer], (8, "t", 0): list(refusals), (9, "t", 0): list(refusals)}
        outcomes = [world.send(EndTransaction(id_, 0, 5, True, 0), "t", 0) for id_ in (7, 8, 9)]
        await world.until(lambda: all(outcome.done for outcome in outcomes))
        assert (outcomes[0].error is None) == (answer is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        assert sorted(FakePeer.written) == [(SECOND, (8, "t", 0)), (SECOND, (9, "t", 0))]

    run(test)


def test_a_marker_is_sent_to_the_next_leader(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", SECOND)
        FakePeer.unreachable.add(SECOND)
        outcome = world.send(COMMIT, "t", 0)
        await world.until(lambda: len(FakePeer.requests) > 2)
        assert not outcome.done
        world.told("t", OWN)
        world.replicas["t", 0] = FakeReplica()
        await done(outcome)
        assert world.replicas["t", 0].appended == [COMMIT]

    run(test)


def test_a_leader_that_hangs_is_given_up_when_it_leaves_the_cluster(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        FakePeer.allowed.clear()
        world.told("t", SECOND)
        outcome = world.send(COMMIT, "t", 0)
        waiting = world.send(ABORT, "t", 0)
        await turns()
        world.told("t", THIRD, alive=(OWN, THIRD))
        FakePeer.allowed.set()
        await done(outcome)
        await done(waiting)
        assert sorted(FakePeer.written) == [(THIRD, (7, "t", 0)), (THIRD, (8, "t", 0))]

    run(test)


def test_partitions_without_a_leader_are_waited_for(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", -1)
        outcome = world.send(COMMIT, "t", 0)
        await turns(50)
        assert not outcome.done
        world.told("t", THIRD)
        await done(outcome)

    run(test)


def test_deleted_topics_need_no_marker(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told(TRANSACTION_STATE_TOPIC, OWN)
        world.told("t", SECOND, SECOND)
        FakePeer.errors[7, "t", 0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
        FakePeer.errors[7, "t", 1] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100
        outcome = world.send(COMMIT, "t", 0, 1)
        await world.until(lambda: bool(FakePeer.written))
        world.told("t", LEADER_DURING_DELETE, LEADER_DURING_DELETE)
        await done(outcome)
        assert world.send(COMMIT, "unknown", 0).done

    run(test)


def test_before_the_metadata_is_known_no_topic_counts_as_deleted(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.image.expect_topics(True)
        outcome = world.send(COMMIT, "t", 0)
        await turns(50)
        assert not outcome.done
        world.told("t", SECOND)
        await done(outcome)
        assert FakePeer.written == [(SECOND, (7, "t", 0))]

    run(test)


def test_metadata_without_the_coordinators_topic_is_not_complete(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("other", SECOND)
        outcome = world.send(COMMIT, "t", 0)
        await turns(50)
        assert world.image.is_informed
        assert not outcome.done
        world.told("t", SECOND)
        await done(outcome)

    run(test)


@pytest.mark.parametrize("error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("leader", [OWN, SECOND])
def test_a_fenced_coordinator_is_told_so(run: Callable[[Test], None], error: ErrorCode, leader: int) -> None:
    async def test(world: World) -> None:
        world.told("t", leader)
        replica = world.replicas["t", 0] = FakeReplica()
        replica.error = error
        FakePeer.errors[7, "t", 0] = [error]
        with pytest.raises(KafkaError) as caught:
            await done(world.send(COMMIT, "t", 0))
        assert caught.value.code is error

    run(test)


def test_a_topic_that_cannot_hold_transactions_needs_no_marker(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", SECOND)
        FakePeer.errors[7, "t", 0] = [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
        await done(world.send(COMMIT, "t", 0))
        assert FakePeer.written == []

    run(test)


def test_a_coordinator_that_resigns_sends_no_more(run: Callable[[Test], None]) -> None:
    async def test(world: World) -> None:
        world.told("t", SECOND)
        FakePeer.unreachable.add(SECOND)
        outcome = world.send(COMMIT, "t", 0)
        await world.until(lambda: bool(FakePeer.requests))
        outcome.cancel()
        await turns()
        count = len(FakePeer.requests)
        FakePeer.unreachable.clear()
        await turns(50)
        assert (len(FakePeer.requests), FakePeer.written) == (count, [])

    run(test)


def test_requests_have_a_limit(run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_queue, "MAX_ITEMS", 3)

    async def test(world: World) -> None:
        FakePeer.allowed.clear()
        world.told("t", SECOND)
        outcomes = [world.send(EndTransaction(100 + index, 0, 5, True, 0), "t", 0) for index in range(8)]
        await turns()
        FakePeer.allowed.set()
        for outcome in outcomes:
            await done(outcome)
        assert [len(request.markers) for _, request in FakePeer.requests] == [3, 3, 2]

    run(test)


def test_a_bug_in_one_exchange_loses_no_marker(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send, failures = FakePeer.send, [ValueError("a bug")]

    async def send_or_fail(self: FakePeer, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if failures:
            raise failures.pop()
        return await send(self, request)

    async def test(world: World) -> None:
        monkeypatch.setattr(FakePeer, "send", send_or_fail)
        world.told("t", SECOND)
        await done(world.send(COMMIT, "t", 0))
        assert FakePeer.written == [(SECOND, (7, "t", 0))]

    run(test)
    assert "a request to the broker at h:2 failed" in caplog.text


def test_a_marker_without_a_result_is_sent_again(run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch) -> None:
    send, empty = FakePeer.send, [WriteTxnMarkersResponse(markers=[])]

    async def send_or_omit(self: FakePeer, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return empty.pop() if empty else await send(self, request)

    async def test(world: World) -> None:
        monkeypatch.setattr(FakePeer, "send", send_or_omit)
        world.told("t", SECOND)
        await done(world.send(COMMIT, "t", 0))
        assert FakePeer.written == [(SECOND, (7, "t", 0))]

    run(test)


def test_partitions_that_wait_for_the_same_reason_are_logged_once(
    run: Callable[[Test], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def test(world: World) -> None:
        world.told("t", SECOND, SECOND)
        for index in (0, 1):
            FakePeer.errors[7, "t", index] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 5
        await done(world.send(COMMIT, "t", 0, 1))

    run(test)
    assert caplog.text.count("its leader answers NOT_ENOUGH_REPLICAS; the marker is sent again") == 1
