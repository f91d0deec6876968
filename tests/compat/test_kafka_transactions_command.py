"""`gregor transactions` and `gregor features` print the lines of Apache Kafka 4.3.1's kafka-transactions and
kafka-features for the same cluster, and end the same transactions."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from gregor.broker.__main__ import main as gregor
from tests.compat.records import WAIT_S, until
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

CLASSES = {
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
}
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

    def ours(self, name: str, *arguments: str, code: int = 0) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            assert gregor([name, "--bootstrap-server", self._bootstrap, *arguments]) == code, out.getvalue()
        return out.getvalue()

    def same(self, name: str, *arguments: str) -> list[str]:
        """Return the lines of both, which are equal but for their order."""
        ours, theirs = (sorted(run(name, *arguments).splitlines()) for run in (self.ours, self.theirs))
        assert ours == theirs
        return ours


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Iterator[Tools]:
    with KafkaTools() as made:
        yield Tools(made, bootstrap)


class Transaction:
    """An open transaction with a record in one partition of a new topic."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str) -> None:
        self.transactional_id = transactional_id
        self.topic = topic
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
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
    tools.same("transactions", "list")
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


def test_features_are_the_same(tools: Tools) -> None:
    assert any("transaction.version" in line for line in tools.same("features", "describe"))
