"""DescribeAcls, CreateAcls and DeleteAcls: without an authorizer SECURITY_DISABLED, with one the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.node.store import StartError
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.broker.harness import Harness, running

VERSIONS = range(4)
FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_describe(harness: Harness, version: int) -> None:
    answer = harness.ask(DescribeAclsRequest(**FILTER), version)
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert answer.error_message


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_create(harness: Harness, version: int, count: int) -> None:
    rule = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    answer = harness.ask(CreateAclsRequest(creations=[rule] * count), version)
    assert [one.error_code for one in answer.results] == [ErrorCode.SECURITY_DISABLED] * count


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_delete(harness: Harness, version: int, count: int) -> None:
    answer = harness.ask(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**FILTER)] * count), version)
    assert [one.error_code for one in answer.filter_results] == [ErrorCode.SECURITY_DISABLED] * count
    assert all(one.matching_acls == [] for one in answer.filter_results)


# -- with an authorizer ------------------------------------------------------------------------------------------------

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURED = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS"}
TOPIC, CLUSTER = 2, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Harness]:
    with running(tmp_path / "data", **SECURED) as harness:
        yield harness


def creation(name: str, pattern_type: int = LITERAL, **fields: Any) -> CreateAclsRequest.AclCreation:
    given = {"resource_type": TOPIC, "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3, **fields}
    return CreateAclsRequest.AclCreation(resource_name=name, resource_pattern_type=pattern_type, **given)


def create(harness: Harness, *creations: CreateAclsRequest.AclCreation, version: int = 3) -> list[int]:
    answer = harness.ask(CreateAclsRequest(creations=list(creations)), version)
    assert all(bool(one.error_code) == bool(one.error_message) for one in answer.results)
    return [one.error_code for one in answer.results]


def described(harness: Harness, version: int = 3, **fields: Any) -> list[tuple[str, int, int]]:
    pattern_type = {"pattern_type_filter": ANY} if version else {}
    answer = harness.ask(DescribeAclsRequest(**{**FILTER, **pattern_type, **fields}), version)
    assert (answer.error_code, answer.error_message) == (0, "")
    return [(one.resource_name, one.pattern_type, len(one.acls)) for one in answer.resources]


@pytest.mark.parametrize("version", VERSIONS)
def test_rules_are_added_described_and_removed(secured: Harness, version: int) -> None:
    assert create(secured, creation("t"), creation("t", operation=4), creation("u"), version=version) == [0, 0, 0]
    assert described(secured, version) == [("t", LITERAL, 2), ("u", LITERAL, 1)]
    (resource,) = secured.ask(DescribeAclsRequest(**{**FILTER, "resource_name_filter": "u"}), version).resources
    (rule,) = resource.acls
    assert (resource.resource_type, rule.principal, rule.host, rule.operation, rule.permission_type) == (
        *(TOPIC, "User:a", "*", 3, 3),
    )
    wanted = [
        DeleteAclsRequest.DeleteAclsFilter(**{**FILTER, "operation": 4}),
        DeleteAclsRequest.DeleteAclsFilter(**{**FILTER, "resource_name_filter": "none"}),
    ]
    first, second = secured.ask(DeleteAclsRequest(filters=wanted), version).filter_results
    (removed,) = first.matching_acls
    assert (first.error_code, removed.error_code, removed.resource_name, removed.operation) == (0, 0, "t", 4)
    assert (second.error_code, second.matching_acls) == (0, [])
    assert described(secured, version) == [("t", LITERAL, 1), ("u", LITERAL, 1)]


def test_patterns_of_filters(secured: Harness) -> None:
    names = [("orders", LITERAL), ("ord", PREFIXED), ("orders", PREFIXED), ("*", LITERAL), ("x", LITERAL)]
    assert create(secured, *(creation(*name) for name in names)) == [0] * 5
    of_orders = {"resource_type_filter": TOPIC, "resource_name_filter": "orders"}
    found = {
        kind: {(name, pattern) for name, pattern, _ in described(secured, pattern_type_filter=kind, **of_orders)}
        for kind in (ANY, MATCH, LITERAL, PREFIXED)
    }
    assert found[ANY] == {("orders", LITERAL), ("orders", PREFIXED)}
    assert found[MATCH] == {*found[ANY], ("ord", PREFIXED), ("*", LITERAL)}
    assert (found[LITERAL], found[PREFIXED]) == ({("orders", LITERAL)}, {("orders", PREFIXED)})
    wanted = DeleteAclsRequest.DeleteAclsFilter(**{**FILTER, **of_orders, "pattern_type_filter": MATCH})
    (result,) = secured.ask(DeleteAclsRequest(filters=[wanted]), 3).filter_results
    assert len(result.matching_acls) == 4
    assert described(secured) == [("x", LITERAL, 1)]


def test_each_rule_is_judged_alone(secured: Harness) -> None:
    refused = [
        creation("", LITERAL),
        creation("t", ANY),
        creation("t", MATCH),
        creation("t", 9),
        creation("t", operation=1),
        creation("t", operation=99),
        creation("t", permission_type=1),
        creation("t", resource_type=1),
        creation("t", principal="a"),
        creation("cluster", resource_type=CLUSTER),
    ]
    codes = create(secured, creation("good"), *refused, creation("kafka-cluster", resource_type=CLUSTER))
    assert codes == [0, *[ErrorCode.INVALID_REQUEST] * len(refused), 0]
    assert described(secured) == [("good", LITERAL, 1), ("kafka-cluster", LITERAL, 1)]


def test_filters_of_unknown_codes_are_refused(secured: Harness) -> None:
    answer = secured.ask(DescribeAclsRequest(**{**FILTER, "operation": 99}), 3)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Operation 99 is unknown")
    wanted = [
        DeleteAclsRequest.DeleteAclsFilter(**{**FILTER, "operation": 99}),
        DeleteAclsRequest.DeleteAclsFilter(**FILTER),
    ]
    results = secured.ask(DeleteAclsRequest(filters=wanted), 3).filter_results
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST, 0]


def test_rules_survive_a_restart_and_are_known_before_the_first_connection(tmp_path: Path) -> None:
    with running(tmp_path / "data", **SECURED) as harness:
        assert create(harness, creation("t")) == [0]
    known_at_bind: list[bool] = []
    harness = Harness(tmp_path / "data", **SECURED)
    harness.run(harness.node.open_storage())

    def bind() -> dict[str, int]:
        acls = harness.broker.security.acls
        known_at_bind.append(acls is not None and acls.rule_count == 1)
        return {"PLAINTEXT": 9092}

    harness.run(harness.node.join(bind))
    harness.stop()
    assert known_at_bind == [True]


def test_a_rule_that_cannot_be_decoded_ends_the_start(tmp_path: Path) -> None:
    with running(tmp_path / "data", **SECURED) as harness:
        assert create(harness, creation("t")) == [0]
        harness.run(harness.node.store.set("/kafka-acl/Topic/t", b"no json"))
    harness = Harness(tmp_path / "data", **SECURED)
    harness.run(harness.node.open_storage())
    with pytest.raises(StartError, match="access rules cannot be decoded, so nothing is served; .*/kafka-acl/Topic/t"):
        harness.run(harness.node.join(lambda: {"PLAINTEXT": 9092}))
    harness.stop()
