"""The guard of each API: what it checks, what a refused client receives, and that all others receive what they did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.broker.authorization.guards.common import after
from gregor.broker.authorization.guards.table import GUARDS, UNGUARDED
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.broker.context import Call
from gregor.broker.registry import load_handlers
from gregor.protocol import messages as m
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.principal import ANONYMOUS, Principal
from tests.broker.harness import Harness
from tests.support.authorization_cases import GROUPS, MINE, OTHER, TOPICS, TXNS, cases, fetch, outline
from tests.support.authorizers import Check, FakeAuthorizer
from tests.support.controller_cases import controller_cases
from tests.support.user_cases import user_cases

O, R = Operation, ResourceType  # noqa: E741
CLUSTER = (R.CLUSTER, "kafka-cluster")
TOPIC_DENIED, GROUP_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class DenyingAuthorizer(FakeAuthorizer):
    """Denies every check on which `allowed` does not hold."""

    def __init__(self, allowed: Any = lambda check: False) -> None:
        super().__init__()
        self._allowed = allowed

    def allows(self, call: Any, operation: Operation, resource: Any, name: str, *, logs_denial: bool = True) -> bool:
        check: Check = (operation, resource, name)
        self.checks.append(check)
        return bool(self._allowed(check))


@pytest.fixture(scope="module")
def world(harness: Harness) -> Iterator[Harness]:
    """A broker in a cluster with the topics, groups and transactional ids of the cases, and with guards."""
    for name in TOPICS:
        harness.create_topic(name)
    harness.broker.handlers = load_handlers()
    connection: Any = harness.connection
    connection.principal = Principal("User", "alice")
    for key_type in (0, 1):
        assert not harness.ask(m.FindCoordinatorRequest(key="any", key_type=key_type), 3).error_code
    harness.until(lambda: not harness.ask(m.OffsetFetchRequest(group_id="any", topics=[]), 7).error_code)
    for group in GROUPS:
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in TOPICS]
        request = m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        answer = harness.ask(request, 8)
        assert not any(part.error_code for topic in answer.topics for part in topic.partitions)
    yield harness


def ids_of(harness: Harness) -> dict[str, bytes]:
    found = {name: harness.broker.metadata.topic(name) for name in TOPICS}
    return {name: topic.topic_id for name, topic in found.items() if topic is not None}


def asked(harness: Harness, name: str, authorizer: FakeAuthorizer | None) -> Any:
    request, version = cases(ids_of(harness))[name]
    return asked_for(harness, request, version, authorizer)


def asked_for(harness: Harness, request: Any, version: int, authorizer: FakeAuthorizer | None) -> Any:
    harness.broker.authorizer = authorizer
    harness.broker.handlers = load_handlers(guarded=authorizer is not None)
    connection: Any = harness.connection
    if authorizer is not connection.known_for:
        connection.known_for = authorizer
        connection.admit(connection.principal)  # a broker has one authorizer: nothing is known from another one
    try:
        return harness.ask(request, version)
    finally:
        harness.broker.authorizer = None
        harness.broker.handlers = load_handlers()


NAMES = tuple(cases({name: ZERO_UUID for name in TOPICS}))
CHANGING = {"InitProducerId idempotent"}
"""Cases whose responses are never equal."""
UNCHECKED = {"ListTransactions", "Produce transactional without id"}
"""There are no transactions; and the records are refused without a question."""


def test_each_api_has_a_guard_or_a_reason_to_have_none() -> None:
    served = set(load_handlers())
    assert served <= GUARDS.keys() | UNGUARDED.keys()
    assert GUARDS.keys().isdisjoint(UNGUARDED)
    assert all(UNGUARDED.values())
    assert {name.value for name in ApiKey} >= GUARDS.keys() | UNGUARDED.keys() or served


def test_each_api_with_a_guard_is_in_the_walk_of_all_apis() -> None:
    """Which sends the same requests to Apache Kafka, too (tests/compat/test_authorization_answers.py)."""
    walk = {**cases(dict.fromkeys(TOPICS, ZERO_UUID)), **user_cases(b""), **controller_cases()}
    assert GUARDS.keys() <= {request.API_KEY for request, _ in walk.values()}


def test_the_table_of_a_broker_without_authorizer_has_the_plain_handlers() -> None:
    plain, guarded = load_handlers(), load_handlers(guarded=True)
    assert plain.keys() == guarded.keys()
    for key, entry in plain.items():
        assert entry.handler.__module__.startswith("gregor.broker.handlers.")
        assert (guarded[key].handler is entry.handler) == (key in UNGUARDED)
        assert (guarded[key].min_version, guarded[key].max_version) == (entry.min_version, entry.max_version)
        assert (guarded[key].eager, guarded[key].repeats) == (entry.eager, entry.repeats)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CHANGING])
def test_an_allowed_client_receives_what_it_would_without_an_authorizer(world: Harness, name: str) -> None:
    authorizer = FakeAuthorizer()
    plain = outline(asked(world, name, None))
    allowed = outline(asked(world, name, authorizer))
    if name.startswith("AddPartitionsToTxn of"):  # internal topics are denied to clients that a guard checks
        assert allowed != plain
    else:
        assert allowed == plain
    assert authorizer.checks or name in UNCHECKED


def errors_of(found: Any) -> set[int]:
    """All error codes in an outline."""
    if isinstance(found, list):
        return set().union(*map(errors_of, found))
    if not isinstance(found, dict):
        return set()
    own = {value for key, value in found.items() if key.endswith("error_code")}
    return own | set().union(*(errors_of(value) for value in found.values()))


DENIED: dict[str, set[int]] = {
    **{key: {TXN_DENIED} for key in ["Produce transactional", "Produce transactional without id"]},
    **{key: set() for key in ["Metadata of all topics", "DescribeTopicPartitions of all", "DescribeCluster"]},
    **{key: set() for key in ["ListGroups", "ListTransactions"]},
    "FindCoordinator of transactions": {TXN_DENIED},
    "DescribeConfigs": {TOPIC_DENIED, CLUSTER_DENIED, GROUP_DENIED},
    "DescribeConfigs of topics and brokers": {TOPIC_DENIED, CLUSTER_DENIED},
    "AlterConfigs": {TOPIC_DENIED, CLUSTER_DENIED},
    "IncrementalAlterConfigs": {TOPIC_DENIED, CLUSTER_DENIED, GROUP_DENIED},
    "DescribeTransactions": {TXN_DENIED},
    "DeleteTopics by id": {TOPIC_DENIED, ErrorCode.UNKNOWN_TOPIC_ID},
    **{f"{api} of {txn}": {TXN_DENIED} for api in ("InitProducerId", "AddPartitionsToTxn", "EndTxn") for txn in TXNS},
    **{
        f"{api} of {txn}, {group}": {TXN_DENIED}
        for api in ("AddOffsetsToTxn", "TxnOffsetCommit")
        for txn in TXNS
        for group in GROUPS
    },
    **{key: {CLUSTER_DENIED} for key in ["InitProducerId idempotent", "WriteTxnMarkers"]},
    "AddPartitionsToTxn among brokers": {CLUSTER_DENIED},
    **{key: {CLUSTER_DENIED} for key in ["ListConfigResources", "DescribeAcls", "CreateAcls", "DeleteAcls"]},
    **{key: {CLUSTER_DENIED} for key in ["AlterReplicaLogDirs", "DescribeLogDirs", "ElectLeaders", "UpdateFeatures"]},
    **{key: {CLUSTER_DENIED} for key in ["AlterPartitionReassignments", "ListPartitionReassignments"]},
    **{key: {TOPIC_DENIED} for key in ["Produce", "Produce by id", "Fetch", "Fetch by id", "Fetch of a follower"]},
    **{key: {TOPIC_DENIED} for key in ["ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords", "DescribeProducers"]},
    **{key: {TOPIC_DENIED} for key in ["Metadata", "Metadata by id", "Metadata that creates"]},
    **{key: {TOPIC_DENIED} for key in ["DescribeTopicPartitions", "CreateTopics", "CreatePartitions"]},
    "DeleteTopics by name": {TOPIC_DENIED},
}
"""By case; all other ones are about groups."""


@pytest.mark.parametrize("name", NAMES)
def test_a_client_without_rights_receives_only_refusals(world: Harness, name: str) -> None:
    authorizer = DenyingAuthorizer()
    shown = outline(asked(world, name, authorizer))
    assert errors_of(shown) == DENIED.get(name, {GROUP_DENIED})
    assert authorizer.checks or name in UNCHECKED
    if name == "Metadata by id":
        assert all("name" not in topic or topic["name"] is None for topic in shown["topics"])


@pytest.mark.parametrize("name", sorted({"Produce", "Fetch", "ListOffsets", "DeleteRecords", "DescribeProducers"}))
def test_the_parts_of_a_request_are_decided_each_for_itself(world: Harness, name: str) -> None:
    answer = asked(world, name, DenyingAuthorizer(lambda check: check[2] == MINE))
    parts = {topic.get("name") or topic.get("topic"): errors_of(topic) for topic in _topics(outline(answer))}
    assert parts == {MINE: set(), OTHER: {TOPIC_DENIED}, "other-absent": {TOPIC_DENIED}}


def _topics(found: dict[str, Any]) -> list[dict[str, Any]]:
    (topics,) = (value for value in found.values() if isinstance(value, list))
    return topics  # type: ignore[no-any-return]


CLUSTER_CHECKS = {
    4: (m.LeaderAndIsrRequest, range(8)),
    5: (m.StopReplicaRequest, range(5)),
    6: (m.UpdateMetadataRequest, range(9)),
    7: (m.ControlledShutdownRequest, range(4)),
    56: (m.AlterPartitionRequest, range(4)),
    67: (m.AllocateProducerIdsRequest, range(1)),
}


@pytest.mark.parametrize("key", CLUSTER_CHECKS)
def test_requests_among_brokers_need_cluster_action(world: Harness, key: int) -> None:
    make, versions = CLUSTER_CHECKS[key]
    for version in versions:
        authorizer = DenyingAuthorizer()
        answer = asked_for(world, make(), version, authorizer)
        assert answer.error_code == CLUSTER_DENIED
        assert authorizer.checks == [(O.CLUSTER_ACTION, *CLUSTER)]


def test_a_topic_that_may_be_described_but_not_made_is_not_made(world: Harness) -> None:
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="not-made")])
    answer = asked_for(world, request, 8, DenyingAuthorizer(lambda check: check[0] is O.DESCRIBE))
    assert answer.topics[0].error_code == TOPIC_DENIED
    assert world.broker.metadata.topic("not-made") is None
    answer = asked_for(world, request, 8, DenyingAuthorizer(lambda check: check[0] in (O.DESCRIBE, O.CREATE)))
    assert answer.topics[0].error_code == 0


def test_the_settings_of_a_new_topic_are_hidden(world: Harness) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(name="hidden-settings", num_partitions=1, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)
    (answer,) = asked_for(world, request, 5, DenyingAuthorizer(lambda check: check[0] is O.CREATE)).topics
    assert (answer.error_code, answer.topic_config_error_code) == (0, TOPIC_DENIED)
    assert (answer.num_partitions, answer.replication_factor, answer.configs) == (-1, -1, [])


def test_deleting_by_id_names_the_topic_only_to_those_who_may_describe_it(world: Harness) -> None:
    topic_id = ids_of(world)[MINE]
    wanted = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    request = m.DeleteTopicsRequest(topics=[wanted], timeout_ms=30_000)
    for may_describe, shown in ((False, None), (True, MINE)):
        authorizer = DenyingAuthorizer(lambda check, allowed=may_describe: allowed and check[0] is O.DESCRIBE)
        (answer,) = asked_for(world, request, 6, authorizer).responses
        assert (answer.name, answer.topic_id, answer.error_code) == (shown, topic_id, TOPIC_DENIED)
    assert world.broker.metadata.topic(MINE) is not None


def test_records_of_a_session_follow_the_rules_and_its_client(world: Harness) -> None:
    authorizer = FakeAuthorizer()
    first = asked_for(world, fetch([(MINE, ZERO_UUID)], session_epoch=0), 11, authorizer)
    session = {"session_id": first.session_id}
    assert first.session_id and authorizer.checks == [(O.READ, R.TOPIC, MINE)]
    assert not asked_for(world, fetch([], session_epoch=1, **session), 11, authorizer).error_code
    assert len(authorizer.checks) == 1, "the right is known"
    connection: Any = world.connection
    alice = connection.principal
    connection.admit(Principal("User", "bob"))
    asked_for(world, fetch([], session_epoch=2, **session), 11, authorizer)
    assert len(authorizer.checks) == 2, "another client uses the session"
    connection.admit(alice)
    authorizer.deny(O.READ, R.TOPIC, MINE)
    answer = asked_for(world, fetch([], session_epoch=3, **session), 11, authorizer)
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [TOPIC_DENIED]


def test_a_fetch_waits_beside_a_topic_that_the_client_may_not_read(world: Harness) -> None:
    request = fetch([(OTHER, ZERO_UUID), (MINE, ZERO_UUID)])
    for max_wait_ms, waits in ((50, True), (0, False)):
        begin = world.loop.time()
        waiting = request.replaced(max_wait_ms=max_wait_ms, min_bytes=10**6)
        answer = asked_for(world, waiting, 11, DenyingAuthorizer(lambda check: check[2] == MINE))
        assert (world.loop.time() - begin >= 0.04) is waits
        assert {topic.topic: topic.partitions[0].error_code for topic in answer.responses} == {
            OTHER: TOPIC_DENIED,
            MINE: 0,
        }


def test_a_refused_description_of_credentials_has_a_result_for_each_user(world: Harness) -> None:
    name = m.DescribeUserScramCredentialsRequest.UserName
    request = m.DescribeUserScramCredentialsRequest(users=[name(name="anna"), name(name="bob")])
    answer = asked_for(world, request, 0, DenyingAuthorizer())
    assert answer.error_code == CLUSTER_DENIED
    assert [(one.user, one.error_code) for one in answer.results] == [("", CLUSTER_DENIED)] * 2
    request = m.DescribeUserScramCredentialsRequest(users=None)
    assert asked_for(world, request, 0, DenyingAuthorizer()).results == []


def test_the_rules_on_tokens_are_for_clients_that_may_use_tokens(world: Harness) -> None:
    request = m.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    connection: Any = world.connection
    for principal, code, checks in (
        (connection.principal, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, 1),
        (ANONYMOUS, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, 0),
    ):
        before, connection.principal = connection.principal, principal
        authorizer = DenyingAuthorizer()
        try:
            assert asked_for(world, request, 3, authorizer).error_code == code
        finally:
            connection.principal = before
        assert len(authorizer.checks) == checks


def test_a_produce_request_without_a_response_ends_the_connection(world: Harness) -> None:
    request, version = cases(ids_of(world))["Produce"]
    request.acks = 0
    assert asked_for(world, request, version, DenyingAuthorizer()) is None
    assert "not authorized" in world.connection.failures.pop()


def test_a_regular_expression_finds_the_topics_that_the_member_may_describe(world: Harness) -> None:
    seen = []

    def heartbeat(request: Any, client_id: Any, host: Any, version: int, visible: Any) -> Any:
        seen.append(visible([MINE, OTHER]))
        return m.ConsumerGroupHeartbeatResponse()

    broker: Any = world.broker
    groups = broker.groups
    broker.groups = type("Groups", (), {"consumer_group_heartbeat": staticmethod(heartbeat)})()
    try:
        request = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_regex=".*")
        asked_for(world, request, 1, DenyingAuthorizer(lambda check: check[2] in ("g", MINE)))
    finally:
        broker.groups = groups
    assert seen == [{MINE}]


def test_topics_of_members_are_hidden(world: Harness) -> None:
    describe = m.ConsumerGroupDescribeResponse
    assignment = describe.Assignment(topic_partitions=[describe.TopicPartitions(topic_name=OTHER)])

    def serve(request: Any) -> Any:
        member = describe.Member(assignment=assignment)
        return describe(groups=[describe.DescribedGroup(group_id=name, members=[member]) for name in request.group_ids])

    broker: Any = world.broker
    connection: Any = world.connection
    for denied, error, members in ((OTHER, TOPIC_DENIED, 0), (MINE, 0, 1)):
        broker.authorizer = DenyingAuthorizer(lambda check, denied=denied: check[2] != denied)
        answer = GUARDS[69](
            broker, m.ConsumerGroupDescribeRequest(group_ids=["g"]), Call(connection, 69, 1, 0, None), serve
        )
        (group,) = answer.groups
        assert (group.error_code, len(group.members)) == (error, members)
    broker.authorizer = None


def test_each_mention_of_a_group_shows_its_own_topics(world: Harness) -> None:
    make = m.OffsetFetchRequest
    mentions = [[make.OffsetFetchRequestTopics(name=name, partition_indexes=[0])] for name in (OTHER, MINE)]
    groups = [make.OffsetFetchRequestGroup(group_id=GROUPS[0], topics=topics) for topics in (*mentions, None)]
    answer = asked_for(world, make(groups=groups), 9, DenyingAuthorizer(lambda check: check[2] != OTHER))
    shown = [[(topic.name, topic.partitions[0].error_code) for topic in group.topics] for group in answer.groups]
    assert shown == [[(OTHER, TOPIC_DENIED)], [(MINE, 0)], [(MINE, 0)]]


# ---- outcomes of handlers ----------------------------------------------------------------------------------------


def test_a_response_that_comes_later_is_changed_when_it_comes() -> None:
    source: Deferred[list[int]] = Deferred()
    outcome = after(source, lambda response: [*response, 2])
    assert not outcome.done
    source.complete([1])
    assert outcome.result() == [1, 2]

    async def handler() -> list[int]:
        return [3]

    assert asyncio.run(after(handler(), lambda response: [*response, 4])) == [3, 4]
    assert after(None, lambda response: [*response, 5]) is None


def test_a_cancelled_response_cancels_its_source() -> None:
    source: Deferred[list[int]] = Deferred()
    outcome = after(source, lambda response: None)
    outcome.cancel()
    assert source.cancelled
    source = Deferred()
    outcome = after(source, lambda response: response.fail())
    source.complete([1])
    assert isinstance(outcome.error, AttributeError)
