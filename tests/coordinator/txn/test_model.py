"""Random operations of several producers against a simple oracle, with moves of the coordinator and lost records.

The partitions of the data are lists: a leader accepts a write that its coordinator has verified or added, and markers
as Apache Kafka's ProducerAppendInfo does. The oracle knows of each transaction only what its client was answered:

- atomicity: all writes of a transaction are committed, or none is; an answer to EndTxn is the outcome;
- a write of an epoch that was fenced is never committed after that;
- every decision reaches every partition, and hard state at any time is what a reload of the log makes of it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

import pytest

from gregor.coordinator.txn.ports import Markers
from gregor.coordinator.txn.states import TransactionState
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_partition import TopicPartition
from tests.coordinator.machinery import Call
from tests.coordinator.txn.context import Context

IDS = ("t", "u")
PARTITIONS = 3
STEPS = 120
MAX_EPOCH = 2**15 - 1
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
LOST = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@dataclass
class Attempt:
    """A transaction as its client sees it. `answered` is the outcome that the client received, None without one."""

    writes: int = 0
    requested: set[bool] = field(default_factory=set)
    answered: bool | None = None
    outcomes: set[bool] = field(default_factory=set)
    added: set[int] = field(default_factory=set)
    """The partitions that a client of the old protocol has added."""


@dataclass
class Producer:
    """One instance of a client."""

    transactional_id: str
    new_protocol: bool
    number: int
    identity: tuple[int, int] | None = None
    attempt: Attempt = field(default_factory=Attempt)
    fenced: bool = False
    ended: tuple[int, int] | None = None
    """The identity of an EndTxn whose answer is unknown; it is sent again."""


class Leaders:
    """The leaders of the data, and MarkerSender of the coordinator. Markers arrive on command."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[int, int], int] = {}
        self.coordinator_epochs: dict[tuple[int, int], int] = {}
        self.open: dict[tuple[int, int], list[Attempt]] = {}
        self.waiting: list[tuple[EndTransaction, int, Deferred[None]]] = []
        self.left: dict[Deferred[None], int] = {}
        self.held = False

    def accept_write(self, partition: int, identity: tuple[int, int], attempt: Attempt) -> bool:
        producer_id, epoch = identity
        if epoch < self.epochs.get((partition, producer_id), -1):
            return False
        self.epochs[partition, producer_id] = epoch
        self.open.setdefault((partition, producer_id), []).append(attempt)
        attempt.writes += 1
        return True

    def has_open(self, partition: int, identity: tuple[int, int]) -> bool:
        producer_id, epoch = identity
        return bool(self.open.get((partition, producer_id))) and self.epochs[partition, producer_id] == epoch

    def send(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> Markers:
        written = Markers(partitions)
        self.left[written] = len(partitions)
        for _, partition in sorted(partitions):
            self.waiting.append((marker, partition, written))
        if not self.held:
            self.deliver_all()
        return written

    def deliver_all(self) -> None:
        while self.waiting:
            self.write(*self.waiting.pop(0))

    def deliver(self, random: Random) -> None:
        """Some of the markers arrive, also those of a coordinator that has resigned since."""
        random.shuffle(self.waiting)
        for _ in range(random.randint(0, len(self.waiting))):
            self.write(*self.waiting.pop())

    def write(self, marker: EndTransaction, partition: int, written: Deferred[None]) -> None:
        key = (partition, marker.producer_id)
        known = self.epochs.get(key, -1)
        if marker.coordinator_epoch < self.coordinator_epochs.get(key, -1) or marker.producer_epoch < known:
            # Of a coordinator that has resigned: the next one has written this marker.
            assert written.cancelled
            return
        self.coordinator_epochs[key] = marker.coordinator_epoch
        if marker.transaction_version >= 2 and self.open.get(key):
            assert marker.producer_epoch > known, "the marker of the new protocol has the next epoch"
        self.epochs[key] = marker.producer_epoch
        for attempt in self.open.pop(key, []):
            attempt.outcomes.add(marker.commit)
        self.left[written] -= 1
        if not self.left[written]:
            written.complete(None)


class Model:
    def __init__(self, seed: int, transaction_version: int) -> None:
        self.random = Random(seed)
        self.context = Context(
            transaction_version=transaction_version, commit_timeout_ms=500, end_wait_ms=20 * (seed % 2)
        )
        self.leaders = Leaders()
        self.context.markers = self.leaders  # type: ignore[assignment]
        self.context.restart()
        self.producers: list[Producer] = []
        self.attempts: list[Attempt] = []
        self.started = 0

    # --- operations

    def step(self) -> None:
        operation = self.random.choices(
            [self.start, self.write, self.end, self.wait, self.log, self.markers, self.move, self.exhaust],
            [10, 40, 25, 6, 10, 10, 6, 3],
        )[0]
        operation()
        self.check_reload()

    def start(self) -> None:
        """Another instance begins; those before it with its id are fenced once it has its answer."""
        new_protocol = self.context.transaction_version >= 2 and self.random.random() < 0.8
        producer = Producer(self.random.choice(IDS), new_protocol, self.started)
        self.started += 1
        for _ in range(20):
            call = self.context.start_init(producer.transactional_id, timeout_ms=20_000)
            error = self.settle(call)
            if error is ErrorCode.NONE:
                producer.identity = (call.response.producer_id, call.response.producer_epoch)
                for other in self.producers:
                    if other.transactional_id == producer.transactional_id:
                        other.fenced = True
                self.begin(producer)
                self.producers.append(producer)
                return
            assert error in LOST | {ErrorCode.CONCURRENT_TRANSACTIONS}
            if self.random.random() < 0.3:
                return
            if error is ErrorCode.CONCURRENT_TRANSACTIONS:
                self.markers()

    def begin(self, producer: Producer) -> None:
        producer.attempt = Attempt()
        producer.ended = None
        self.attempts.append(producer.attempt)

    def write(self) -> None:
        producer = self.any_producer()
        if producer is None or producer.identity is None or producer.ended is not None:
            return
        partition = self.random.randrange(PARTITIONS)
        attempt = producer.attempt
        known = self.leaders.has_open(partition, producer.identity)
        if not (known if producer.new_protocol else partition in attempt.added):
            call = self.context.start_add(
                *producer.identity,
                partition,
                transactional_id=producer.transactional_id,
                version=5 if producer.new_protocol else 3,
            )
            error = self.settle_add(call)
            if error is not ErrorCode.NONE:
                assert error in LOST | FENCED | {ErrorCode.CONCURRENT_TRANSACTIONS}
                if error in FENCED:
                    self.check_was_fenced(producer)
                return
            assert not producer.fenced, "the coordinator adds partitions for a producer that is fenced"
            attempt.added.add(partition)
        # A write of a fenced producer may still arrive while its transaction is open; it must not be committed. Without
        # an open transaction the leader verifies it.
        if producer.new_protocol or known or self.verified(producer, partition):
            self.leaders.accept_write(partition, producer.identity, attempt)

    def verified(self, producer: Producer, partition: int) -> bool:
        assert producer.identity is not None
        outcome = self.context.start_verify(*producer.identity, partition, transactional_id=producer.transactional_id)
        if not outcome.done:
            self.context.sleep(600)
        return set(outcome.result().values()) == {ErrorCode.NONE}

    def end(self) -> None:
        producer = self.any_producer()
        if producer is None or producer.identity is None:
            return
        commit = self.random.random() < 0.7
        if producer.attempt.requested:
            # A client repeats the request whose answer it does not know.
            (commit,) = producer.attempt.requested
        if not producer.attempt.writes and (commit or not producer.new_protocol):
            return
        attempt, identity = producer.attempt, producer.identity
        attempt.requested.add(commit)
        version = 5 if producer.new_protocol else 4
        call = self.context.start_end(
            *identity, commit=commit, transactional_id=producer.transactional_id, version=version
        )
        error = self.settle(call)
        if error is ErrorCode.NONE:
            # The coordinator may have aborted by itself; a client that aborts gets the same answer.
            assert not (producer.fenced and commit and not attempt.outcomes), "a fenced producer commits"
            attempt.answered = commit
            if producer.new_protocol:
                producer.identity = (call.response.producer_id, call.response.producer_epoch)
                assert producer.identity != identity
            self.begin(producer)
        elif error in FENCED | {ErrorCode.INVALID_TXN_STATE}:
            self.producers.remove(producer)
        else:
            assert error in LOST | {ErrorCode.CONCURRENT_TRANSACTIONS}
            producer.ended = identity

    def wait(self) -> None:
        self.context.sleep(self.random.choice([10, 600, 21_000]))

    def log(self) -> None:
        """Replicas of the coordinator's log fall behind, catch up, or refuse a record."""
        choice = self.random.randrange(5)
        if choice < 2:
            self.context.hold()
        elif choice == 2:
            self.context.fail()
        else:
            self.context.commit()

    def markers(self) -> None:
        self.leaders.held = self.random.random() < 0.5

        async def deliver() -> None:
            self.leaders.deliver(self.random)

        self.context.run(deliver())
        self.context.settle()

    def move(self) -> None:
        """Another broker becomes the coordinator; it may lack what was not committed."""
        self.context.resign()
        if self.random.random() < 0.5:
            self.context.log.lose_uncommitted()
        self.context.log.failures.clear()
        self.context.restart()

    def exhaust(self) -> None:
        """An id comes near its last epoch, as after many transactions. Its leaders have seen none of the others."""
        name = self.random.choice(IDS)
        if self.context.state(name) is not TransactionState.EMPTY or self.context.log.held:
            return
        transaction = self.context.transaction(name)
        if transaction.producer_epoch >= LAST_CLIENT_EPOCH - 2:
            return
        epoch = LAST_CLIENT_EPOCH - self.random.randrange(2)
        self.context.log.failures.clear()
        self.context.resign()
        self.context.write(name, transaction._replace(producer_epoch=epoch))
        self.context.restart()
        for producer in self.producers:
            if producer.transactional_id == name and not producer.fenced and producer.identity is not None:
                producer.identity = (producer.identity[0], epoch)

    # --- answers

    def any_producer(self) -> Producer | None:
        return self.random.choice(self.producers[-4:]) if self.producers else None

    def settle(self, call: Call) -> ErrorCode:  # type: ignore[type-arg]
        """The answer; a client that waits for too long retries with the same request."""
        self.wait_for(call)
        return call.error

    def wait_for(self, call: Call) -> None:  # type: ignore[type-arg]
        for _ in range(3):
            if not call.done:
                self.context.sleep(600)

    def settle_add(self, call: Call) -> ErrorCode:  # type: ignore[type-arg]
        self.wait_for(call)
        response = call.response
        topics = response.results_by_topic_v3_and_below or response.results_by_transaction[0].topic_results
        return ErrorCode(topics[0].results_by_partition[0].partition_error_code)

    # --- the oracle

    def check_was_fenced(self, producer: Producer) -> None:
        """By another instance, by its timeout, or by an instance that never had its answer."""
        self.producers.remove(producer)

    def check_reload(self) -> None:
        assert self.context.replayed_state() == self.context.shard.state.transactions
        for attempt in self.attempts:
            assert len(attempt.outcomes) <= 1, "a transaction is both committed and aborted"
            if attempt.outcomes == {True}:
                assert True in attempt.requested, "a transaction is committed that its client did not commit"

    def check_end(self) -> None:
        self.context.log.failures.clear()
        self.context.commit()
        self.leaders.held = False
        self.leaders.deliver_all()
        self.context.sleep(60_000)
        for name in IDS:
            assert self.context.state(name) not in (
                TransactionState.ONGOING,
                TransactionState.PREPARE_COMMIT,
                TransactionState.PREPARE_ABORT,
            )
        self.check_reload()
        for attempt in self.attempts:
            if attempt.answered is not None and attempt.writes:
                assert attempt.outcomes == {attempt.answered}, "the outcome is not the one that was answered"
        assert not any(self.leaders.open.values()), "a transaction stays open"


@pytest.mark.parametrize("transaction_version", [0, 2])
@pytest.mark.parametrize("seed", range(25))
def test_transactions_are_atomic_and_zombies_have_no_effect(seed: int, transaction_version: int) -> None:
    model = Model(seed, transaction_version)
    with model.context:
        for _ in range(STEPS):
            model.step()
        model.check_end()
