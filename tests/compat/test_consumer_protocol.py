"""The consumer group protocol (KIP-848) with confluent-kafka and Apache Kafka's tools 4.3.1, beside `gregor groups`.

The broker has short intervals; --against another broker these tests run with those of that broker."""

from __future__ import annotations

import contextlib
import io
import pathlib
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from gregor.broker.__main__ import main as gregor
from tests.compat.confluent import Member, produce
from tests.compat.records import WAIT_S, Sent, assorted, until
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.slow]

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.regex.refresh.interval.ms": "10000",
}
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
Join = Callable[..., Member]


@pytest.fixture(scope="module")
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker."""
    against = request.config.getoption("--against")
    if against:
        yield str(against)
        return
    with BrokerProcess(tmp_path_factory.mktemp("quick"), SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


@pytest.fixture
def topic(quick: str, unique: Callable[[str], str]) -> str:
    """A topic of four partitions."""
    name = unique("orders")
    create(quick, name, 4)
    return name


@pytest.fixture
def join(quick: str) -> Iterator[Join]:
    """Makes members of a group, and closes those that the test left."""
    members: list[Member] = []

    def make(group: str, subscription: str, **config: str) -> Member:
        members.append(Member(quick, group, subscription, **{"group.protocol": "consumer", **config}))
        return members[-1]

    yield make
    for member in members:
        member.close()


def create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)


def ours(bootstrap: str, *arguments: str) -> list[str]:
    """Return the lines that `gregor groups` prints, without spaces at their ends."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert gregor(["groups", "--bootstrap-server", bootstrap, *arguments]) == 0
    return [line.rstrip() for line in out.getvalue().splitlines()]


def theirs(tools: KafkaTools, bootstrap: str, *arguments: str) -> list[str]:
    said = tools.run(GROUPS, "--bootstrap-server", bootstrap, *arguments)
    assert said.code == 0, said.err
    return [line.rstrip() for line in said.out.splitlines()]


def without_seconds(lines: list[str]) -> list[str]:
    """Return the lines without the last column LAG-SECONDS, which is gregor's own, where they have it."""
    [position] = {line.index("LAG-SECONDS") for line in lines if "LAG-SECONDS" in line} or {None}
    return [line[:position].rstrip() for line in lines]


def table(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines if line]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions(quick: str, topic: str, join: Join, assignor: str) -> None:
    group = f"{topic}-group"
    first = join(group, topic, **{"group.remote.assignor": assignor})
    first.settled([], 4)
    second = join(group, topic, **{"group.remote.assignor": assignor})
    first.settled([second], 2, 2)
    # Only what moves is revoked.
    assert [len(partitions) for kind, partitions in first.events if kind == "revoked"] == [2]
    second.close()
    first.settled([], 4)
    admin = AdminClient({"bootstrap.servers": quick})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(WAIT_S)
    first.settled([], 6)


def test_a_group_resumes_where_it_committed(quick: str, topic: str, join: Join) -> None:
    group, records = f"{topic}-group", assorted(20)
    produce(quick, topic, records)
    first = join(group, topic)
    first.read_until(20)
    first.commit()
    first.close()
    produce(quick, topic, records[:3])
    second = join(group, topic)
    second.read_until(3)
    assert [message.offset() for message in second.read] == [20, 21, 22]
    (position,) = second.consumer.committed([TopicPartition(topic, 0)], WAIT_S)
    assert position.offset == 20


def test_regular_expressions_are_matched_by_the_broker(quick: str, join: Join, unique: Callable[[str], str]) -> None:
    prefix = unique("matched")
    create(quick, f"{prefix}-a", 2)
    member = join(f"{prefix}-group", f"^{prefix}-.*")
    member.settled([], 2)
    create(quick, f"{prefix}-b", 3)
    until(lambda: bool(member.poll()) or len(member.consumer.assignment()) == 5, "the partitions of both topics")


def test_static_member_returns_to_its_partitions(topic: str, join: Join) -> None:
    group = f"{topic}-group"
    first, second = (join(group, topic, **{"group.instance.id": name}) for name in ("a", "b"))
    first.settled([second], 2, 2)
    owned = set(second.owned)
    second.close()
    again = join(group, topic, **{"group.instance.id": "b"})
    first.settled([again], 2, 2)
    assert again.owned == owned
    assert [kind for kind, _ in first.events].count("revoked") <= 1


