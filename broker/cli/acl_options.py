"""From the flags of `gregor acls` to patterns and rules, as kafka-acls.sh combines them (class AclCommand)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gregor.broker.authorization.rules import java_host
from gregor.broker.cli.errors import CommandError
from gregor.protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    code_of,
    principal_problem,
    text_of,
)

RESOURCES = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactional_ids": ResourceType.TRANSACTIONAL_ID,
    "tokens": ResourceType.DELEGATION_TOKEN,
    "users": ResourceType.USER,
}
"""Resource type by the parameter of its flag."""
_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
_CLUSTER = Pattern(ResourceType.CLUSTER, CLUSTER_NAME)
_OF_RULES = ("allow_principals", "deny_principals", "allow_hosts", "deny_hosts", "producer", "consumer")


def check_flags(action: str, given: Mapping[str, Any]) -> None:
    """Raise UsageError for flags that contradict each other or would be ignored."""
    if action in ("--list", "--explain") and any(given[name] for name in _OF_RULES):
        raise click.UsageError(f"{action} shows rules of all principals, hosts and roles; leave their flags out.")
    if given["producer"] or given["consumer"]:
        if given["operations"] or given["deny_principals"] or given["deny_hosts"]:
            raise click.UsageError("--producer and --consumer imply the operations, and allow them.")
        if not given["topics"]:
            raise click.UsageError("--producer and --consumer need a --topic.")
    if given["principals"] and action != "--list":
        raise click.UsageError("--principal needs --list.")
    if given["idempotent"] and not given["producer"]:
        raise click.UsageError("--idempotent needs --producer.")
    if given["consumer"]:
        of_producer = given["cluster"] or given["transactional_ids"]
        if not given["groups"] or (of_producer and not given["producer"]):
            raise click.UsageError("--consumer needs a --group, and no --cluster or --transactional-id.")
    if given["from_host"] and action != "--explain":
        raise click.UsageError("--from-host needs --explain.")


def patterns_of(given: Mapping[str, Any]) -> list[Pattern]:
    """Return the patterns, or the filters of patterns, that the flags name."""
    pattern_type = PatternType[given["pattern_type"].upper()]
    found = [
        Pattern(resource, name.strip(), pattern_type) for flag, resource in RESOURCES.items() for name in given[flag]
    ]
    if pattern_type is PatternType.LITERAL and (given["cluster"] or given["idempotent"]):
        found.append(_CLUSTER)
    return found


def rules_of(given: Mapping[str, Any]) -> dict[Pattern, list[Rule]]:
    """Return the rules to add or to remove, by pattern; without principals there are none. Raises CommandError for
    operations that a type of resource does not have."""
    patterns = patterns_of(given)
    if not patterns:
        raise click.UsageError(
            "Give at least one resource: --topic, --group, --cluster, --transactional-id, --delegation-token or "
            "--user-principal."
        )
    found: dict[Pattern, list[Rule]] = {}
    roles = [role for role, chosen in ((_PRODUCER, given["producer"]), (_CONSUMER, given["consumer"])) if chosen]
    if not roles:
        operations = [_operation(text) for text in given["operations"]] or [Operation.ALL]
        found = {pattern: _rules(given, operations) for pattern in patterns}
    for role in roles:
        for pattern in patterns:
            if pattern.resource in role:
                found.setdefault(pattern, []).extend(_rules(given, role[pattern.resource]))
    if given["idempotent"]:
        found[_CLUSTER] = _rules(given, [Operation.IDEMPOTENT_WRITE])
    for pattern, rules in found.items():
        found[pattern] = list(dict.fromkeys(rules))
        _check_operations(pattern.resource, rules)
    return found


def _rules(given: Mapping[str, Any], operations: Sequence[Operation]) -> list[Rule]:
    rules = []
    for permission, principals, hosts in (
        (Permission.ALLOW, given["allow_principals"], given["allow_hosts"]),
        (Permission.DENY, given["deny_principals"], given["deny_hosts"]),
    ):
        for principal in principals:
            for operation in operations:
                for host in hosts or [WILDCARD]:
                    rules.append(Rule(principal_of(principal), permission, operation, java_host(host.strip())))
    return rules


def principal_of(text: str) -> str:
    """Return a principal; raise CommandError for another text."""
    principal = text.strip()
    if (problem := principal_problem(principal)) is not None:
        raise CommandError(f"{problem}.")
    return principal


def _operation(text: str) -> Operation:
    operation = code_of(Operation, text.strip())
    if operation is None or operation is Operation.ANY:
        names = ", ".join(text_of(code) for code in Operation if code is not Operation.ANY)
        raise CommandError(f"'{text}' is not an operation; operations are {names}.")
    return operation


def _check_operations(resource: ResourceType, rules: Sequence[Rule]) -> None:
    legal = (*SUPPORTED_OPERATIONS[resource], Operation.ALL)
    wrong = {rule.operation for rule in rules if rule.operation not in legal}
    if wrong:
        raise CommandError(
            f"{text_of(resource)} has no operation {', '.join(map(text_of, sorted(wrong)))}; it has "
            f"{', '.join(map(text_of, legal))}."
        )


def parse_question(texts: Sequence[str]) -> tuple[str, Operation, Pattern]:
    """Return principal, operation and resource of --explain. The resource is TYPE:NAME, or `cluster`."""
    principal, operation = principal_of(texts[0]), _operation(texts[1])
    kind, _, name = texts[2].partition(":")
    resource = code_of(ResourceType, kind.replace("-", ""))
    if resource is ResourceType.CLUSTER:
        name = name or CLUSTER_NAME
    if resource is None or resource is ResourceType.ANY or not name:
        types = ", ".join(code.name.lower().replace("_", "-") for code in SUPPORTED_OPERATIONS)
        raise CommandError(f"'{texts[2]}' is not a resource; give TYPE:NAME with a type of {types}.")
    return principal, operation, Pattern(resource, name)
