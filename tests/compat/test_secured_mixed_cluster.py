"""Apache Kafka 3.9.1 and two gregor brokers, with SASL_SSL and SCRAM among themselves: a leader moves under load, and
credentials and rules that either kind stores act on the other."""

from __future__ import annotations

import pathlib

import pytest

from gregor.protocol.acls import Operation, PatternType, Permission, ResourceType
from gregor.protocol.messages import AlterUserScramCredentialsRequest, CreateAclsRequest, MetadataRequest
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sasl.scram import MECHANISMS, salted_password
from tests.compat.cluster_load import WAIT_S, NumberedLoad, create, wait_in_sync
from tests.compat.records import until
from tests.compat.test_mixed_cluster import elect_preferred
from tests.support.certificates import Certificates
from tests.support.kafka import run_kafka_tool
from tests.support.mixed_cluster import GREGOR, KAFKA, MixedCluster
from tests.support.secure_listeners import MECHANISM, SecureListeners
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOPIC, PARTITIONS = "load", 3
ASSIGNMENT = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
NO_LEADER = -1
CODE, ITERATIONS = 2, 4096
"""Of MECHANISM."""
OF_KAFKA, OF_GREGOR = 0, 1
"""The brokers that store the changes of each kind."""
PASSWORDS = {name: f"not-for-any-log-{name}" for name in ("broker", "anna", "of-kafka", "of-gregor")}


class Secured(SecureListeners):
    """Each broker has a listener in clear text for the test, too."""

    @property
    def settings(self) -> dict[str, str]:
        return {
            **super().settings,
            **self.BETWEEN_BROKERS,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:ANONYMOUS",
        }

    def listeners(self, broker_id: int, port: int) -> dict[str, str]:
        return {"listeners": f"PLAINTEXT://127.0.0.1:{port},{self.address(broker_id)}"}

    def sees(self, broker_id: int, user: str, topic: str) -> bool:
        """Whether the broker authenticates the user and shows the topic to it."""
        try:
            with self.connect(broker_id, user) as connection:
                topics = connection.exchange(MetadataRequest(topics=None), 9).topics
        except AuthenticationFailed:
            return False
        return topic in {one.name for one in topics}


def add_user(cluster: MixedCluster, broker_id: int, user: str) -> None:
    salted = salted_password(MECHANISMS[MECHANISM], PASSWORDS[user], b"salt", ITERATIONS)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=CODE, iterations=ITERATIONS, salt=b"salt", salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    results = []

    def stored() -> bool:
        with RawConnection(cluster.brokers[broker_id].port) as connection:
            results[:] = connection.ask(request, 0).results
        return [one.error_code for one in results] == [0]

    until(stored, f"the credentials of {user}: {results}", WAIT_S)


def allow(cluster: MixedCluster, broker_id: int, user: str, operation: Operation) -> None:
    creation = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=TOPIC,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    with RawConnection(cluster.brokers[broker_id].port) as connection:
        (result,) = connection.ask(CreateAclsRequest(creations=[creation]), 3).results
    assert result.error_code == 0, result


def add_before_the_start(cluster: MixedCluster, user: str) -> None:
    """Write credentials into ZooKeeper as Apache Kafka's tool does before the first broker starts."""
    entity = ("--entity-type", "users", "--entity-name", user)
    password = f"{MECHANISM}=[iterations={ITERATIONS},password={PASSWORDS[user]}]"
    place = ("--zookeeper", cluster.zookeeper.connect)
    run_kafka_tool("kafka.admin.ConfigCommand", *place, "--alter", "--add-config", password, *entity, version="3.9.1")


def leader(cluster: MixedCluster, partition: int) -> int:
    return int(cluster.state(TOPIC, partition)["leader"])


@pytest.mark.by_day(2, group="mixed clusters")
def test_leaders_users_and_rules_of_both_kinds(tmp_path: pathlib.Path, certificates: Certificates) -> None:
    secured = Secured(certificates, range(3), PASSWORDS)
    kinds = [KAFKA, GREGOR, GREGOR]
    with MixedCluster(tmp_path, kinds, secured.settings, more=secured.listeners) as cluster:
        add_before_the_start(cluster, "broker")
        cluster.start()
        create(cluster, TOPIC, ASSIGNMENT)
        for user, stored_by in (("anna", OF_GREGOR), ("of-kafka", OF_KAFKA), ("of-gregor", OF_GREGOR)):
            cluster.force_controller(stored_by)  # credentials are the controller's
            add_user(cluster, stored_by, user)
        for user, stored_by, operation in (
            ("anna", OF_KAFKA, Operation.WRITE),
            ("of-kafka", OF_KAFKA, Operation.DESCRIBE),
            ("of-gregor", OF_GREGOR, Operation.DESCRIBE),
        ):
            assert not any(secured.sees(broker_id, user, TOPIC) for broker_id in range(3))
            allow(cluster, stored_by, user, operation)
            for broker_id in range(3):
                until(lambda: secured.sees(broker_id, user, TOPIC), f"{broker_id} serves {user}", WAIT_S)  # noqa: B023
        with NumberedLoad(cluster.bootstrap, TOPIC, PARTITIONS, secured.client("anna")) as load:
            load.goes_on()
            # The leader moves from Apache Kafka to gregor, which followed it; then it is the other way round.
            # On a busy machine a broker may have lost its session, and another one leads since then.
            wait_in_sync(cluster, TOPIC, PARTITIONS)
            elect_preferred(cluster, TOPIC, [0, 1, 2])
            assert cluster.brokers[OF_KAFKA].stop() == 0
            # Its controlled shutdown may fail; then a leader is elected when its session ends.
            until(lambda: leader(cluster, OF_KAFKA) not in (NO_LEADER, OF_KAFKA), "gregor leads", WAIT_S)
            load.goes_on()
            cluster.start(OF_KAFKA)
            wait_in_sync(cluster, TOPIC, PARTITIONS)
            load.goes_on()
            load.finish()
        load.check_stored(cluster.bootstrap)
        logs = "".join(broker.log() for broker in cluster.brokers)
        assert [user for user, password in PASSWORDS.items() if password in logs] == []