@pytest.mark.very_slow
def test_group_survives_a_killed_broker(tmp_path: pathlib.Path) -> None:
    # A member must be back before its session ends, and librdkafka waits up to ten seconds between two connections.
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "45000"}
    client = {"group.protocol": "consumer", "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
    with BrokerProcess(tmp_path, settings) as broker:
        create(broker.bootstrap, "t", 2)
        members = [Member(broker.bootstrap, "g", "t", **client) for _ in range(2)]
        members[0].settled([members[1]], 1, 1)
        owned = [set(member.owned) for member in members]
        for _ in range(2):
            for partition in (0, 1):
                produce(broker.bootstrap, "t", assorted(10), partition)
            for member in members:
                member.read.clear()
                member.read_until(10)
                member.commit()
            broker.kill()
            broker.start()
        members[0].settled([members[1]], 1, 1)
        for partition in (0, 1):
            produce(broker.bootstrap, "t", assorted(5), partition)
        for member, partitions in zip(members, owned, strict=True):
            member.read.clear()
            member.read_until(5)
            assert [message.offset() for message in member.read] == [20, 21, 22, 23, 24]
            assert {message.partition() for message in member.read} == partitions == member.owned, "nothing has moved"
        for member in members:
            member.close()  # only now: the other one owns what it leaves


@pytest.mark.jvm
@pytest.mark.very_slow
def test_groups_as_kafka_consumer_groups_shows_them(quick: str, topic: str, join: Join, tools: KafkaTools) -> None:
    group = f"{topic}-group"
    produce(quick, topic, assorted(10))
    members = [join(group, topic, **{"client.id": name, "group.instance.id": name}) for name in ("one", "two")]
    members[0].settled([members[1]], 2, 2)
    for member in members:
        member.read_until(10 if 0 in member.owned else 0)
        with contextlib.suppress(Exception):  # a member without records has nothing to commit
            member.consumer.commit(asynchronous=False)
    for view in ([], ["--members"], ["--members", "--verbose"], ["--state"], ["--state", "--verbose"], ["--verbose"]):
        shown = without_seconds(ours(quick, "--describe", "--group", group, *view))
        assert sorted(shown) == sorted(theirs(tools, quick, "--describe", "--group", group, *view)), view
    (_, row) = table(ours(quick, "--describe", "--group", group, "--state", "--verbose"))
    assert row[-5:-3] == ["uniform", "Stable"] and row[-3] == row[-2]
    filters = ["--list", "--type", "consumer", "--state", "Stable"]
    assert [group, "Consumer", "Stable"] in table(ours(quick, *filters))
    assert sorted(ours(quick, *filters)) == sorted(theirs(tools, quick, *filters))
    for member in members:
        member.close()


@pytest.mark.jvm
@pytest.mark.very_slow
def test_group_moves_between_the_protocols_member_by_member(
    quick: str, topic: str, join: Join, tools: KafkaTools
) -> None:
    group = f"{topic}-group"
    produce(quick, topic, assorted(10))
    classic = {"group.protocol": "classic", "session.timeout.ms": "6000"}
    old = join(group, topic, **classic)
    old.settled([], 4)
    old.read_until(10)
    old.commit()
    assert [group, "Classic"] in table(ours(quick, "--list", "--type"))
    new = join(group, topic)
    old.settled([new], 2, 2)
    assert [group, "Consumer"] in table(ours(quick, "--list", "--type"))
    members = ["--describe", "--group", group, "--members", "--verbose"]
    shown = ours(quick, *members)
    assert sorted(shown) == sorted(theirs(tools, quick, *members))
    titles, *rows = table(shown)
    assert titles[-1] == "UPGRADED" and sorted(row[-1] for row in rows) == ["false", "true"]
    old.close()
    new.settled([], 4)
    assert new.read == [], "it resumes where the classic member committed"
    again = join(group, topic, **classic)
    new.settled([again], 2, 2)
    new.close()
    again.settled([], 4)
    assert [group, "Classic"] in table(ours(quick, "--list", "--type"))


@pytest.mark.jvm
@pytest.mark.very_slow
def test_java_consumer_reads_and_its_group_is_deleted(quick: str, topic: str, tools: KafkaTools) -> None:
    group = f"{topic}-group"
    produce(quick, topic, [Sent(None, b"order %d" % number, [], 1_700_000_000_000) for number in range(10)])
    said = tools.run(
        CONSUMER,
        *("--bootstrap-server", quick, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", "10", "--timeout-ms", "60000", "--command-property", "group.protocol=consumer"),
    )
    assert said.code == 0, said.err
    assert "Processed a total of 10 messages" in said.out + said.err
    state = ["--describe", "--group", group, "--state"]
    until(lambda: table(ours(quick, *state))[1][-2:] == ["Empty", "0"], "the end of the member's session")
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "4"]
    assert sorted(table(ours(quick, *reset, "--dry-run"))) == sorted(table(theirs(tools, quick, *reset, "--dry-run")))
    ours(quick, *reset, "--execute")
    assert [group, topic, "0", "4"] in [row[:4] for row in table(ours(quick, "--describe", "--group", group))]
    assert f"('{group}') was successful" in theirs(tools, quick, "--delete", "--group", group)[0]
    assert [group] not in table(ours(quick, "--list"))
