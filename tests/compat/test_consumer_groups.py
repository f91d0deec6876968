"""Groups with the new protocol (KIP-848) on one broker: the Java clients 4.3.1 and 4.4.0, Kafka's tools, librdkafka."""

from __future__ import annotations

import contextlib
import io
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from confluent_kafka import ConsumerGroupType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from gregor.broker.__main__ import main as gregor
from tests.compat.confluent import Member, NewTopicFactory, Unique, as_sent, produce
from tests.compat.exactly_once import Work
from tests.compat.java_checks import compiled, run_checks
from tests.compat.records import WAIT_S, assorted, until
from tests.compat.test_transactions import feed_until_committed
from tests.compat.verifiable import VerifiableMember, settled
from tests.support.foreign_clients import go_program, or_skip
from tests.support.foreign_clients import run_checks as go_checks
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(1, parameter="release")]

RELEASES = ("4.3.1", "4.4.0")
CHECKS = [
    "share",
    "assignors",
    "static-member",
    "pattern",
    "topics-change",
    "commit",
    "transaction",
    "admin",
    "removal",
    "both-protocols",
]
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.migration.policy": "bidirectional",
}
NEW = {"group.protocol": "consumer"}
PARTITIONS = 6
RECORDS = 120

Results = dict[str, str]


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that sends short heartbeat intervals, in place of the session's."""
    against = request.config.getoption("--against")
    if against:
        yield str(against)
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker"), QUICK) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture(scope="module")
def new_topic(admin: AdminClient, unique: Unique) -> NewTopicFactory:
    def create(partitions: int = 1) -> str:
        name = unique("compat")
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
        until(lambda: len(admin.list_topics(name, WAIT_S).topics[name].partitions) == partitions, "the new topic")
        return name

    return create


# -- Java ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(
    bootstrap: str, unique: Unique, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Results]]]:
    """The results of each release; they run at the same time, as they wait for heartbeats for the most part."""
    classes = compiled(tmp_path_factory.mktemp("classes"))
    with ThreadPoolExecutor(len(RELEASES)) as pool:
        program = "compat.ConsumerProtocol"
        yield {
            release: pool.submit(run_checks, program, bootstrap, unique("new"), classes=classes, version=release)
            for release in RELEASES
        }


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("release", RELEASES)
def test_java(runs: dict[str, Future[Results]], release: str, check: str) -> None:
    said = runs[release].result()
    assert said.get(check, said[""]) == "PASS"


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_left_out(runs: dict[str, Future[Results]], release: str) -> None:
    said = runs[release].result()
    assert set(said) - {""} == set(CHECKS), said[""]


