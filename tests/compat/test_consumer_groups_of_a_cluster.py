"""Consumer groups (KIP-848) in a cluster of ZooKeeper: served once no Apache Kafka 3.9.1 is left and group.version is
finalised; after a downgrade Apache Kafka coordinates what is left of them, as classic groups with their offsets."""

from __future__ import annotations

import contextlib
import io
import pathlib
import signal

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.__main__ import main as gregor
from gregor.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, OffsetFetchRequest
from tests.compat.cluster_load import NumberedLoad, Reader, create
from tests.compat.confluent import Member, produce
from tests.compat.records import assorted, until
from tests.support.gregor_cluster import GregorCluster
from tests.support.mixed_cluster import GREGOR, KAFKA, WAIT_S, MixedCluster
from tests.support.wire import ask

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

SETTINGS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
TOPIC, GROUP = "orders", "billing"
HEARTBEAT, RECORDS = 68, 12
FEATURE = ("--feature", "group.version=1")
PARTITIONS, MEMBERS = 6, 3
ONCE = {"enable.idempotence": True}
"""A record whose leader moves is sent again."""


def command(cluster: MixedCluster, *words: str, broker_id: int = 0, code: int = 0) -> str:
    """Return what gregor prints, connected to one broker."""
    out = io.StringIO()
    bootstrap = f"127.0.0.1:{cluster.brokers[broker_id].port}"
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        assert gregor([words[0], "--bootstrap-server", bootstrap, *words[1:]]) == code, out.getvalue()
    return out.getvalue()


def serves(cluster: MixedCluster, broker_id: int) -> bool:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response: ApiVersionsResponse = ask(cluster.brokers[broker_id].port, request, 3, WAIT_S)
    return HEARTBEAT in {one.api_key for one in response.api_keys}


