"""The same requests of clients with different rights to gregor and to Apache Kafka 4.3.1: errors, and names shown.

Apache Kafka 3.9.1 with ZooKeeper is a second judge, beside a gregor with ZooKeeper, also of the requests among brokers.
Where its answers differ from those of 4.3.1, which DIFFERENCES lists, 4.3.1 decides.

Clients differ by their address (127.0.0.x), which rules name; all are ANONYMOUS. The rules come by CreateAcls. For
tokens, quotas and SCRAM credentials they are users of SASL/PLAIN, and on that listener all requests are sent without
authentication, too.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from gregor.protocol.acls import Operation, PatternType, ResourceType
from gregor.protocol.client import version_ranges
from gregor.protocol.client_security import security_of_client
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    ApiVersionsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DescribeDelegationTokenRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection
from tests.support.authorization_cases import GROUPS, MINE, OTHER, TOPICS, TXNS, Cases, cases, delete_by_id, outline
from tests.support.controller_cases import controller_cases
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.kafka_process import KafkaProcess
from tests.support.processes import BrokerProcess, free_port
from tests.support.secured_broker import login
from tests.support.user_cases import created, user_cases, user_outline
from tests.support.wire import TIMEOUT_S, RawConnection
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

ADMIN = "127.0.0.1"
CLIENTS = {"denied": "127.0.0.2", "owner": "127.0.0.3", "viewer": "127.0.0.4", "operator": "127.0.0.5"}
ANONYMOUS = "User:ANONYMOUS"
SAME_NAMES = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "true",
}
USERS = {name: f"secret-of-{name}" for name in ("broker", "anna", "oscar", "root", "peter")}
"""oscar makes and sees tokens of anna, and root may do everything on the cluster."""
SASL_SETTINGS = {
    "delegation.token.secret.key": "not-for-any-log",
    "connection.failed.authentication.delay.ms": "0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": login(
        "plain.PlainLoginModule", username="broker", **{f"user_{name}": secret for name, secret in USERS.items()}
    ),
}
FINAL_S = 120.0
Answers = dict[tuple[str, str], Any]
"""The outline of each answer, by the client and the case."""
NEWER = {
    "DescribeTopicPartitions",
    "DescribeTopicPartitions of all",
    "ListConfigResources",
    *(f"OffsetCommit by id of {group}" for group in GROUPS),
    "Produce by id",
}
"""The cases that Apache Kafka 3.9.1 does not serve: keys or versions that came later."""
ALL, DESCRIBE = Operation.ALL, Operation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
RULES = [
    *((kind, "*", LITERAL, ADMIN, ALL) for kind in _TYPES),
    (ResourceType.CLUSTER, "kafka-cluster", LITERAL, ADMIN, ALL),
    *((kind, "mine-", PREFIXED, CLIENTS["owner"], ALL) for kind in _TYPES),
    *((kind, "mine-", PREFIXED, CLIENTS["viewer"], DESCRIBE) for kind in _TYPES),
    (ResourceType.TOPIC, "never-described", LITERAL, CLIENTS["viewer"], DESCRIBE),
    (ResourceType.CLUSTER, "kafka-cluster", LITERAL, CLIENTS["operator"], ALL),
]
USER_RULES = [
    (ResourceType.USER, "User:anna", Operation.CREATE_TOKENS, "User:oscar"),
    (ResourceType.USER, "User:anna", Operation.DESCRIBE_TOKENS, "User:oscar"),
    (ResourceType.CLUSTER, "kafka-cluster", ALL, "User:root"),
]


class Client(RawConnection):
    """From one address of this machine."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(port)
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, source_address=(host, 0))


