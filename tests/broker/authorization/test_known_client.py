"""The rights that a connection remembers, beside an authorizer that remembers nothing."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.broker.authorization.authorizer import BuiltInAuthorizer
from gregor.broker.authorization.known_client import KnownClient
from gregor.broker.authorization.read_rights import MAX_TOPICS, NO_RIGHTS
from gregor.broker.authorization.rules import AuthorizerClass, Client, RuleSet
from gregor.broker.registry import load_handlers
from gregor.protocol.acls import Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FetchRequest, ProduceRequest
from gregor.protocol.principal import Principal
from tests.broker.harness import Harness, Wire, batch
from tests.support.authorizers import FakeAuthorizer

TOPICS = ("orders", "orders-eu", "bills")
USERS = ("alice", "bob")
HOST = "127.0.0.1"
STEPS = 250


@pytest.fixture
def guarded(harness: Harness) -> Iterator[Harness]:
    broker, handlers = harness.broker, harness.broker.handlers
    for name in TOPICS:
        if broker.metadata.topic(name) is None:
            harness.create_topic(name)
    broker.authorizer = BuiltInAuthorizer(AuthorizerClass.STANDARD)
    broker.handlers = load_handlers(guarded=True)
    yield harness
    broker.authorizer, broker.handlers = None, handlers


class Twin:
    """The same rules, and nothing but the rules."""

    def __init__(self) -> None:
        self.rules = RuleSet()

    def allows(self, user: str, operation: Operation, topic: str) -> bool:
        client = Client(f"User:{user}", HOST)
        return self.rules.decide(client, operation, ResourceType.TOPIC, topic, allow_everyone=False).allowed


def random_rules(rng: random.Random) -> tuple[Pattern, list[Rule]]:
    pattern = rng.choice(
        [Pattern(ResourceType.TOPIC, name) for name in (*TOPICS, "*")]
        + [Pattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED)]
    )
    rules = [
        Rule(
            f"User:{rng.choice((*USERS, '*'))}",
            rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
            rng.choice([Operation.READ, Operation.WRITE, Operation.ALL]),
            rng.choice(["*", "*", HOST, "10.0.0.1"]),
        )
        for _ in range(rng.randrange(4))
    ]
    return pattern, rules


def fetched(wire: Wire, topic: str, by_id: bool) -> int:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    wanted = FetchRequest.FetchTopic(partitions=[partition])
    if by_id:
        known = wire.harness.broker.metadata.topic(topic)
        assert known is not None
        wanted.topic_id = known.topic_id
    else:
        wanted.topic = topic
    answer = wire.ask(FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[wanted]), 13 if by_id else 12)
    return int(answer.responses[0].partitions[0].error_code)


def produced(wire: Wire, topic: str) -> int:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"x"))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    answer = wire.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 11)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("seed", [1, 2])
def test_warm_connections_are_allowed_what_the_rules_allow(guarded: Harness, seed: int) -> None:
    rng, twin = random.Random(seed), Twin()
    authorizer: Any = guarded.broker.authorizer
    wires = [Wire(guarded, HOST) for _ in range(2)]
    users = dict.fromkeys(range(2), "ANONYMOUS")
    found = set()
    for _ in range(STEPS):
        number, topic, chance = rng.randrange(2), rng.choice(TOPICS), rng.random()
        wire, user = wires[number], users[number]
        if chance < 0.1:
            pattern, rules = random_rules(rng)
            authorizer.replace_rules(pattern, rules)
            twin.rules.replace(pattern, rules)
        elif chance < 0.15:
            users[number] = rng.choice(USERS)
            wire.connection.admit(Principal("User", users[number]))
        else:
            writes = rng.random() < 0.5
            error = produced(wire, topic) if writes else fetched(wire, topic, by_id=rng.random() < 0.5)
            allowed = twin.allows(user, Operation.WRITE if writes else Operation.READ, topic)
            assert error == (ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            found.add((writes, allowed))
    assert len(found) == 4, "each operation was allowed and denied"
    for wire in wires:
        wire.close()


def test_a_permission_is_decided_once_and_a_denial_each_time(guarded: Harness) -> None:
    authorizer = FakeAuthorizer()
    guarded.broker.authorizer = authorizer
    wire = Wire(guarded, HOST)
    for _ in range(3):
        assert fetched(wire, "orders", by_id=False) == ErrorCode.NONE
    assert len(authorizer.checks) == 1
    authorizer.deny(Operation.READ, ResourceType.TOPIC, "orders")
    for _ in range(3):
        assert fetched(wire, "orders", by_id=False) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(authorizer.checks) == 4, "the audit log has each denial"
    authorizer.denied.clear()
    authorizer.generation += 1
    assert fetched(wire, "orders", by_id=False) == fetched(wire, "orders", by_id=False) == ErrorCode.NONE
    assert len(authorizer.checks) == 5
    wire.connection.admit(Principal("User", "alice"))
    assert fetched(wire, "orders", by_id=False) == ErrorCode.NONE
    assert len(authorizer.checks) == 6, "a login may lead to another principal"
    wire.close()


def test_the_topics_that_are_remembered_are_bounded() -> None:
    rights = KnownClient().rights_under(FakeAuthorizer())
    for number in range(MAX_TOPICS + 10):
        rights.remember(f"t{number}")
    assert len(rights.topics) == MAX_TOPICS
    assert not NO_RIGHTS.topics


def test_nothing_is_remembered_while_allowed_operations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    rights = KnownClient().rights_under(FakeAuthorizer())
    with caplog.at_level(logging.DEBUG, "gregor.authorizer"):
        rights.remember("t")
    assert not rights.topics