def group_on(cluster: MixedCluster) -> tuple[str, str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_consumer_groups([GROUP])[GROUP].result(WAIT_S)
    return found.type.name, found.state.name


def wait_for_isr(cluster: MixedCluster) -> None:
    """Wait until both brokers are in sync in the partitions that exist."""

    def full() -> bool:
        partitions = [(TOPIC, 0), *(("__consumer_offsets", index) for index in range(3))]
        states = [cluster.state(*partition) for partition in partitions]
        return all(state is None or set(state["isr"]) == {0, 1} for state in states)

    until(full, "all replicas in sync", WAIT_S)


def test_consumer_groups_come_with_the_feature_and_leave_with_it(tmp_path: pathlib.Path) -> None:
    with MixedCluster(tmp_path, [GREGOR, KAFKA], SETTINGS) as cluster:
        cluster.start()
        cluster.force_controller(0)
        upgrade = ("features", "upgrade", *FEATURE)
        assert "Broker 1 does not serve it" in command(cluster, *upgrade, code=1)
        assert not serves(cluster, 0)
        # Apache Kafka 3.9 passes over the notice of a group's settings and follows the next one.
        command(cluster, "configs", "--alter", "--entity-type", "groups", "--entity-name", GROUP,
                "--add-config", "consumer.heartbeat.interval.ms=400")  # fmt: skip
        create(cluster, TOPIC, [[0, 1]])
        command(cluster, "configs", "--alter", "--topic", TOPIC, "--add-config", "retention.ms=7200000")
        kafka = cluster.brokers[1]
        until(lambda: f"topics/{TOPIC} with config" in kafka.log(), "Apache Kafka follows the topic's settings", WAIT_S)

        assert kafka.stop() == 0
        cluster.become(1, GREGOR)
        cluster.start(1)
        command(cluster, *upgrade)
        for broker_id in (0, 1):
            until(lambda id_=broker_id: serves(cluster, id_), "the consumer protocol", WAIT_S)  # type: ignore[misc]
        wait_for_isr(cluster)
        produce(cluster.bootstrap, TOPIC, assorted(RECORDS), **ONCE)
        member = Member(cluster.bootstrap, GROUP, TOPIC, **{"group.protocol": "consumer"})
        member.read_until(RECORDS)
        member.commit()
        assert group_on(cluster) == ("CONSUMER", "STABLE")
        assert "uniform" in command(cluster, "groups", "--describe", "--group", GROUP, "--state")

        # Another coordinator loads the group, and the member stays in it.
        coordinator = int(command(cluster, "groups", "--describe", "--group", GROUP, "--state").split("(")[2][0])
        cluster.brokers[coordinator].process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
        assert cluster.brokers[coordinator].process.wait(WAIT_S) == 0  # type: ignore[union-attr]
        produce(cluster.bootstrap, TOPIC, assorted(3), **ONCE)
        member.read_until(RECORDS + 3)
        member.commit()
        cluster.start(coordinator)
        wait_for_isr(cluster)

        cluster.force_controller(0)
        downgrade = ("features", "downgrade", "--feature", "group.version=0")
        assert f"({GROUP})" in command(cluster, *downgrade, code=1)
        assert serves(cluster, 0)
        member.close()
        command(cluster, *downgrade)
        assert cluster.node("/feature")["features"] == {}
        # The group's coordinator learns of the feature after the controller.
        until(lambda: group_on(cluster) == ("CLASSIC", "EMPTY"), "a classic group", WAIT_S)

        assert cluster.brokers[1].stop() == 0
        cluster.become(1, KAFKA)
        cluster.start(1)
        wait_for_isr(cluster)
        assert cluster.brokers[0].stop() == 0
        produce(cluster.bootstrap, TOPIC, assorted(2), **ONCE)
        classic = Member(cluster.bootstrap, GROUP, TOPIC)
        classic.read_until(2)
        assert [message.offset() for message in classic.read] == [RECORDS + 3, RECORDS + 4]
        classic.close()
        assert cluster.brokers[1].stop() == 0


def test_group_outlives_its_coordinators(tmp_path: pathlib.Path) -> None:
    settings = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "500",
    }
    with GregorCluster(tmp_path, 3, settings) as cluster, contextlib.ExitStack() as stack:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        with contextlib.redirect_stdout(io.StringIO()):
            assert gregor(["features", "upgrade", "--bootstrap-server", cluster.bootstrap, *FEATURE]) == 0
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(WAIT_S)
        load = stack.enter_context(NumberedLoad(cluster.bootstrap, TOPIC, PARTITIONS))
        members = [
            stack.enter_context(Reader(cluster.bootstrap, GROUP, load, protocol="consumer")) for _ in range(MEMBERS)
        ]

        def seen(partition: int) -> set[int]:
            return set().union(*(member.seen[partition] for member in members))

        def reads_on() -> None:
            """Wait until records that are sent after this call are read, from each partition."""
            begin = load.sent
            load.goes_on()
            until(
                lambda: all(max(seen(one), default=-1) > begin for one in range(PARTITIONS)), "reads go on", 2 * WAIT_S
            )

        until(lambda: all(any(member.seen) for member in members), "each member has partitions", WAIT_S)
        coordinator, offsets = coordinator_and_positions(cluster)
        for _ in range(2):
            reads_on()
            cluster.kill(coordinator)
            reads_on()
            cluster.start(coordinator)
            coordinator, later = coordinator_and_positions(cluster)
            assert all(later[one] >= offsets[one] for one in offsets), "committed offsets never fall"
            offsets = later
        load.finish()
        wanted = load.acknowledged
        until(lambda: all(seen(one) >= known.keys() for one, known in enumerate(wanted)), "all is read", 2 * WAIT_S)


def coordinator_and_positions(cluster: GregorCluster) -> tuple[int, dict[int, int]]:
    """Return the group's coordinator and the committed offset of each partition.

    The admin client of librdkafka 2.16 crashes on a coordinator that moves."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    found: list[tuple[int, dict[int, int]]] = []

    def answered() -> bool:
        for broker_id, broker in cluster.brokers.items():
            (group,) = ask(broker.port, request, 8, WAIT_S).groups
            if not group.error_code:
                parts = [part for topic in group.topics for part in topic.partitions]
                found.append((broker_id, {part.partition_index: part.committed_offset for part in parts}))
                return True
        return False

    until(answered, "an answer of the coordinator", WAIT_S)
    return found[-1]
