"""Scripted causes of rebalances: the history names each with its member, whatever the client."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from gregor.broker.cli.groups.history import OTHER_COORDINATOR, Gap, read_history, with_gaps
from gregor.broker.cli.wire import WireClient
from gregor.coordinator.partitioner import partition_of
from gregor.protocol.messages import RebalanceValue
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, REBALANCES_TOPIC
from tests.compat.cluster_load import WAIT_S, create, wait_in_sync
from tests.compat.cluster_load import admin as admin_of
from tests.compat.members.launch import KINDS, members, wait_until_owned
from tests.compat.records import until
from tests.support.mixed_cluster import GREGOR, KAFKA, MixedCluster
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

SESSION_MS, LONG_SESSION_MS = 9_000, 40_000
"""That of a member that is killed, and that of those which must not be lost on a busy machine."""
MOVING_SESSION_MS = 20_000
"""That of members which search for another coordinator; one that ends meanwhile does not leave its group."""
EPOCHS_SESSION_MS = 20_000
"""That of all members of a group of the consumer protocol, in which one is killed."""
CONSUMER = {"protocol": "consumer", "assignor": "cooperative"}
"""Of these clients only franz-go names an assignor of the broker: with the cooperative one of its own, `uniform`."""
REVOKED, TOPICS_CHANGED, METADATA_CHANGED = "partitions revoked", "topics changed", "member metadata changed"
GIVE_REASONS = ("java", "franz")
ASSIGNORS = ("range", "cooperative")


def causes_of(bootstrap: str, group: str, count: int) -> list[tuple[str, str]]:
    """Trigger and client id of the first cause of each rebalance.

    The second halves of cooperative ones are left out, and all but the first change of topics: the leader of Java's
    client joins again, with that reason, when the group begins or ceases to read the second topic. So are those of a
    member of librdkafka that joins again by itself, with other metadata, when it learns later of the same change.
    """
    found: list[RebalanceValue] = []

    def complete() -> bool:
        with WireClient(bootstrap) as client:
            found[:] = read_history(client, group)
        return len(causes()) >= count

    def causes() -> list[tuple[str, str]]:
        firsts = [(value.causes[0].trigger, value.causes[0].client_id) for value in found]
        return [
            one
            for number, one in enumerate(firsts)
            if one[0] not in (REVOKED, METADATA_CHANGED) and not (one[0] == TOPICS_CHANGED and one in firsts[:number])
        ]

    until(complete, f"{count} rebalances of {group}")
    return causes()


@pytest.mark.jvm
@pytest.mark.by_day(2)
@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("kind", KINDS)
def test_causes_are_named(
    kind: str,
    assignor: str,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, other, group = new_topic(partitions=4), new_topic(partitions=2), unique("history")
    common = {"session_ms": LONG_SESSION_MS, "assignor": assignor, "protocol": "classic"}
    killed = {"second": {"session_ms": SESSION_MS}}
    with members(kind, killed, bootstrap=bootstrap, group=group, topics=topic, **common) as started:
        first = started["first"]
        wait_until_owned({first: 4})
        second = started["second"]
        wait_until_owned({first: 2, second: 2})
        (grown,) = admin.create_partitions([NewPartitions(topic, 6)]).values()
        grown.result()
        wait_until_owned({first: 3, second: 3})
        second.subscribe(topic, other)
        shares = (3, 5) if assignor == "range" else (4, 4)
        wait_until_owned(dict(zip((first, second), shares, strict=True)))
        second.kill()
        wait_until_owned({first: 6})
        third = started["third"]
        wait_until_owned({first: 3, third: 3})
        third.leave()
        wait_until_owned({first: 6})
        first.leave()
        expected = [
            ("member joined", "first"),
            ("member joined", "second"),
            ("topics changed", "first"),
            ("subscription changed", "second"),
            ("session timeout", "second"),
            ("member joined", "third"),
            ("member left", "third"),
            ("member left", "first"),
        ]
        assert causes_of(bootstrap, group, len(expected)) == expected
    check_reasons(kind, bootstrap, group)


@pytest.mark.by_day(1, group="causes of group epochs")
@pytest.mark.jvm
def test_causes_of_group_epochs_are_named(tmp_path: pathlib.Path) -> None:
    """Groups of the consumer protocol, of each client, go through the same at the same time."""
    settings = {
        **{f"group.consumer.{name}session.timeout.ms": str(EPOCHS_SESSION_MS) for name in ("", "min.")},
        **{f"group.consumer.{name}heartbeat.interval.ms": "1000" for name in ("", "min.")},
    }
    with BrokerProcess(tmp_path / "broker", settings) as broker, contextlib.ExitStack() as stack:
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic("load", 4, 1), NewTopic("other", 2, 1)]).values():
            created.result(WAIT_S)
        groups = [
            stack.enter_context(members(kind, bootstrap=bootstrap, group=kind, topics="load", **CONSUMER))
            for kind in KINDS
        ]

        def until_owned(**counts: int) -> None:
            wait_until_owned({group[name]: count for group in groups for name, count in counts.items()})

        until_owned(first=4)
        until_owned(first=2, second=2)
        (grown,) = admin.create_partitions([NewPartitions("load", 6)]).values()
        grown.result()
        until_owned(first=3, second=3)
        for group in groups:
            group["second"].subscribe("load", "other")
        until_owned(first=4, second=4)
        for group in groups:
            group["second"].kill()
        until_owned(first=6)
        until_owned(first=3, third=3)
        for name, left in (("third", {"first": 6}), ("first", {})):
            for group in groups:
                group[name].leave()
            until_owned(**left)
        expected = [
            ("member joined", "first"),
            ("member joined", "second"),
            ("topics changed", ""),
            ("subscription changed", "second"),
            ("session timeout", "second"),
            ("member joined", "third"),
            ("member left", "third"),
            ("member left", "first"),
        ]
        found = {kind: causes_of(bootstrap, kind, len(expected)) for kind in KINDS}
        assert found == dict.fromkeys(KINDS, expected)


@pytest.mark.by_day(1, group="causes of group epochs")
@pytest.mark.jvm
def test_other_coordinators_and_leaders(tmp_path: pathlib.Path) -> None:
    """The coordinator is gregor, then Apache Kafka 3.9.1, which records nothing, and gregor again; each broker leads a
    partition of the history."""
    settings = {"offsets.topic.num.partitions": "1", "zookeeper.session.timeout.ms": "10000"}
    groups = [next(name for name in map(str, range(100)) if partition_of(name, 3) == number) for number in range(3)]
    with MixedCluster(tmp_path, [KAFKA, GREGOR, GREGOR], settings) as cluster:
        cluster.start()
        create(cluster, GROUP_METADATA_TOPIC, [[1, 0, 2]])
        create(cluster, REBALANCES_TOPIC, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        client = admin_of(cluster)
        for topic in (GROUP_METADATA_TOPIC, REBALANCES_TOPIC):
            entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
            (altered,) = client.incremental_alter_configs([resource]).values()
            altered.result(WAIT_S)
        create(cluster, "load", [[0, 1, 2], [1, 2, 0]])
        with contextlib.ExitStack() as stack:
            common = {"bootstrap": cluster.bootstrap, "topics": "load", "session_ms": MOVING_SESSION_MS}
            started = [
                stack.enter_context(members("confluent", group=group, assignor="range", protocol="classic", **common))
                for group in groups
            ]
            wait_until_owned({one["first"]: 2 for one in started})
            for group in groups:
                causes_of(cluster.bootstrap, group, 1)
            assert cluster.brokers[1].stop() == 0
            until(lambda: cluster.state(GROUP_METADATA_TOPIC, 0)["leader"] == 0, "Apache Kafka coordinates", WAIT_S)
            wait_until_owned({one[name]: 1 for one in started for name in ("first", "second")})
            for one in started:
                one["second"].leave()
            wait_until_owned({one["first"]: 2 for one in started})
            cluster.start(1)
            wait_in_sync(cluster, GROUP_METADATA_TOPIC, 1)
            elect_preferred(cluster, GROUP_METADATA_TOPIC, [1])
            for one in started:
                one["first"].leave()
        for group in groups:
            causes_of(cluster.bootstrap, group, 2)
            for broker in cluster.brokers:
                with WireClient(broker.bootstrap) as client:
                    first, gap, last = with_gaps(read_history(client, group))
                assert isinstance(first, RebalanceValue)
                assert isinstance(last, RebalanceValue)
                assert (first.epoch, last.outcome) == (1, "empty")
                # A member that does not know the new coordinator yet ends without a request.
                assert last.causes[0].trigger in ("member left", "session timeout")
                assert gap == Gap(2, last.epoch - 1, OTHER_COORDINATOR)


def elect_preferred(cluster: MixedCluster, topic: str, leaders: list[int]) -> None:
    client = admin_of(cluster)
    client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(WAIT_S)
    until(lambda: [cluster.state(topic, 0)["leader"]] == leaders, f"leaders {leaders} of {topic}", WAIT_S)


def check_reasons(kind: str, bootstrap: str, group: str) -> None:
    with WireClient(bootstrap) as client:
        values = read_history(client, group)
    reasons = [cause.reason for value in values for cause in value.causes if cause.trigger == "member left"]
    assert all(reason is not None for reason in reasons) == (kind in GIVE_REASONS)
    assert [value.epoch for value in values] == list(range(1, len(values) + 1))
