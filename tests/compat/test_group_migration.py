"""Members of both group protocols in one group, as they come one by one: librdkafka, and Java's VerifiableConsumer.

A rolling change of group.protocol, and back: the group is converted with the first new member and after the last.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.__main__ import main as gregor
from tests.compat.confluent import Member
from tests.compat.records import WAIT_S, until
from tests.compat.verifiable import VerifiableMember, settled
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "500",
}
PARTITIONS = 6
NEW = {"group.protocol": "consumer"}
CLASSIC, CONSUMER = ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    against = request.config.getoption("--against")
    if against:
        yield str(against)
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def topic(bootstrap: str, unique: Callable[[str], str]) -> str:
    name = unique("orders")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_S)
    return name


def type_of(bootstrap: str, group: str) -> ConsumerGroupType | None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    listed = admin.list_consumer_groups().result(WAIT_S).valid
    return next((one.type for one in listed if one.group_id == group), None)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_librdkafka_changes_its_protocol_and_back(bootstrap: str, topic: str, strategy: str) -> None:
    group = f"{topic}-group"
    old = {"partition.assignment.strategy": strategy}
    with ExitStack() as stack:

        def join(config: dict[str, str]) -> Member:
            member = Member(bootstrap, group, topic, **config)
            stack.callback(member.close)
            return member

        first, second = join(old), join(old)
        first.settled([second], 3, 3)
        assert type_of(bootstrap, group) == CLASSIC
        place = TopicPartition(topic, 0, 7)
        owner = first if 0 in first.owned else second
        owner.commit(place)
        third = join(NEW)
        first.settled([second, third], 2, 2, 2)
        assert type_of(bootstrap, group) == CONSUMER
        first.close()
        second.settled([third], 3, 3)
        fourth = join(NEW)
        second.settled([third, fourth], 2, 2, 2)
        second.close()
        third.settled([fourth], 3, 3)
        fifth = join(old)
        third.settled([fourth, fifth], 2, 2, 2)
        third.close()
        fourth.settled([fifth], 3, 3)
        fourth.close()
        fifth.settled([], PARTITIONS)
        until(lambda: type_of(bootstrap, group) == CLASSIC, "a classic group")
        assert fifth.consumer.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset == 7
        assert not any(member.errors for member in (first, second, third, fourth, fifth))


@pytest.mark.jvm
def test_java_changes_its_protocol_and_back_while_it_reads(bootstrap: str, topic: str, tmp_path: pathlib.Path) -> None:
    group = f"{topic}-group"
    producer = Producer({"bootstrap.servers": bootstrap})
    written = 0

    def write() -> None:
        nonlocal written
        for number in range(written, written + 60):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        written += 60
        assert producer.flush(WAIT_S) == 0

    with ExitStack() as stack:

        def join(protocol: str) -> VerifiableMember:
            return stack.enter_context(VerifiableMember(tmp_path, bootstrap, group, topic, protocol=protocol))

        members = [join("classic"), join("classic")]
        settled(members, 3, 3)
        write()
        # One after the other is replaced.
        for protocol in ("consumer", "consumer", "classic", "classic"):
            members.append(join(protocol))
            settled(members[-3:], 2, 2, 2)
            write()
            until(lambda: read_of(members) == written, "all records")
            members[-3].stop()
            settled(members[-2:], 3, 3)
        until(lambda: type_of(bootstrap, group) == CLASSIC, "a classic group")
        write()
        until(lambda: read_of(members) == written, "all records")


def read_of(members: list[VerifiableMember]) -> int:
    """The number of different records that they have read."""
    return len(set().union(*(member.read() for member in members)))


def test_a_downgrade_of_the_feature_leaves_classic_groups_with_their_offsets(
    tmp_path: pathlib.Path,
    request: pytest.FixtureRequest,
    unique: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broker of its own: the feature is the cluster's. A safe downgrade is refused while a new member is there."""
    if request.config.getoption("--against"):
        pytest.skip("the feature of another broker stays as it is")
    with BrokerProcess(tmp_path, SETTINGS) as running, ExitStack() as stack:
        topic, group = unique("orders"), unique("group")
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S)

        def change(*words: str) -> int:
            return gregor(["features", "--bootstrap-server", running.bootstrap, *words])

        def join(config: dict[str, str]) -> Member:
            member = Member(running.bootstrap, group, topic, **config)
            stack.callback(member.close)
            return member

        old, new = join({}), join(NEW)
        old.settled([new], 3, 3)
        assert type_of(running.bootstrap, group) == CONSUMER
        old.commit(TopicPartition(topic, min(old.owned), 7))
        place = TopicPartition(topic, min(old.owned))
        assert change("downgrade", "--feature", "group.version=0") != 0
        captured = capsys.readouterr()
        assert group in captured.out + captured.err
        assert type_of(running.bootstrap, group) == CONSUMER
        assert change("downgrade", "--unsafe", "--feature", "group.version=0") == 0
        assert type_of(running.bootstrap, group) == CLASSIC
        until(lambda: new.poll() or bool(new.errors), "the end of the new member")
        new.close()
        old.settled([], PARTITIONS)
        assert old.consumer.committed([place], WAIT_S)[0].offset == 7
        assert change("upgrade", "--feature", "group.version=1") == 0
        again = join(NEW)
        old.settled([again], 3, 3)
        assert type_of(running.bootstrap, group) == CONSUMER
        assert old.consumer.committed([place], WAIT_S)[0].offset == 7
