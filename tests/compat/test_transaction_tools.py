"""Apache Kafka 4.3.1's tools for transactions: kafka-transactions, producers with transactional ids, read_committed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import InitProducerIdRequest, ProduceRequest
from gregor.protocol.records.batch import build_batch
from tests.compat.confluent import read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.compat.transaction_faults import TRANSACTION_COORDINATOR, coordinator_of
from tests.support.kafka import run_kafka_tool
from tests.support.kafka_tools import KafkaTools, Said
from tests.support.processes import BrokerProcess
from tests.support.wire import ask

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOOLS = "org.apache.kafka.tools"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
TIMEOUT_MS = 600_000
AN_HOUR_MS = 3_600_000

Run = Callable[..., Said]
Unique = Callable[[str], str]
NewTopicFactory = Callable[..., str]


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="module")
def run(bootstrap: str, tools: KafkaTools) -> Run:
    return lambda *words: tools.run(TRANSACTIONS, "--bootstrap-server", bootstrap, *words)


def table(said: Said) -> list[dict[str, str]]:
    """Return the rows of a tool's table, by its headings."""
    assert said.code == 0, said
    heading, *rows = [re.split(r"\s*\t", line.rstrip("\t")) for line in said.out.splitlines() if "\t" in line]
    return [dict(zip((name.strip() for name in heading), map(str.strip, row), strict=False)) for row in rows]


