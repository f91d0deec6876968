"""`gregor transactions` and `gregor features` print the lines of Apache Kafka 4.3.1's kafka-transactions and
kafka-features for the same cluster, and end the same transactions."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from gregor.broker.__main__ import main as gregor
from gregor.protocol.messages import ProduceRequest
from gregor.protocol.records.batch import build_batch
from tests.compat.records import WAIT_S, until
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

CLASSES = {
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
}
BEFORE_VERIFICATION = 11
"""A version of Produce whose transactions do not begin with it."""
UNKNOWN_PRODUCER = 2**40 + time.time_ns() % 2**30
"""Not that of an earlier run against the same broker."""

Unique = Callable[[str], str]


class Tools:
    """Apache Kafka's tool and gregor's command, by the name of the command."""

    def __init__(self, tools: KafkaTools, bootstrap: str) -> None:
        self._tools = tools
        self._bootstrap = bootstrap

    def theirs(self, name: str, *arguments: str, code: int = 0) -> str:
        ended = self._tools.run(CLASSES[name], "--bootstrap-server", self._bootstrap, *arguments)
        assert ended.code == code, f"{name} {' '.join(arguments)}: {ended.out}{ended.err}"
        return ended.out + ended.err if code else ended.out

    def ours(self, name: str, *arguments: str, code: int | None = 0) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            ended = gregor([name, "--bootstrap-server", self._bootstrap, *arguments])
        assert code is None or ended == code, out.getvalue()
        return out.getvalue()

    def same(self, name: str, *arguments: str) -> list[str]:
        """Return the lines of both on standard output, which are equal but for their order."""
        ours, theirs = (sorted(run(name, *arguments).splitlines()) for run in (self.ours, self.theirs))
        assert ours == theirs
        return ours

    def are_same(self, name: str, *arguments: str) -> bool:
        return sorted(self.ours(name, *arguments).splitlines()) == sorted(self.theirs(name, *arguments).splitlines())

    def same_files(self, files: Iterable[Path], flag: str) -> str:
        """Return the output of both tools about the files of a log."""
        arguments = ("--files", ",".join(map(str, files)), flag)
        theirs = self._tools.run("org.apache.kafka.tools.DumpLogSegments", *arguments)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert gregor(["dump-log", *arguments]) == theirs.code == 0
        assert out.getvalue().splitlines() == theirs.out.splitlines()
        return out.getvalue()


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Iterator[Tools]:
    with KafkaTools() as made:
        yield Tools(made, bootstrap)


class Transaction:
    """An open transaction with a record in one partition of a new topic."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str) -> None:
        self.transactional_id = transactional_id
        self.topic = topic
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        # Longer than the start of a tool on a busy machine.
        self.producer = Producer({**settings, "transaction.timeout.ms": 600_000})
        self.producer.init_transactions(WAIT_S)
        self.write()

    def write(self) -> None:
        """Begin a transaction and write a record."""
        self.producer.begin_transaction()
        self.producer.produce(self.topic, b"v", partition=0)
        assert self.producer.flush(WAIT_S) == 0


@pytest.fixture
def transaction(bootstrap: str, new_topic: Callable[..., str], unique: Unique) -> Transaction:
    return Transaction(bootstrap, unique("txn"), new_topic(1))


def test_descriptions_are_the_same(tools: Tools, transaction: Transaction) -> None:
    name = transaction.transactional_id
    listed = tools.same("transactions", "list", "--transactional-id-pattern", name)
    assert len(listed) == 2 and any(name in line and "Ongoing" in line for line in listed)
    # Transactions of other clients may end between the two calls.
    until(lambda: tools.are_same("transactions", "list"), "the same list of all transactions")
    assert (
        len(tools.same("transactions", "list", "--duration-filter", "3600000", "--transactional-id-pattern", name)) == 1
    )
    one = ("--topic", transaction.topic, "--partition", "0")
    assert len(tools.same("transactions", "describe-producers", *one)) == 2
    ours, theirs = (run("transactions", "describe", "--transactional-id", name) for run in (tools.ours, tools.theirs))
    for own, other in zip(cells(ours), cells(theirs), strict=True):
        own.pop("TransactionDurationMs")
        other.pop("TransactionDurationMs")
        assert own == other and own["TopicPartitions"] == f"{transaction.topic}-0"
    transaction.producer.commit_transaction(WAIT_S)
    until(lambda: "CompleteCommit" in tools.ours("transactions", "describe", "--transactional-id", name), "the commit")
    assert cells(tools.ours("transactions", "describe-producers", *one))[0]["CurrentTransactionStartOffset"] == "None"
    tools.same("transactions", "describe-producers", *one)


