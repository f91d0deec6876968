"""Decisions, beside an obvious slow twin, and the differences of the two classes."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.broker.authorization.rules import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    AuthorizerClass,
    Client,
    RuleSet,
    java_host,
)
from gregor.protocol.acls import Acl, Operation, Pattern, PatternType, Permission, ResourceType, Rule

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ACL, STANDARD = AuthorizerClass.ACL, AuthorizerClass.STANDARD
ALICE = Client("User:alice", "10.0.0.1")

NAMES = st.text("ab*", min_size=1, max_size=3)
PATTERNS = st.builds(Pattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from([LITERAL, PREFIXED]))
OPERATIONS = st.sampled_from(
    [
        *(Operation.READ, Operation.WRITE, Operation.DESCRIBE),
        *(Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.DELETE),
    ]
)
RULES = st.builds(
    Rule,
    st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"]),
    st.sampled_from([ALLOW, DENY]),
    OPERATIONS | st.just(Operation.ALL),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
)
ACLS = st.lists(st.builds(Acl, PATTERNS, RULES), max_size=8)
CLIENTS = st.builds(Client, st.sampled_from(["User:alice", "User:bob"]), st.sampled_from(["10.0.0.1", "10.0.0.3"]))


def rule_set(acls: Iterable[Acl]) -> RuleSet:
    by_pattern: dict[Pattern, list[Rule]] = {}
    for pattern, rule in acls:
        by_pattern.setdefault(pattern, []).append(rule)
    rules = RuleSet()
    for pattern, of_pattern in by_pattern.items():
        rules.replace(pattern, of_pattern)
    return rules


def is_about(pattern: Pattern, resource: ResourceType, name: str) -> bool:
    if pattern.resource != resource:
        return False
    if pattern.pattern_type == PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def concerns(rule: Rule, client: Client) -> bool:
    return rule.principal in (client.principal, "User:*") and rule.host in (client.host, "*")


def slow_decision(
    acls: list[Acl], client: Client, operation: Operation, resource: ResourceType, name: str, everyone: bool
) -> bool:
    """Walk over all rules, once for each sentence of Kafka's documentation."""
    about = [rule for pattern, rule in acls if is_about(pattern, resource, name)]
    if not about:
        return everyone
    mine = [rule for rule in about if concerns(rule, client)]
    if any(rule.permission == DENY and rule.operation in (operation, Operation.ALL) for rule in mine):
        return False
    enough = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(rule.permission == ALLOW and rule.operation in enough for rule in mine)


@settings(max_examples=300, deadline=None)
@given(ACLS, CLIENTS, OPERATIONS, NAMES, st.booleans())
def test_decisions_are_those_of_a_slow_twin(
    acls: list[Acl], client: Client, operation: Operation, name: str, everyone: bool
) -> None:
    decision = rule_set(acls).decide(client, operation, TOPIC, name, allow_everyone=everyone)
    assert decision.allowed is slow_decision(acls, client, operation, TOPIC, name, everyone)
    if decision.rule is not None:
        assert decision.pattern is not None
        assert Acl(decision.pattern, decision.rule) in acls
        assert decision.allowed is (decision.rule.permission == ALLOW)


@settings(max_examples=300, deadline=None)
@given(ACLS, CLIENTS, OPERATIONS, st.booleans())
def test_some_name_is_allowed_as_a_slow_twin_finds(
    acls: list[Acl], client: Client, operation: Operation, everyone: bool
) -> None:
    """Of the rules of the very operation, one that allows names which no denial covers whole."""
    mine = [acl for acl in acls if acl.pattern.resource == TOPIC and concerns(acl.rule, client)]
    mine = [acl for acl in mine if acl.rule.operation in (operation, Operation.ALL)]
    denied = {acl.pattern for acl in mine if acl.rule.permission == DENY}

    def is_covered(pattern: Pattern) -> bool:
        return pattern in denied or any(
            other.pattern_type == PREFIXED and pattern.name.startswith(other.name) for other in denied
        )

    everything = Pattern(TOPIC, "*")
    allowed = {acl.pattern for acl in mine if acl.rule.permission == ALLOW}
    found = everything not in denied and any(pattern == everything or not is_covered(pattern) for pattern in allowed)
    rules = rule_set(acls)

    def decide(authorizer: AuthorizerClass) -> bool:
        return rules.decide_any(client, operation, TOPIC, allow_everyone=everyone, authorizer=authorizer).allowed

    assert decide(ACL) is (found or (everyone and everything not in denied))
    assert decide(STANDARD) is (found or slow_decision(acls, client, operation, TOPIC, "hardcode", everyone))