# -- Kafka's tools ---------------------------------------------------------------------------------------------------


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumers_come_and_go(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, tmp_path: pathlib.Path, protocol: str
) -> None:
    """One leaves; with the new protocol another is killed before, and lost when its session ends."""
    topic, group = new_topic(PARTITIONS), unique("verified")
    count = 3 if protocol == "consumer" else 2
    with ExitStack() as stack:
        members = [
            stack.enter_context(VerifiableMember(tmp_path, bootstrap, group, topic, protocol=protocol))
            for _ in range(count)
        ]
        settled(members, *[PARTITIONS // count] * count)
        write(bootstrap, topic)
        last, leaver, *victims = members
        for victim in victims:
            victim.kill()
        settled([last, leaver], 3, 3)
        write(bootstrap, topic)
        leaver.stop()
        settled([last], PARTITIONS)
        write(bootstrap, topic)
        found: Counter[tuple[str, int, int]] = Counter()

        def all_read() -> bool:
            found.clear()
            found.update(sum((member.read() for member in members), Counter()))
            return len(found) == 3 * RECORDS

        until(all_read, "all records")
    # Records that the killed one had read, but not committed, are read again.
    repeated = {place for place, times in found.items() if times > 1}
    assert repeated <= set(sum((victim.read() for victim in victims), Counter()))


# -- Go ------------------------------------------------------------------------------------------------------------


def test_members_of_franz_go_share_the_partitions(bootstrap: str, unique: Unique) -> None:
    found = go_checks([str(or_skip(go_program, "franz")), bootstrap, unique("franz"), "new"])
    assert found.get("group[new]", found[""]) == "PASS"


# -- Exactly once ----------------------------------------------------------------------------------------------------


def test_copiers_of_the_new_protocol_come_and_go(bootstrap: str, unique: Unique, tmp_path: pathlib.Path) -> None:
    """A member that was put out of the group, or has an older epoch, does not commit offsets in its transaction."""
    with Work(tmp_path, bootstrap, unique("txn"), inputs=4) as work:
        first = work.copier("java", timeout_ms=10_000, protocol="consumer")
        feed_until_committed(work, first)
        second = work.copier("java-4.4", protocol="consumer")
        feed_until_committed(work, second)
        third = work.copier("confluent", protocol="consumer")
        feed_until_committed(work, third)
        first.kill()
        feed_until_committed(work, second)
        work.until_copied()
        for copier in (second, third):
            copier.finish()
        work.judge()


# -- librdkafka ------------------------------------------------------------------------------------------------------


@pytest.fixture
def join(bootstrap: str) -> Iterator[Callable[..., Member]]:
    """Makes members, and closes those that the test left."""
    members: list[Member] = []

    def make(group: str, topic: str, **config: str) -> Member:
        members.append(Member(bootstrap, group, topic, **NEW, **config))
        return members[-1]

    yield make
    for member in members:
        member.close()


def test_librdkafka_shares_the_partitions(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member], admin: AdminClient
) -> None:
    topic, group = new_topic(4), unique("group")
    first = join(group, topic)
    first.settled([], 4)
    [listed] = [one for one in admin.list_consumer_groups().result(WAIT_S).valid if one.group_id == group]
    assert listed.type == ConsumerGroupType.CONSUMER
    second = join(group, topic)
    first.settled([second], 2, 2)
    assert [numbers for name, numbers in first.events if name == "revoked"] == [second.owned]
    sent = assorted(40)
    for partition in range(4):
        produce(bootstrap, topic, sent[partition::4], partition)

    def all_read() -> bool:
        first.poll()
        second.poll()
        return len(first.read) + len(second.read) >= 40

    until(all_read, "every record at one member")
    for member in (first, second):
        assert {message.partition() for message in member.read} == member.owned
        for partition in member.owned:
            read = [message for message in member.read if message.partition() == partition]
            assert as_sent(read) == sent[partition::4]
    positions = [TopicPartition(topic, partition, 10, "so far") for partition in second.owned]
    assert all(done.error is None for done in second.consumer.commit(offsets=positions, asynchronous=False) or [])
    second.close()
    first.settled([], 4)
    found = first.consumer.committed([TopicPartition(topic, one.partition) for one in positions], timeout=WAIT_S)
    assert [(one.offset, one.metadata) for one in found] == [(10, "so far")] * 2
    assert first.errors == [] and second.errors == []


def test_static_member_of_librdkafka_keeps_its_partitions(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(4), unique("static")
    # While it is away its session must not end, however long its return is.
    session = ("--add-config", "consumer.session.timeout.ms=60000")
    words = ("--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", group)
    with contextlib.redirect_stdout(io.StringIO()):
        assert gregor(["configs", *words, *session]) == 0
    first = join(group, topic, **{"group.instance.id": "one"})
    first.settled([], 4)
    second = join(group, topic, **{"group.instance.id": "two"})
    first.settled([second], 2, 2)
    owned, seen = second.owned.copy(), len(first.events)
    second.close()
    back = join(group, topic, **{"group.instance.id": "two"})
    first.settled([back], 2, 2)
    assert back.owned == owned
    assert len(first.events) == seen, "the other member noticed nothing"
    doubled = join(group, topic, **{"group.instance.id": "one"})

    def refused() -> bool:
        first.poll()
        doubled.poll()
        return bool(doubled.errors)

    until(refused, "the refusal of a double")
    assert doubled.errors[0].code() == KafkaError._FATAL and "instance ID" in doubled.errors[0].str()
    assert first.errors == []


def test_expression_of_librdkafka_finds_new_topics_and_partitions(
    unique: Unique, admin: AdminClient, join: Callable[..., Member]
) -> None:
    common, group = unique("pattern"), unique("group")
    for future in admin.create_topics([NewTopic(f"{common}-{name}", 1, 1) for name in "ax"]).values():
        future.result(WAIT_S)
    member = join(group, f"^{common}-[a-c]$")

    def owned(count: int) -> bool:
        member.poll()
        return len(member.consumer.assignment()) == count

    until(lambda: owned(1), "the partition of the topic")
    admin.create_partitions([NewPartitions(f"{common}-a", 3)])[f"{common}-a"].result(WAIT_S)
    until(lambda: owned(3), "three partitions")
    admin.create_topics([NewTopic(f"{common}-b", 2, 1)])[f"{common}-b"].result(WAIT_S)
    until(lambda: owned(5), "those of the new topic")
    assert {part.topic for part in member.consumer.assignment()} == {f"{common}-a", f"{common}-b"}
    assert member.errors == []
