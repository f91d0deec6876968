"""Access rules in a cluster of Apache Kafka 3.9.1 and gregor: each kind follows, and stores, what the other does."""

from __future__ import annotations

import pathlib
import statistics

import pytest

from gregor.protocol.acls import Operation, PatternType, Permission, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    MetadataRequest,
)
from tests.compat.records import until
from tests.support.mixed_cluster import GREGOR, KAFKA, MixedCluster
from tests.support.stolen_time import UndisturbedTime
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": "2",
}
"""No super users: all clients are ANONYMOUS, and a denial must concern them."""
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANONYMOUS = "User:ANONYMOUS"
WAIT_S = 60.0
IN_EFFECT_S = 1.0
"""A change of rules has an effect on every broker within this time, without the time of others on the processors."""


class Client:
    """A connection to each broker: 0 is Apache Kafka, 1 is gregor."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.connections = [RawConnection(broker.port) for broker in cluster.brokers]

    def deny(self, broker: int, name: str, pattern_type: PatternType) -> None:
        denial = CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=pattern_type,
            principal=ANONYMOUS,
            host="*",
            operation=Operation.DESCRIBE,
            permission_type=Permission.DENY,
        )
        (result,) = self.connections[broker].ask(CreateAclsRequest(creations=[denial]), 3).results
        assert result.error_code == 0, result

    def remove(self, broker: int, name: str, pattern_type: PatternType) -> None:
        filters = [
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter=name,
                pattern_type_filter=pattern_type,
                principal_filter=None,
                host_filter=None,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            )
        ]
        (result,) = self.connections[broker].ask(DeleteAclsRequest(filters=filters), 3).filter_results
        assert (result.error_code, len(result.matching_acls)) == (0, 1), result

    def refused(self, name: str) -> list[bool]:
        """Return by broker whether it hides the topic."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        codes = [connection.ask(request, 9).topics[0].error_code for connection in self.connections]
        return [code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for code in codes]

    def listed(self) -> list[set[tuple[str, int]]]:
        request = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        answers = [connection.ask(request, 3) for connection in self.connections]
        return [{(one.resource_name, one.pattern_type) for one in answer.resources} for answer in answers]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


def changes(cluster: MixedCluster, folder: str) -> list[bytes]:
    """Return the notices in a folder, in their order."""
    return [cluster.store.get(f"{folder}/{name}")[0] for name in sorted(cluster.store.get_children(folder))]


def test_rules_of_either_kind_of_broker_act_on_both(tmp_path: pathlib.Path) -> None:
    with MixedCluster(tmp_path, [KAFKA, GREGOR], SETTINGS) as cluster:
        cluster.start()
        client = Client(cluster)
        names = {0: "of-kafka", 1: "of-gregor"}
        pids = [cluster.zookeeper.pid, *(broker.pid for broker in cluster.brokers)]
        took_s: list[float] = []

        def in_effect(name: str, denied: bool) -> None:
            """Wait for a change that a broker has just confirmed, and note its time."""
            spent = UndisturbedTime(*pids)
            until(lambda: client.refused(name) == [denied] * 2, f"{name}, denied: {denied}", WAIT_S)
            took_s.append(spent.seconds())

        for pattern_type, suffix in ((LITERAL, ""), (PREFIXED, "-and-more")):
            for broker, name in names.items():
                assert client.refused(name + suffix) == [False, False]
                client.deny(broker, name, pattern_type)
                in_effect(name + suffix, True)
            first, second = client.listed()
            assert first == second == {(name, pattern_type) for name in names.values()}
            root = "/kafka-acl" if pattern_type is LITERAL else "/kafka-acl-extended/prefixed"
            of_kafka, of_gregor = (cluster.store.get(f"{root}/Topic/{name}")[0] for name in names.values())
            assert of_kafka == of_gregor
            folder = "/kafka-acl-changes" if pattern_type is LITERAL else "/kafka-acl-extended-changes"
            by_kafka, by_gregor = changes(cluster, folder)
            assert by_kafka.replace(b"of-kafka", b"of-gregor") == by_gregor
            for broker, name in names.items():  # each removes the rule of the other
                client.remove(1 - broker, name, pattern_type)
                in_effect(name + suffix, False)
            assert cluster.store.get_children(f"{root}/Topic") == []
        assert set(cluster.store.get_children("/kafka-acl")) == set(
            cluster.store.get_children("/kafka-acl-extended/prefixed")
        )
        client.close()
        # Four denials and four removals, by either kind of broker. One of them may meet a pause of the machine.
        assert len(took_s) == 8 and statistics.median(took_s) < IN_EFFECT_S, took_s