def settled(request: Callable[[], Any], is_settled: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + FINAL_S
    while not is_settled(answer := request()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_settled(answer), answer
    return answer


def prepare(port: int) -> dict[str, Uuid]:
    """Make topics, offsets, transactional ids, and the rules; return the ids of the topics."""
    with RawConnection(port) as wire:
        ids = _made(wire)
    every_topic = MetadataRequest(topics=None)
    for host, count in ((CLIENTS["denied"], 0), (CLIENTS["owner"], 1), (CLIENTS["viewer"], 1)):
        with Client(port, host) as client:
            settled(
                lambda client=client: [topic.name for topic in client.ask(every_topic, 8).topics],
                lambda names, count=count: len(names) == count,
            )
    return ids


def _made(wire: RawConnection) -> dict[str, Uuid]:
    made = CreateTopicsRequest.CreatableTopic
    wanted = [made(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
    answer = wire.ask(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7)
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    ids = {topic.name: topic.topic_id for topic in answer.topics}
    for key_type, key in ((0, GROUPS[0]), (1, TXNS[0])):
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        settled(lambda request=request: wire.ask(request, 3), lambda answer: not answer.error_code)
    for group in GROUPS:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in TOPICS]
        commit = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        settled(
            lambda commit=commit: wire.ask(commit, 8),
            lambda answer: not any(part.error_code for topic in answer.topics for part in topic.partitions),
        )
    for txn in TXNS:
        init = InitProducerIdRequest(transactional_id=txn, transaction_timeout_ms=60_000)
        settled(lambda init=init: wire.ask(init, 2), lambda answer: not answer.error_code)
    creations = [
        _creation(kind, name, pattern, ANONYMOUS, host, operation) for kind, name, pattern, host, operation in RULES
    ]
    creations += [
        _creation(kind, name, LITERAL, principal, "*", operation) for kind, name, operation, principal in USER_RULES
    ]
    results = wire.ask(CreateAclsRequest(creations=creations), 3).results
    assert [result.error_code for result in results] == [0] * len(creations), results
    return ids


def _creation(
    kind: ResourceType, name: str, pattern: PatternType, principal: str, host: str, operation: Operation
) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=3,
    )


DIFFERENCES = {
    "CreateTopics": "a denial has the same error for the configs of the topic",
    "DeleteTopics by id": "as by name",
    "DeleteTopics by name": "a denial comes before the check that the topic exists",
    "DescribeConfigs": "a group or client metrics among the resources: the whole request is refused",
    "DescribeGroups": "there are no operations on configs of groups",
    "IncrementalAlterConfigs": "groups have no configs",
    "UpdateFeatures": "transaction.version is a feature of KRaft",
}
"""The cases in which Apache Kafka 3.9.1 and 4.3.1 are both right, with what 3.9.1 does; gregor does as 4.3.1."""


class Side(NamedTuple):
    """A broker: its ports, and the ids of its topics."""

    port: int
    sasl_port: int
    ids: dict[str, Uuid]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    folder = tmp_path_factory.mktemp("authorization")
    port, controller, sasl, our_sasl = (free_port() for _ in range(4))
    text = SINGLE_NODE.format(port=port, controller=controller, folder=folder)
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},"
        f"SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "listener.security.protocol.map": f"{SAME_NAMES},CONTROLLER:PLAINTEXT",
    }
    file = folder / "kafka.properties"
    given = {**listeners, **SETTINGS, **SASL_SETTINGS}
    file.write_text(text + "".join(f"{key}={value}\n" for key, value in given.items()))
    gregor = BrokerProcess(tmp_path_factory.mktemp("gregor"), {"broker.id": "0", **SETTINGS, **SASL_SETTINGS})
    gregor.overrides["listeners"] += f",SASL_PLAINTEXT://127.0.0.1:{our_sasl}"
    with KafkaPeer(file, port), gregor:
        ids = {name: prepare(number) for name, number in (("gregor", gregor.port), ("kafka", port))}
        yield {"gregor": Side(gregor.port, our_sasl, ids["gregor"]), "kafka": Side(port, sasl, ids["kafka"])}


@pytest.fixture(scope="module")
def old_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    """A gregor and an Apache Kafka 3.9.1, each with a part of one ZooKeeper."""
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as zookeeper, ExitStack() as brokers:
        found = {}
        for name, kind in (("gregor", BrokerProcess), ("kafka", KafkaProcess)):
            settings = {
                **SETTINGS,
                **SASL_SETTINGS,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "broker.id": "0",
                "zookeeper.connect": f"{zookeeper.connect}/{name}",
                "offsets.topic.replication.factor": "1",
            }
            sasl = free_port()
            broker = kind(tmp_path_factory.mktemp(f"{name}-with-zookeeper"), settings)
            broker.overrides["listeners"] += f",SASL_PLAINTEXT://127.0.0.1:{sasl}"
            brokers.enter_context(broker)
            found[name] = Side(broker.port, sasl, prepare(broker.port))
        yield found


def user(side: Side, name: str) -> SyncConnection:
    """Return a connection that is authenticated."""
    entry = login("plain.PlainLoginModule", username=name, password=USERS[name])
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": entry}
    connection = SyncConnection("127.0.0.1", side.sasl_port, name, TIMEOUT_S, TIMEOUT_S, security_of_client(settings))
    connection.log_in(version_ranges(connection.exchange(ApiVersionsRequest(), 0)))
    return connection


def same(answers: dict[str, Answers], only: Collection[tuple[str, str]] | None = None) -> None:
    """Fail with the cases that differ, of all or of some."""
    different = {
        case: (answers["gregor"][case], answers["kafka"][case])
        for case in (answers["kafka"] if only is None else only)
        if answers["gregor"][case] != answers["kafka"][case]
    }
    report = "\n".join(f"{case}\n  gregor {ours}\n  kafka  {theirs}" for case, (ours, theirs) in different.items())
    assert not different, report


