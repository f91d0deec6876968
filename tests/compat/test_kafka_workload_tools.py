"""Apache Kafka 4.3.1's tools that write, read, measure and reset."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from tests.compat.records import WAIT_S
from tests.support.kafka import run_kafka_tool
from tests.support.kafka_tools import KafkaTools, Said

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOOLS = "org.apache.kafka.tools"
RECORDS = 200

Run = Callable[..., Said]
Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def run(bootstrap: str) -> Iterator[Run]:
    with KafkaTools() as tools:
        yield lambda name, *arguments: tools.run(f"{TOOLS}.{name}", "--bootstrap-server", bootstrap, *arguments)


def events(name: str, said: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def committed(admin: AdminClient, group: str) -> int:
    """The sum of the group's offsets."""
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    return sum(part.offset for part in answer.topic_partitions)


def test_the_verifiable_producer_and_consumer(bootstrap: str, new_topic: Callable[..., str], unique: Unique) -> None:
    common = ("--bootstrap-server", bootstrap, "--topic", new_topic(2), "--max-messages", f"{RECORDS}")
    # In JVMs of their own: the tools print their last lines when the JVM ends.
    said = run_kafka_tool(f"{TOOLS}.VerifiableProducer", *common)
    sent = events("producer_send_success", said)
    assert sorted(int(str(event["value"])) for event in sent) == list(range(RECORDS))
    flags = ("--group-id", unique("verified"), "--reset-policy", "earliest")
    said = run_kafka_tool(f"{TOOLS}.VerifiableConsumer", *common, *flags)
    assert sum(int(str(event["count"])) for event in events("records_consumed", said)) == RECORDS
    commits = events("offsets_committed", said)
    assert commits and all(event["success"] for event in commits)


def test_the_way_through_is_measured(run: Run, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    limits = ("--num-records", "50", "--producer-acks", "1", "--record-size", "50")
    said = run("EndToEndLatency", "--topic", topic, *limits)
    assert said.code == 0 and re.search(r"99\.9th = \d+", said.out), said


def test_a_streams_application_is_reset(
    run: Run, bootstrap: str, new_topic: Callable[..., str], unique: Unique, admin: AdminClient
) -> None:
    topic, application = new_topic(2), unique("application")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    for flags, expected in ((("--to-latest",), RECORDS), (("--shift-by", "-50"), RECORDS - 100), ((), 0)):
        said = run("StreamsResetter", "--application-id", application, "--input-topics", topic, "--force", *flags)
        assert said.code == 0, said
        assert committed(admin, application) == expected, flags
