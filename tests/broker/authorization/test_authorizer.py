"""The built-in authorizer: remembered decisions, super users, the audit log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.broker.authorization import authorizer as subject
from gregor.broker.authorization.authorizer import BuiltInAuthorizer
from gregor.broker.authorization.rules import AuthorizerClass
from gregor.broker.context import Call
from gregor.protocol.acls import Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.principal import Principal
from tests.broker.harness import FakeConnection

READ, WRITE = Operation.READ, Operation.WRITE
TOPIC = ResourceType.TOPIC
ACL, STANDARD = AuthorizerClass.ACL, AuthorizerClass.STANDARD


def call_of(name: str, host: str = "10.0.0.1", api_key: int = 0) -> Call:
    connection: Any = FakeConnection(host)
    connection.principal = Principal("User", name)
    return Call(connection, api_key, 9, 1, "client")


def rule(name: str, operation: Operation, permission: Permission = Permission.ALLOW, host: str = "*") -> Rule:
    return Rule(f"User:{name}", permission, operation, host)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, "gregor.authorizer"):
        yield caplog


def test_decisions_follow_the_rules_at_once() -> None:
    authorizer = BuiltInAuthorizer(STANDARD)
    alice = call_of("alice")
    assert not authorizer.allows(alice, READ, TOPIC, "t")
    authorizer.replace_rules(Pattern(TOPIC, "t"), [rule("alice", READ)])
    generation = authorizer.generation
    assert authorizer.allows(alice, READ, TOPIC, "t")
    assert authorizer.allows_any(alice, READ, TOPIC)
    assert authorizer.generation == generation
    authorizer.replace_rules(Pattern(TOPIC, "t"), [])
    assert authorizer.generation > generation
    assert not authorizer.allows(alice, READ, TOPIC, "t")
    assert not authorizer.allows_any(alice, READ, TOPIC)


def test_clients_differ_by_principal_and_host() -> None:
    authorizer = BuiltInAuthorizer(STANDARD)
    authorizer.replace_rules(Pattern(TOPIC, "t"), [rule("alice", READ, host="0:0:0:0:0:0:0:1")])
    assert authorizer.allows(call_of("alice", "::1"), READ, TOPIC, "t")
    assert not authorizer.allows(call_of("alice", "10.0.0.1"), READ, TOPIC, "t")
    assert not authorizer.allows(call_of("bob", "::1"), READ, TOPIC, "t")


def test_names_are_filtered_in_one_call() -> None:
    authorizer = BuiltInAuthorizer(STANDARD)
    authorizer.replace_rules(Pattern(TOPIC, "a", PatternType.PREFIXED), [rule("alice", READ)])
    assert authorizer.allowed(call_of("alice"), READ, TOPIC, ["a", "ab", "b"]) == {"a", "ab"}


@pytest.mark.parametrize("authorizer_class", AuthorizerClass)
def test_super_users_pass_by_denials(authorizer_class: AuthorizerClass) -> None:
    authorizer = BuiltInAuthorizer(authorizer_class, ["User:admin"])
    for resource in ResourceType:
        authorizer.replace_rules(Pattern(resource, "*"), [rule("*", Operation.ALL, Permission.DENY)])
    assert authorizer.allows(call_of("admin"), WRITE, TOPIC, "t")
    assert authorizer.allows_any(call_of("admin"), WRITE, TOPIC)
    assert not authorizer.allows(call_of("alice"), WRITE, TOPIC, "t")


def test_the_number_of_remembered_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_DECISIONS", 10)
    authorizer = BuiltInAuthorizer(STANDARD, ["User:alice"])
    alice = call_of("alice")
    for index in range(100):
        assert authorizer.allows(alice, READ, TOPIC, f"t{index}")
    assert authorizer.remembered_decisions <= 10


def test_decisions_on_long_names_are_not_remembered() -> None:
    """A client could let the broker keep thousands of names of 32 KB each."""
    authorizer = BuiltInAuthorizer(STANDARD)
    authorizer.replace_rules(Pattern(ResourceType.GROUP, "g" * 1000), [rule("alice", READ)])
    alice = call_of("alice")
    assert authorizer.allows(alice, READ, ResourceType.GROUP, "g" * 1000)
    assert authorizer.allowed(alice, READ, ResourceType.GROUP, ["g" * 1000, "g" * 1001]) == {"g" * 1000}
    assert authorizer.remembered_decisions == 0
    assert not authorizer.allows(alice, READ, TOPIC, "t" * 249)
    assert authorizer.remembered_decisions == 1


def test_the_audit_log_names_client_operation_resource_request_and_rule(logged: pytest.LogCaptureFixture) -> None:
    authorizer = BuiltInAuthorizer(STANDARD)
    authorizer.replace_rules(Pattern(TOPIC, "t"), [rule("alice", READ)])
    alice = call_of("alice", api_key=1)
    for _ in range(2):  # decided, then remembered
        assert authorizer.allows(alice, READ, TOPIC, "t")
        assert not authorizer.allows(alice, WRITE, TOPIC, "t")
    assert not authorizer.allows(alice, WRITE, TOPIC, "t", logs_denial=False)
    head = "Principal = User:alice is {} from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = Fetch"
    allowed = head.format("Allowed operation = READ")
    allowed += " based on rule MatchingAcl(ALLOW Read to User:alice from host * on Topic:LITERAL:t)"
    denied = head.format("Denied operation = WRITE") + " based on rule DefaultDeny"
    assert logged.messages == [allowed, denied] * 2
    assert [record.levelname for record in logged.records] == ["DEBUG", "INFO"] * 2


def test_a_check_of_any_name_is_logged_once(logged: pytest.LogCaptureFixture) -> None:
    authorizer = BuiltInAuthorizer(STANDARD)
    assert not authorizer.allows_any(call_of("alice", api_key=22), WRITE, TOPIC)
    (line,) = logged.messages
    assert "Denied operation = WRITE" in line
    assert "resource = Topic:LITERAL:NONE for request = InitProducerId" in line


def test_names_of_clients_forge_no_lines(logged: pytest.LogCaptureFixture) -> None:
    authorizer = BuiltInAuthorizer(STANDARD)
    assert not authorizer.allows(call_of("a\nb"), READ, TOPIC, "t\nPrincipal = User:admin", logs_denial=True)
    (line,) = logged.messages
    assert "\n" not in line
    assert r"User:a\nb" in line and r"t\nPrincipal = User:admin" in line
