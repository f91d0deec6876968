"""`gregor acls` without a broker: flags to rules as kafka-acls.sh, its output, and the explained decision."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.broker.answers.acls import acl_of, filter_of
from gregor.broker.cli import acls
from gregor.protocol.acls import Acl, Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from tests.broker.cli.fake_client import FakeClient

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def allowed(principal: str, operation: Operation, host: str = "*") -> Rule:
    return Rule(principal, Permission.ALLOW, operation, host)


class Broker:
    """Keeps rules in memory."""

    def __init__(self, *rules: Acl, settings: dict[str, str] | None = None, error: ErrorCode = ErrorCode.NONE) -> None:
        self.rules = list(rules)
        self.settings = settings or {}
        self.error = error

    def describe(self, request: DescribeAclsRequest, _node: int | None) -> DescribeAclsResponse:
        wanted = filter_of(request)
        found = [acl for acl in self.rules if wanted.matches_pattern(acl.pattern) and wanted.matches_rule(acl.rule)]
        return DescribeAclsResponse(
            error_code=self.error,
            error_message="no authorizer" if self.error else None,
            resources=[
                DescribeAclsResponse.DescribeAclsResource(
                    resource_type=pattern.resource,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=[
                        DescribeAclsResponse.AclDescription(
                            principal=rule.principal,
                            host=rule.host,
                            operation=rule.operation,
                            permission_type=rule.permission,
                        )
                    ],
                )
                for pattern, rule in found
            ],
        )

    def create(self, request: CreateAclsRequest, _node: int | None) -> CreateAclsResponse:
        self.rules += [acl_of(creation) for creation in request.creations]
        results = [CreateAclsResponse.AclCreationResult(error_code=self.error) for _ in request.creations]
        return CreateAclsResponse(results=results)

    def delete(self, request: DeleteAclsRequest, _node: int | None) -> DeleteAclsResponse:
        results = []
        for fields in request.filters:
            wanted = filter_of(fields)
            self.rules = [
                acl for acl in self.rules if not (wanted.matches_pattern(acl.pattern) and wanted.matches_rule(acl.rule))
            ]
            results.append(DeleteAclsResponse.DeleteAclsFilterResult(error_code=self.error, matching_acls=[]))
        return DeleteAclsResponse(filter_results=results)

    def configs(self, request: DescribeConfigsRequest, _node: int | None) -> DescribeConfigsResponse:
        configs = [
            DescribeConfigsResponse.DescribeConfigsResourceResult(name=key, value=text)
            for key, text in self.settings.items()
        ]
        return DescribeConfigsResponse(results=[DescribeConfigsResponse.DescribeConfigsResult(configs=configs)])


Connect = Callable[[Broker], Broker]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def made(broker: Broker) -> Broker:
        answers: Any = {
            DescribeAclsRequest: broker.describe,
            CreateAclsRequest: broker.create,
            DeleteAclsRequest: broker.delete,
            DescribeConfigsRequest: broker.configs,
        }
        monkeypatch.setattr(acls, "WireClient", lambda bootstrap, config_file: FakeClient(answers))
        return broker

    return made


def run(*words: str) -> int:
    return main(["acls", *words])


def test_rules_of_one_principal(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    broker = connect(Broker())
    words = ("--allow-principal", "User:alice", "--operation", "Read", "--operation", "AlterConfigs", "--topic", "t")
    assert run("--add", *words, "--allow-host", "::1", "--deny-principal", "User:*", "--deny-host", "10.0.0.1") == 0
    pattern = Pattern(TOPIC, "t")
    denied = Rule("User:*", Permission.DENY, Operation.READ, "10.0.0.1")
    assert set(broker.rules) == {
        Acl(pattern, allowed("User:alice", Operation.READ, "0:0:0:0:0:0:0:1")),
        Acl(pattern, allowed("User:alice", Operation.ALTER_CONFIGS, "0:0:0:0:0:0:0:1")),
        Acl(pattern, denied),
        Acl(pattern, denied._replace(operation=Operation.ALTER_CONFIGS)),
    }
    out = capsys.readouterr().out
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`: \n \t(" in out
    assert "\t(principal=User:*, host=10.0.0.1, operation=READ, permissionType=DENY)" in out


def test_what_is_there_is_not_added_again(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    broker = connect(Broker(Acl(Pattern(TOPIC, "t"), allowed("User:a", Operation.ALL))))
    assert run("--add", "--allow-principal", "User:a", "--topic", "t") == 0
    assert len(broker.rules) == 1
    assert capsys.readouterr().out == (
        "Acl (pattern=ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL), entry=(principal=User:a, "
        "host=*, operation=ALL, permissionType=ALLOW)) already exists.\n"
    )


def test_roles(connect: Connect) -> None:
    broker = connect(Broker())
    words = ("--producer", "--consumer", "--idempotent", "--topic", "t", "--group", "g", "--transactional-id", "x")
    assert run("--add", "--allow-principal", "User:a", *words) == 0
    found: dict[Pattern, set[Operation]] = {}
    for pattern, rule in broker.rules:
        found.setdefault(pattern, set()).add(rule.operation)
    assert found == {
        Pattern(TOPIC, "t"): {Operation.WRITE, Operation.DESCRIBE, Operation.CREATE, Operation.READ},
        Pattern(ResourceType.TRANSACTIONAL_ID, "x"): {Operation.WRITE, Operation.DESCRIBE},
        Pattern(GROUP, "g"): {Operation.READ},
        Pattern(CLUSTER, "kafka-cluster"): {Operation.IDEMPOTENT_WRITE},
    }


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (("--cluster",), Pattern(CLUSTER, "kafka-cluster")),
        (("--delegation-token", "x"), Pattern(ResourceType.DELEGATION_TOKEN, "x")),
        (("--topic", "*"), Pattern(TOPIC, "*")),
        (("--group", "g", "--resource-pattern-type", "PREFIXED"), Pattern(GROUP, "g", PREFIXED)),
    ],
)
def test_resources(connect: Connect, words: tuple[str, ...], pattern: Pattern) -> None:
    broker = connect(Broker())
    assert run("--add", "--allow-principal", "User:a", "--operation", "Describe", *words) == 0
    assert broker.rules == [Acl(pattern, allowed("User:a", Operation.DESCRIBE))]


def test_rules_are_removed_one_by_one_or_all(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = (Acl(Pattern(TOPIC, "t"), allowed("User:a", one)) for one in (Operation.READ, Operation.WRITE))
    other = Acl(Pattern(TOPIC, "t", PREFIXED), allowed("User:a", Operation.READ))
    broker = connect(Broker(read, write, other))
    remove = ("--remove", "--topic", "t")
    assert run(*remove, "--allow-principal", "User:a", "--operation", "Read", "--force") == 0
    assert broker.rules == [write, other]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nY\n"))
    assert run(*remove) == 0
    assert broker.rules == [write, other]
    assert run(*remove, "--resource-pattern-type", "any") == 0
    assert broker.rules == []
    assert run(*remove) == 1  # the question has no answer


def test_rules_are_listed(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    connect(
        Broker(
            Acl(Pattern(TOPIC, "t"), allowed("User:a", Operation.READ)),
            Acl(Pattern(TOPIC, "t"), allowed("User:b", Operation.READ)),
            Acl(Pattern(TOPIC, "u"), allowed("User:a", Operation.READ)),
        )
    )
    assert run("--list") == 0
    everything = capsys.readouterr().out
    assert everything.startswith(
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`:\n"
        "\t(principal=User:a, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:b, host=*, operation=READ, permissionType=ALLOW)\n\n"
    )
    assert "name=u" in everything
    assert run("--list", "--topic", "t", "--principal", "User:b") == 0
    of_b = capsys.readouterr().out
    assert of_b.startswith("ACLs for principal `User:b`\nCurrent ACLs")
    assert "User:a" not in of_b and "name=u" not in of_b


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        (("User:a", "describe", "topic:orders"), {}, "User:a may Describe Topic orders from host (any): MatchingAcl("),
        (("User:a", "Write", "topic:orders"), {}, "User:a may not Write Topic orders from host (any): DefaultDeny"),
        (("User:a", "Write", "group:g"), {}, "The broker does not show super.users and allow.everyone"),
        (
            ("User:a", "Write", "group:g"),
            {"super.users": "", "allow.everyone.if.no.acl.found": "true"},
            "User:a may Write Group g from host (any): DefaultAllow",
        ),
        (
            ("User:root", "Alter", "cluster"),
            {"super.users": "User:x;User:root"},
            "kafka-cluster from host (any): SuperU",
        ),
    ],
)
def test_decisions_are_explained(
    connect: Connect,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    settings: dict[str, str],
    said: str,
) -> None:
    connect(Broker(Acl(Pattern(TOPIC, "ord", PREFIXED), allowed("User:a", Operation.READ)), settings=settings))
    assert run("--explain", *words) == 0
    assert said in capsys.readouterr().out


def test_hosts_are_explained(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    connect(Broker(Acl(Pattern(TOPIC, "t"), allowed("User:a", Operation.READ, "10.0.0.1"))))
    assert run("--explain", "User:a", "Read", "topic:t") == 0
    out = capsys.readouterr().out
    assert "may not Read" in out and "--from-host HOST decides for one of them" in out
    assert run("--explain", "User:a", "Read", "topic:t", "--from-host", "10.0.0.1") == 0
    assert "may Read Topic t from host 10.0.0.1: MatchingAcl(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--topic", "t"), "Give exactly one of --add, --remove, --list or --explain."),
        (("--add", "--topic", "t"), "--add needs --allow-principal or --deny-principal."),
        (("--add", "--allow-principal", "User:a"), "Give at least one resource"),
        (("--add", "--allow-principal", "a", "--topic", "t"), "'a' is not a principal"),
        (
            ("--add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"),
            "--add needs --resource-pattern-type literal or prefixed.",
        ),
        (
            ("--add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"),
            "Group has no operation Write; it has Read, Describe, Delete,",
        ),
        (("--add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Grow"), "'Grow' is not an operation"),
        (("--list", "--allow-principal", "User:a"), "--list shows rules of all principals"),
        (("--remove", "--topic", "t", "--principal", "User:a"), "--principal needs --list."),
        (("--add", "--producer", "--group", "g"), "--producer and --consumer need a --topic."),
        (("--add", "--producer", "--topic", "t", "--operation", "Read"), "imply the operations"),
        (("--add", "--consumer", "--topic", "t"), "--consumer needs a --group"),
        (("--add", "--idempotent", "--topic", "t"), "--idempotent needs --producer."),
        (("--list", "--from-host", "h"), "--from-host needs --explain."),
        (("--explain", "User:a", "Read", "queue:q"), "'queue:q' is not a resource; give TYPE:NAME"),
    ],
)
def test_wrong_flags(connect: Connect, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    connect(Broker())
    assert run(*words) == 1
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_broker_without_an_authorizer(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    connect(Broker(error=ErrorCode.SECURITY_DISABLED))
    assert run("--list") == 1
    assert "no authorizer (SECURITY_DISABLED)" in capsys.readouterr().err