def cells(printed: str) -> list[dict[str, str]]:
    """Return the rows of a table by the names of its columns."""
    heading, *rows = ([cell.strip() for cell in line.split("\t")[:-1]] for line in printed.splitlines())
    return [dict(zip(heading, row, strict=True)) for row in rows]


def test_no_transaction_with_a_coordinator_hangs(tools: Tools, transaction: Transaction) -> None:
    found = tools.same("transactions", "find-hanging", "--topic", transaction.topic, "--max-transaction-timeout", "-1")
    assert len(found) == 1
    transaction.producer.abort_transaction(WAIT_S)


@pytest.mark.parametrize("by_offset", [True, False])
def test_abort_writes_a_marker(tools: Tools, transaction: Transaction, by_offset: bool) -> None:
    """The coordinator does not know of this marker: its transaction goes to its own end, the partition's has ended."""
    one = ("--topic", transaction.topic, "--partition", "0")
    [state] = cells(tools.ours("transactions", "describe-producers", *one))
    identity = ("--start-offset", state["CurrentTransactionStartOffset"])
    if not by_offset:
        identity = ("--producer-id", state["ProducerId"], "--producer-epoch", state["ProducerEpoch"])
        identity += ("--coordinator-epoch", state["LatestCoordinatorEpoch"])
    tools.ours("transactions", "abort", *one, *identity)
    assert len(tools.same("transactions", "describe-producers", *one)) == 2
    [state] = cells(tools.theirs("transactions", "describe-producers", *one))
    assert state["CurrentTransactionStartOffset"] == "None"
    refused = tools.ours("transactions", "abort", *one, "--start-offset", "0", code=1)
    assert "is open from offset 0 on" in refused


@pytest.mark.parametrize("own", [True, False])
def test_terminated_producer_is_fenced(tools: Tools, transaction: Transaction, own: bool) -> None:
    name = transaction.transactional_id
    run = tools.ours if own else tools.theirs
    assert run("transactions", "forceTerminateTransaction", "--transactionalId", name) == ""
    until(lambda: "Ongoing" not in tools.ours("transactions", "describe", "--transactional-id", name), "the abort")
    with pytest.raises(KafkaException):
        transaction.producer.commit_transaction(WAIT_S)


def test_absent_transactional_ids_and_topics(tools: Tools) -> None:
    absent = ("transactions", "describe", "--transactional-id", "absent")
    assert "could not be found" in tools.theirs(*absent, code=1)
    assert "knows no transactional id 'absent'" in tools.ours(*absent, code=1)
    assert "topic absent cannot be described" in tools.ours(
        "transactions", "describe-producers", "--topic", "absent", "--partition", "0", code=1
    )
    for arguments in (["find-hanging"], ["abort", "--topic", "t", "--partition", "0"]):
        tools.theirs("transactions", *arguments, code=1)
        tools.ours("transactions", *arguments, code=1)


@pytest.fixture
def no_verification(tools: Tools) -> Iterator[None]:
    """Leaders append transactional records without a query of the coordinator, as before Kafka 3.6."""
    key = "transaction.partition.verification.enable"
    tools.ours("configs", "--alter", "--broker-defaults", "--add-config", f"{key}=false")
    until(lambda: f"{key}=false" in tools.ours("configs", "--describe", "--broker-defaults"), "the setting")
    yield
    tools.ours("configs", "--alter", "--broker-defaults", "--delete-config", key)