def open_transaction(bootstrap: str, name: str, topic: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "message.timeout.ms": TIMEOUT_MS,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


def visible(bootstrap: str, topic: str) -> int:
    consumer = reading(bootstrap, **{"isolation.level": "read_committed"})
    try:
        return len(read_to_end(consumer, topic, 0))
    finally:
        consumer.close()


def test_an_open_transaction_is_listed_and_described(
    run: Run, bootstrap: str, new_topic: NewTopicFactory, unique: Unique
) -> None:
    topic, name = new_topic(2), unique("listed")
    producer = open_transaction(bootstrap, name, topic)
    [row] = [row for row in table(run("list")) if row["TransactionalId"] == name]
    assert row["TransactionState"] == "Ongoing"
    [described] = table(run("describe", "--transactional-id", name))
    assert described["TransactionState"] == "Ongoing" and described["TransactionalId"] == name
    assert described["CoordinatorId"] == row["Coordinator"] and described["ProducerId"] == row["ProducerId"]
    assert described["TransactionTimeoutMs"] == str(TIMEOUT_MS)
    assert described["TopicPartitions"] == f"{topic}-0"
    assert 0 <= int(described["TransactionDurationMs"]) < TIMEOUT_MS
    [active] = table(run("describe-producers", "--topic", topic, "--partition", "0"))
    assert active["ProducerId"] == row["ProducerId"] and active["ProducerEpoch"] == described["ProducerEpoch"]
    assert active["CurrentTransactionStartOffset"] == "0" and active["LastSequence"] == "4"
    assert table(run("describe-producers", "--topic", topic, "--partition", "1")) == []
    producer.commit_transaction(WAIT_S)
    until(lambda: state_of(run, name) == "CompleteCommit", "the end of the transaction")
    [active] = table(run("describe-producers", "--topic", topic, "--partition", "0"))
    assert active["CurrentTransactionStartOffset"] == "None"
    # The marker has the epoch of the coordinator.
    assert int(active["LatestCoordinatorEpoch"]) >= 0
    unknown = run("describe", "--transactional-id", unique("unknown"))
    assert unknown.code == 1 and "Failed to describe transaction state" in unknown.err


def state_of(run: Run, name: str) -> str:
    [described] = table(run("describe", "--transactional-id", name))
    return described["TransactionState"]


def test_lists_are_filtered(run: Run, bootstrap: str, new_topic: NewTopicFactory, unique: Unique) -> None:
    """By duration and, since 4.1, by a pattern of the transactional id."""
    topic, name = new_topic(), unique("filtered")
    producer = open_transaction(bootstrap, name, topic)

    def listed(*flags: str) -> list[str]:
        return [row["TransactionalId"] for row in table(run("list", *flags)) if row["TransactionalId"] == name]

    assert listed("--duration-filter", f"{TIMEOUT_MS}") == []
    until(lambda: listed("--duration-filter", "1") == [name], "a millisecond")
    assert listed("--transactional-id-pattern", f"{name[:-2]}.*") == [name]
    assert listed("--transactional-id-pattern", "absent.*") == []
    producer.abort_transaction(WAIT_S)


def test_a_transaction_is_terminated(run: Run, bootstrap: str, new_topic: NewTopicFactory, unique: Unique) -> None:
    """By its transactional id, at its coordinator; the producer is fenced."""
    topic, name = new_topic(), unique("terminated")
    producer = open_transaction(bootstrap, name, topic)
    said = run("forceTerminateTransaction", "--transactionalId", name)
    assert said.code == 0, said
    # The tool begins a producer of this id, which aborts the transaction.
    until(lambda: state_of(run, name) == "Empty", "the abort")
    assert visible(bootstrap, topic) == 0
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    [active] = table(run("describe-producers", "--topic", topic, "--partition", "0"))
    assert active["CurrentTransactionStartOffset"] == "None"


def test_a_hanging_transaction_is_found_and_aborted(
    tmp_path_factory: pytest.TempPathFactory, tools: KafkaTools
) -> None:
    """A broker that does not verify lets records in whose transaction no coordinator knows: it would never end."""
    settings = {"transaction.partition.verification.enable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("hanging"), settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("hangs", 1, 1)])["hangs"].result(WAIT_S)
        producer_id = hang(broker.port, "hangs")
        plain = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        plain.produce("hangs", b"behind", partition=0)
        assert plain.flush(WAIT_S) == 0
        assert visible(broker.bootstrap, "hangs") == 0

        def run(*words: str) -> Said:
            return tools.run(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *words)

        [found] = table(run("find-hanging", "--topic", "hangs"))
        assert (found["Topic"], found["Partition"], found["ProducerId"]) == ("hangs", "0", str(producer_id))
        assert found["StartOffset"] == "0"
        absent = run("abort", "--topic", "hangs", "--partition", "0", "--start-offset", "1")
        assert absent.code == 1 and "Could not find any open transactions" in absent.err
        said = run("abort", "--topic", "hangs", "--partition", "0", "--start-offset", found["StartOffset"])
        assert said.code == 0, said
        assert table(run("find-hanging", "--topic", "hangs")) == []
        assert visible(broker.bootstrap, "hangs") == 1


def hang(port: int, topic: str) -> int:
    """Append transactional records with an old time, for which no coordinator has a transaction."""
    request = InitProducerIdRequest(transactional_id="hangs", transaction_timeout_ms=60_000)
    answers: list[Any] = []
    until(lambda: bool(coordinator_of(f"127.0.0.1:{port}", "hangs", TRANSACTION_COORDINATOR)), "the coordinator")

    def initialised() -> bool:
        answers.append(ask(port, request, 2))
        return bool(answers[-1].error_code == ErrorCode.NONE)

    until(initialised, "a producer id")
    made = answers[-1]
    batch = build_batch(
        [(None, b"a"), (None, b"b")],
        timestamp_ms=int(time.time() * 1000) - AN_HOUR_MS,
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    part = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    answer = ask(port, ProduceRequest(transactional_id="hangs", acks=-1, timeout_ms=10_000, topic_data=topics), 7)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return int(made.producer_id)


def test_the_performance_tool_writes_transactions(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, run: Run
) -> None:
    topic, name = new_topic(), unique("performance")
    amount = ("--num-records", "2000", "--record-size", "50", "--throughput", "-1")
    of_transaction = ("--transactional-id", name, "--transaction-duration-ms", "20")
    servers = ("--producer-props", f"bootstrap.servers={bootstrap}")
    run_kafka_tool(f"{TOOLS}.ProducerPerformance", "--topic", topic, *amount, *of_transaction, *servers)
    until(lambda: state_of(run, name) == "CompleteCommit", "the end of the last transaction")
    words = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "2000")
    said = run_kafka_tool(f"{TOOLS}.consumer.ConsoleConsumer", *words, "--isolation-level", "read_committed")
    assert len(said.splitlines()) == 2000
    assert visible(bootstrap, topic) == 2000


def test_the_console_consumer_hides_what_is_open(bootstrap: str, new_topic: NewTopicFactory, unique: Unique) -> None:
    topic = new_topic()
    producer = open_transaction(bootstrap, unique("console"), topic)
    words = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--isolation-level")
    consumer, to_the_last = f"{TOOLS}.consumer.ConsoleConsumer", ("--max-messages", "5")
    assert run_kafka_tool(consumer, *words, "read_committed", "--timeout-ms", "3000") == ""
    assert len(run_kafka_tool(consumer, *words, "read_uncommitted", *to_the_last).splitlines()) == 5
    producer.commit_transaction(WAIT_S)
    said = run_kafka_tool(consumer, *words, "read_committed", *to_the_last)
    assert said.splitlines() == [f"{number}" for number in range(5)]


@pytest.mark.parametrize("flags", [(), ("--group-mode", "--use-group-metadata")], ids=["assigned", "group"])
@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_the_message_copier_copies_each_once(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, version: str, flags: tuple[str, ...]
) -> None:
    source, target, group = new_topic(), new_topic(), unique("copier")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    values = [b"%d" % number for number in range(200)]
    for value in values:
        producer.produce(source, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    topics = ("--input-topic", source, "--input-partition", "0", "--output-topic", target)
    amount = ("--max-messages", "200", "--transaction-size", "7", "--enable-random-aborts")
    names = ("--consumer-group", group, "--transactional-id", f"{group}-id")
    copier = f"{TOOLS}.TransactionalMessageCopier"
    said = run_kafka_tool(copier, "--broker-list", bootstrap, *topics, *amount, *names, *flags, version=version)
    assert '"remaining":0' in said.replace(" ", ""), said
    consumer = reading(bootstrap, **{"isolation.level": "read_committed"})
    copied = read_to_end(consumer, target, 0)
    consumer.close()
    assert [message.value() for message in copied] == values
    # Aborted records and markers lie between.
    assert (copied[-1].offset() or 0) > len(values)