def test_the_two_classes_differ_where_everyone_is_allowed() -> None:
    """AclAuthorizer allows some name whatever other rules there are; StandardAuthorizer only if a name without rules
    exists, which a rule about all names prevents."""
    rules = rule_set([Acl(Pattern(TOPIC, "*"), Rule("User:bob", ALLOW, Operation.WRITE))])

    def decide(authorizer: AuthorizerClass) -> bool:
        return rules.decide_any(ALICE, Operation.WRITE, TOPIC, allow_everyone=True, authorizer=authorizer).allowed

    assert decide(ACL)
    assert not decide(STANDARD)


def test_implied_operations_count_for_some_name_only_in_one_class() -> None:
    rules = rule_set([Acl(Pattern(TOPIC, "*"), Rule("User:alice", ALLOW, Operation.READ))])
    decide = rules.decide_any
    assert decide(ALICE, Operation.DESCRIBE, TOPIC, allow_everyone=False, authorizer=STANDARD).allowed
    assert not decide(ALICE, Operation.DESCRIBE, TOPIC, allow_everyone=False, authorizer=ACL).allowed


def test_rules_that_are_gone_decide_nothing() -> None:
    rules = rule_set([Acl(Pattern(TOPIC, "a", PREFIXED), Rule("User:alice", ALLOW, Operation.READ))])
    assert rules.decide(ALICE, Operation.READ, TOPIC, "ab", allow_everyone=False).allowed
    assert rules.decide(ALICE, Operation.READ, TOPIC, "", allow_everyone=False) == DEFAULT_DENY
    rules.replace(Pattern(TOPIC, "a", PREFIXED), ())
    assert rules.decide(ALICE, Operation.READ, TOPIC, "ab", allow_everyone=False) == DEFAULT_DENY
    assert rules.decide(ALICE, Operation.READ, TOPIC, "ab", allow_everyone=True) == DEFAULT_ALLOW
    rules.replace(Pattern(TOPIC, "never", PREFIXED), ())


def test_the_reason_names_the_rule() -> None:
    rules = rule_set([Acl(Pattern(TOPIC, "a", PREFIXED), Rule("User:*", DENY, Operation.ALL))])
    decision = rules.decide(ALICE, Operation.READ, TOPIC, "ab", allow_everyone=True)
    assert decision.reason == "MatchingAcl(DENY All to User:* from host * on Topic:PREFIXED:a)"


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("?:", "?:"),
    ],
)
def test_addresses_are_compared_as_java_writes_them(address: str, java: str) -> None:
    assert java_host(address) == java


def test_prefixes_are_found_as_long_as_one_of_their_length_has_rules() -> None:
    rules = RuleSet()
    allow = [Rule("User:alice", ALLOW, Operation.READ)]

    def may_read(name: str) -> bool:
        return rules.decide(ALICE, Operation.READ, TOPIC, name, allow_everyone=False).allowed

    for prefix in ("aa", "bb", "aa"):
        rules.replace(Pattern(TOPIC, prefix, PREFIXED), allow)
    rules.replace(Pattern(TOPIC, "aa", PREFIXED), [])
    rules.replace(Pattern(TOPIC, "aa", PREFIXED), [])
    assert not may_read("aax")
    assert may_read("bbx")
    rules.replace(Pattern(TOPIC, "bb", PREFIXED), [])
    assert not may_read("bbx")
    rules.replace(Pattern(TOPIC, "bb", PREFIXED), allow)
    assert may_read("bbx")


def test_many_prefixes_are_loaded_in_linear_time() -> None:
    """10,000 need 20 ms; a walk over all prefixes for each of them would need a second."""
    rules = RuleSet()
    allow = [Rule("User:alice", ALLOW, Operation.READ)]
    patterns = [Pattern(TOPIC, f"team-{number}.", PREFIXED) for number in range(10_000)]
    begin = time.thread_time()
    for pattern in patterns:
        rules.replace(pattern, allow)
    assert time.thread_time() - begin < 0.4
