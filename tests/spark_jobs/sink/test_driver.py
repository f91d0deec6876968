"""The driver of the exactly-once sink: wherever it ends, and whatever request is lost, each batch is there once."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiMessage, EndTxnRequest, FetchRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.driver import AttemptFailed, BatchDriver, QueryFenced
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import DEFAULT_STATE_TOPIC, SinkOptions
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.state import Owner
from gregor.spark_jobs.sink.transactions import Transactions
from tests.spark_jobs.sink.fake_broker import FakeBroker, FakeClock, Fault, Killed, Log

ID = "query"
BATCHES = 3
PARTITIONS = 3
ROWS = 7


class Query:
    """A query as Spark runs it: it begins again at the first batch that is not in its commit log."""

    def __init__(self, broker: FakeBroker, query_id: str = "one") -> None:
        self.broker = broker
        self.query_id = query_id
        self.next_batch = 0
        self.attempts = 0
        self.skipped: list[int] = []
        self.driver = self.started()

    def started(self) -> BatchDriver:
        """Begin a run."""
        cluster = self.broker.cluster()
        options = SinkOptions(cluster.settings, topic="out")
        owner = Owner(self.query_id, str(uuid.uuid4()))
        self.driver = BatchDriver(cluster, ID, owner, options, FakeClock())
        return self.driver

    def run_batch(self) -> None:
        written = self.driver.write(self.next_batch, lambda identity: self.write_rows(identity, self.next_batch))
        if not written:
            self.skipped.append(self.next_batch)
        self.next_batch += 1

    def write_rows(self, identity: ProducerIdentity, batch_id: int) -> None:
        """As the tasks do: one for two partitions, one for the other, each on connections of its own."""
        self.attempts += 1
        for partitions in ((0, 1), (2,)):
            with self.broker.cluster() as cluster:
                options = SinkOptions(cluster.settings, batch_bytes=200)
                transactions = Transactions(cluster, ID, options.transaction_timeout_ms)
                producer = Producer(cluster, identity, options, transactions.add_partitions, lambda: 0)
                for row in range(ROWS):
                    for partition in partitions:
                        value = f"{self.query_id} {batch_id} {row} {self.attempts}".encode()
                        producer.append(TopicPartition("out", partition), b"key", value)
                producer.flush()


def run_to_end(query: Query, batches: int = BATCHES) -> None:
    """Run, and start again after each kill."""
    while query.next_batch < batches:
        try:
            query.run_batch()
        except Killed:
            query.started()


def require_each_batch_once(broker: FakeBroker, batches: int = BATCHES, query_id: str = "one") -> None:
    """Each row of each batch is visible once, and all rows of a batch are those of one attempt."""
    broker.complete_all()
    attempts = defaultdict(set)
    found = []
    for partition, log in enumerate(broker.topics["out"]):
        for record in log.committed():
            assert record.value is not None
            query, batch, row, attempt = record.value.decode().split()
            if query == query_id:
                found.append((int(batch), partition, int(row)))
                attempts[batch].add(attempt)
    assert found and sorted(found) == [
        (batch, partition, row) for batch in range(batches) for partition in range(PARTITIONS) for row in range(ROWS)
    ]
    assert all(len(one) == 1 for one in attempts.values())


def broker_with_topic() -> FakeBroker:
    return FakeBroker({"out": PARTITIONS})


def one_fault(number: int, fault: Fault) -> Callable[[int, ApiMessage], Fault | None]:
    return lambda sent, _request: fault if sent == number else None


def test_each_batch_is_written_once_and_its_number_with_it() -> None:
    broker = broker_with_topic()
    run_to_end(Query(broker))
    require_each_batch_once(broker)
    states = [record.value for record in broker.topics[DEFAULT_STATE_TOPIC][0].committed()]
    assert [f'"batchId": {batch},'.encode() in (states[batch + 1] or b"") for batch in range(BATCHES)] == [True] * 3
    assert broker.policies == {DEFAULT_STATE_TOPIC: "compact"}


def count_of_requests() -> int:
    broker = broker_with_topic()
    run_to_end(Query(broker))
    return len(broker.requests)


@pytest.mark.parametrize("fault", Fault)
def test_one_fault_at_any_request_leaves_each_batch_there_once(fault: Fault) -> None:
    for number in range(count_of_requests()):
        broker = broker_with_topic()
        broker.faults = one_fault(number, fault)
        query = Query(broker)
        run_to_end(query)
        require_each_batch_once(broker)


def many_faults(seed: int) -> Callable[[int, ApiMessage], Fault | None]:
    numbers = random.Random(seed)
    return lambda _number, _request: numbers.choice(list(Fault)) if numbers.random() < 0.04 else None


@pytest.mark.parametrize("seed", range(60))
def test_many_faults_leave_each_batch_there_once(seed: int) -> None:
    broker = broker_with_topic()
    broker.faults = many_faults(seed)
    run_to_end(Query(broker))
    require_each_batch_once(broker)


def test_batch_that_was_committed_before_the_driver_ended_is_skipped() -> None:
    broker = broker_with_topic()
    ends = iter(range(10))
    broker.faults = lambda _number, request: (
        Fault.KILLED_AFTER if isinstance(request, EndTxnRequest) and next(ends) == 1 else None
    )
    query = Query(broker)
    run_to_end(query)
    assert query.skipped == [0]
    require_each_batch_once(broker)


def test_batch_is_skipped_also_if_the_state_is_not_read_in_time() -> None:
    broker = broker_with_topic()
    query = Query(broker)
    run_to_end(query)
    query.started()
    query.next_batch = BATCHES - 1  # Spark has not noted that it was committed
    fetches = iter(range(100))
    broker.faults = lambda _number, request: (
        Fault.READ_LATE if isinstance(request, FetchRequest) and next(fetches) < 2 else None
    )
    query.run_batch()
    assert query.skipped == [BATCHES - 1]
    require_each_batch_once(broker)


def failing(times: int, failure: Exception, query: Query) -> Callable[[ProducerIdentity], None]:
    left = iter(range(times))

    def write(identity: ProducerIdentity) -> None:
        query.write_rows(identity, query.next_batch)
        if next(left, None) is not None:
            raise failure

    return write


def test_failed_attempt_is_aborted_and_the_batch_repeated() -> None:
    broker = broker_with_topic()
    query = Query(broker)
    assert query.driver.write(0, failing(2, AttemptFailed("an executor is gone"), query))
    require_each_batch_once(broker, 1)
    assert query.attempts == 3


def test_batch_is_repeated_a_bounded_number_of_times() -> None:
    broker = broker_with_topic()
    query = Query(broker)
    with pytest.raises(JobError, match="batch 0 of 'query' was not written, after 3 of 3 attempts: an executor"):
        query.driver.write(0, failing(9, AttemptFailed("an executor is gone"), query))
    broker.complete_all()
    assert query.attempts == 3
    assert [list(log.committed()) for log in broker.topics["out"]] == [[], [], []]
    assert all(log.last_stable_offset == log.end_offset for log in broker.topics["out"]), "aborted, not left open"


@pytest.mark.parametrize(
    "failure", [JobError("a row is too large"), KafkaFailure(ErrorCode.MESSAGE_TOO_LARGE, "a batch is too large")]
)
def test_failure_that_remains_is_not_repeated(failure: JobError) -> None:
    query = Query(broker_with_topic())
    with pytest.raises(JobError, match="too large"):
        query.driver.write(0, failing(9, failure, query))
    assert query.attempts == 1


def test_newer_run_of_another_checkpoint_fences_the_older_one() -> None:
    broker = broker_with_topic()
    older, newer = Query(broker, "older"), Query(broker, "newer")
    older.run_batch()
    newer.run_batch()
    epoch = broker.transactions[ID].epoch
    with pytest.raises(QueryFenced, match=r"another query \(id newer, run .*\) was started later with the"):
        older.run_batch()
    assert broker.transactions[ID].epoch == epoch, "it ends without disturbing the newer one"
    newer.run_batch()
    require_each_batch_once(broker, 2, "newer")
    require_each_batch_once(broker, 1, "older")


def test_run_that_is_fenced_while_its_tasks_write_ends() -> None:
    broker = broker_with_topic()
    older, newer = Query(broker, "older"), Query(broker, "newer")

    def write(identity: ProducerIdentity) -> None:
        newer.run_batch()
        older.write_rows(identity, 0)

    with pytest.raises(QueryFenced):
        older.driver.write(0, write)
    require_each_batch_once(broker, 1, "newer")
    assert all(b"older" not in (one.value or b"") for log in broker.topics["out"] for one in log.committed())


def test_newer_run_of_the_same_query_fences_the_older_one() -> None:
    broker = broker_with_topic()
    query = Query(broker)
    query.run_batch()
    older = query.driver
    query.started()
    query.run_batch()
    with pytest.raises(QueryFenced, match=r"another run of this query \(id one"):
        older.write(2, lambda identity: query.write_rows(identity, 2))
    require_each_batch_once(broker, 2)


def test_older_checkpoint_that_is_started_again_knows_its_last_batch() -> None:
    broker = broker_with_topic()
    older, newer = Query(broker, "older"), Query(broker, "newer")
    older.run_batch()
    newer.run_batch()
    older.next_batch = 0  # Spark did not note it
    older.started()
    older.run_batch()
    assert older.skipped == [0]
    older.run_batch()
    require_each_batch_once(broker, 2, "older")


def test_checkpoint_that_was_set_back_is_refused() -> None:
    query = Query(broker_with_topic())
    run_to_end(query)
    query.next_batch = 1
    with pytest.raises(JobError, match="at batch 1, but 'query' has committed batch 2 of the same query"):
        query.run_batch()


def test_run_that_knows_its_state_writes_it_to_a_topic_that_was_made_again() -> None:
    broker = broker_with_topic()
    query = Query(broker)
    query.run_batch()
    broker.topics[DEFAULT_STATE_TOPIC] = [Log()]
    query.run_batch()
    query.started()
    query.run_batch()
    require_each_batch_once(broker)


def test_state_topic_that_forgets_is_refused() -> None:
    broker = FakeBroker({"out": PARTITIONS, DEFAULT_STATE_TOPIC: 1})
    with pytest.raises(JobError, match="cleanup.policy=delete: the last batch of a query would be forgotten"):
        Query(broker).run_batch()


def test_open_transaction_of_another_query_hides_no_committed_batch() -> None:
    """The last stable offset stays below the own state until the other transaction ends: reading waits for it."""
    broker = broker_with_topic()
    query = Query(broker)
    query.run_batch()
    with broker.cluster() as cluster:
        options = SinkOptions(cluster.settings)
        other = Transactions(cluster, "other", 60_000)
        identity = other.begin_epoch()
        producer = Producer(cluster, identity, options, other.add_partitions)
        producer.append(TopicPartition(DEFAULT_STATE_TOPIC, 0), b"other", b"{}")
        producer.flush()
    before = broker.topics[DEFAULT_STATE_TOPIC][0].last_stable_offset

    def waits() -> Iterator[None]:
        yield from (None for _ in range(200))
        with broker.cluster() as cluster:
            Transactions(cluster, "other", 60_000).end(identity, commit=True)
            broker.complete_all()
        while True:
            yield None

    step = waits()
    inside = False

    def end_after_a_while(_number: int, _request: ApiMessage) -> None:
        nonlocal inside
        if not inside:
            inside = True
            next(step)
            inside = False

    broker.faults = end_after_a_while
    query.next_batch = 0
    query.started()
    query.run_batch()
    assert query.skipped == [0]
    assert broker.topics[DEFAULT_STATE_TOPIC][0].last_stable_offset > before
    require_each_batch_once(broker, 1)


def test_attempt_that_lasted_longer_than_its_transaction_explains_it() -> None:
    broker = broker_with_topic()
    cluster, clock = broker.cluster(), FakeClock()
    driver = BatchDriver(cluster, ID, Owner("one", "run"), SinkOptions(cluster.settings, topic="out"), clock)

    def slow(_identity: ProducerIdentity) -> None:
        clock.wait_ms(61_000)
        broker.transactions[ID].epoch += 1
        raise KafkaFailure(ErrorCode.PRODUCER_FENCED, "a batch was not written")

    with pytest.raises(JobError, match="the batch needed 61 s, more than kafka.transaction.timeout.ms=60000"):
        driver.write(0, slow)