def answers_of(side: Side, wanted: Cases) -> Answers:
    """Return the answers of one broker to each client, without the cases whose key or version it does not serve."""
    found: Answers = {}
    for client, host in CLIENTS.items():
        with Client(side.port, host) as wire:
            served = {
                api.api_key: (api.min_version, api.max_version)
                for api in wire.ask(
                    ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
                ).api_keys
            }
            for name, (request, version) in wanted.items():
                lowest, highest = served.get(request.API_KEY, (0, -1))
                if lowest <= version <= highest:
                    found[client, name] = outline(wire.ask(request, version))
            if client != "operator":
                others = [OTHER] if client == "owner" else [MINE, OTHER]
                for topic in others:
                    found[client, f"DeleteTopics {topic}"] = outline(wire.ask(*delete_by_id(side.ids[topic])))
    return found


@pytest.fixture(scope="module")
def answers(sides: dict[str, Side]) -> dict[str, Answers]:
    return {name: answers_of(side, cases(side.ids)) for name, side in sides.items()}


def test_each_client_sees_what_it_sees_of_apache_kafka(answers: dict[str, Answers], sides: dict[str, Side]) -> None:
    every_case = {(client, name) for client in CLIENTS for name in cases(sides["kafka"].ids)}
    assert all(every_case <= found.keys() for found in answers.values())
    same(answers)
    denied = {name for (client, name) in answers["kafka"] if client == "denied"}
    shown = {"Metadata of all topics", "DescribeTopicPartitions of all", "ListGroups", "ListTransactions"}
    for name in denied - shown:
        text = str(answers["kafka"]["denied", name])
        assert any(str(int(code)) in text for code in _DENIALS) or "operations" in text, name


def test_each_client_sees_what_it_sees_of_apache_kafka_with_zookeeper(
    answers: dict[str, Answers], old_sides: dict[str, Side]
) -> None:
    old = {name: answers_of(side, {**cases(side.ids), **controller_cases()}) for name, side in old_sides.items()}
    judged = {case for case in old["gregor"] if case in old["kafka"]}
    unjudged = {name for _, name in old["gregor"].keys() - judged}
    assert unjudged == NEWER, unjudged ^ NEWER
    assert {("denied", name) for name in controller_cases()} <= judged
    different = {case for case in judged if old["gregor"][case] != old["kafka"][case]}
    same({name: {case: old[name][case] for case in judged if case[1] not in DIFFERENCES} for name in old})
    assert {name for _, name in different} == set(DIFFERENCES)
    same({"gregor": old["gregor"], "kafka": answers["kafka"]}, different)
    for client, name in judged:
        if client != "operator" and name in controller_cases():
            assert str(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) in str(old["kafka"][client, name]), name


_DENIALS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


@pytest.mark.parametrize("judge", ["sides", "old_sides"])
def test_users_see_of_tokens_quotas_and_credentials_what_apache_kafka_shows(
    judge: str, request: pytest.FixtureRequest
) -> None:
    answers: dict[str, Answers] = {}
    for name, side in request.getfixturevalue(judge).items():
        found = answers[name] = {}
        with user(side, "anna") as anna:
            made = anna.exchange(created(None), 3)
            assert made.error_code == 0
            settled(
                lambda anna=anna: anna.exchange(DescribeDelegationTokenRequest(owners=None), 3),
                lambda answer: len(answer.tokens) == 1,
            )
        wanted = user_cases(made.hmac)
        for client in ("peter", "anna", "root", "oscar"):
            with user(side, client) as connection:
                for case, (message, version) in wanted.items():
                    found[client, case] = user_outline(connection.exchange(message, version))
            with user(side, "oscar") as oscar:  # no rule is about tokens by their ids, so all are shown
                settled(
                    lambda oscar=oscar: oscar.exchange(DescribeDelegationTokenRequest(owners=None), 3),
                    lambda answer, client=client: client in {token.principal_name for token in answer.tokens},
                )
        with Client(side.port, CLIENTS["denied"]) as anonymous:
            for case, (message, version) in wanted.items():
                found["ANONYMOUS", case] = user_outline(anonymous.ask(message, version))
    same(answers)
    refused = {
        case for (client, case), shown in answers["kafka"].items() if client == "peter" and "error" in str(shown)
    }
    assert refused >= {"CreateDelegationToken for anna", "DescribeClientQuotas", "DescribeUserScramCredentials"}


@pytest.mark.parametrize("judge", ["sides", "old_sides"])
def test_no_request_is_served_without_authentication(judge: str, request: pytest.FixtureRequest) -> None:
    for side in request.getfixturevalue(judge).values():
        wanted = {**cases(side.ids), **user_cases(b"unknown"), **controller_cases()}
        for case, (message, version) in wanted.items():
            with RawConnection(side.sasl_port) as connection, pytest.raises((ConnectionEnded, ConnectionResetError)):
                connection.ask(message, version)
                raise AssertionError(f"{case} is answered")