def write_without_coordinator(bootstrap: str, topic: str) -> None:
    """Append a record to a transaction that no coordinator has begun."""
    batch = build_batch(
        [(b"k", b"v")], timestamp_ms=1, producer_id=UNKNOWN_PRODUCER, producer_epoch=0, base_sequence=0,
        transactional=True,
    )  # fmt: skip
    part = ProduceRequest.PartitionProduceData(index=0, records=batch)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=10_000, topic_data=[data])
    with RawConnection(int(bootstrap.rpartition(":")[2])) as connection:
        response = connection.exchange(request, BEFORE_VERIFICATION)
    assert [part.error_code for one in response.responses for part in one.partition_responses] == [0]


def test_hanging_transaction_is_found_named_and_aborted(
    tools: Tools, bootstrap: str, new_topic: Callable[..., str], no_verification: None, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(1)
    write_without_coordinator(bootstrap, topic)
    hanging = ("transactions", "find-hanging", "--topic", topic)
    # Both print for how many minutes it hangs; a minute may begin between the two calls.
    until(lambda: tools.are_same(*hanging), "the same lines of both")
    found = sorted(tools.ours(*hanging).splitlines())
    assert len(found) == 2 and any(line.startswith(topic) for line in found)
    report = tools.ours("doctor", code=1)
    client = "" if request.config.getoption("--against") else ", client raw at 127.0.0.1"
    assert f"the transaction of producer {UNKNOWN_PRODUCER}, epoch 0{client} hangs" in report
    assert f"wait for 1 offsets of 1 partition ({topic}-0)" in report
    command = f"transactions abort --topic {topic} --partition 0 --start-offset 0"
    assert f"`gregor {command}`" in report
    tools.ours(*command.split())
    assert len(tools.same("transactions", "find-hanging", "--topic", topic)) == 1
    assert f"({topic}-0)" not in tools.ours("doctor", code=None)


def test_files_of_transactions_are_shown_the_same(
    tools: Tools, transaction: Transaction, request: pytest.FixtureRequest
) -> None:
    """The log of a partition with an aborted transaction, its .txnindex, and the log of transactional ids."""
    if request.config.getoption("--against"):
        pytest.skip("the folder of the broker of --against is not known")
    broker: BrokerProcess = request.getfixturevalue("broker")
    transaction.producer.abort_transaction(WAIT_S)
    name = transaction.transactional_id
    until(lambda: "CompleteAbort" in tools.ours("transactions", "describe", "--transactional-id", name), "the abort")
    data = broker.folder / "data"
    files = [path for path in (data / f"{transaction.topic}-0").iterdir() if path.suffix in (".log", ".txnindex")]
    shown = tools.same_files(files, "--print-data-log")
    assert "endTxnMarker: ABORT" in shown and "lastStableOffset: " in shown
    logs = sorted(data.glob("__transaction_state-*/*.log"))
    decoded = tools.same_files([path for path in logs if path.stat().st_size], "--transaction-log-decoder")
    assert f'"transactionalId":"{name}"' in decoded and '"version":"1"' in decoded


def test_features_are_the_same(tools: Tools) -> None:
    # The epoch in a KRaft cluster is an offset, which grows meanwhile.
    ours, theirs = (
        [line.partition("Epoch: ")[0] for line in run("features", "describe").splitlines()]
        for run in (tools.ours, tools.theirs)
    )
    assert ours == theirs and any(line.startswith("Feature: transaction.version ") for line in ours)
    level = ("--feature", "transaction.version=2", "--dry-run")
    assert tools.same("features", "upgrade", *level) == ["transaction.version can be upgraded to 2."]
    assert tools.same("features", "disable", "--feature", "transaction.version", "--dry-run") == [
        "transaction.version can be disabled."
    ]
    for run in (tools.ours, tools.theirs):
        assert "Could not upgrade no.such to 1. " in run("features", "upgrade", "--feature", "no.such=1", code=1)
